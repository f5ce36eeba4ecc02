-- One step of a listing: the rows from which a page is chosen. ARGV: what, where the step begins ('' is the
-- beginning), most rows, then the arguments of `what`. Answers {where the next step begins, '' after the last one;
-- rows}: for each lane {number, key, due, shown retry count, crashes, state, node}, for each job {seq, key, state, ended at,
-- created at}, and for a live one {…, score, priority, run at}.
--   lanes, live, dead, done   all of them, in no order; a row may come twice
--   names, failing            the ids of all lanes and of those with a failed job, in no order
--   held                      the claimed lanes, in no order; only these and `lane` return the node
--   holder NODE               those that this node holds
--   running [KEY]             the jobs of turns, of one key or all, in no order
--   one NUMBER                this lane, with its node
--   lane KEY, jobs KEY, deadkey KEY   the lane, the live and the dead jobs of a key
--   failed                    the lanes with a failure, in no order
--   trouble SCORE NUMBER      those after this lane, by retry count
--   later SCORE NUMBER        the lanes that wait for their time after this lane, by time
--   bykey MEMBER              dead jobs after this member, by key
--   newest SCORE              dead jobs buried then and before, with all others of the last time
--
-- Reads one step of one index and the records of its rows; writes nothing.
READ_ONLY = true
if not S then return { '', {} } end
local what, from, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local rows, next_from = {}, ''

local function lane_due(l)
  local head = S.mode ~= 'accumulate' and L.shown_job(l)
  return head and head.run_at or l.due
end

local function node_of(token) return (cmsgpack.unpack(call('HGET', K.claims, token))) end

local function tell_lane(l, node)
  local state = l.token and 'claimed' or l.paused and 'paused' or l.held and 'held' or 'waiting'
  local _, crashes = L.trouble_of(l)
  rows[#rows + 1] = { l.n, l.key, lane_due(l), l.shown, crashes, state, node or '' }
end

local function tell_live(j, key)
  if not j or j.state ~= 'live' then return end
  rows[#rows + 1] = { j.seq, key or L.lane_of(j.lane).key, 'live', 0, j.created, j.score, j.prio, j.run_at }
end

local function tell_ended(seq)
  local j = J.job_of(seq)
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
  for i = 1, #found, 2 do tell_lane(L.lane_of(number_in(found[i]), found[i + 1])) end
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
      local l = L.lane_of(number_in(string.sub(found[i + 1], at, at + 6)))
      if l and l.token and num(l.token) == found[i] then tell(l) end
    end
  end
end

local HOLDER_CLAIMS = 10 -- claims of a step; each may have many lanes

-- The lanes of a claim, with its holder.
local function tell_claim(token, node)
  local list = call('HGET', K.held, token) or ''
  for at = 1, #list, 7 do
    local l = L.lane_of(number_in(string.sub(list, at, at + 6)))
    if l and l.claimed_at and num(l.token) == token then tell_lane(l, node) end
  end
end

-- First the claims with the node's lease, then those with their own.
function steps.holder()
  local node = ARGV[4]
  if string.sub(from, 1, 1) == 'o' then
    local found
    next_from, found = scan('ZSCAN', K.leases, string.sub(from, 2))
    if next_from ~= '' then next_from = 'o' .. next_from end
    for i = 1, #found, 2 do
      if node_of(found[i]) == node then tell_claim(found[i], node) end
    end
    return
  end
  local head = string.sub(holder_member(node, 0, 0), 1, 4 + #node)
  local begin = from == '' and '[' .. head or '(' .. from
  local members = call('ZRANGEBYLEX', K.holders, begin, '(' .. head .. '~', 'LIMIT', 0, HOLDER_CLAIMS)
  for _, member in ipairs(members) do tell_claim(num(L.seq_in(member)), node) end
  next_from = members[HOLDER_CLAIMS] or 'o'
end

function steps.held() each_held(function(l) tell_lane(l, node_of(num(l.token))) end) end

function steps.running()
  local function tell(l)
    for _, j in ipairs(L.closed_jobs(l)) do tell_live(j, l.key) end
  end
  if not ARGV[4] then return each_held(tell) end
  local l = L.lane_of_key(ARGV[4])
  if l and l.token then tell(l) end
end

-- First the jobs in records of lanes: one that moves to `jobs` meanwhile is returned twice, not missed.
function steps.live()
  local found
  if string.sub(from, 1, 1) == 'j' then
    next_from, found = scan('HSCAN', K.jobs, string.sub(from, 2))
    if next_from ~= '' then next_from = 'j' .. next_from end
    for i = 1, #found, 2 do
      local j, key = plain_job(found[i + 1])
      if j then tell_live(j, key) else tell_live(J.read_job(number_in(found[i]), found[i + 1])) end
    end
    return
  end
  next_from, found = scan('HSCAN', K.lanes, from)
  if next_from == '' then next_from = 'j' end
  for i = 1, #found, 2 do
    if is_single(found[i + 1]) then tell_live(job_in(number_in(found[i]), 0, found[i + 1], 2)) end
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
  local l = L.lane_of_key(ARGV[4])
  if l then tell_lane(l, l.token and node_of(num(l.token))) end
end

function steps.one()
  local l = L.lane_of(tonumber(ARGV[4]))
  if l then tell_lane(l, l.token and node_of(num(l.token))) end
end

function steps.jobs()
  local l = L.lane_of_key(ARGV[4])
  if not l then return end
  for _, j in ipairs(L.closed_jobs(l)) do tell_live(j, l.key) end
  for _, j in ipairs(L.open_jobs(l, ALL)) do tell_live(j, l.key) end
end

function steps.deadkey()
  local beginning = ARGV[4] .. '\0'
  for _, member in ipairs(call('ZRANGEBYLEX', K.deadkeys, '[' .. beginning, '(' .. beginning .. '~')) do
    tell_ended(L.seq_in(member))
  end
end

function steps.failed()
  local found
  next_from, found = scan('ZSCAN', K.trouble, from)
  for i = 1, #found, 2 do tell_lane(L.lane_of(tonumber(found[i]))) end
end

-- The members of an index after this one.
local function behind(index, score, member)
  local at, rank = 0, false
  if score ~= '' then
    local stands = member and call('ZSCORE', index, member)
    if stands and tonumber(stands) == tonumber(score) then rank = call('ZRANK', index, member) end
    -- The lane at that place may be gone: return all with the same score; the caller skips those before it.
    if rank then at = rank + 1
    else
      at = call('ZCOUNT', index, '-inf', '(' .. score)
      most = most + call('ZCOUNT', index, score, score)
    end
  end
  return call('ZRANGE', index, at, at + most - 1)
end

function steps.trouble()
  local number = tonumber(ARGV[5])
  local members = behind(K.trouble, ARGV[4], number and pad(number))
  for _, id in ipairs(members) do tell_lane(L.lane_of(tonumber(id))) end
end

function steps.later()
  local number = tonumber(ARGV[5])
  local members = behind(K.wake, ARGV[4], number and struct.pack('>I7', number))
  for _, id in ipairs(members) do
    local l = L.lane_of(number_in(id))
    if l then tell_lane(l) end
  end
end

function steps.bykey()
  local begin = ARGV[4] == '' and '-' or '(' .. ARGV[4]
  for _, member in ipairs(call('ZRANGEBYLEX', K.deadkeys, begin, '+', 'LIMIT', 0, most)) do
    tell_ended(L.seq_in(member))
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
