-- Records ---------------------------------------------------------------------------------------
--
-- What many jobs need is bytes of fixed width, which scripts hand over and change without taking them apart. By the
-- first letter:
--
--   'S'  a lane with one fresh job that has no special options, whose number is the lane's: created (7 bytes), run_at
--        (7), priority (2), score (8 bytes with the order of the scores), lengths of key (2), task (2), digest (1) and
--        options (4), then these and the payload. A claim leaves it unchanged.
--   'Q'  any other lane (below)
--   's', 'q'  the same, of a lane that waits in `arrivals`
--   'J'  such a job in `jobs`: lane (7), seq (7), then as in 'S'
--   'D'  the same when it is done: ended at (7), claimed at (7), then as in 'J'
--   'F'  the same after a failure, since layout 6: as in 'J', then the error, retry count (4), attempts (4), when it was first
--        claimed (7), and one more than the error's length (4; 0: there is none). In `accumulate`, retry count and error are the lane's
--
-- Any other record in `jobs` is a MessagePack array (`read_job`).
--
-- A long payload is not in its record but in `bodies`, so that no script that only hands the record over touches it: for each
-- string that it gets, Redis hashes every byte. Then the options begin with `{"batch":N`, where N is the payload's length. No
-- job here has that option, and a build from before layout 5 reads it as an error, not as a job without a payload.
--
-- Reads and writes runs.

function is_single(record)
  local letter = string.byte(record, 1)
  return letter == 83 or letter == 115
end

local function is_arrival(record) return string.byte(record, 1) > 96 end

local function key_in(record)
  local high, low = string.byte(record, 26, 27)
  return string.sub(record, 35, 34 + high * 256 + low)
end

-- A score as 16 digits.
local function hex(score) return string.format('%02x%02x%02x%02x%02x%02x%02x%02x', string.byte(score, 1, 8)) end

-- The length of a payload that is apart, if it is: of a record whose options are at this place.
local function apart_in(record, at, length)
  return length > 10 and tonumber(string.match(record, '^{"batch":(%d+)', at))
end

-- Of a job in a record: the length of its payload, and where task, digest, options and payload begin. `at` is where the lengths
-- are: 26 in 'S', 40 in 'J' and 'F'.
local function size_in(record, at)
  local key_length, task_length, digest_length, options_length = struct.unpack('>I2I2I1I4', record, at)
  local task_at = at + 9 + key_length
  local digest_at = task_at + task_length
  local options_at = digest_at + digest_length
  local body_at = options_at + options_length
  return apart_in(record, options_at, options_length) or #record + 1 - body_at, task_at, digest_at, options_at, body_at
end

local function digest_in(record, at)
  local _, _, digest_at, options_at = size_in(record, at)
  return string.sub(record, digest_at, options_at - 1)
end

-- The options in a record, without that mark.
local function options_in(record, options_at, body_at)
  local options = string.sub(record, options_at, body_at - 1)
  local rest = string.match(options, '^{"batch":%d+(.*)$')
  if not rest then return options end
  return rest == '}' and '' or '{' .. string.sub(rest, 2)
end

-- The job in a record, and its key; `from` is the offset of its creation time.
local function job_in(seq, lane, record, from)
  local created, run_at, prio, score = struct.unpack('>I7I7I2c8', record, from)
  local size, task_at, digest_at, options_at, body_at = size_in(record, from + 24)
  return {
    seq = seq, created = created, lane = lane, state = 'live', task = string.sub(record, task_at, digest_at - 1),
    digest = string.sub(record, digest_at, options_at - 1), score = hex(score),
    prio = prio, run_at = run_at, attempts = 0, retry = -1, crashes = 0, error = false,
    started = false, flagged = false, route = 0, ttl = 0, expires = 0, options = options_in(record, options_at, body_at),
    aliases = false, ended = false, key = '', size = size, body = size == #record + 1 - body_at and string.sub(record, body_at),
    plain = true,
  }, string.sub(record, from + 33, task_at - 1)
