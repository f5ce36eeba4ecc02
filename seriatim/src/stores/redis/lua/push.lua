-- Adds jobs. ARGV: dry, now, version, what is accepted (0 all, 1 only jobs that join an existing lane, 2 none; a
-- remembered idempotency key is recognized in any case: see layout.rs), lowest token, then 's' and the jobs, all
-- plain; or 'm' and the jobs, each with 's' or 'g' before it. A plain one is one text: run time (n, i or @ and 7
-- bytes), priority (2 bytes), whether it has a score (0 or 1), score (8 bytes), and the end of a compact record. Any
-- other ('g') is 13 fields. Answers {'OK', now, {seq, status, ...}, last token} with {seq}, status, created for those
-- created at another time and status 3 for those not accepted; {'STALE'} or {'ROUTE', index}.
local FIELDS = 13
local dry, takes = ARGV[1] == '1', ARGV[4]
NOW = clock(ARGV[2])

-- The jobs: where each begins in ARGV, its key, and the text of a plain one.
local jobs_max, starts, job_keys, texts = 0, {}, {}, {}
local keyed, is_bound

local function read_plain(at)
  jobs_max = jobs_max + 1
  local text = ARGV[at]
  texts[jobs_max], starts[jobs_max] = text, at
  local high, low = string.byte(text, 20, 21)
  local length = high * 256 + low
  job_keys[jobs_max] = length == 0 and '' or string.sub(text, 29, 28 + length)
end

local function read_batch()
  local i, mixed = 7, ARGV[6] == 'm'
  while i <= #ARGV do
    if not mixed then
      read_plain(i)
      i = i + 1
    elseif ARGV[i] == 's' then
      read_plain(i + 1)
      i = i + 2
    else
      jobs_max = jobs_max + 1
      texts[jobs_max], starts[jobs_max], job_keys[jobs_max] = false, i + 1, ARGV[i + 1]
      i = i + FIELDS + 1
    end
  end
end

-- Looks up the lanes of all keys together. Appending to a compact lane makes it a listed one.
local records, busy, appends = {}, {}, false
local function look_up_busy(lane_ids)
  for i, held in ipairs(fields(K.busy, lane_ids)) do busy[lane_ids[i]] = held end
end

