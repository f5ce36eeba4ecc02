-- Settles turns. ARGV: now, how many are simply done, for each of these its lane and token (7 bytes each); then for
-- each other turn: lane, token, rest, job whose state is set ('' = the lane's), due, retry_count, crashes, error,
-- counted, hold, n, then n times (seq, fate). Answers for each turn nil (stale) or the cancelled jobs {seq, created,
-- ...}.
NOW = clock(ARGV[1])
even_when_full()

local function read_turn(at)
  local turn = {
    lane = tonumber(ARGV[at]), token = tonumber(ARGV[at + 1]), rest = ARGV[at + 2],
    job = tonumber(ARGV[at + 3]), due = ARGV[at + 4], retry = tonumber(ARGV[at + 5]),
    crashes = tonumber(ARGV[at + 6]), error = optional(ARGV[at + 7]),
    counted = ARGV[at + 8] == '1', hold = ARGV[at + 9] == '1', fates = {},
  }
  local n = tonumber(ARGV[at + 10])
  for i = at + 11, at + 10 + 2 * n, 2 do
    -- If a job has several fates, the first one counts.
    local seq = tonumber(ARGV[i])
    turn.fates[seq] = turn.fates[seq] or ARGV[i + 1]
    turn.cancels = turn.cancels or ARGV[i + 1] == 'cancel'
  end
  return turn, at + 11 + 2 * n
end

local function due_after(was, due)
  if due == 'u' then return was end
  if due == 'n' then return NOW end
  return after(tonumber(due))
end

-- How many lanes to subtract from each claim.
local released = {}

-- Ends the claim of a lane; returns its jobs and the time of the claim.
local function end_claim(l)
  local closed, claimed_at = closed_of(l), l.claimed_at
  released[l.token] = (released[l.token] or 0) + 1
  if #closed > INLINE_CLOSED_MAX then call('HDEL', K.closed, id_of(l.n)) end
  later('HDEL', K.flags, id_of(l.n))
  l.closed, l.claimed_at = false, false
  count('running', -1)
  return closed, claimed_at
end

-- Applies the fate of one job; returns the job if it is kept. Counts done jobs in `tally`, and whether the turn has
-- failed.
local function end_job(l, turn, j, cancelled, tally)
  local fate, why = turn.fates[j.seq] or turn.rest, turn.error
  if j.flagged and fate ~= 'done' then
    fate, why = 'cancel', 'canceled'
    cancelled[#cancelled + 1] = j.seq
    cancelled[#cancelled + 1] = j.created
  end
  -- A job that ends counts as an attempt; a kept one only if its claim counts.
  if fate ~= 'keep' or turn.counted then j.attempts = j.attempts + 1 end
  if fate == 'done' then tally.done = tally.done + 1
  elseif fate == 'bury' or fate == 'drop' or (fate == 'keep' and turn.counted and not turn.cancels) then
    tally.failed = 1
  end
  if fate == 'keep' then return j end
  if fate == 'done' then finish(j, l.key, 'done')
  elseif fate == 'cancel' then finish(j, l.key, 'canceled', why)
  elseif fate == 'expire' then finish(j, l.key, 'canceled', 'expired')
  elseif fate == 'bury' then bury(j, l.key, why)
  else
    count('jobs', -1)
    forget(j)
  end
end

local function settle_lane_state(l, turn, any_kept)
  local arrived = l.next_due
  l.next_due = false
  if any_kept then
    l.retry, l.crashes, l.error = turn.retry, turn.crashes, turn.error
    l.due = due_after(l.due, turn.due)
  else
    l.retry, l.crashes, l.error = -1, 0, false
    l.due = arrived or l.due
  end
end

local function return_to_lane(l, turn, kept)
  local owner_is_kept = not turn.job
  for _, j in ipairs(kept) do owner_is_kept = owner_is_kept or j.seq == turn.job end
  if turn.hold and owner_is_kept and kept[1] then l.held = true end
  if S.mode == 'accumulate' then settle_lane_state(l, turn, kept[1] ~= nil) end
  for _, j in ipairs(kept) do
    if S.mode ~= 'accumulate' and j.seq == turn.job then
      j.retry, j.crashes, j.error = turn.retry, turn.crashes, turn.error
      j.run_at = due_after(j.run_at, turn.due)
    end
    unite(l, j)
  end
  touch(l)
end

-- Whether a done job can be deleted without reading it: the queue keeps no finished jobs, and there are no aliases.
local forgets
local function forgets_done()
  if forgets == nil then forgets = S.keep == 0 and call('HLEN', K.aliases) == 0 end
  return forgets
end

local function forget_unread(closed)
  for _, seq in ipairs(closed) do
    jobs[seq] = false
    later('HDEL', K.jobs, id_of(seq))
    later('HDEL', K.bodies, num(seq))
  end
  count('jobs', -#closed)
end

local function settle(turn)
  local l = lane_of(turn.lane)
  if not l or not l.claimed_at or l.token ~= turn.token then return false end
  local closed, claimed_at = end_claim(l)
  local kept, cancelled, tally = {}, {}, { done = 0, failed = 0 }
  if turn.rest == 'done' and not next(turn.fates) and forgets_done() then
    forget_unread(closed)
    tally.done = #closed
  else
    for _, seq in ipairs(closed) do
      local j = job_of(seq)
      j.started = j.started or claimed_at
      kept[#kept + 1] = end_job(l, turn, j, cancelled, tally)
    end
  end
  if not kept[1] and l.open > 0 then later('HDEL', K.progress, id_of(l.n)) end
  return_to_lane(l, turn, kept)
  count('processed', tally.done)
  count('failed', tally.failed)
  return cancelled
end

local NONE = {}
local answer, simple = {}, tonumber(ARGV[2])

-- Reads lanes and the jobs of their turns together.
local function read_ahead(lane_ids)
  local seqs = {}
  for i, record in ipairs(fields(K.lanes, lane_ids)) do
    local n = number_in(lane_ids[i])
    if record and not is_compact(record) and not is_listed(record) and lanes[n] == nil then
      local l = lane_of(n, record)
      if not forgets_done() then
        for _, seq in ipairs(closed_of(l)) do seqs[#seqs + 1] = seq end
      end
    end
  end
  read_jobs(seqs)
end

-- What ended with the simple turns: lanes with a compact record, and those of listed lanes; keys of removed lanes; how
-- many lanes to subtract from each claim.
local gone, listed, keys, left = {}, {}, {}, {}

-- Settles simple turns: lanes with a compact record together, listed lanes together, the others one by one.
local function settle_simple()
  local lane_ids, ended = {}, {}
  for i = 1, simple do lane_ids[i] = string.sub(ARGV[2 + i], 1, 7) end
  local busy, others = fields(K.busy, lane_ids), {}
  for i, id in ipairs(lane_ids) do
    if not busy[i] then others[#others + 1] = id end
  end
  read_ahead(others)
  for i, id in ipairs(lane_ids) do
    local token = string.sub(ARGV[2 + i], 8)
    local claim = busy[i]
    if claim and string.sub(claim, 1, 7) == token and not ended[id] then
      ended[id] = true
      left[token] = (left[token] or 0) + 1
      if string.byte(claim, 8) == 0 then listed[#listed + 1] = id
      else
        gone[#gone + 1] = id
        if S.mode ~= 'parallel' then keys[#keys + 1] = string.sub(claim, 8) end
      end
      answer[i] = NONE
    else
      answer[i] = false
      if not claim then
        answer[i] = settle({ lane = number_in(id), token = number_in(token), rest = 'done',
          due = 'u', retry = -1, crashes = 0, fates = {} })
      end
    end
  end
end

-- Stores a finished job for its queue's retention.
local function keep(j, key, made_at)
  j.started, j.attempts, j.state, j.ended, j.key, j.lane = made_at, 1, 'done', NOW, key, 0
  later('HSET', K.jobs, id_of(j.seq), job_record(j))
  later('ZADD', K.done, num(NOW + S.keep), pad(j.seq))
end

local function claimed_at(id)
  local token = number_in(call('HGET', K.busy, id))
  local node, kind, ttl, until_, made_at = cmsgpack.unpack(call('HGET', K.claims, num(token)))
  return made_at
end

local function keep_simple()
  for i, record in ipairs(fields(K.lanes, gone)) do
    keep(compact_job(number_in(gone[i]), record), key_in(record), claimed_at(gone[i]))
  end
end

-- Lanes that remain: their records and positions.
local stay, ready, wakes = {}, {}, {}
local function place_listed(id, record, due, prio)
  local at = #stay
  stay[at + 1], stay[at + 2] = id, record
  if due > NOW then
    at = #wakes
    wakes[at + 1], wakes[at + 2] = num(due), id
  else
    at = #ready
    ready[at + 1], ready[at + 2] = 0, struct.pack('>I3I2I7', 0, prio, due) .. id
  end
end

local ended = {} -- jobs of listed lanes
local function end_jobs(q, from)
  if S.keep == 0 then return end
  local made_at = claimed_at(q.id)
  local names = {}
  for i = from, #ended do names[#names + 1] = ended[i] end
  for _, record in ipairs(fields(K.jobs, names)) do keep(listed_job(record), q.key, made_at) end
end

local function end_list(q)
  local from = #ended + 1
  take_first(q, math.max(q.closed, 1), ended)
  end_jobs(q, from)
  q.closed = 0
  if q.count == 0 then gone[#gone + 1], keys[#keys + 1] = q.id, q.key end
end

-- In `fifo` a lane's position needs the due time and priority of its new head: `heads` are read together. Usually
-- there are more seqs in the front, and then only the beginning and the end of the record change.
local function end_heads(records)
  local heads, tails, places = {}, {}, {}
  for i, record in ipairs(records) do
    local jobs_count, last, front_length = struct.unpack('>I4c8I2', record, 18)
    if front_length <= 7 or S.keep > 0 then
      local q = read_list(listed[i], record)
      end_list(q)
      record, jobs_count, front_length = q.count > 0 and list_record(q), q.count, #q.front
    else
      ended[#ended + 1] = string.sub(record, -7)
      record, jobs_count, front_length = string.sub(record, 1, -8), jobs_count - 1, front_length - 7
    end
    if record then
      local at = #heads + 1
      heads[at], places[at] = string.sub(record, -7), listed[i]
      tails[at] = struct.pack('>I4c8I2', jobs_count, last, front_length) .. string.sub(record, CHANGING_END + 1)
    end
  end
  for i, head in ipairs(fields(K.jobs, heads)) do
    local due, prio = struct.unpack('>I7I2', head, 23)
    place_listed(places[i], 'Q' .. struct.pack('>I7I7I2', due, 0, prio) .. tails[i], due, prio)
  end
end

local function end_lists(records)
  for i, record in ipairs(records) do
    local q = read_list(listed[i], record)
    end_list(q)
    if q.count > 0 then
      if q.next_due > 0 then q.due, q.next_due = q.next_due, 0 end
      place_listed(q.id, list_record(q), q.due, q.prio)
    end
  end
end

local function settle_listed()
  local records = fields(K.lanes, listed)
  if S.mode == 'fifo' then end_heads(records) else end_lists(records) end
  count('jobs', -#ended)
  count('processed', #ended)
  if S.keep == 0 then many('HDEL', K.jobs, ended) end
  many('HSET', K.lanes, stay)
  many('ZADD', K.ready, ready)
  many('ZADD', K.wake, wakes)
  rings = rings or stay[1]
end

local function end_simple()
  settle_simple()
  count('jobs', -#gone)
  count('processed', #gone)
  if S.keep > 0 then keep_simple() end
  many('HDEL', K.busy, gone)
  settle_listed()
  many('HDEL', K.busy, listed)
  many('HDEL', K.lanes, gone)
  many('HDEL', K.keys, keys)
  for token, lanes_less in pairs(left) do
    count('running', -lanes_less)
    release_claim(number_in(token), lanes_less)
  end
  count('lanes', -#gone)
  write_out()
end

if S and simple > 0 then end_simple()
elseif not S then
  for i = 1, simple do answer[i] = false end
end

local at = 3 + simple
while at <= #ARGV do
  local turn
  turn, at = read_turn(at)
  answer[#answer + 1] = S and settle(turn) or false
end
if S then
  for token, lanes_less in pairs(released) do release_claim(token, lanes_less) end
  commit()
end
return answer
