-- Settles turns. ARGV: now; whether all who read the store know jobs of kind 'F' (compact.lua); how many are simply done; how many
-- arguments follow about lanes that go on, and these: node,
-- kind of lease, ttl, most jobs and bytes of a turn, the longest lease of a job's own, most jobs handed over one after the
-- other (as in claim.lua), lanes_max, the queue's version, ticket, whether KEYS[2] has the living nodes, then routes. Then what is
-- simply done, those of one claim together if they follow one another: token (7 bytes; then '+' if these lanes may go on), number of
-- lanes, and these (7 bytes each), no lane of a claim twice; then for each other turn: lane, token, rest, job whose state is set
-- ('' = the lane's), due, retry_count, crashes, error, counted, hold, whether the other kept jobs were not started, result, n,
-- then n times (seq, fate). Answers
-- {for each turn nil (stale), 0 (not settled: the caller sends it again) or the cancelled jobs {seq, created, ...}; now; turns
-- that go on (see turns.lua); whether a lane got ready; whether no more lanes should go on}.
--
-- Reads busy, and of a list its record in lanes and its next head in jobs; removes busy, bodies and jobs, or the record of a
-- lane of one job; writes lanes and ready, or for a lane that goes on, lanes and busy.
NOW = clock(ARGV[1])
even_when_full()

local function read_turn(at)
  local turn = {
    lane = tonumber(ARGV[at]), token = tonumber(ARGV[at + 1]), rest = ARGV[at + 2],
    job = tonumber(ARGV[at + 3]), due = ARGV[at + 4], retry = tonumber(ARGV[at + 5]),
    crashes = tonumber(ARGV[at + 6]), error = optional(ARGV[at + 7]),
    counted = ARGV[at + 8] == '1', hold = ARGV[at + 9] == '1', alone = ARGV[at + 10] == '1', result = optional(ARGV[at + 11]),
    fates = {},
  }
  local n = tonumber(ARGV[at + 12])
  for i = at + 13, at + 12 + 2 * n, 2 do
    -- If a job has several fates, the first one counts.
    local seq = tonumber(ARGV[i])
    turn.fates[seq] = turn.fates[seq] or ARGV[i + 1]
    turn.cancels = turn.cancels or ARGV[i + 1] == 'cancel'
  end
  return turn, at + 13 + 2 * n
end

-- Going on ----------------------------------------------------------------------------------------

-- The best priority of the lanes that are ready before anything is settled; false if no lane may go on.
local best = false
local lanes_left = 0
local function may_go_on_at_all(at, to)
  -- In a queue that is shared out, each lane waits for the turn of its group.
  if to < at or S.paused or S.shared or num(S.version) ~= ARGV[at + 8] or refusal(ARGV[at], ARGV[at + 9]) then return false end
  return ARGV[at + 10] == '0' or call('ZSCORE', KEYS[2], ARGV[at])
end

local function look_for_best(at, to)
  if not may_go_on_at_all(at, to) then return end
  T.begin(at)
  T.read_classes(at + 11, to)
  lanes_left, best = tonumber(ARGV[at + 7]), first_arrival(P, true) and ARRIVAL_PRIO or NO_PRIO
  for _, class in ipairs(T.classes) do
    local member = class % 2 == 0 and T.look(class, 1)[1]
    if member then best = math.min(best, (struct.unpack('>I2', member, 4))) end
  end
end

local function may_go_on(due, prio)
  if not best or T.taken >= lanes_left or T.is_spent() then return false end
  return due <= NOW and prio <= best
end

-- Other turns -------------------------------------------------------------------------------------

-- How many lanes to subtract from each claim.
local released = {}

-- A turn of `accumulate` has ended, with all its jobs: the lane is due when the arrivals are.
local function end_wait(l)
  if S.window then return S.window.after_turn(l) end
  l.due, l.next_due = l.next_due or l.due, false
end

local function due_after(was, due)
  if due == 'u' then return was end
  if due == 'n' then return NOW end
  return after(tonumber(due))
end

-- Removes the first jobs of a list, which are done, without reading them.
local function forget_first(l, done, tally)
  local names = {}
  take_first(l, done, names)
  for _, name in ipairs(names) do job_records[name] = false end
  T.drop_bodies(names)
  count('jobs', -#names)
  tally.done = #names
end

-- A turn whose first job failed, or the first one after those of a series that are done, by the records alone.
local fail_simply, read_heads
do
local KEEPS_FAILED = ARGV[2] == '1' and S and S.mode ~= 'exclusive' and not S.shared and not S.window

-- How many jobs of a series are done, if its first ones are, and what follows the one that the settlement is about was not
-- started: such jobs stay as they are, where they are. Else nil.
local function done_of_series(l, turn)
  if S.mode ~= 'fifo' or S.keep > 0 or turn.rest ~= 'keep' or not (turn.alone or turn.job and l.closed == 1) then return end
  local names, done, left = ids_in(l, l.closed), 0, 0
  while names[done + 1] and turn.fates[number_in(names[done + 1])] == 'done' do done = done + 1 end
  for _ in pairs(turn.fates) do left = left + 1 end
  local owner = names[done + 1] and number_in(names[done + 1])
  if left == done and owner and (not turn.job or turn.job == owner) then return done end
end

-- The lane of one job as a list, and the job's record.
local function listed(id, record, turn)
  if next(turn.fates) then return end
  local l = list_of(id, record)
  l.done = 0
  return l, id, 'J' .. id .. id .. string.sub(record, 2)
end

local heads = {}

-- Reads the first jobs of these lists together.
function read_heads(turns, records)
  local names = {}
  for i, record in ipairs(records) do
    if record and not is_single(record) and is_bare(record) and not next(turns[i].fates) then
      names[#names + 1] = string.sub(record, -7)
    end
  end
  for i, job in ipairs(fields(K.jobs, names)) do heads[names[i]] = job end
end

-- A list, the name of the job that failed, and its record.
local function read(id, record, turn)
  if not is_bare(record) then return end
  local l = { id = id }
  read_list(l, record)
  l.closed, l.done = math.max(l.closed, 1), 0
  if S.mode == 'fifo' and next(turn.fates) then l.done = done_of_series(l, turn)
  elseif next(turn.fates) or l.closed > 1 and not (S.mode == 'fifo' and turn.alone) then return end
  if S.mode == 'accumulate' then
    if l.count > 1 then return end
    l.bytes = l.shut_bytes
  end
  local name = l.done and ids_in(l, l.done + 1)[l.done + 1]
  local job = name and (heads[name] or call('HGET', K.jobs, name))
  local letter = job and string.byte(job)
  if letter == 74 or letter == 70 then return l, name, job end
end

-- The record of the job after this turn, when it runs again, and its priority.
local function failed(job, turn, claimed_at)
  local attempts, started, to = 0, claimed_at, #job
  if string.byte(job) == 70 then
    local _
    _, attempts, started, _, to = trouble_in(job)
    to = to - 1
  end
  local run_at, prio = struct.unpack('>I7I2', job, 23)
  if S.mode ~= 'accumulate' then run_at = due_after(run_at, turn.due) end
  local why = turn.error
  return 'F' .. string.sub(job, 2, 22) .. id_of(run_at) .. string.sub(job, 30, to) .. (why or '')
    .. struct.pack(TROUBLE, turn.retry, attempts + 1, started, why and #why + 1 or 0), run_at, prio
end

-- Puts the lane back, whose first job this is.
local function keep(l, n, name, job, turn, claimed_at)
  local due = l.due
  job_records[name], l.due, l.prio = failed(job, turn, claimed_at)
  if S.mode == 'accumulate' then l.due = due_after(due, turn.due) end
  l.next_due, l.closed, l.edge, l.shut_bytes, l.shut_prio, l.flags = false, 0, 0, 0, NO_PRIO, FAILED
  later('HSET', K.lanes, l.id, list_record('Q', l, ''))
  if l.due > NOW then later('ZADD', K.wake, num(l.due), l.id)
  else later('ZADD', K.ready, 0, ready_member(0, l.prio, l.due, n)) end
  bell.rings = bell.rings or true
  if S.merges then
    local digest = digest_in(job, 40)
    if digest ~= '' then later('HSET', K.equal, l.id .. digest, name) end
  end
  later('ZADD', K.trouble, -turn.retry, pad(n))
  later('SADD', K.failing, l.id)
end

-- Buries the only job of the lane.
local function bury(l, n, name, job, turn, claimed_at)
  local j = plain_job(job)
  j.seq, j.started, j.attempts = number_in(name), j.started or claimed_at, j.attempts + 1
  if turn.job == j.seq and S.mode ~= 'accumulate' then j.retry, j.crashes = turn.retry, turn.crashes end
  J.bury(j, l.key, turn.error)
  take_first(l, 1, {}) -- and runs whose jobs were all removed
  if l.flags >= FAILED then later('ZREM', K.trouble, pad(n)) end
  if l.flags >= FAILED and S.mode == 'accumulate' then later('SREM', K.failing, l.id) end
  if l.key ~= '' then later('HDEL', K.keys, l.key) end
  later('HDEL', K.lanes, l.id)
  later('HDEL', K.progress, l.id)
  count('lanes', -1)
end

local function may_keep(turn)
  return turn.rest == 'keep' and turn.counted and turn.retry >= 0 and turn.crashes == 0 and not turn.hold
    and (turn.job ~= nil) == (S.mode ~= 'accumulate')
end

-- `record` and `claim` are the values of the lane. Answers whether it was done.
function fail_simply(turn, id, record, claim)
  local buries = turn.rest == 'bury'
  if not KEEPS_FAILED or not record or not buries and not may_keep(turn) then return false end
  local l, name, job = (is_single(record) and listed or read)(id, record, turn)
  if not l or buries and l.count > 1 or not buries and turn.job and turn.job ~= number_in(name) then return false end
  local tally, n = { done = 0 }, number_in(id)
  if l.done > 0 then forget_first(l, l.done, tally) end
  local end_it = buries and bury or keep
  end_it(l, n, name, job, turn, claimed_at(claim))
  later('HDEL', K.busy, id)
  released[turn.token] = (released[turn.token] or 0) + 1
  count('running', -1)
  count('processed', tally.done)
  count('failed', 1)
  return true
end
end

-- Defined only if there are such turns: a script begins by making all its functions, which takes longer than a turn.
local settle
local function define_settle()
local function end_claim(l)
  released[l.token] = (released[l.token] or 0) + 1
  if l.apart then call('HDEL', K.closed, l.id) end
  if l.flagged then call('HDEL', K.flags, l.id) end
  later('HDEL', K.busy, l.id)
  if l.group then G.count(l.group, -1) end
  l.token, l.flagged, l.apart, l.group = false, false, false, false
  count('running', -1)
end

local function owns(turn, j) return S.mode ~= 'accumulate' and j.seq == turn.job end

-- Applies the fate of one job; returns whether it is kept. Counts done jobs in `tally`, and whether the turn has
-- failed.
local function end_job(l, turn, j, cancelled, tally, claimed_at)
  local fate, why = turn.fates[j.seq] or turn.rest, turn.error
  if j.flagged and fate ~= 'done' then
    fate, why = 'cancel', 'canceled'
    cancelled[#cancelled + 1], cancelled[#cancelled + 2] = j.seq, j.created
  end
  -- A job that ends counts as an attempt; a kept one only if its claim counts.
  j.untouched = fate == 'keep' and turn.alone and j.seq ~= turn.job
  if not j.untouched then
    j.started = j.started or claimed_at
    if fate ~= 'keep' or turn.counted then j.attempts = j.attempts + 1 end
  end
  if owns(turn, j) then j.retry, j.crashes = turn.retry, turn.crashes end
  if fate == 'done' then tally.done = tally.done + 1
  elseif fate == 'bury' or fate == 'drop' or (fate == 'keep' and turn.counted and not j.untouched and not turn.cancels) then
    tally.failed = 1
  end
  if fate == 'keep' then return true end
  if fate == 'done' then J.finish(j, l.key, 'done', turn.result)
  elseif fate == 'cancel' then J.finish(j, l.key, 'canceled', why)
  elseif fate == 'expire' then J.finish(j, l.key, 'canceled', 'expired')
  elseif fate == 'bury' then J.bury(j, l.key, why)
  else
    count('jobs', -1)
    J.forget(j)
  end
  return false
end

local function settle_lane_state(l, turn, any_kept)
  if S.mode ~= 'accumulate' then return end
  if any_kept then
    l.retry, l.crashes, l.error = turn.retry, turn.crashes, turn.error
    l.due, l.next_due = due_after(l.due, turn.due), false
  else
    l.retry, l.crashes, l.error = -1, 0, false
    end_wait(l)
  end
end

-- Notes that the first jobs of the list had a turn, without writing each of them.
local FALLS_MAX = 32
local function fall(l, edge, claimed_at, counted)
  local falls = l.falls or {}
  local last = falls[#falls]
  counted = counted and 1 or 0
  if last and last[1] == edge then last[3] = last[3] + counted
  else falls[#falls + 1] = { edge, claimed_at, counted } end
  l.falls = falls
  if #falls <= FALLS_MAX then return end
  -- Write them out once in a while.
  for _, j in ipairs(L.listed(l, ids_in(l, l.count))) do
    L.change(l, j)
  end
  l.falls = false
end

-- Kept jobs wait again. If others may have arrived meanwhile, those that equal one of these merge with it.
local function return_digests(l, names, may_merge)
  if not S.merges then return end
  local pairs_of, wanted, free = {}, {}, {}
  write_out()
  for i, record in ipairs(fields(K.jobs, names)) do
    local digest = string.byte(record, 1) == 74 and digest_in(record, 40) or J.read_job(number_in(names[i]), record).digest
    if digest ~= '' then
      local at = #pairs_of
      pairs_of[at + 1], pairs_of[at + 2] = l.id .. digest, names[i]
    end
  end
  if not may_merge then return many('HSET', K.equal, pairs_of) end
  for i = 1, #pairs_of, 2 do wanted[#wanted + 1] = pairs_of[i] end
  for i, other in ipairs(fields(K.equal, wanted)) do
    if not other then free[#free + 1], free[#free + 2] = wanted[i], pairs_of[2 * i]
    else
      local j = J.job_of(number_in(pairs_of[2 * i]))
      L.take(l, j)
      L.unite(l, j, other)
    end
  end
  many('HSET', K.equal, free)
end

-- The jobs of a turn of `accumulate` that failed as a whole: they are still where they were.
local function keep_whole(l, turn, claimed_at)
  local closed, open, shut = l.closed, open_count(l), l.shut or { [l.shut_prio] = l.closed }
  local any_arrived = open > 0
  if shut == true then l.prio, l.prios = math.min(l.prio, l.shut_prio), true
  else
    for prio, number in pairs(shut) do
      L.count_prio(l, prio, number, open)
      open = open + number
    end
  end
  local edge = l.edge
  l.bytes, l.shut_bytes, l.shut, l.shut_prio, l.closed, l.edge = l.bytes + l.shut_bytes, 0, false, NO_PRIO, 0, 0
  if not turn.alone then fall(l, edge, claimed_at, turn.counted) end
  if S.merges then return_digests(l, ids_in(l, closed), any_arrived) end
end

-- Any other turn: each job has its own fate.
local function end_jobs(l, turn, closed, claimed_at, tally, cancelled)
  local stays, kept, names, back = {}, {}, {}, {}
  for _, j in ipairs(closed) do
    local was_plain = j.plain
    if end_job(l, turn, j, cancelled, tally, claimed_at) then kept[#kept + 1], stays[id_of(j.seq)] = j, j
    elseif not was_plain then l.odd = l.odd - 1 end
  end
  take_first(l, l.closed, names)
  for _, name in ipairs(names) do
    if stays[name] then back[#back + 1], stays[name].is_back = name, true end
  end
  L.give_back(l, back)
  l.closed, l.edge, l.shut, l.shut_prio, l.shut_bytes = #back, 0, false, NO_PRIO, 0
  L.clear_list(l)
  return kept, back
end

local function return_jobs(l, turn, kept, back, claimed_at)
  for _, j in ipairs(kept) do
    if owns(turn, j) then
      j.error, j.run_at = turn.error, due_after(j.run_at, turn.due)
    end
    if not j.is_back then
      if not j.plain then l.odd = l.odd - 1 end
      L.unite(l, j)
    elseif S.mode == 'accumulate' then
      L.let_expire(j, call)
      L.count_prio(l, j.prio, 1, open_count(l))
      l.bytes, l.closed, j.aged = l.bytes + j.size, l.closed - 1, true
    else
      if not j.untouched then L.change(l, j) end
      L.index_job(l, j, call)
    end
  end
  l.closed = 0
  if S.mode == 'accumulate' and back[1] then
    if not turn.alone then fall(l, number_in(back[#back]), claimed_at, turn.counted) end
    return_digests(l, back, true)
  end
  L.clear_list(l)
end

function settle(turn)
  local l = L.lane_of(turn.lane)
  if not l or not l.token or l.token ~= turn.token then return false end
  local claimed_at, cancelled, tally, kept = l.claimed_at, {}, { done = 0, failed = 0 }, {}
  local is_whole = not next(turn.fates) and not l.flagged and not l.apart and l.odd == 0
  if is_whole and turn.rest == 'keep' and S.mode == 'accumulate' then
    end_claim(l)
    if turn.counted then tally.failed = 1 end
    kept = { { seq = turn.job } }
    keep_whole(l, turn, claimed_at)
  elseif is_whole and turn.rest == 'done' and S.keep == 0 then
    -- The queue keeps no finished jobs, and nothing else is stored of these.
    end_claim(l)
    forget_first(l, l.closed, tally)
    l.closed, l.edge, l.shut, l.shut_prio, l.shut_bytes = 0, 0, false, NO_PRIO, 0
    L.clear_list(l)
  else
    local closed, back = L.closed_jobs(l), nil
    end_claim(l)
    kept, back = end_jobs(l, turn, closed, claimed_at, tally, cancelled)
    return_jobs(l, turn, kept, back, claimed_at)
  end
  if not kept[1] then later('HDEL', K.progress, l.id) end
  local owner_is_kept = not turn.job
  for _, j in ipairs(kept) do owner_is_kept = owner_is_kept or j.seq == turn.job end
  if turn.hold and owner_is_kept and kept[1] then l.held = true end
  settle_lane_state(l, turn, kept[1] ~= nil)
  touch(l)
  count('processed', tally.done)
  count('failed', tally.failed)
  return cancelled
end
end

-- Simple turns ------------------------------------------------------------------------------------

local NONE = {}
local answer = {}
local simple = tonumber(ARGV[3])
local groups, ended_ids, at = {}, {}, 5 + tonumber(ARGV[4]) -- where each begins in ARGV; the lanes of all
do
  local listed = 0
  while listed < simple do
    local count = tonumber(ARGV[at + 1])
    for i = 1, count do ended_ids[listed + i] = ARGV[at + 1 + i] end
    groups[#groups + 1], listed, at = at, listed + count, at + 2 + count
  end
end
local turns, turn_ids = {}, {}
while at <= #ARGV do
  turns[#turns + 1], at = read_turn(at)
  turn_ids[#turns] = id_of(turns[#turns].lane)
end

-- Lanes as tables that one script settles: each takes 20 to 50 µs.
local tables_left = 80
local POSTPONED = 0

-- Whether this script settles the turn of a lane with this record too, by the jobs that are closed: it always has its first one.
local has_room
do
  local JOBS_MAX = 10000 -- TURN_JOBS_MAX of model/limits.rs
  local jobs_left = JOBS_MAX
  function has_room(record)
    local closed = record and not is_single(record) and struct.unpack('>I4', record, CHANGING_END + 6) or 0
    closed = math.max(closed, 1) -- as in `owns_head`
    if closed > jobs_left and jobs_left < JOBS_MAX then return false end
    jobs_left = jobs_left - closed
    return true
  end
end

local others = {} -- turns that are simply done, of lanes that are not simple
local postponed_from = math.huge -- the place of the first one that may go on; none behind it may before

local function end_simple()
local busy_of, goes_on = {}, {} -- by id

-- What ended: lanes of one job; lists without special state, their records and the places of their turns; keys of removed
-- lanes; how many lanes to subtract from each claim; jobs of lists.
local gone, lists, records, list_places, keys, left, ended = {}, {}, {}, {}, {}, {}, {}

-- Whether the turn of such a list of `fifo` is its head, rather than some jobs.
local function owns_head(record)
  return string.sub(record, CHANGING_END + 6, CHANGING_END + 9) == '\0\0\0\0'
end

-- Whether the turn of a list without special state ends, and the next one begins, by the record alone.
local function is_simple_list(record, goes_on)
  if S.mode == 'accumulate' then
    if not goes_on then return true end
    local jobs_count, bytes, flags = struct.unpack('>I4xxxxxxxxI5I1', record, 18)
    return flags % FAILED < MIXED and bytes <= T.bytes_max and jobs_count <= T.jobs_max
  end
  return S.take == 1 or owns_head(record) and not goes_on
end

-- The record of a list whose first job had failed, and is done.
local function mend(id, record)
  later('ZREM', K.trouble, pad(number_in(id)))
  if S.mode == 'accumulate' then later('SREM', K.failing, id) end
  return string.sub(record, 1, CHANGING_END - 3) .. string.char(string.byte(record, CHANGING_END - 2) - FAILED)
    .. string.sub(record, CHANGING_END - 1)
end

-- Finds out which of the simple turns are stale, and of which kind the others are.
local function sort_simple()
  local maybe, places, tokens, i, ended_lanes, ended_keys = {}, {}, {}, 0, 0, 0
  local byte, sub = string.byte, string.sub
  local claims = fields(K.busy, ended_ids)
  for _, group in ipairs(groups) do
    local token, may_go_on, before = sub(ARGV[group], 1, 7), best and #ARGV[group] > 7, ended_lanes
    for _ = 1, tonumber(ARGV[group + 1]) do
      i = i + 1
      local id, claim = ended_ids[i], claims[i]
      answer[i] = false
      if claim == token then
        ended_lanes, answer[i] = ended_lanes + 1, NONE
        gone[ended_lanes] = id
        if S.keep > 0 then busy_of[id] = claim end
      elseif claim and sub(claim, 1, 7) == token then
        if byte(claim, 8) == 0 then
          if may_go_on then goes_on[id] = true end
          busy_of[id] = claim
          maybe[#maybe + 1], places[#places + 1], tokens[#tokens + 1] = id, i, token
        else
          ended_lanes, ended_keys, answer[i] = ended_lanes + 1, ended_keys + 1, NONE
          gone[ended_lanes], keys[ended_keys] = id, sub(claim, 8)
          if S.keep > 0 then busy_of[id] = claim end
        end
      end
    end
    if ended_lanes > before then left[token] = (left[token] or 0) + ended_lanes - before end
  end
  for at, record in ipairs(fields(K.lanes, maybe)) do
    local id, i = maybe[at], places[at]
    local is_listed = is_bare(record) and is_simple_list(record, goes_on[id])
    if not is_listed and tables_left <= 0 or not has_room(record) then
      answer[i] = POSTPONED
      if goes_on[id] then postponed_from = math.min(postponed_from, i) end
    elseif is_listed then
      if has_failed(record) then record = mend(id, record) end
      lists[#lists + 1], records[#records + 1], list_places[#list_places + 1] = id, record, i
      left[tokens[at]], answer[i] = (left[tokens[at]] or 0) + 1, NONE
    else
      tables_left = tables_left - 1
      others[#others + 1] = { place = i, lane = number_in(id), token = number_in(busy_of[id]), rest = 'done', due = 'u',
        retry = -1, crashes = 0, fates = {}, goes_on = goes_on[id] }
    end
  end
end

local function settle_others()
  if not others[1] then return end
  define_settle()
  for _, turn in ipairs(others) do answer[turn.place] = settle(turn) end
  place_touched()
end

-- Lets those of them go on whose place is before this one, and that have not had their turn: lanes go on in the order in
-- which the caller names them, whatever their state.
local others_looked_at = 0
local function go_on_before(place)
  place = math.min(place, postponed_from)
  while others[others_looked_at + 1] and others[others_looked_at + 1].place < place do
    others_looked_at = others_looked_at + 1
    local turn = others[others_looked_at]
    local l = turn.goes_on and answer[turn.place] and lanes[turn.lane]
    if l and l.ready and not l.token then
      local class, prio, due = struct.unpack('>I3I2I7', l.ready)
      local takes = false
      for _, mine in ipairs(T.classes or {}) do takes = takes or (mine == class and class % 2 == 0) end
      if takes and may_go_on(due, prio) then T.close(l) end
    end
  end
end

-- Whether the list that ended at this place may go on.
local function has_turn(place, due, prio)
  go_on_before(place)
  return place < postponed_from and may_go_on(due, prio)
end

-- Stores a finished job for its queue's retention.
local function keep(id, name, record)
  if string.byte(record) == 70 then
    local j, key = plain_job(record)
    j.state, j.ended, j.key, j.lane, j.attempts = 'done', NOW, key, 0, j.attempts + 1
    J.save_job(j)
  else
    job_records[name] = 'D' .. id_of(NOW) .. id_of(claimed_at(busy_of[id])) .. string.sub(record, 2)
  end
  later('ZADD', K.done, num(NOW + S.keep), pad(number_in(name)))
end

-- Lanes that remain: their records and positions.
local stay, free, ready, wakes = {}, {}, {}, {}
local function store_list(id, record)
  local at = #stay
  stay[at + 1], stay[at + 2] = id, record
end

local function place_list(id, record, due, prio)
  local at
  store_list(id, record)
  free[#free + 1] = id
  if due > NOW then
    at = #wakes
    wakes[at + 1], wakes[at + 2] = num(due), id
  else
    at = #ready
    ready[at + 1], ready[at + 2] = 0, struct.pack('>I3I2I7', 0, prio, due) .. id
  end
end

local function end_list(l, id)
  local from = #ended + 1
  take_first(l, math.max(l.closed, 1), ended)
  if S.keep > 0 then
    local names = {}
    for i = from, #ended do names[#names + 1] = ended[i] end
    for i, record in ipairs(fields(K.jobs, names)) do keep(id, names[i], record) end
  end
  l.closed, l.edge, l.shut_prio, l.shut_bytes = 0, 0, NO_PRIO, 0
  if l.count == 0 then gone[#gone + 1], keys[#keys + 1] = id, l.key ~= '' and l.key or nil end
end

-- In `fifo` a lane's position needs the due time and priority of its new head: `heads` are read together. Usually
-- there are more seqs in the front, and then only the beginning and the end of the record change.
local function end_heads()
  local heads, rests, of, counts, fronts = {}, {}, {}, {}, {}
  for i, record in ipairs(records) do
    local at, jobs_count, front_length = #heads + 1, struct.unpack('>I4xxxxxxxxxxxxxxI2', record, 18)
    if front_length > 7 and S.keep == 0 and owns_head(record) then
      ended[#ended + 1], heads[at] = string.sub(record, -7), string.sub(record, -14, -8)
      rests[at] = string.sub(record, CHANGING_END + 1, -8)
      of[at], counts[at], fronts[at] = i, jobs_count - 1, front_length - 7
    else
      local l = { id = lists[i] }
      read_list(l, record)
      end_list(l, lists[i])
      if l.count > 0 then
        rests[at] = string.sub(list_record('Q', l, ''), CHANGING_END + 1)
        heads[at], of[at], counts[at], fronts[at] = string.sub(l.front, -7), i, l.count, #l.front
      end
    end
  end
  for at, head in ipairs(fields(K.jobs, heads)) do
    local id, due, prio = lists[of[at]], struct.unpack('>I7I2', head, 23)
    local record = 'Q' .. struct.pack('>I7I7I2I4', due, 0, prio, counts[at])
      .. string.sub(records[of[at]], 22, CHANGING_END - 2) .. struct.pack('>I2', fronts[at]) .. rests[at]
    if goes_on[id] and has_turn(list_places[of[at]], due, prio) then
      store_list(id, record)
      T.go_on(id, record, head)
    else
      place_list(id, record, due, prio)
    end
  end
  if best then T.tell_jobs() end
end

local function end_lists()
  for i, record in ipairs(records) do
    local l = { id = lists[i] }
    read_list(l, record)
    end_list(l, lists[i])
    if l.count > 0 then
      end_wait(l)
      if not (goes_on[l.id] and has_turn(list_places[i], l.due, l.prio) and T.close_list(l)) then
        place_list(l.id, list_record('Q', l, ''), l.due, l.prio)
      end
    end
  end
  if best then T.tell_jobs() end
end

  sort_simple()
  settle_others()
  local singles = #gone
  if S.keep == 0 then T.drop_bodies(gone)
  else
    for i, record in ipairs(fields(K.lanes, gone)) do keep(gone[i], gone[i], 'J' .. gone[i] .. gone[i] .. string.sub(record, 2)) end
  end
  if S.mode == 'accumulate' then end_lists() else end_heads() end
  many('HDEL', K.busy, gone)
  many('HDEL', K.busy, free)
  if call('HLEN', K.progress) > 0 then
    many('HDEL', K.progress, gone)
    many('HDEL', K.progress, lists)
  end
  count('jobs', -singles - #ended)
  count('processed', singles + #ended)
  count('lanes', -#gone)
  if S.keep == 0 then
    many('HDEL', K.jobs, ended)
    T.drop_bodies(ended)
  end
  many('HDEL', K.lanes, gone)
  many('HDEL', K.keys, keys)
  many('HSET', K.lanes, stay)
  many('ZADD', K.ready, ready)
  many('ZADD', K.wake, wakes)
  bell.rings = bell.rings or stay[1]
  for token, lanes_less in pairs(left) do
    count('running', -lanes_less)
    release_claim(number_in(token), lanes_less)
  end
  go_on_before(simple + 1)
  write_out()
end

local function settle_turns()
  local held, records, rest = fields(K.busy, turn_ids), fields(K.lanes, turn_ids), {}
  read_heads(turns, records)
  for i, turn in ipairs(turns) do
    local id, claim = turn_ids[i], held[i]
    if not (claim and string.sub(claim, 1, 7) == id_of(turn.token)) then answer[simple + i] = false
    elseif not has_room(records[i]) then answer[simple + i] = POSTPONED
    elseif fail_simply(turn, id, records[i], claim) then answer[simple + i] = NONE
    elseif #rest == tables_left then answer[simple + i] = POSTPONED
    else rest[#rest + 1] = i end
  end
  if not rest[1] then return end
  define_settle()
  for _, i in ipairs(rest) do L.lane_of(turns[i].lane, records[i], held[i]) end
  for _, i in ipairs(rest) do answer[simple + i] = settle(turns[i]) end
end
if not S then
  for i = 1, simple + #turns do answer[i] = false end
else
  if simple > 0 then
    look_for_best(5, 4 + tonumber(ARGV[4]))
    end_simple()
  end
  if turns[1] then settle_turns() end
  for token, lanes_less in pairs(released) do release_claim(token, lanes_less) end
  place_touched()
  if best then T.store() end
  bell.hears = true
  -- A limit may have held others back.
  if S.shared then bell.rings = bell.rings or call('LLEN', K.arrivals) > 0 or call('ZCARD', K.ready) > 0 end
  commit()
end
return { answer, NOW, best and T.list or {}, bell.rings and 1 or 0, best and T.is_spent() and 1 or 0 }
