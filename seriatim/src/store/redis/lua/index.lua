-- What a listing chooses its page from. ARGV: lanes|live|dead|done, most rows.
-- Answers 0 when there are more; else of each lane {number, key, due, shown retry count, claimed},
-- or of each job {seq, key, state, ended at}.
READ_ONLY = true
if not S then return {} end
local most, answer = tonumber(ARGV[2]), {}

local function lane_due(l)
  if S.mode == 'accumulate' then return l.due end
  local head = l.claimed_at and job_of(closed_of(l)[1]) or head_of(l)
  if not head and l.open > 0 then head = job_of(seq_in(members(K.later, l, 1)[1])) end
  return head and head.run_at
end

if ARGV[1] == 'lanes' then
  if call('HLEN', K.lanes) > most then return 0 end
  for _, id in ipairs(call('HKEYS', K.lanes)) do
    local l = lane_of(number_in(id))
    answer[#answer + 1] = { l.n, l.key, lane_due(l), l.shown, l.claimed_at and 1 or 0 }
  end
  return answer
end
local list
if ARGV[1] == 'live' then
  if call('HLEN', K.jobs) + call('HLEN', K.lanes) > most then return 0 end
  list = call('HKEYS', K.jobs)
  local all = call('HGETALL', K.lanes)
  for i = 1, #all, 2 do
    if is_compact(all[i + 1]) then list[#list + 1] = number_in(all[i]) end
  end
else
  local key = ARGV[1] == 'dead' and K.dead or K.done
  if call('ZCARD', key) > most then return 0 end
  list = call('ZRANGE', key, 0, -1)
end
for _, seq in ipairs(list) do
  local j = job_of(tonumber(seq))
  if ARGV[1] ~= 'live' then
    answer[#answer + 1] = { j.seq, j.key, j.state, j.ended, j.created }
  elseif j.state == 'live' then
    answer[#answer + 1] = { j.seq, lane_of(j.lane).key, j.state, 0, j.created }
  end
end
return answer
