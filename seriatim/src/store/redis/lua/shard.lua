-- What the scripts of one shard share; the text of each operation follows it.
--
-- KEYS[1] is the common beginning of the shard's keys, `prefix:{q7:0}:`: all of them lie in one
-- slot, and there is a fixed number of them, however many lanes and jobs they hold.
-- Scripts do not roll back: an operation checks everything before its first write.
--
-- Numbers: times are µs below 2^53, exact in a double. Never concatenate one: `num` and `pad` write
-- all its digits. Members of lexical ZSETs are fixed-width fields, so that they sort as numbers.
-- Strings are compared only where they hold decimal or hex digits (Lua compares by locale).

local call = redis.call
local P = KEYS[1]
local TIME_MAX = 9007199254740991
local INLINE_BYTES_MAX = 1024 -- a longer payload stands apart, so that moving a job does not copy it
local INLINE_CLOSED_MAX = 16  -- a longer list of closed jobs stands apart
local NOW = 0

-- The keys of a shard; each name is made when it is first used:
--   meta      HASH: settings of the queue, counters
--   lanes     HASH: id -> record; of a lane with one fresh job, a compact one (see below)
--   busy      HASH: id of a claimed lane with a compact record -> token, key
--   keys      HASH: key -> id of its lane
--   jobs      HASH: seq -> record, of every job that is known and in no compact record
--   bodies    HASH: seq -> payload that is not inline
--   closed    HASH: id -> seqs of its turn, where they are many
--   progress  HASH: id -> what its last holder told
--   flags     HASH: id -> seqs of its turn that somebody wants cancelled
--   open      ZSET lex: lane, rank, seq
--   later     ZSET lex: lane, run_at, seq (exclusive: not due yet)
--   prios     ZSET lex: lane, priority, seq (accumulate)
--   equal     HASH: lane, digest -> seq of the open job
--   ready     ZSET lex: class (3 bytes), priority (2), due (7), id (7)
--   wake      ZSET: id by the time when it must be looked at again
--   trouble   ZSET: lane by minus its shown retry count
--   failing   SET: ids of lanes with a failure in them
--   claims    HASH: token -> node, kind, ttl, until, made at
--   left      HASH: token -> lanes that it still holds
--   held      HASH: token -> the ids that it took
--   holders   ZSET lex: node, ttl, token of claims with a node lease
--   leases    ZSET: token by the end of a lease of its own
--   done      ZSET: seq by when it may be forgotten
--   dead      ZSET: seq by when it was buried
--   deadkeys  ZSET lex: key, NUL, seq of dead jobs
--   expiring  ZSET: seq of open jobs by expires_at
--   aliases   HASH: seq -> the job it became one with
--   idem      HASH: key, NUL, idempotency key -> job
--   idemold   ZSET: the same by when to look whether it can be forgotten
--   routes    HASH: node, NUL, group -> number; #number -> node, NUL, group
local K = setmetatable({}, { __index = function(known, name)
  known[name] = P .. name
  return known[name]
end })

local function num(x) return string.format('%.0f', x) end
local function pad(x) return string.format('%016.0f', x) end

-- A lane's number as 7 bytes that order as the numbers do.
local function id_of(n) return struct.pack('>I7', n) end
local function number_in(id) return (struct.unpack('>I7', id)) end

