-- Views of jobs. ARGV: (seq, creation millisecond; '' = any) of each. Answers for each nil or {state, seq, created,
-- ...}: see `views.rs`; for fewer jobs if payloads are large.
READ_ONLY = true
local function view(seq, millis)
  local j
  if millis == '' then j = job_of(seq) else j = resolve(seq, tonumber(millis)) end
  if not j then return false end
  local v = { j.state, j.seq, j.created, j.key, j.task, body_of(j), j.score, j.prio, j.run_at,
    j.attempts, j.retry, j.crashes, j.error, j.flagged and 1 or 0, j.started, j.ended, j.options,
    false, false, false }
  if j.state ~= 'live' then return v end
  local l = lane_of(j.lane)
  v[4] = l.key
  if S.mode == 'accumulate' then v[11], v[12], v[13] = l.retry, l.crashes, l.error end
  if not l.claimed_at then return v end
  for _, closed in ipairs(closed_of(l)) do
    if closed == j.seq then
      local node, kind = cmsgpack.unpack(call('HGET', K.claims, num(l.token)))
      v[1], v[10], v[15] = 'running', j.attempts + 1, j.started or l.claimed_at
      v[18], v[19] = l.beat_at, kind == 'node' and node
      v[20] = call('HGET', K.progress, id_of(l.n))
    end
  end
  return v
end

-- A thousand large payloads are too much for one answer: it ends with the one that reaches the limit.
local BYTES_MAX = 4 * 1024 * 1024
local answer, bytes = {}, 0
for i = 1, #ARGV, 2 do
  if bytes >= BYTES_MAX then break end
  local v = S and view(tonumber(ARGV[i]), ARGV[i + 1]) or false
  answer[#answer + 1] = v
  if v and v[6] then bytes = bytes + #v[6] end
end
return answer
