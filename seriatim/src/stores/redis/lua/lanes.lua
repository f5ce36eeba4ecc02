-- Views of lanes. ARGV: their numbers. Answers for each nil or its fields: see `views.rs`; for fewer lanes than are asked for,
-- but at least one.
--
-- Reads the lanes, their heads and claims; writes nothing.
READ_ONLY = true
local function due_of(l)
  if S.mode == 'accumulate' then return l.due, math.min(l.prio, l.shut_prio) end
  local head = L.shown_job(l)
  return head and head.run_at, head and head.prio
end

local function view(l)
  local due, prio = due_of(l)
  local retry, crashes, why = L.trouble_of(l)
  local state = l.token and 'claimed' or l.paused and 'paused' or l.held and 'held' or 'waiting'
  local v = { l.n, l.key, state, due, prio, l.count + l.strays, retry, crashes, why, false, false, false, false, false,
    false, false, false, false, false, false }
  if S.window and not l.token and call('ZSCORE', K.wake, l.id) then v[16] = l.next_due end
  if l.token then
    local node, kind, _, progress, until_, ttl = L.holder_of(l)
    v[6], v[10], v[11], v[12], v[13] = v[6] + #L.apart_of(l), l.token, node, l.claimed_at, progress
    v[14], v[15] = kind == 'own' and until_, kind == 'node' and ttl
  end
  local only = v[6] == 1 and L.shown_job(l)
  if only then v[17], v[18], v[19], v[20] = only.seq, only.created, only.task, only.options end
  return v
end

-- One script shows about this much, some 4 ms: errors and reports are long.
local LANES_MAX, BYTES_MAX = 150, 1024 * 1024
local function bytes_of(l, v)
  local head = S.mode ~= 'accumulate' and L.shown_job(l)
  return #(v[9] or '') + #(v[13] or '') + #(v[20] or '') + (head and head.body and #head.body or 0)
end

local answer, bytes = {}, 0
for i = 1, math.min(#ARGV, LANES_MAX) do
  if bytes >= BYTES_MAX then break end
  local l = S and L.lane_of(tonumber(ARGV[i]))
  local v = l and view(l) or false
  answer[i] = v
  if v then bytes = bytes + bytes_of(l, v) end
end
return answer
