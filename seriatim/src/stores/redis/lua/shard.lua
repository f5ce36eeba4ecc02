-- The common part of the scripts of one shard, behind first_due.lua; compact.lua, any_job.lua, lane.lua, any_lane.lua and the
-- operation's script follow.
--
-- KEYS[1] is the common prefix of the shard's keys, `prefix:{q7:0}:`: all of them are in one slot, and their number is
-- fixed, whatever the number of lanes and jobs. Scripts do not roll back: an operation checks everything before its
-- first write.
--
-- Numbers: times are µs below 2^53, exact in a double. Never concatenate one: `num` and `pad` write all its digits.
-- Members of lexical ZSETs are fixed-width fields, so that they sort as numbers. Compare strings only if they contain
-- decimal or hex digits (Lua compares by locale).
--
-- Reads meta, the settings and counters of the queue, in each script. What its functions read and write of other keys is said by
-- the scripts that call them.

local P = KEYS[1]
local TIME_MAX = 9007199254740991
local INLINE_BYTES_MAX = 65536 -- a longer payload is stored separately, so that changing a job does not copy it
local INLINE_CLOSED_MAX = 16   -- a longer list of closed strays is stored separately
local ARRIVAL_PRIO = 100       -- the default priority: lanes that open with another are not in `arrivals`
local NOW = 0

-- The keys of a shard; each name is built on first use:
--   meta      HASH: settings of the queue, counters
--   lanes     HASH: id -> record (compact.lua)
--   keys      HASH: key -> id of its lane
--   jobs      HASH: seq (7 bytes) -> record, of every stored job that is not in its lane's record
--   runs      HASH: lane, number (4 bytes) -> seqs of a long list
--   bodies    HASH: seq -> payload that is not inline
--   arrivals  LIST: due (7), id (7) of lanes that were due when they were opened, with the default priority
--   ready     ZSET lex: class (3 bytes), priority (2), due (7), id (7) of the other ready lanes; before the class of one that
--             has a group 255 and the group (6)
--   wake      ZSET: id by the time when its position must be computed again
--   parked    ZSET: ids of unclaimed lanes that are held or paused, by when they are due: all, if `parks` in meta says so
--   open      ZSET lex: lane, rank, seq of strays: waiting jobs that are not in their lane's list
--   later     ZSET lex: lane, run_at, seq (exclusive: not due yet)
--   equal     HASH: lane, digest -> seq (7 bytes) of the open job
--   busy      HASH: id of a claimed lane -> token (7 bytes), then the key if the record is of one job; else NUL and,
--             if the token is from a rescue, when the lane was claimed (7)
--   closed    HASH: id -> closed strays, if there are many
--   progress  HASH: id -> when (7) its holder last reported progress, and what
--   flags     HASH: id -> seqs of its turn that are flagged for cancellation
--   trouble   ZSET: lane by minus its shown retry count
--   failing   SET: ids of lanes with a failed job
--   claims    HASH: token -> node, kind, ttl, until, made at, last heartbeat that named it
--   left      HASH: token -> number of its lanes that are still claimed; none if it claimed one
--   held      HASH: token -> the ids that it claimed
--   holders   ZSET lex: node, ttl, token of claims with a node lease
--   leases    ZSET: token by the end of its own lease
--   done      ZSET: seq by when it may be deleted
--   dead      ZSET: seq by when it was buried
--   deadkeys  ZSET lex: key, NUL, seq of dead jobs
--   expiring  ZSET: seq of open jobs that were never attempted, by expires_at
--   aliases   HASH: seq -> the job it was merged into
--   idem      HASH: key, NUL, idempotency key -> job
--   idemold   ZSET: the same by when to check whether it can be deleted; those of the whole store: names.lua
--   given_up0, given_up1  HASH: node -> claims and rescues with a ticket up to this one take nothing; those of even and odd days,
--             which expire by themselves
--   sleepers  ZSET: processes to be woken when a lane is ready, by the time of their last claim or question when it is due
--   routes    HASH: node, NUL, consumer group -> number; #number -> node, NUL, consumer group
--   shares    HASH: group (6 bytes) -> what it gets (share.lua), of those with settings of their own
--   turns     HASH: group -> how many of its turns run, if any
--   paced     HASH: group, 'all' -> when (7, and nanoseconds: 2) the turns that started would have at the pace of the rate
local K = setmetatable({}, { __index = function(known, name)
  known[name] = P .. name
  return known[name]
end })

