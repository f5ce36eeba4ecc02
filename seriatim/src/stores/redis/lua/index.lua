-- One step of a listing: the rows from which a page is chosen. ARGV: what, where the step begins ('' is the
-- beginning), most rows, then the arguments of `what`. Answers {where the next step begins, '' after the last one;
-- rows}: for each lane {number, key, due, shown retry count, state, node}, for each job {seq, key, state, ended at,
-- created at}.
--   lanes, live, dead, done   all of them, in no order; a row may come twice
--   names, failing            the ids of all lanes and of those with a failed job, in no order
--   held                      the claimed lanes, in no order; only these and `lane` return the node
--   running [KEY]             the jobs of turns, of one key or all, in no order
--   lane KEY, jobs KEY, deadkey KEY   the lane, the live and the dead jobs of a key
--   trouble SCORE MEMBER      lanes with a failure after this member, by retry count
--   bykey MEMBER              dead jobs after this member, by key
--   newest SCORE              dead jobs buried then and before, with all others of the last time
READ_ONLY = true
if not S then return { '', {} } end
local what, from, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local rows, next_from = {}, ''

local function lane_due(l)
  if S.mode == 'accumulate' then return l.due end
  local head = l.claimed_at and job_of(closed_of(l)[1]) or head_of(l)
  if not head and l.open > 0 then head = job_of(seq_in(members(K.later, l, 1)[1])) end
  return head and head.run_at
end

local function node_of(token) return (cmsgpack.unpack(call('HGET', K.claims, token))) end

local function tell_lane(l, node)
  local state = l.claimed_at and 'claimed' or l.paused and 'paused' or l.held and 'held' or 'waiting'
  rows[#rows + 1] = { l.n, l.key, lane_due(l), l.shown, state, node or '' }
end

local function tell_live(j, key)
  if j and j.state == 'live' then rows[#rows + 1] = { j.seq, key or lane_of(j.lane).key, 'live', 0, j.created } end
end

local function tell_ended(seq)
  local j = job_of(seq)
  rows[#rows + 1] = { j.seq, j.key, j.state, j.ended, j.created }
end

local function scan(command, key, cursor)
  local answer = call(command, key, cursor == '' and '0' or cursor, 'COUNT', most)
  return answer[1] == '0' and '' or answer[1], answer[2]
end

local steps = {}

function steps.lanes()
  local found
  next_from, found = scan('HSCAN', K.lanes, from)
  for i = 1, #found, 2 do tell_lane(lane_of(number_in(found[i]), found[i + 1])) end
end

function steps.names()
  local found
  next_from, found = scan('HSCAN', K.lanes, from)
  for i = 1, #found, 2 do rows[#rows + 1] = found[i] end
end

function steps.failing() next_from, rows = scan('SSCAN', K.failing, from) end

local function each_held(tell)
  local found
  next_from, found = scan('HSCAN', K.held, from)
  for i = 1, #found, 2 do
    for at = 1, #found[i + 1], 7 do
      local l = lane_of(number_in(string.sub(found[i + 1], at, at + 6)))
      if l and l.claimed_at and num(l.token) == found[i] then tell(l) end
    end
  end
end

function steps.held() each_held(function(l) tell_lane(l, node_of(num(l.token))) end) end

function steps.running()
  local function tell(l)
    for _, seq in ipairs(closed_of(l)) do tell_live(job_of(seq), l.key) end
  end
  if not ARGV[4] then return each_held(tell) end
  local l = lane_of_key(ARGV[4])
  if l and l.claimed_at then tell(l) end
end

-- First the jobs in compact records: one that is unfolded meanwhile is returned twice, not missed.
function steps.live()
  local found
  if string.sub(from, 1, 1) == 'j' then
    next_from, found = scan('HSCAN', K.jobs, string.sub(from, 2))
    if next_from ~= '' then next_from = 'j' .. next_from end
    for i = 1, #found, 2 do
      local record = found[i + 1]
      if is_job_listed(record) then tell_live(listed_job(record), (texts_in(record, 16)))
      else tell_live(read_job(number_in(found[i]), record)) end
    end
    return
  end
  next_from, found = scan('HSCAN', K.lanes, from)
  if next_from == '' then next_from = 'j' end
  for i = 1, #found, 2 do
    if is_compact(found[i + 1]) then
      tell_live(compact_job(number_in(found[i]), found[i + 1]), key_in(found[i + 1]))
    end
  end
end

local function ended(index)
  local found
  next_from, found = scan('ZSCAN', index, from)
  for i = 1, #found, 2 do tell_ended(tonumber(found[i])) end
end
function steps.dead() ended(K.dead) end
function steps.done() ended(K.done) end

function steps.lane()
  local l = lane_of_key(ARGV[4])
  if l then tell_lane(l, l.claimed_at and node_of(num(l.token))) end
end

function steps.jobs()
  local l = lane_of_key(ARGV[4])
  if not l then return end
  for _, seq in ipairs(closed_of(l)) do tell_live(job_of(seq), l.key) end
  if l.single then return tell_live(l.single, l.key) end
  for _, j in ipairs(open_jobs(l)) do tell_live(j, l.key) end
end

function steps.deadkey()
  local beginning = ARGV[4] .. '\0'
  for _, member in ipairs(call('ZRANGEBYLEX', K.deadkeys, '[' .. beginning, '(' .. beginning .. '~')) do
    tell_ended(seq_in(member))
  end
end

function steps.trouble()
  local score, member, at, rank = ARGV[4], ARGV[5], 0, false
  if score ~= '' then
    local stands = member ~= '' and call('ZSCORE', K.trouble, member)
    if stands and tonumber(stands) == tonumber(score) then rank = call('ZRANK', K.trouble, member) end
    -- The lane at that place may be gone: return all with the same count; the caller skips those before it.
    if rank then at = rank + 1
    else
      at = call('ZCOUNT', K.trouble, '-inf', '(' .. score)
      most = most + call('ZCOUNT', K.trouble, score, score)
    end
  end
  for _, id in ipairs(call('ZRANGE', K.trouble, at, at + most - 1)) do tell_lane(lane_of(tonumber(id))) end
end

function steps.bykey()
  local begin = ARGV[4] == '' and '-' or '(' .. ARGV[4]
  for _, member in ipairs(call('ZRANGEBYLEX', K.deadkeys, begin, '+', 'LIMIT', 0, most)) do
    tell_ended(seq_in(member))
  end
end

function steps.newest()
  local score = ARGV[4]
  local list = call('ZREVRANGEBYSCORE', K.dead, score == '' and '+inf' or '(' .. score, '-inf',
    'WITHSCORES', 'LIMIT', 0, most)
  -- Jobs with the same time are in reverse order, so all of them are needed.
  local last = list[#list]
  for i = 1, #list, 2 do
    if list[i + 1] ~= last then tell_ended(tonumber(list[i])) end
  end
  for _, time in ipairs({ last or score, score }) do
    if time ~= '' and not (time == score and last == score) then
      for _, seq in ipairs(call('ZRANGEBYSCORE', K.dead, time, time)) do tell_ended(tonumber(seq)) end
    end
  end
end

steps[what]()
return { next_from, rows }