-- Commands with many arguments, in as few calls as Lua's stack allows.
local UNPACK_MAX = 6000
local function many(command, key, list)
  for i = 1, #list, UNPACK_MAX do
    call(command, key, unpack(list, i, math.min(i + UNPACK_MAX - 1, #list)))
  end
end

-- The scores of a ZSET that is ordered by its members are all 0.
local function add_members(key, list)
  local args = {}
  for i, member in ipairs(list) do args[2 * i - 1], args[2 * i] = 0, member end
  many('ZADD', key, args)
end

-- What `place`, `forget` and a settle write, put off so that many lanes take one command: each call from Lua costs
-- more than what it does. Nothing reads in between what waits here: `lanes`, `jobs` and `ids` know it.
local put_off = {}
local function later(command, key, ...)
  local lists = put_off[command]
  if not lists then
    lists = {}
    put_off[command] = lists
  end
  local list = lists[key]
  if not list then
    list = {}
    lists[key] = list
  end
  local first, second = ...
  list[#list + 1] = first
  if second then list[#list + 1] = second end
end

local function write_out()
  for _, command in ipairs({ 'HDEL', 'ZREM', 'HSET', 'ZADD' }) do
    for key, list in pairs(put_off[command] or {}) do many(command, key, list) end
  end
  put_off = {}
end

local function fields(key, list)
  if #list <= UNPACK_MAX then return list[1] and call('HMGET', key, unpack(list)) or {} end
  local values = {}
  for i = 1, #list, UNPACK_MAX do
    local part = call('HMGET', key, unpack(list, i, math.min(i + UNPACK_MAX - 1, #list)))
    for at, value in ipairs(part) do values[i + at - 1] = value end
  end
  return values
end

local function clock(text)
  if text ~= '' then return tonumber(text) end
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end

local function after(length) return math.min(NOW + length, TIME_MAX) end

-- A server whose memory is full refuses a script at its first write if that takes memory, and after
-- another first write it lets the script finish. What drains must go on, or the memory stays full:
-- every operation but pushing and declaring begins with a write that takes none.
local function even_when_full() call('DEL', P .. 'nothing') end

-- '-' is none, '+text' is text.
local function optional(text)
  if text == '-' then return false end
  return string.sub(text, 2)
end

-- Settings and counters -------------------------------------------------------------------------

local S = false
local counts = {}

local function load_settings()
  local v = call('HMGET', K.meta, 'version', 'mode', 'merge', 'due', 'take', 'keep', 'remember',
    'paused', 'seq', 'token', 'number', 'shards', 'declared')
  if not v[1] then return end
  S = {
    version = tonumber(v[1]), mode = v[2], merge = v[3], due = v[4], take = tonumber(v[5]),
    keep = tonumber(v[6]), remember = tonumber(v[7]), paused = v[8] == '1',
    seq = tonumber(v[9] or '0'), token = tonumber(v[10] or '0'),
    number = v[11], shards = v[12], declared = v[13] == '1',
  }
  S.merges = S.mode == 'accumulate' and S.merge ~= 'none'
end

local function count(field, by) counts[field] = (counts[field] or 0) + by end

local function next_seq()
  S.seq = S.seq + 1
  S.counted = true
  return S.seq
end

-- At least the clock, so that tokens grow even when the last ones were lost with a server.
local function next_token()
  S.token = math.max(S.token + 1, NOW)
  S.counted = true
  return S.token
end

-- Jobs ------------------------------------------------------------------------------------------

local jobs = {}
local lane_of

local function read_job(seq, record)
  local j = { seq = seq }
  j.created, j.lane, j.state, j.task, j.digest, j.score, j.prio, j.run_at, j.attempts, j.retry,
    j.crashes, j.error, j.started, j.flagged, j.route, j.ttl, j.expires, j.options, j.aliases,
    j.ended, j.key, j.size, j.body = cmsgpack.unpack(record)
  jobs[seq] = j
  return j
end

local function job_of(seq)
  local known = jobs[seq]
  if known ~= nil then return known end
  local record = call('HGET', K.jobs, num(seq))
  if record then return read_job(seq, record) end
  -- It may be the fresh job of the lane that has its number.
  local l = lane_of(seq)
  return l and jobs[seq] or false
end

-- Reads jobs that are not known yet, in one command.
local function read_jobs(seqs)
  local unknown, names = {}, {}
  for _, seq in ipairs(seqs) do
    if jobs[seq] == nil then
      unknown[#unknown + 1], names[#names + 1] = seq, num(seq)
    end
  end
  for i, record in ipairs(fields(K.jobs, names)) do
    if record then read_job(unknown[i], record) end
  end
end

local function job_record(j)
  return cmsgpack.pack(j.created, j.lane, j.state, j.task, j.digest, j.score, j.prio, j.run_at,
    j.attempts, j.retry, j.crashes, j.error, j.started, j.flagged, j.route, j.ttl, j.expires,
    j.options, j.aliases, j.ended, j.key, j.size, j.body)
end

local function save_job(j)
  jobs[j.seq] = j
  call('HSET', K.jobs, num(j.seq), job_record(j))
end

local function body_of(j)
  return j.body or call('HGET', K.bodies, num(j.seq)) or ''
end

-- Nothing is known of it any more, nor of those that became one with it.
local function forget(j)
  jobs[j.seq] = false
  later('HDEL', K.jobs, num(j.seq))
  if not j.body then later('HDEL', K.bodies, num(j.seq)) end
  for _, alias in ipairs(j.aliases or {}) do call('HDEL', K.aliases, num(alias)) end
end

local function finish(j, key, state, why)
  count('jobs', -1)
  if S.keep == 0 then return forget(j) end
  if why then j.error = why end
  j.state, j.ended, j.key, j.lane = state, NOW, key, 0
  save_job(j)
  call('ZADD', K.done, num(NOW + S.keep), pad(j.seq))
end

local function bury(j, key, why)
  count('jobs', -1)
  if why then j.error = why end
  j.state, j.ended, j.key, j.lane, j.flagged = 'dead', NOW, key, 0, false
  save_job(j)
  call('ZADD', K.dead, num(NOW), pad(j.seq))
  call('ZADD', K.deadkeys, 0, key .. '\0' .. pad(j.seq))
end

-- Takes a job out of the morgue; what becomes of it is the caller's.
local function unbury(j)
  call('ZREM', K.dead, pad(j.seq))
  call('ZREM', K.deadkeys, j.key .. '\0' .. pad(j.seq))
end

local function is_known(seq)
  local j = jobs[seq]
  if j or (j == nil and call('HEXISTS', K.jobs, num(seq)) == 1) then return true end
  if call('HEXISTS', K.aliases, num(seq)) == 1 then return true end
  if j == false then return false end
  local record = call('HGET', K.lanes, id_of(seq))
  return record and string.byte(record, 1) == 83
end

-- The job of this seq, accepted in this millisecond, or the one that it became one with.
local function resolve(seq, millis)
  local j = job_of(seq)
  if j then return math.floor(j.created / 1000) == millis and j end
  local alias = call('HGET', K.aliases, num(seq))
  if not alias then return false end
  local survivor, created = cmsgpack.unpack(alias)
  if math.floor(created / 1000) ~= millis then return false end
  j = job_of(survivor)
  while not j do
    alias = call('HGET', K.aliases, num(survivor))
    if not alias then return false end
    survivor = cmsgpack.unpack(alias)
    j = job_of(survivor)
  end
  return j
end

-- Routes ----------------------------------------------------------------------------------------

local NO_ROUTE = '\0'

local function route_of(text)
  if text == NO_ROUTE then return 0 end
  local known = call('HGET', K.routes, text)
  if known then return tonumber(known) end
  local number = call('HINCRBY', K.meta, 'routes', 1)
  call('HSET', K.routes, text, number, '#' .. num(number), text)
  return number
end

local function route_text(number)
  if number == 0 then return NO_ROUTE end
  return call('HGET', K.routes, '#' .. num(number)) or NO_ROUTE
end

-- Lanes -----------------------------------------------------------------------------------------

local lanes = {}
local touched = {}
local rings = false

local function read_lane(n, record)
  local l = { n = n }
  l.key, l.token, l.claimed_at, l.held, l.paused, l.closed, l.open, l.bad, l.retry, l.crashes,
    l.error, l.due, l.next_due, l.route, l.solo, l.ready, l.wake, l.shown, l.beat_at, l.failing =
    cmsgpack.unpack(record)
  return l
end

local function new_lane(n, key, due, route)
  return {
    n = n, key = key, token = 0, claimed_at = false, held = false, paused = false, closed = false,
    open = 0, bad = 0, retry = -1, crashes = 0, error = false, due = due, next_due = false,
    route = route, solo = false, ready = false, wake = false, shown = -1, beat_at = 0,
    failing = false,
  }
end

-- Compact records. A lane that holds one job, which never ran and wants nothing special, is one
-- value: most lanes never become anything else, and pushing, claiming and ending such a turn takes
-- a few commands for a whole batch. 'S', accepted at (7 bytes), run_at (7), priority (2), score
-- (8 bytes that order as the scores do), lengths of key (2), task (2), digest (1) and options (4),
-- then these and the payload. The job's seq is the lane's number. A claim does not change it: the
-- claimed lane stands in `busy`.
-- Whatever else happens to such a lane unfolds it first into the records of any lane.

local function is_compact(record) return string.byte(record, 1) == 83 end

local function key_in(record)
  local length = struct.unpack('>I2', record, 26)
  return string.sub(record, 35, 34 + length)
end

local function hex(bytes)
  return (string.gsub(bytes, '.', function(c) return string.format('%02x', string.byte(c)) end))
end

local function compact_job(n, record)
  local created, run_at, prio, score, key_length, task_length, digest_length, options_length =
    struct.unpack('>I7I7I2c8I2I2I1I4', record, 2)
  local at = 35 + key_length
  local function text(length)
    at = at + length
    return string.sub(record, at - length, at - 1)
  end
  local task, digest, options = text(task_length), text(digest_length), text(options_length)
  local body = string.sub(record, at)
  return {
    seq = n, created = created, lane = n, state = 'live', task = task, digest = digest,
    score = hex(score),
    prio = prio, run_at = run_at, attempts = 0, retry = -1, crashes = 0, error = false,
    started = false, flagged = false, route = 0, ttl = 0, expires = 0, options = options,
    aliases = false, ended = false, key = '', size = #body, body = body,
  }
end

local function ready_member(class, prio, due, n)
  return struct.pack('>I3I2I7I7', class, prio, due, n)
end

local READ_ONLY = false -- scripts that only look do not unfold
local unfold

function lane_of(n, record)
  if lanes[n] ~= nil then return lanes[n] end
  record = record or call('HGET', K.lanes, id_of(n))
  if not record then return false end
  if not is_compact(record) then
    lanes[n] = read_lane(n, record)
    return lanes[n]
  end
  local j = compact_job(n, record)
  local l = new_lane(n, key_in(record), j.run_at, 0)
  lanes[n], jobs[n] = l, j
  local busy = call('HGET', K.busy, id_of(n))
  if busy then
    l.token = struct.unpack('>I7', busy)
    local node, kind, ttl, until_, made_at = cmsgpack.unpack(call('HGET', K.claims, num(l.token)))
    l.claimed_at, l.beat_at, l.closed = made_at, made_at, { n }
  else
    l.open, l.solo = 1, n
  end
  if READ_ONLY then l.single = not busy and j else unfold(l, j, busy) end
  return l
end

-- Lanes by key, as far as a script has looked them up already.
local ids = {}

local function lane_of_key(key)
  local id = ids[key]
  if id == nil then id = call('HGET', K.keys, key) end
  return id and lane_of(number_in(id))
end

local function open_lane(n, key, due, route)
  local l = new_lane(n, key, due, route)
  if key ~= '' then
    ids[key] = id_of(n)
    call('HSET', K.keys, key, ids[key])
  end
  count('lanes', 1)
  lanes[n] = l
  return l
end

-- The lane is saved, where it belongs then, by `commit`.
local function touch(l)
  if not l.touched then
    l.touched = true
    touched[#touched + 1] = l
  end
end

local function closed_of(l)
  if l.closed == true then l.closed = cmsgpack.unpack(call('HGET', K.closed, id_of(l.n))) end
  return l.closed or {}
end

local function lane_record(l)
  local failing = l.bad > 0 or (S.mode == 'accumulate' and l.retry >= 0)
  if failing ~= l.failing then
    call(failing and 'SADD' or 'SREM', K.failing, id_of(l.n))
    l.failing = failing
  end
  local closed = l.closed
  if closed and closed ~= true and #closed > INLINE_CLOSED_MAX then closed = true end
  return cmsgpack.pack(l.key, l.token, l.claimed_at, l.held, l.paused,
    closed, l.open, l.bad, l.retry, l.crashes, l.error, l.due, l.next_due, l.route, l.solo,
    l.ready, l.wake, l.shown, l.beat_at, l.failing)
end

local function store_lane(l) call('HSET', K.lanes, id_of(l.n), lane_record(l)) end

local function remove_lane(l)
  if l.key ~= '' then
    later('HDEL', K.keys, l.key)
    ids[l.key] = false
  end
  if l.failing then call('SREM', K.failing, id_of(l.n)) end
  later('HDEL', K.lanes, id_of(l.n))
  later('HDEL', K.progress, id_of(l.n))
  count('lanes', -1)
  lanes[l.n] = false
end

-- Where a job stands among the open ones of its lane.
local function open_member(l, j)
  if S.mode == 'exclusive' then
    return pad(l.n) .. string.format('%05.0f', j.prio) .. pad(j.run_at) .. pad(j.seq)
  end
  return pad(l.n) .. j.score .. pad(j.seq)
end

local function later_member(l, j) return pad(l.n) .. pad(j.run_at) .. pad(j.seq) end
local function prio_member(l, j) return pad(l.n) .. string.format('%05.0f', j.prio) .. pad(j.seq) end

local function insert(l, j)
  l.open = l.open + 1
  if j.retry >= 0 then l.bad = l.bad + 1 end
  j.lane = l.n
  if j.expires > 0 then call('ZADD', K.expiring, num(j.expires), pad(j.seq)) end
  if S.mode == 'parallel' then
    l.solo = j.seq
  elseif S.mode == 'exclusive' and (l.claimed_at or j.run_at > NOW) then
    call('ZADD', K.later, 0, later_member(l, j))
  else
    call('ZADD', K.open, 0, open_member(l, j))
  end
  if S.mode == 'accumulate' then
    call('ZADD', K.prios, 0, prio_member(l, j))
    if S.merges and j.digest ~= '' then call('HSET', K.equal, pad(l.n) .. j.digest, num(j.seq)) end
  end
end

-- Takes a job out of the open ones; false when it is not among them.
local function take(l, j)
  if S.mode == 'parallel' then
    if l.open == 0 or l.solo ~= j.seq then return false end
  elseif call('ZREM', K.open, open_member(l, j)) == 0 then
    if S.mode ~= 'exclusive' or call('ZREM', K.later, later_member(l, j)) == 0 then return false end
  end
  l.open = l.open - 1
  if j.retry >= 0 then l.bad = l.bad - 1 end
  if j.expires > 0 then call('ZREM', K.expiring, pad(j.seq)) end
  if S.mode == 'accumulate' then
    call('ZREM', K.prios, prio_member(l, j))
    if S.merges and j.digest ~= '' then call('HDEL', K.equal, pad(l.n) .. j.digest) end
  end
  return true
end

-- The first members of a lane in a lexical index.
local function members(key, l, most)
  return call('ZRANGEBYLEX', key, '[' .. pad(l.n), '(' .. pad(l.n) .. '~', 'LIMIT', 0, most)
end

local function seq_in(member) return tonumber(string.sub(member, -16)) end

-- The open job that comes first; in `exclusive` among those that are due.
local function head_of(l)
  if l.open == 0 then return false end
  if l.single then return l.single end
  if S.mode == 'parallel' then return job_of(l.solo) end
  local member = members(K.open, l, 1)[1]
  return member and job_of(seq_in(member))
end

-- All open jobs of a lane.
local function open_jobs(l)
  if S.mode == 'parallel' then return { head_of(l) or nil } end
  local list = {}
  for _, key in ipairs({ K.open, K.later }) do
    for _, member in ipairs(members(key, l, -1)) do list[#list + 1] = job_of(seq_in(member)) end
  end
  return list
end

-- In `exclusive`, moves what has fallen due among the candidates; returns when the next will.
local function promote(l)
  if S.mode ~= 'exclusive' then return false end
  local due = '(' .. pad(l.n) .. pad(NOW) .. '~'
  for _, member in ipairs(call('ZRANGEBYLEX', K.later, '[' .. pad(l.n), due)) do
    call('ZREM', K.later, member)
    call('ZADD', K.open, 0, open_member(l, job_of(seq_in(member))))
  end
  local first = members(K.later, l, 1)[1]
  return first and tonumber(string.sub(first, 17, 32))
end

local function show(l, retry)
  if retry == l.shown then return end
  if retry >= 0 then call('ZADD', K.trouble, -retry, pad(l.n))
  else call('ZREM', K.trouble, pad(l.n)) end
  l.shown = retry
end

local function stand(l, ready, wake)
  if ready ~= l.ready then
    if l.ready then later('ZREM', K.ready, l.ready) end
    if ready then later('ZADD', K.ready, 0, ready) end
    l.ready, rings = ready, rings or ready
  end
  if wake ~= l.wake then
    if wake then later('ZADD', K.wake, num(wake), id_of(l.n))
    else later('ZREM', K.wake, id_of(l.n)) end
    l.wake, rings = wake, rings or wake
  end
end

-- Priority, due time, route and crashes by which an unclaimed lane stands.
local function standing(l, head)
  if S.mode ~= 'accumulate' then
    local route = S.mode == 'fifo' and l.route or head.route
    return head.prio, head.run_at, route, head.crashes
  end
  local first = members(K.prios, l, 1)[1]
  return tonumber(string.sub(first, 17, 21)), l.due, l.route, l.crashes
end

-- Puts an unclaimed lane with open jobs where it belongs.
local function position(l)
  local next_later = promote(l)
  local head = head_of(l)
  if S.mode == 'accumulate' then
    show(l, l.retry)
  else
    local shown = head or job_of(seq_in(members(K.later, l, 1)[1]))
    show(l, shown.retry)
  end
  if l.held or l.paused then return stand(l, false, false) end
  if not head then return stand(l, false, next_later) end
  local prio, due, route, crashes = standing(l, head)
  if due > NOW then return stand(l, false, due) end
  local class = route * 2 + (crashes > 0 and 1 or 0)
  stand(l, ready_member(class, prio, due, l.n), next_later)
end

-- Saves a lane where it belongs now, or removes it when it is empty; `write_out` writes it.
local function place(l)
  if l.claimed_at then
    stand(l, false, false)
  elseif l.open == 0 then
    stand(l, false, false)
    show(l, -1)
    return remove_lane(l)
  else
    position(l)
  end
  later('HSET', K.lanes, id_of(l.n), lane_record(l))
end

-- Turns a compact record into those of any lane; the lane stays where it stands.
function unfold(l, j, busy)
  if busy then
    call('HDEL', K.busy, id_of(l.n))
  else
    l.open, l.solo = 0, false
    insert(l, j)
    local member = ready_member(0, j.prio, j.run_at, l.n)
    if call('ZSCORE', K.ready, member) then l.ready = member else l.wake = j.run_at end
  end
  save_job(j)
  store_lane(l)
end

-- Ends an operation: saves what it touched.
local function commit()
  for _, l in ipairs(touched) do place(l) end
  write_out()
  for field, by in pairs(counts) do
    if by ~= 0 then call('HINCRBY', K.meta, field, by) end
  end
  if S.counted then call('HSET', K.meta, 'seq', num(S.seq), 'token', num(S.token)) end
  if rings then call('PUBLISH', string.match(P, '^(.*){') .. 'wake', S.number) end
end

-- Two equal payloads that become one take this score (hex digits order as the scores do).
local function merged_score(a, b)
  if S.merge == 'none' then return a end
  if (S.merge == 'min') == (a < b) then return a end
  return b
end

-- Inserts a job into a lane where an equal one may wait: the older id survives.
local function unite(l, j)
  local other = S.merges and j.digest ~= '' and call('HGET', K.equal, pad(l.n) .. j.digest)
  other = other and job_of(tonumber(other))
  if not other then
    insert(l, j)
    return save_job(j)
  end
  take(l, other)
  local survivor, gone = other, j
  if j.seq < other.seq then survivor, gone = j, other end
  survivor.score = merged_score(survivor.score, gone.score)
  survivor.prio = math.min(survivor.prio, gone.prio)
  survivor.attempts = math.max(survivor.attempts, gone.attempts)
  survivor.aliases = survivor.aliases or {}
  table.insert(survivor.aliases, gone.seq)
  for _, alias in ipairs(gone.aliases or {}) do table.insert(survivor.aliases, alias) end
  gone.aliases = false
  forget(gone)
  count('jobs', -1)
  call('HSET', K.aliases, num(gone.seq), cmsgpack.pack(survivor.seq, gone.created))
  insert(l, survivor)
  save_job(survivor)
end

-- What an arrival does to the due time of an `accumulate` lane.
local function arrive(l, run_at, merged)
  if S.mode ~= 'accumulate' then return end
  local earliest = S.due == 'earliest'
  if l.claimed_at then
    if not l.next_due then l.next_due = run_at
    elseif earliest then l.next_due = math.min(l.next_due, run_at) end
  elseif l.open == 0 and not merged then
    l.due = run_at
  elseif earliest then
    l.due = math.min(l.due, run_at)
  end
end

-- Puts a job with a history into its lane: requeued, or kept while its queue changed.
local function put_back(key, route, j)
  local l = key ~= '' and lane_of_key(key)
  -- A number is never used twice: what comes back to a key that has no lane opens a new one.
  -- In `parallel` the lane is the job.
  if not l then l = open_lane(key == '' and j.seq or next_seq(), key, j.run_at, route) end
  arrive(l, j.run_at, false)
  unite(l, j)
  touch(l)
  return l
end

-- Turns -----------------------------------------------------------------------------------------

-- Retry count, crashes and error: the lane's own in `accumulate`, else its head's.
local function trouble_of(l)
  if S.mode == 'accumulate' then return l.retry, l.crashes, l.error end
  local head = l.claimed_at and job_of(closed_of(l)[1]) or head_of(l)
  if not head and l.open > 0 then head = job_of(seq_in(members(K.later, l, 1)[1])) end
  if not head then return -1, 0, false end
  return head.retry, head.crashes, head.error
end

local function turn_of(l, with_bodies)
  local list = {}
  for i, seq in ipairs(closed_of(l)) do
    local j = job_of(seq)
    list[i] = { j.seq, j.created, j.task, with_bodies and body_of(j) or '', j.score, j.prio,
      j.run_at, j.attempts, j.options }
  end
  local retry, crashes, why = trouble_of(l)
  return { l.n, l.key, l.token, retry, crashes, why, l.claimed_at, list }
end

local function holder_member(node, ttl, token)
  return string.format('%04d', #node) .. node .. pad(ttl) .. pad(token)
end

local function store_claim(node, kind, ttl, token, taken)
  local t = num(token)
  call('HSET', K.claims, t, cmsgpack.pack(node, kind, ttl, NOW + ttl, NOW))
  call('HSET', K.left, t, #taken)
  call('HSET', K.held, t, table.concat(taken))
  if kind == 'node' then call('ZADD', K.holders, 0, holder_member(node, ttl, token))
  else call('ZADD', K.leases, num(NOW + ttl), t) end
end

-- So many lanes are not this claim's any more; without lanes it is gone.
local function release_claim(token, lanes_less)
  local t = num(token)
  if call('HINCRBY', K.left, t, -lanes_less) > 0 then return end
  local node, kind, ttl = cmsgpack.unpack(call('HGET', K.claims, t))
  if kind == 'node' then call('ZREM', K.holders, holder_member(node, ttl, token))
  else call('ZREM', K.leases, t) end
  call('HDEL', K.claims, t)
  call('HDEL', K.left, t)
  call('HDEL', K.held, t)
end

-- The earliest due time of the shard's unclaimed lanes: of the scheduled ones, and of the first in
-- each class and priority that has ready ones.
local function first_due()
  local best, from = false, '-'
  while true do
    local member = call('ZRANGEBYLEX', K.ready, from, '+', 'LIMIT', 0, 1)[1]
    if not member then break end
    local due = struct.unpack('>I7', member, 6)
    if not best or due < best then best = due end
    from = '(' .. string.sub(member, 1, 5) .. '\255'
  end
  local wake = call('ZRANGE', K.wake, 0, 0, 'WITHSCORES')[2]
  if wake and (not best or tonumber(wake) < best) then best = tonumber(wake) end
  return best
end

load_settings()
