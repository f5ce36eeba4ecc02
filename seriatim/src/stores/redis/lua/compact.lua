-- Compact forms -----------------------------------------------------------------------------------

-- Three kinds of values are bytes instead of MessagePack, so that a batch needs few commands and little Lua per job.
-- The content after the first byte:
--
--   'S'  a lane with one job that never ran and has no special options: created (7 bytes), run_at (7),
--        priority (2), score (8 bytes with the order of the scores), lengths of key (2), task (2),
--        digest (1) and options (4), then these and the payload. The job's seq is the lane's number.
--   'J'  a job in a listed lane: lane (7), seq (7), then as in 'S'.
--   'Q'  a listed lane: one with several such jobs in order of arrival (below).
--
-- A claim leaves 'S' unchanged, and in `fifo` 'Q': the claimed lane is in `busy`. Any other operation first unfolds
-- such a lane into general records.

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

-- The job in a record; `from` is the offset of its creation time.
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

-- Key, task and digest in a record; `from` is the offset of its job's creation time.
local function texts_in(record, from)
  local key_length, task_length, digest_length = struct.unpack('>I2I2I1', record, from + 24)
  local at = from + 33
  return string.sub(record, at, at + key_length - 1),
    string.sub(record, at + key_length, at + key_length + task_length - 1),
    string.sub(record, at + key_length + task_length, at + key_length + task_length + digest_length - 1)
end

-- Listed lanes, in `fifo` with one job per turn and in `accumulate`: 'Q', due (7), next_due (7; 0 is none), priority
-- (2), number of jobs (4), the last one's score (8), length of the front (2), lengths of key and task (2, 2), number
-- of closed jobs (4), the first separate run and the one after the last (4, 4); then key, task (in `accumulate`: all
-- have the same), and seqs (7 bytes each): the end of the list, and its front in reverse order. Between them are the
-- runs, in `runs`. The jobs are in `jobs`.
--   fifo        due and priority are the head's; a claim owns the head, `closed` is 0
--   accumulate  due is the lane's, priority the lowest number of the open jobs; a claim closes all jobs
local LIST_FIELDS = '>I7I7I2I4c8I2I2I2I4I4I4'
local LIST_CHANGING = '>I7I7I2I4c8I2' -- changes when a job is appended or ends
local CHANGING_END, TEXTS_AT = 31, 48
local RUN_BYTES = 16 * 7 -- appended seqs up to this size are rewritten with each job
local NO_PRIO = 65535

local function read_list(id, record)
  local due, next_due, prio, jobs_count, last, front_length, key_length, task_length, closed, first, next_run =
    struct.unpack(LIST_FIELDS, record, 2)
  local fill = TEXTS_AT + key_length + task_length
  return {
    id = id, due = due, next_due = next_due, prio = prio, closed = closed, first = first, next = next_run,
    count = jobs_count, last = last, key = string.sub(record, TEXTS_AT, TEXTS_AT + key_length - 1),
    task = string.sub(record, TEXTS_AT + key_length, fill - 1),
    fill = string.sub(record, fill, -front_length - 1),
    front = string.sub(record, #record - front_length + 1),
  }
end

local function list_record(q)
  return 'Q' .. struct.pack(LIST_FIELDS, q.due, q.next_due, q.prio, q.count, q.last, #q.front, #q.key, #q.task,
    q.closed, q.first, q.next) .. q.key .. q.task .. q.fill .. q.front
end

local function head_in(q) return number_in(string.sub(q.front, -7)) end

local function run_name(q, number) return q.id .. struct.pack('>I4', number) end

local function backwards(seqs)
  local list = {}
  for at = #seqs - 6, 1, -7 do list[#list + 1] = string.sub(seqs, at, at + 6) end
  return table.concat(list)
end

-- The end of the list is long: move it to the front or to a run.
local function put_away(q)
  if q.front == '' then q.front = backwards(q.fill)
  else
    call('HSET', K.runs, run_name(q, q.next), q.fill)
    q.next = q.next + 1
  end
  q.fill = ''
end

local function append_to(q, name, score)
  q.count, q.last = q.count + 1, score
  if q.front == '' then q.front = name else q.fill = q.fill .. name end
  if #q.fill >= RUN_BYTES then put_away(q) end
end

-- Refills an empty front from the next run or the end.
local function refill(q)
  while q.front == '' and q.first < q.next do
    local name = run_name(q, q.first)
    q.front, q.first = backwards(call('HGET', K.runs, name)), q.first + 1
    later('HDEL', K.runs, name)
  end
  if q.front == '' then q.front, q.fill = backwards(q.fill), '' end
end

local remove_from
do
local function without(seqs, name)
  for at = 1, #seqs, 7 do
    if string.sub(seqs, at, at + 6) == name then
      return string.sub(seqs, 1, at - 1) .. string.sub(seqs, at + 7)
    end
  end
end

-- Removes a seq from the middle; false if it is not there.
function remove_from(q, name)
  local front, fill = without(q.front, name), without(q.fill, name)
  if front then q.front = front
  elseif fill then q.fill = fill
  else
    local number, rest = q.first, nil
    while number < q.next and not rest do
      rest = without(call('HGET', K.runs, run_name(q, number)), name)
      if rest then call('HSET', K.runs, run_name(q, number), rest) end
      number = number + 1
    end
    if not rest then return false end
  end
  q.count = q.count - 1
  refill(q)
  return true
end

end

-- Removes the first n seqs and adds them to a list.
local function take_first(q, n, taken)
  q.count = q.count - n
  while n > 0 do
    local some = math.min(n, #q.front / 7)
    for i = 1, some do taken[#taken + 1] = string.sub(q.front, #q.front - 7 * i + 1, #q.front - 7 * i + 7) end
    q.front = string.sub(q.front, 1, #q.front - 7 * some)
    n = n - some
    refill(q)
  end
end

-- The seqs of a list, 7 bytes each.
local function ids_in(q)
  local parts = { backwards(q.front) }
  for number = q.first, q.next - 1 do parts[#parts + 1] = call('HGET', K.runs, run_name(q, number)) end
  parts[#parts + 1] = q.fill
  local all, list = table.concat(parts), {}
  for at = 1, #all, 7 do list[#list + 1] = string.sub(all, at, at + 6) end
  return list
end

