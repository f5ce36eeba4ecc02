-- Views of jobs. ARGV: the longest payload to show ('' = any), then (seq, creation millisecond; '' = any) of each. Answers
-- for each nil or {state, seq, created, ...}: see `views.rs`; for fewer jobs than are asked for, but at least one.
--
-- Reads the jobs, their lanes and claims; writes nothing.
READ_ONLY = true
local payload_max = tonumber(ARGV[1]) or math.huge

local function is_apart(l, seq)
  if not l.are_apart then
    l.are_apart = {}
    for _, apart in ipairs(L.apart_of(l)) do l.are_apart[apart] = true end
  end
  return l.are_apart[seq]
end

-- Whether a job is in its lane's list, and whether it is in the turn.
local function place_of(l, j)
  if is_apart(l, j.seq) then return false, true end
  if l.strays > 0 and (call('ZSCORE', K.open, L.open_member(l, j)) or S.mode == 'exclusive') then return false, false end
  return true, l.token and l.closed > 0 and j.seq <= l.edge
end

-- A job and its view, if it exists.
local function view(seq, millis)
  local j
  if millis == '' then j = J.job_of(seq) else j = J.resolve(seq, tonumber(millis)) end
  if not j then return false, false end
  local is_listed, is_closed = false, false
  local l = j.state == 'live' and L.lane_of(j.lane)
  if l then is_listed, is_closed = place_of(l, j) end
  if is_listed then L.age(l, j) end
  local body = j.size <= payload_max and J.body_of(j) or ''
  local v = { j.state, j.seq, j.created, j.key, j.task, body, j.score, j.prio, j.run_at,
    j.attempts, j.retry, j.crashes, j.error, j.flagged and 1 or 0, j.started, j.ended, j.options,
    false, false, false, j.size, l and l.n, false, false }
  if not l then return j, v end
  v[4] = l.key
  if S.mode == 'accumulate' then v[11], v[12], v[13] = l.retry, l.crashes, l.error end
  if not is_closed then return j, v end
  local node, kind, beat_at, progress = L.holder_of(l)
  v[1], v[10], v[15] = 'running', j.attempts + 1, j.started or l.claimed_at
  v[18], v[19], v[20], v[23], v[24] = beat_at, kind == 'node' and node, progress, l.token, node
  return j, v
end

-- One script shows about this much, some 4 ms: payloads, results and reports are long.
local JOBS_MAX, BYTES_MAX = 150, 1024 * 1024
local answer, bytes = {}, 0
for i = 2, math.min(#ARGV, 2 * JOBS_MAX), 2 do
  if bytes >= BYTES_MAX then break end
  local j, v = false, false
  if S then j, v = view(tonumber(ARGV[i]), ARGV[i + 1]) end
  answer[#answer + 1] = v
  if v then bytes = bytes + math.max(#v[6], j.body and #j.body or 0) + #(v[13] or '') + #(v[20] or '') end
end
return answer