local function look_up()
  local keys, known = {}, {}
  for i = 1, jobs_max do
    local key = job_keys[i]
    if ids[key] == nil then
      ids[key] = false
      keys[#keys + 1] = key
    end
  end
  for i, id in ipairs(fields(K.keys, keys)) do
    ids[keys[i]] = id
    if id then known[#known + 1] = id end
  end
  local compact = {}
  for i, record in ipairs(fields(K.lanes, known)) do
    if is_compact(record) then records[known[i]], compact[#compact + 1] = record, known[i]
    elseif is_listed(record) then records[known[i]] = record
    else
      local n = number_in(known[i])
      lanes[n] = read_lane(n, record)
    end
  end
  if appends then look_up_busy(compact) end
end

local function route_of_lane(id)
  local l = lanes[number_in(id)]
  return l and route_text(l.route) or NO_ROUTE
end

local function check()
  if not S or num(S.version) ~= ARGV[3] then return { 'STALE' } end
  keyed, is_bound = S.mode ~= 'parallel', S.mode == 'accumulate' or S.mode == 'fifo'
  appends = S.mode == 'accumulate' or (S.mode == 'fifo' and S.take == 1)
  read_batch()
  for i = 1, jobs_max do
    if (job_keys[i] ~= '') ~= keyed then return { 'STALE' } end
  end
  if not keyed then return end
  look_up()
  if not is_bound or takes == '2' then return end
  local bound = {}
  for i = 1, jobs_max do
    local at, key, wanted, idem = starts[i], job_keys[i], NO_ROUTE, ''
    if not texts[i] then
      wanted, idem = ARGV[at + 7] .. '\0' .. ARGV[at + 8], ARGV[at + 11]
    end
    if not bound[key] then bound[key] = ids[key] and route_of_lane(ids[key]) or wanted end
    local repeated = idem ~= '' and call('HEXISTS', K.idem, key .. '\0' .. idem) == 1
    if bound[key] ~= wanted and not repeated then return { 'ROUTE', i - 1 } end
  end
end

local function due_of(text)
  local kind, value = string.sub(text, 1, 1), string.sub(text, 2)
  if kind == 'n' then return NOW end
  if kind == 'i' then return after(tonumber(value)) end
  return tonumber(value)
end

-- Now in Unix seconds, as 8 bytes with the order of (positive) doubles.
local function score_now()
  if S.mode == 'fifo' then return '\128\0\0\0\0\0\0\0' end
  local bytes = struct.pack('>d', NOW / 1000000)
  return string.char(string.byte(bytes, 1) + 128) .. string.sub(bytes, 2)
end

local function remembered(field)
  local known = call('HGET', K.idem, field)
  if not known then return end
  local seq, created, until_ = cmsgpack.unpack(known)
  if until_ > NOW or is_known(seq) then return seq, created end
end

local function is_taken(key)
  return takes == '0' or (takes == '1' and keyed and ids[key])
end

local now_score = S and score_now()
local function job_at(i)
  local body = ARGV[i + 2]
  local j = {
    seq = next_seq(), created = NOW, lane = 0, state = 'live', task = ARGV[i + 1],
    digest = ARGV[i + 3], score = ARGV[i + 4], prio = tonumber(ARGV[i + 5]),
    run_at = due_of(ARGV[i + 6]), attempts = 0, retry = -1, crashes = 0, error = false,
    started = false, flagged = false, route = route_of(ARGV[i + 7] .. '\0' .. ARGV[i + 8]),
    ttl = tonumber(ARGV[i + 9]), expires = tonumber(ARGV[i + 10]), options = ARGV[i + 12],
    aliases = false, ended = false, key = '', size = #body, body = body,
  }
  if j.score == '' then j.score = hex(now_score) end
  return j
end

-- The digest in the text of a plain job.
local digests = {}
local function digest_in(i)
  if digests[i] then return digests[i] end
  local text = texts[i]
  local key_length, task_length, digest_length = struct.unpack('>I2I2I1', text, 20)
  local at = 29 + key_length + task_length
  digests[i] = string.sub(text, at, at + digest_length - 1)
  return digests[i]
end

-- The equal waiting jobs, by lane and digest, as looked up so far. Those of lanes from before the batch are looked up
-- together; a compact lane's record has its own.
local equals = {}
local function look_for_equals()
  if not S.merges or takes == '2' then return end
  local wanted = {}
  for i = 1, jobs_max do
    local id = ids[job_keys[i]]
    local digest = id and (texts[i] and digest_in(i) or ARGV[starts[i] + 3])
    local field = id and id .. digest
    if field and equals[field] == nil and not (records[id] and is_compact(records[id])) then
      equals[field] = false
      wanted[#wanted + 1] = field
    end
  end
  for i, seq in ipairs(fields(K.equal, wanted)) do equals[wanted[i]] = seq end
end

local function equal_of(field)
  if equals[field] == nil then equals[field] = call('HGET', K.equal, field) end
  return equals[field]
end

-- The state of waiting lanes before jobs were appended, and their first member since.
local before = {}
local function remember(l, j)
  if before[l] == nil then
    before[l] = l.open > 0 and not l.claimed_at
      and { due = l.due, first = open_member(l, j), prio = j.prio }
  end
end

-- Like `insert`, but deferred: in `fifo` and `accumulate` only equal jobs are read in between, and `equals` and `jobs`
-- have them.
local function append(l, j, field)
  make_room(l, j)
  l.open = l.open + 1
  j.lane = l.n
  if j.expires > 0 then later('ZADD', K.expiring, num(j.expires), pad(j.seq)) end
  local member, was = open_member(l, j), before[l]
  if was then
    if member < was.first then was.first = member end
    was.prio = math.min(was.prio, j.prio)
  end
  later('ZADD', K.open, 0, member)
  if S.mode == 'accumulate' then later('ZADD', K.prios, 0, prio_member(l, j)) end
  if field then
    later('HSET', K.equal, field, id_of(j.seq))
    equals[field] = id_of(j.seq)
  end
  jobs[j.seq] = j
end

-- Whether a lane keeps its position after the appended jobs.
local function stays(l, was)
  if S.mode == 'fifo' then
    local first = members(K.open, l, 1)[1]
    return first and first < was.first
  end
  if l.due ~= was.due then return false end
  if not l.ready then return l.wake or l.held or l.paused end
  local class, prio = struct.unpack('>I3I2', l.ready)
  return was.prio >= prio
end

-- For a lane that keeps its position, only the record is written.
local function keep_places()
  local others = {}
  for _, l in ipairs(touched) do
    if before[l] and stays(l, before[l]) then later('HSET', K.lanes, id_of(l.n), lane_record(l))
    else others[#others + 1] = l end
  end
  touched = others
  write_out()
end

-- Merges two equal jobs. Pending writes go first: they may affect the same job.
local function merge(l, queued, j)
  write_out()
  before[l] = false
  take(l, queued)
  queued.score = merged_score(queued.score, j.score)
  queued.prio = math.min(queued.prio, j.prio)
  arrive(l, j.run_at, true)
  insert(l, queued)
  save_job(queued)
end

-- Puts a new job into its lane; returns the job that now represents it, and whether it merged.
local function put(key, j)
  local l = key ~= '' and lane_of_key(key)
  if not l then l = open_lane(j.seq, key, j.run_at, j.route) end
  touch(l)
  local field = S.merges and j.digest ~= '' and id_of(l.n) .. j.digest
  local equal = field and equal_of(field)
  local queued = equal and job_of(number_in(equal))
  if queued then
    merge(l, queued, j)
    return queued, 1
  end
  local is_put_off = S.mode == 'fifo' or S.mode == 'accumulate'
  if is_put_off then remember(l, j) end
  arrive(l, j.run_at, false)
  if is_put_off then append(l, j, field) else insert(l, j) end
  if j.size > INLINE_BYTES_MAX then
    call('HSET', K.bodies, num(j.seq), j.body)
    j.body = false
  end
  if is_put_off then later('HSET', K.jobs, id_of(j.seq), job_record(j)) else save_job(j) end
  count('jobs', 1)
  return j, 0
end

local refusal = check()
if refusal then return refusal end
if dry then return { 'OK', {} } end
if ARGV[5] ~= '0' then
  S.token, S.counted = math.max(S.token, tonumber(ARGV[5])), true
end

if keyed then look_for_equals() end
local answer, now_bytes = {}, id_of(NOW)
local function tell(seq, created, status)
  local at = #answer
  answer[at + 1], answer[at + 2], answer[at + 3] = seq, status, created
end

-- Compact records to be written together.
local new_lanes, new_keys, new_ready, new_wakes = {}, {}, {}, {}
local function flush()
  many('HSET', K.lanes, new_lanes)
  many('HSET', K.keys, new_keys)
  many('ZADD', K.ready, new_ready)
  many('ZADD', K.wake, new_wakes)
  new_lanes, new_keys, new_ready, new_wakes = {}, {}, {}, {}
end

-- When a plain job is to run.
local function time_in(text)
  local kind = string.byte(text, 1)
  if kind == 110 then return NOW, now_bytes end
  local value = struct.unpack('>I7', text, 2)
  if kind == 105 then value = after(value) end
  return value, id_of(value)
end

-- Plain jobs are mostly the same up to their lengths, so values derived from that part are cached: run_at, priority,
-- score, the beginning of the record, and of the ready member (a number: the wake time of a scheduled lane).
local kinds = {}
local function kind_of(text)
  local like = string.sub(text, 1, 19)
  local kind = kinds[like]
  if kind then return kind end
  local run_at, bytes = time_in(text)
  local prio = string.sub(text, 9, 10)
  local score = string.byte(text, 11) == 49 and string.sub(text, 12, 19) or now_score
  kind = {
    run_at = run_at, prio = struct.unpack('>I2', prio), score = score,
    head = now_bytes .. bytes .. prio .. score,
    place = run_at <= NOW and '\0\0\0' .. prio .. bytes or run_at,
  }
  kinds[like] = kind
  return kind
end

local function compact(text, kind) return 'S' .. kind.head .. string.sub(text, 20) end

local opened, listed_count = 0, 0
local function put_compact(key, text)
  local seq = next_seq()
  local id, kind = id_of(seq), kind_of(text)
  local record, place_of = compact(text, kind), kind.place
  local at = #new_lanes
  new_lanes[at + 1], new_lanes[at + 2] = id, record
  if keyed then
    new_keys[at + 1], new_keys[at + 2] = key, id
    ids[key], records[id] = id, record
  end
  if type(place_of) == 'string' then
    at = #new_ready
    new_ready[at + 1], new_ready[at + 2] = 0, place_of .. id
  else
    at = #new_wakes
    new_wakes[at + 1], new_wakes[at + 2] = num(place_of), id
  end
  opened = opened + 1
  at = #answer
  answer[at + 1], answer[at + 2] = seq, 0
end

-- The new records of listed lanes in this batch, and other writes for them.
local changed, jobs_listed, equal_listed, held = {}, {}, {}, {}
local pending = {} -- records of listed jobs that this batch wrote or changed
local function add(list, name, value)
  local at = #list
  list[at + 1], list[at + 2] = name, value
end

-- From this number of jobs, a listed lane of `accumulate` is unfolded, which blocks the server for long if there are
-- many. The limit varies up to twice this, so that lanes growing in parallel are not unfolded at the same time.
local LISTED_MAX = 2000

local put_listed
do -- Lua limits a function to 200 local names
-- The field under which an equal job would find the job of a compact record.
local function digest_of_compact(id, record)
  if not S.merges or busy[id] then return end
  local _, _, digest = texts_in(record, 2)
  return id .. digest
end

-- Converts a compact lane into a listed one.
local function list_up(id, record)
  local key, task = texts_in(record, 2)
  local run_at, prio, score = struct.unpack('>I7I2c8', record, 9)
  local q = {
    id = id, due = run_at, next_due = 0, prio = prio, closed = 0, first = 0, next = 0, count = 1, last = score,
    key = key, task = S.mode == 'accumulate' and task or '', front = id, fill = '',
  }
  if busy[id] then
    add(held, id, string.sub(busy[id], 1, 7) .. '\0')
    if S.mode == 'accumulate' then q.closed, q.prio = 1, NO_PRIO end
  end
  local field = digest_of_compact(id, record)
  if field then
    add(equal_listed, field, id)
    equals[field] = id
  end
  pending[id] = 'J' .. id .. id .. string.sub(record, 2)
  add(jobs_listed, id, pending[id])
  return list_record(q)
end

-- Whether a plain job can be appended to a record without other changes: it comes last in order, and its lane keeps
-- its position.
local function fits(id, record, text, kind)
  local is_one = is_compact(record)
  if S.mode == 'fifo' then
    local last = is_one and string.sub(record, 18, 25) or string.sub(record, 22, 29)
    return kind.score == last or hex(kind.score) > hex(last)
  end
  local due, prio, key_length, task_length, task_at, is_claimed
  if is_one then
    due, prio, key_length, task_length = struct.unpack('>I7I2xxxxxxxxI2I2', record, 9)
    task_at, is_claimed = 35 + key_length, busy[id]
  else
    local closed, jobs_count
    due, prio, jobs_count = struct.unpack('>I7xxxxxxxI2I4', record, 2)
    if jobs_count >= LISTED_MAX and jobs_count >= LISTED_MAX + number_in(id) % LISTED_MAX then return false end
    key_length, task_length, closed = struct.unpack('>I2I2I4', record, 32)
    task_at, is_claimed = TEXTS_AT + key_length, closed > 0
  end
  local its_key, its_task = struct.unpack('>I2I2', text, 20)
  if its_task ~= task_length then return false end
  if its_task > 0 and string.sub(text, 29 + its_key, 28 + its_key + its_task)
    ~= string.sub(record, task_at, task_at + task_length - 1) then return false end
  if is_claimed then return true end
  return kind.prio >= prio and (S.due ~= 'earliest' or kind.run_at >= due)
end

-- A listed lane's record with one more seq; without a name if the job was merged.
local function arrived(id, record, name, kind)
  local due, next_due, prio, jobs_count, last, front_length, key_length, task_length, closed =
    struct.unpack(LIST_FIELDS, record, 2)
  if closed > 0 then
    prio = math.min(prio, kind.prio)
    if next_due == 0 then next_due = kind.run_at
    elseif S.due == 'earliest' then next_due = math.min(next_due, kind.run_at) end
  end
  if not name then
    return 'Q' .. struct.pack('>I7I7I2', due, next_due, prio) .. string.sub(record, 18)
  end
  record = 'Q' .. struct.pack(LIST_CHANGING, due, next_due, prio, jobs_count + 1, kind.score, front_length)
    .. string.sub(record, CHANGING_END + 1, #record - front_length) .. name
    .. string.sub(record, #record - front_length + 1)
  if #record + 1 - TEXTS_AT - key_length - task_length - front_length < RUN_BYTES then return record end
  local q = read_list(id, record)
  put_away(q)
  return list_record(q)
end

local function is_less(a, b)
  local a_high, a_low = struct.unpack('>I4I4', a)
  local b_high, b_low = struct.unpack('>I4I4', b)
  return a_high < b_high or (a_high == b_high and a_low < b_low)
end

-- A record whose job merged with an equal one; `from` is the offset of its creation time.
local function merged(record, from, kind)
  local prio, score = struct.unpack('>I2c8', record, from + 14)
  if (S.merge == 'min') == is_less(kind.score, score) then score = kind.score end
  return string.sub(record, 1, from + 13) .. struct.pack('>I2c8', math.min(prio, kind.prio), score)
    .. string.sub(record, from + 24)
end

local function merge_listed(id, record, name, kind)
  local created
  if is_compact(record) then
    created = struct.unpack('>I7', record, 2)
    record = merged(record, 2, kind)
  else
    local job = pending[name] or call('HGET', K.jobs, name)
    created = struct.unpack('>I7', job, 16)
    pending[name] = merged(job, 16, kind)
    add(jobs_listed, name, pending[name])
    record = arrived(id, record, false, kind)
  end
  records[id], changed[id] = record, record
  tell({ number_in(name) }, created, 1)
  return true
end

-- Appends a plain job to the list of its lane, or merges it with an equal one there; false if that is not possible.
function put_listed(i, id)
  local record, text = appends and records[id], texts[i]
  if not record then return false end
  local kind = kind_of(text)
  if not fits(id, record, text, kind) then return false end
  local field = S.merges and id .. digest_in(i)
  if field and equals[field] then return merge_listed(id, record, equals[field], kind) end
  if field and is_compact(record) and field == digest_of_compact(id, record) then
    return merge_listed(id, record, id, kind)
  end
  if is_compact(record) then record = list_up(id, record) end
  local seq = next_seq()
  local name = id_of(seq)
  local job = 'J' .. id .. name .. kind.head .. string.sub(text, 20)
  add(jobs_listed, name, job)
  if field then
    add(equal_listed, field, name)
    equals[field], pending[name] = name, job
  end
  record = arrived(id, record, name, kind)
  records[id], changed[id] = record, record
  listed_count = listed_count + 1
  add(answer, seq, 0)
  return true
end

end

-- Writes everything collected, also for listed lanes.
local function flush_all()
  flush()
  local list = {}
  for id, record in pairs(changed) do add(list, id, record) end
  if not list[1] then return end
  many('HSET', K.lanes, list)
  many('HSET', K.jobs, jobs_listed)
  many('HSET', K.equal, equal_listed)
  many('HSET', K.busy, held)
  write_out()
  changed, jobs_listed, equal_listed, held, pending = {}, {}, {}, {}, {}
end

-- A plain job whose lane exists.
local function job_of_text(text)
  local seq = next_seq()
  local j = compact_job(seq, compact(text, kind_of(text)))
  j.lane = 0
  return j
end

-- Appends a plain job to the list of a lane with a general record: in `fifo`, if all other jobs come before it.
local function put_behind(l, text)
  if not appends or S.mode ~= 'fifo' then return false end
  local kind, q = kind_of(text), l.list
  local last = q and hex(q.last)
  if not q then
    write_out()
    local member = call('ZREVRANGEBYLEX', K.open, '(' .. pad(l.n) .. '~', '[' .. pad(l.n), 'LIMIT', 0, 1)[1]
    last = member and string.sub(member, 17, 32)
    q = {
      id = id_of(l.n), due = 0, next_due = 0, prio = 0, closed = 0, first = 0, next = 0, count = 0,
      last = kind.score, key = l.key, task = '', front = '', fill = '',
    }
  end
  if last and hex(kind.score) < last then return false end
  local seq = next_seq()
  local name = id_of(seq)
  local record = 'J' .. q.id .. name .. kind.head .. string.sub(text, 20)
  later('HSET', K.jobs, name, record)
  jobs[seq] = listed_job(record)
  remember(l, jobs[seq])
  touch(l)
  append_to(q, name, kind.score)
  l.list, l.open = q, l.open + 1
  count('jobs', 1)
  add(answer, seq, 0)
  return true
end

local function put_other(key, at)
  local idem = ARGV[at + 11]
  local field = key .. '\0' .. idem
  local seq, created
  if idem ~= '' then seq, created = remembered(field) end
  if seq then return tell({ seq }, created, 2) end
  if not is_taken(key) then return tell(0, nil, 3) end
  local j, status = put(key, job_at(at))
  if idem ~= '' then
    local until_ = NOW + S.remember
    call('HSET', K.idem, field, cmsgpack.pack(j.seq, j.created, until_))
    call('ZADD', K.idemold, num(until_), field)
  end
  tell({ j.seq }, j.created, status)
end

for i = 1, jobs_max do
  local key, text = job_keys[i], texts[i]
  if text and not is_taken(key) then
    tell(0, nil, 3)
  elseif text and (not keyed or not ids[key]) then
    put_compact(key, text)
  elseif not text or not put_listed(i, ids[key]) then
    flush_all()
    local l
    if keyed and ids[key] then
      l = lane_of(number_in(ids[key]), records[ids[key]])
      records[ids[key]] = nil
    end
    if text and l and put_behind(l, text) then l = nil
    elseif text then
      local j, status = put(key, job_of_text(text))
      tell({ j.seq }, j.created, status)
    else
      put_other(key, starts[i])
    end
  end
end
if opened > 0 then
  rings = true
  count('jobs', opened)
  count('lanes', opened)
end
count('jobs', listed_count)
flush_all()
keep_places()
commit()
return { 'OK', NOW, answer, S.token }
