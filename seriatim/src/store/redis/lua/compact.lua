-- Compact forms -----------------------------------------------------------------------------------

-- Three kinds of values are bytes instead of MessagePack, so that a batch needs a few commands and
-- hardly any Lua for each job. What follows its first byte:
--
--   'S'  a lane that holds one job, which never ran and wants nothing special: accepted at (7 bytes), run_at
--        (7), priority (2), score (8 bytes that order as the scores do), lengths of key (2), task (2),
--        digest (1) and options (4), then these and the payload. The job's seq is the lane's number.
--   'J'  a job in a listed lane: lane (7), seq (7), then as in 'S'.
--   'Q'  a listed lane: one with several such jobs in order of arrival (below).
--
-- A claim leaves 'S' as it is, and in `fifo` 'Q': the claimed lane stands in `busy`.
-- Whatever else happens to such a lane unfolds it first into the records of any lane.

local JOB_FIELDS = '>I7I7I2c8I2I2I1I4'

function is_compact(record) return string.byte(record, 1) == 83 end
function is_job_listed(record) return string.byte(record, 1) == 74 end
local function is_listed(record) return string.byte(record, 1) == 81 end

local function key_in(record)
  local length = struct.unpack('>I2', record, 26)
  return string.sub(record, 35, 34 + length)
end

local function hex(bytes)
  return (string.gsub(bytes, '.', function(c) return string.format('%02x', string.byte(c)) end))
end

-- The job in a record, from where it says when it was accepted.
local function job_in(seq, lane, record, from)
  local created, run_at, prio, score, key_length, task_length, digest_length, options_length, at =
    struct.unpack(JOB_FIELDS, record, from)
  at = at + key_length
  local function text(length)
    at = at + length
    return string.sub(record, at - length, at - 1)
  end
  local task, digest, options = text(task_length), text(digest_length), text(options_length)
  local body = string.sub(record, at)
  return {
    seq = seq, created = created, lane = lane, state = 'live', task = task, digest = digest,
    score = hex(score),
    prio = prio, run_at = run_at, attempts = 0, retry = -1, crashes = 0, error = false,
    started = false, flagged = false, route = 0, ttl = 0, expires = 0, options = options,
    aliases = false, ended = false, key = '', size = #body, body = body,
  }
end

local function compact_job(n, record) return job_in(n, n, record, 2) end

function listed_job(record)
  local lane, seq = struct.unpack('>I7I7', record, 2)
  return job_in(seq, lane, record, 16)
end

-- Key, task and digest in a record, from where it says when its job was accepted.
local function texts_in(record, from)
  local key_length, task_length, digest_length = struct.unpack('>I2I2I1', record, from + 24)
  local at = from + 33
  return string.sub(record, at, at + key_length - 1),
    string.sub(record, at + key_length, at + key_length + task_length - 1),
    string.sub(record, at + key_length + task_length, at + key_length + task_length + digest_length - 1)
end

-- Listed lanes, in `fifo` with one job in a turn and in `accumulate`: 'Q', lengths of key and task (2, 2),
-- due (7), next_due (7; 0 is none), priority (2), how many jobs are closed (4), the first run that stands apart and the one
-- after the last (4, 4), how many jobs there are (4), the last one's score (8), length of the front (2); then
-- key, task (in `accumulate`: all have the same), and the seqs (7 bytes each) at the front and at the end. Between them are the runs,
-- in `runs`. The jobs are in `jobs`.
--   fifo        due and priority are the head's; who claims the lane has its head, `closed` is 0
--   accumulate  due is the lane's, priority the soonest of the open jobs; a claim closes all jobs
local LIST_FIELDS = '>I2I2I7I7I2I4I4I4I4c8I2'
local RUN_BYTES = 32 * 7 -- so much of what is appended is rewritten with each job
local NO_PRIO = 65535

local function read_list(id, record)
  local key_length, task_length, due, next_due, prio, closed, first, next_run, jobs_count, last, front_length, at =
    struct.unpack(LIST_FIELDS, record, 2)
  local front = at + key_length + task_length
  return {
    id = id, due = due, next_due = next_due, prio = prio, closed = closed, first = first, next = next_run,
    count = jobs_count, last = last, key = string.sub(record, at, at + key_length - 1),
    task = string.sub(record, at + key_length, front - 1),
    front = string.sub(record, front, front + front_length - 1),
    fill = string.sub(record, front + front_length),
  }
end

local function list_record(q)
  return 'Q' .. struct.pack(LIST_FIELDS, #q.key, #q.task, q.due, q.next_due, q.prio, q.closed, q.first,
    q.next, q.count, q.last, #q.front) .. q.key .. q.task .. q.front .. q.fill
end

local function head_in(q) return number_in(string.sub(q.front, 1, 7)) end

local function run_name(q, number) return q.id .. struct.pack('>I4', number) end

local function append_to(q, seq, score)
  q.count, q.last = q.count + 1, score
  q.fill = q.fill .. seq
  if #q.fill < RUN_BYTES then return end
  if q.front == '' then q.front = q.fill
  else
    later('HSET', K.runs, run_name(q, q.next), q.fill)
    q.next = q.next + 1
  end
  q.fill = ''
end

-- Removes the first n seqs and returns them.
local function take_first(q, n)
  q.count = q.count - n
  local taken = {}
  while n > 0 do
    local some = math.min(n, #q.front / 7)
    taken[#taken + 1] = string.sub(q.front, 1, some * 7)
    q.front = string.sub(q.front, some * 7 + 1)
    n = n - some
    if q.front == '' then
      if q.first == q.next then q.front, q.fill = q.fill, ''
      else
        local name = run_name(q, q.first)
        q.front, q.first = call('HGET', K.runs, name), q.first + 1
        later('HDEL', K.runs, name)
      end
    end
  end
  return table.concat(taken)
end

-- The seqs in a list, as a list of 7 bytes each.
local function ids_in(q)
  local parts = { q.front }
  for number = q.first, q.next - 1 do parts[#parts + 1] = call('HGET', K.runs, run_name(q, number)) end
  parts[#parts + 1] = q.fill
  local all, list = table.concat(parts), {}
  for at = 1, #all, 7 do list[#list + 1] = string.sub(all, at, at + 6) end
  return list
end