local function num(x) return string.format('%.0f', x) end
local function pad(x) return string.format('%016.0f', x) end

-- A lane's number as 7 bytes with the same order.
local function id_of(n) return struct.pack('>I7', n) end
local function number_in(id) return (struct.unpack('>I7', id)) end

-- Runs a command with many arguments in as few calls as Lua's stack allows.
local UNPACK_MAX = 6000
local function many(command, key, list)
  for i = 1, #list, UNPACK_MAX do
    call(command, key, unpack(list, i, math.min(i + UNPACK_MAX - 1, #list)))
  end
end

-- Collects the writes of `place`, `forget`, a push and a settle, so that many lanes take one command: a call from Lua costs
-- more than its work. Pending writes are not visible in Redis: read through `lanes`, `jobs` and `ids`.
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

-- The last record of each job that a script stores, by name; false if it is removed.
local job_records = {}

local function write_out()
  if next(job_records) then
    local written, removed = {}, {}
    for name, record in pairs(job_records) do
      if record then written[#written + 1], written[#written + 2] = name, record
      else removed[#removed + 1] = name end
    end
    many('HSET', K.jobs, written)
    many('HDEL', K.jobs, removed)
    job_records = {}
  end
  for _, command in ipairs({ 'HDEL', 'ZREM', 'SREM', 'HSET', 'ZADD', 'SADD' }) do
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

-- The error for a claim or rescue with a ticket that its node gave up, else false. 0 is no ticket.
local function refusal(node, ticket)
  if ticket == '0' then return false end
  for _, key in ipairs({ K.given_up0, K.given_up1 }) do
    local given_up = call('HGET', key, node)
    if given_up and tonumber(ticket) <= tonumber(given_up) then
      return redis.error_reply('GIVENUP the node has given this call up')
    end
  end
  return false
end

local function after(length) return math.min(NOW + length, TIME_MAX) end

-- When memory is full, Redis refuses a script at its first write if that write may allocate, but lets it finish after
-- another first write. Operations that free memory must go on: all but pushing and declaring begin with a write that
-- allocates nothing.
local function even_when_full() call('DEL', P .. 'nothing') end

-- '-' is absent, '+text' is text.
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
  if #S.due > 8 then -- 'first' and 'earliest' are shorter
    local due = string.match(S.due, '^(.+) shared$')
    S.due, S.shared = due or S.due, due ~= nil
    local quiet, step, wait, most, bytes = string.match(S.due, '^window (%d+) (%d+) (%d+) (%d+) (%d+)$')
    if not quiet then return end
    S.window = { quiet = tonumber(quiet), step = tonumber(step), max_wait = tonumber(wait) }
    S.window.from = tonumber(call('HGET', K.meta, 'windowed') or '0')
    S.window.max_jobs = most ~= '0' and tonumber(most) or math.huge
    S.window.max_bytes = bytes ~= '0' and tonumber(bytes) or math.huge
  end
end

local function count(field, by) counts[field] = (counts[field] or 0) + by end

local function next_seq()
  S.seq = S.seq + 1
  S.counted = true
  return S.seq
end

-- At least the clock, so that tokens grow even if a failover lost the last ones.
local function next_token()
  S.token = math.max(S.token + 1, NOW)
  S.counted = true
  return S.token
end

-- Jobs ------------------------------------------------------------------------------------------

local jobs = {}
local is_single, plain_job

-- Functions on lanes in any state: any_lane.lua.
local L = {}

-- Functions on jobs as tables: any_job.lua.
local J = {}

local NO_ROUTE = '\0' -- the text of a job's route (any_job.lua) that is for everybody

-- Groups, in a table: Lua limits a function to 200 local names.
local G = { more = {} }

-- The number of a route, and its group: false if there is none, or the queue is not shared out.
function G.parts_of(route)
  if type(route) == 'number' then return route, false end
  local bound = struct.unpack('>I3', route, 7)
  return bound, S.shared and string.sub(route, 1, 6)
end