end

-- Of a job that failed: its retry count, attempts, when it was first claimed, the error, and where all that begins.
local TROUBLE, TROUBLE_BYTES = '>I4I4I7I4', 19
local function trouble_in(record)
  local at = #record + 1 - TROUBLE_BYTES
  local retry, attempts, started, length = struct.unpack(TROUBLE, record, at)
  if length == 0 then return retry, attempts, started, false, at end
  return retry, attempts, started, string.sub(record, at + 1 - length, at - 1), at + 1 - length
end

-- The job in a record of 'J', 'F' or 'D', and its key; else nil.
function plain_job(record)
  local letter = string.byte(record, 1)
  if letter == 70 then
    local retry, attempts, started, why, at = trouble_in(record)
    local lane, seq = struct.unpack('>I7I7', record, 2)
    local j, key = job_in(seq, lane, string.sub(record, 1, at - 1), 16)
    j.attempts, j.started, j.plain = attempts, started, nil
    if S.mode ~= 'accumulate' then j.retry, j.error = retry, why end
    return j, key
  end
  if letter == 74 then
    local lane, seq = struct.unpack('>I7I7', record, 2)
    return job_in(seq, lane, record, 16)
  end
  if letter ~= 68 then return end
  local ended, started, lane, seq = struct.unpack('>I7I7I7I7', record, 2)
  local j, key = job_in(seq, 0, record, 30)
  j.state, j.ended, j.started, j.attempts, j.key, j.plain = 'done', ended, started, 1, key, nil
  return j, key
end

-- Lists: the waiting jobs of a lane, in order of arrival, which is the order of their seqs. 'Q', then
--
--   due (7), next_due (7; set by arrivals during a turn, 0 is none), priority (2), number of jobs (4), the last one's
--   score (8), bytes of the open jobs' payloads (5; `accumulate`), flags (1), length of the front (2),
--   bytes of the closed jobs (5; `accumulate`), how many are closed (4), the last of these (7), their priority (2),
--   the first separate run and the one after the last (4, 4), lengths of key, task and the rest of the state (2, 2, 2);
--
-- then key, task, the rest of the lane's state (MessagePack; empty if nothing is special, see `state_of` in any_lane.lua)
-- and seqs (7 bytes each): the end of the list, and its front in reverse order. Between them are the runs, in `runs`.
--
-- `fifo`, `parallel`: due and priority are the head's. A claim of one job without special state owns the head and
-- leaves the record unchanged: `closed` is 0.
-- `accumulate`: due is the lane's, priority the lowest number of the open jobs. Jobs may be out of order in a short list.
local LIST = '>I7I7I2I4c8I5I1I2I5I4I7I2I4I4I2I2I2'
local LIST_CHANGING = '>I7I7I2I4c8I5I1I2' -- changes when a job is appended
local CHANGING_END, TEXTS_AT = 37, 70
-- Flags: not in the order of scores; jobs of several tasks; since layout 6, that the lane waits or runs again after a failure
-- of its first job, which is the only one in `accumulate`, and is in `trouble`; and in `failing`, but for a turn of `fifo` or `parallel`.
local UNSORTED, MIXED, FAILED = 1, 2, 4
local UNSORTED_MAX = 1000    -- longer lists of `accumulate` are in order: the rest is strays
local RUN_BYTES = 16 * 7     -- appended seqs up to this size are rewritten with each job
local NO_PRIO = 65535

-- Whether a lane has no other state than what the fields of a list say.
local function is_bare(record)
  return string.sub(record, TEXTS_AT - 2, TEXTS_AT - 1) == '\0\0'
end

-- Whether the first job of such a lane has failed.
local function has_failed(record) return string.byte(record, CHANGING_END - 2) >= FAILED end

local function is_light(record) return is_bare(record) and not has_failed(record) end

