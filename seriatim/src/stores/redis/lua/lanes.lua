-- Views of lanes. ARGV: their numbers. Answers for each nil or its fields: see `views.rs`.
READ_ONLY = true
local function due_of(l)
  if S.mode == 'accumulate' then return l.due end
  local head = l.claimed_at and job_of(closed_of(l)[1]) or head_of(l)
  if not head and l.open > 0 then head = job_of(seq_in(members(K.later, l, 1)[1])) end
  return head and head.run_at, head and head.prio
end

local function soonest(l)
  if l.single then return l.single.prio end
  local best = l.listed and l.open > 0 and l.listed.prio
  local first = not l.listed and members(K.prios, l, 1)[1]
  if first then best = tonumber(string.sub(first, 17, 21)) end
  for _, seq in ipairs(l.claimed_at and closed_of(l) or {}) do
    local prio = job_of(seq).prio
    if not best or prio < best then best = prio end
  end
  return best
end

local function view(l)
  local due, prio = due_of(l)
  if S.mode == 'accumulate' then prio = soonest(l) end
  local retry, crashes, why = trouble_of(l)
  local state = l.claimed_at and 'claimed' or l.paused and 'paused' or l.held and 'held' or 'waiting'
  local v = { l.n, l.key, state, due, prio, l.open, retry, crashes, why, false, false, false, false }
  if l.claimed_at then
    v[6] = l.open + #closed_of(l)
    v[10], v[11] = l.token, (cmsgpack.unpack(call('HGET', K.claims, num(l.token))))
    v[12], v[13] = l.claimed_at, call('HGET', K.progress, id_of(l.n))
  end
  return v
end

local answer = {}
for i = 1, #ARGV do
  local l = S and lane_of(tonumber(ARGV[i]))
  answer[i] = l and view(l) or false
end
return answer