local function read_list(l, record)
  local next_due, front_length, key_length, task_length, state_length
  l.due, next_due, l.prio, l.count, l.last, l.bytes, l.flags, front_length, l.shut_bytes, l.closed, l.edge, l.shut_prio,
    l.first, l.next, key_length, task_length, state_length = struct.unpack(LIST, record, 2)
  local task_at = TEXTS_AT + key_length
  local state_at = task_at + task_length
  l.next_due = next_due > 0 and next_due
  l.key = string.sub(record, TEXTS_AT, task_at - 1)
  l.task = string.sub(record, task_at, state_at - 1)
  l.fill = string.sub(record, state_at + state_length, -front_length - 1)
  l.front = string.sub(record, #record - front_length + 1)
  return string.sub(record, state_at, state_at + state_length - 1)
end

local function list_record(letter, l, state)
  return letter .. struct.pack(LIST, l.due, l.next_due or 0, l.prio, l.count, l.last, l.bytes, l.flags, #l.front,
    l.shut_bytes, l.closed, l.edge, l.shut_prio, l.first, l.next, #l.key, #l.task, #state)
    .. l.key .. l.task .. state .. l.fill .. l.front
end

-- The list of a lane whose record is of one job, as `read_list` reads it, and the bytes of its payload.
local function list_of(id, record)
  local size, task_at, digest_at = size_in(record, 26)
  local due, prio, last = struct.unpack('>I7I2c8', record, 9)
  local sums = S.mode == 'accumulate'
  return {
    id = id, key = key_in(record), task = sums and string.sub(record, task_at, digest_at - 1) or '', due = due, next_due = false, prio = prio, count = 1, last = last,
    bytes = sums and size or 0, flags = 0, shut_bytes = 0, closed = 0, edge = 0, shut_prio = NO_PRIO, first = 0, next = 0,
    front = id, fill = '',
  }, size
end

local function head_in(l) return number_in(string.sub(l.front, -7)) end

local function run_name(l, number) return l.id .. struct.pack('>I4', number) end

local function backwards(seqs)
  local list = {}
  for at = #seqs - 6, 1, -7 do list[#list + 1] = string.sub(seqs, at, at + 6) end
  return table.concat(list)
end

local function each_id(seqs, list)
  for at = 1, #seqs, 7 do list[#list + 1] = string.sub(seqs, at, at + 6) end
  return list
end

-- The end of the list is long: move it to the front or to a run.
local function put_away(l)
  if l.front == '' then l.front = backwards(l.fill)
  else
    call('HSET', K.runs, run_name(l, l.next), l.fill)
    l.next = l.next + 1
  end
  l.fill = ''
end

local function append_to(l, name)
  l.count = l.count + 1
  if l.front == '' then l.front = name else l.fill = l.fill .. name end
  if #l.fill >= RUN_BYTES then put_away(l) end
end

-- A run whose jobs were all removed keeps the place of one: this seq and '-'.
local function run_seqs(value) return #value % 7 == 0 and value or '' end

-- Refills an empty front from the next run or the end.
local function refill(l)
  while l.front == '' and l.first < l.next do
    local name = run_name(l, l.first)
    l.front, l.first = backwards(run_seqs(call('HGET', K.runs, name))), l.first + 1
    later('HDEL', K.runs, name)
  end
  if l.front == '' then l.front, l.fill = backwards(l.fill), '' end
end

local take_first, remove_from
do
-- Puts the first seqs of a list back, in order. What is longer than a front takes the place of runs that are gone: the runs
-- before the first one were taken when these seqs were.
local FRONT_MAX = 1000
function L.give_back(l, names)
  l.count = l.count + #names
  local front = l.front .. backwards(table.concat(names))
  local rest = #front / 7 - FRONT_MAX
  if rest <= 0 or l.first == 0 then
    l.front = front
    return
  end
  l.front = string.sub(front, 7 * rest + 1)
  local written, size = {}, math.max(RUN_BYTES, 7 * math.ceil(rest / l.first))
  local first = l.first - math.ceil(7 * rest / size)
  for to = 7 * rest, 1, -size do
    written[#written + 1] = run_name(l, first + #written / 2)
    written[#written + 1] = backwards(string.sub(front, math.max(1, to - size + 1), to))
  end
  -- The removals of the runs that had these numbers come first.
  write_out()
  many('HSET', K.runs, written)
  l.first = first
end

local function without(seqs, name)
  for at = 1, #seqs, 7 do
    if string.sub(seqs, at, at + 6) == name then
      return string.sub(seqs, 1, at - 1) .. string.sub(seqs, at + 7)
    end
  end
end

-- The run that a seq is in, if it is in one: the seqs are ascending, so few runs are read.
local function run_of(l, seq)
  local low, high = l.first, l.next - 1
  while low < high do
    local middle = math.ceil((low + high) / 2)
    if number_in(string.sub(call('HGET', K.runs, run_name(l, middle)), 1, 7)) <= seq then low = middle
    else high = middle - 1 end
  end
  return low
end

-- The first seqs behind this one, at most `most`, 7 bytes each.
function L.ids_behind(l, seq, most)
  local list = {}
  local function add(seqs)
    for at = 1, #seqs, 7 do
      if #list == most then return end
      local name = string.sub(seqs, at, at + 6)
      if number_in(name) > seq then list[#list + 1] = name end
    end
  end
  add(backwards(l.front))
  local number = #list < most and run_of(l, seq) or l.next
  while #list < most and number < l.next do
    add(run_seqs(call('HGET', K.runs, run_name(l, number))))
    number = number + 1
  end
  add(l.fill)
  return list
end

-- Removes a seq from a run.
local function remove_from_runs(l, name)
  local low = run_of(l, number_in(name))
  if low >= l.next then return false end
  local rest = without(run_seqs(call('HGET', K.runs, run_name(l, low))), name)
  if not rest then return false end
  call('HSET', K.runs, run_name(l, low), rest ~= '' and rest or name .. '-')
  return true
end

-- Removes a seq from the middle; false if it is not there.
function remove_from(l, name)
  local front, fill = without(l.front, name), without(l.fill, name)
  if front then l.front = front
  elseif fill then l.fill = fill
  elseif not remove_from_runs(l, name) then return false end
  l.count = l.count - 1
  refill(l)
  return true
end

-- Removes the first n seqs and adds them to a list.
function take_first(l, n, taken)
  l.count = l.count - n
  while n > 0 do
    local some = math.min(n, #l.front / 7)
    if some == 0 then break end
    for i = 1, some do taken[#taken + 1] = string.sub(l.front, #l.front - 7 * i + 1, #l.front - 7 * i + 7) end
    l.front = string.sub(l.front, 1, #l.front - 7 * some)
    n = n - some
    refill(l)
  end
end
end

-- The first seqs of a list, at most `most`, 7 bytes each.
local function ids_in(l, most)
  local list, number = {}, l.first
  for at = #l.front - 6, math.max(1, #l.front - 7 * most + 1), -7 do list[#list + 1] = string.sub(l.front, at, at + 6) end
  while #list < most and number < l.next do
    local names, last = {}, math.min(l.next - 1, number + math.ceil((most - #list) / 16))
    for run = number, last do names[#names + 1] = run_name(l, run) end
    for _, run in ipairs(fields(K.runs, names)) do each_id(run_seqs(run), list) end
    number = last + 1
  end
  if number == l.next then each_id(l.fill, list) end
  for i = #list, most + 1, -1 do list[i] = nil end
  return list
end

-- The last seq of a list, or where it was; 0 if there is none.
local function tail_of(l)
  if l.fill ~= '' then return number_in(string.sub(l.fill, -7)) end
  if l.first < l.next then
    local run = call('HGET', K.runs, run_name(l, l.next - 1))
    return number_in(string.sub(run, -7 - #run % 7, -1 - #run % 7))
  end
  return l.front ~= '' and number_in(string.sub(l.front, 1, 7)) or 0
end
