-- Adds jobs. ARGV: dry, now, version, what is accepted (0 all, 1 only jobs that join an existing lane, 2 none; a
-- remembered idempotency key is recognized in any case: see layout.rs), lowest token, for how long a job throttles its key
-- (0: not at all), whether further ones are refused (0 or 1), then 's' and the jobs, all plain; or 'm' and the jobs, each with
-- a letter before it. A plain one ('s') is one text: run time (n, i or @ and 7 bytes), priority (2 bytes), whether it has a score (0 or 1), score (8 bytes), and the
-- end of a record of one job.
-- With an idempotency key ('i'), that comes before it. With a payload that is apart ('p', 'j'), that comes behind it. Any other ('g') is 13 fields, with the run time as in the text. 'I', 'J' and 'G' are the same with a key of
-- the whole store (names.lua); 'h' and 'H' like 'g' and 'G' with a field for the past behind it: failures, when it was made,
-- first tried (0: unset) and, for 'd' and 'D', when it died, then '-', or '+' and the error. Answers {'OK', now, {seq, status, ...},
-- last token} with {seq}, status, created for those created at another time, {seq, queue, shard} for those of a key of the store,
-- status 3 for those not accepted, and {seq}, 4, created, until when for those whose key is throttled; {'STALE'}, {'ROUTE', index} or
-- {'ROUTES'}: there are no more numbers for them.
--
-- Reads keys and the records of the keys' lanes. A job of a new lane writes lanes, keys and arrivals; one behind others,
-- jobs and its lane's record; a payload that is apart bodies.
local dry, takes = ARGV[1] == '1', ARGV[4]
NOW = clock(ARGV[2])

-- The jobs: where each begins in ARGV, its key, the text of a plain one, its idempotency key ('' is none), and whether that
-- is of the whole store.
local B = { max = 0, starts = {}, keys = {}, texts = {}, idems = {}, whole = {}, pasts = {}, dead = {}, bodies = {}, fields = {}, throttle = tonumber(ARGV[6]) }
B.refuses = ARGV[7] == '1'
local keyed
local records, busy, appends = {}, {}, false -- of the lanes of known keys, by id
-- Idempotency keys have no NUL: the two kinds of fields differ.
local function field_of(i)
  if B.whole[i] then return B.idems[i] end
  return B.keys[i] .. '\0' .. B.idems[i]
end

-- Looks at the batch and what is known of its keys. A function of functions: Lua makes inner ones sooner, and limits a
-- function to 200 local names.
local function check()
local texts, keys, idems, byte, sub = B.texts, B.keys, B.idems, string.byte, string.sub
local function read_plain(i, text, idem)
  texts[i], idems[i] = text, idem
  local high, low = byte(text, 20, 21)
  local length = high * 256 + low
  keys[i] = length == 0 and '' or sub(text, 29, 28 + length)
end

-- Plain jobs with others: where their text is behind the letter, and whether a payload follows.
local PLAIN = { s = { text = 1 }, i = { text = 2 }, p = { text = 1, is_apart = true }, j = { text = 2, is_apart = true } }
local function read_mixed()
  local at, i = 9, 0
  while at <= #ARGV do
    i = i + 1
    local letter = string.lower(ARGV[at])
    local kind = PLAIN[letter]
    B.whole[i] = ARGV[at] ~= letter
    if kind then
      at = at + kind.text
      read_plain(i, ARGV[at], kind.text == 2 and ARGV[at - 1] or '')
      if kind.is_apart then B.bodies[i], at = ARGV[at + 1], at + 1 end
      at = at + 1
    else
      B.dead[i], texts[i], B.starts[i], keys[i], idems[i] = letter == 'd', false, at + 1, ARGV[at + 1], ARGV[at + 12]
      at = at + 14 -- the letter and 13 fields
      if letter ~= 'g' then B.pasts[i], at = ARGV[at], at + 1 end
    end
  end
  return i
end

local function read_batch()
  if ARGV[8] == 'm' then return read_mixed() end
  for i = 1, #ARGV - 8 do
    local text = ARGV[i + 8]
    local high, low = byte(text, 20, 21)
    texts[i], idems[i], keys[i] = text, '', high + low > 0 and sub(text, 29, 28 + high * 256 + low) or ''
  end
  return #ARGV - 8
end

-- Looks up the lanes of all keys together: the records of those that may be changed as bytes, the others as lanes.
local function look_up()
  local keys, known, singles, count = {}, {}, {}, 0
  for i = 1, B.max do
    local key = B.keys[i]
    if ids[key] == nil then
      count = count + 1
      ids[key], keys[count] = false, key
    end
  end
  count = 0
  for i, id in ipairs(fields(K.keys, keys)) do
    if id then
      count = count + 1
      ids[keys[i]], known[count] = id, id
    end
  end
  for i, record in ipairs(fields(K.lanes, known)) do
    records[known[i]] = record
    if is_single(record) then singles[#singles + 1] = known[i] end
  end
  if not appends then return end
  for i, held in ipairs(fields(K.busy, singles)) do busy[singles[i]] = held end
end

local function route_of_lane(id)
  if is_single(records[id]) or is_bare(records[id]) then return NO_ROUTE end
  local l = {}
  L.read_state(l, read_list(l, records[id]))
  return J.route_text(l.route)
end

-- The names of a job that is remembered: its number, and with a key of the store its place; when it was created; and whether
-- it must still be stored to count.
function B.first(known)
  local seq, created, until_, queue, shard = cmsgpack.unpack(known)
  return { seq, queue, shard }, created, until_ <= NOW
end

local function is_repeat(i)
  local known = B.idems[i] ~= '' and call('HGET', B.whole[i] and W.idem or K.idem, field_of(i))
  if not known then return false end
  local names, _, has_expired = B.first(known)
  return not has_expired or W.knows(names[1], names[2], names[3])
end

local function check_routes()
  local bound = {}
  for i = 1, B.max do
    local at, key, wanted = B.starts[i], B.keys[i], NO_ROUTE
    if not B.dead[i] then
      if not B.texts[i] then wanted = ARGV[at + 7] .. '\0' .. ARGV[at + 8] end
      if not bound[key] then bound[key] = ids[key] and route_of_lane(ids[key]) or wanted end
      if bound[key] ~= wanted and not is_repeat(i) then return { 'ROUTE', i - 1 } end
    end
  end
end

-- Whether there are numbers for the nodes and consumer groups that these jobs are bound to.
local function has_numbers()
  local new, count = {}, 0
  for _, at in pairs(B.starts) do
    if ARGV[at + 7] ~= '' or ARGV[at + 8] ~= '' then
      local text = string.match(ARGV[at + 7] .. '\0' .. ARGV[at + 8], '^[^%z]*%z[^%z]*')
      if text ~= NO_ROUTE and not new[text] and call('HEXISTS', K.routes, text) == 0 then
        new[text], count = true, count + 1
      end
    end
  end
  return count == 0 or tonumber(call('HGET', K.meta, 'routes') or '0') + count <= J.ROUTES_MAX
end

  if not S or num(S.version) ~= ARGV[3] then return { 'STALE' } end
  keyed, appends = S.mode ~= 'parallel', S.mode == 'accumulate' or S.mode == 'fifo'
  B.max = read_batch()
  for i = 1, B.max do
    if (B.keys[i] ~= '') ~= keyed then return { 'STALE' } end
  end
  if not has_numbers() then return { 'ROUTES' } end
  if not keyed then return end
  look_up()
  if appends and takes ~= '2' then return check_routes() end
end

-- A run time, and the same as in a record.
local now_bytes = id_of(NOW)
local function time_in(text)
  local kind = string.byte(text, 1)
  if kind == 110 and not S.window then return NOW, now_bytes end
  if kind == 110 then return after(S.window.quiet), id_of(after(S.window.quiet)) end
  local value = struct.unpack('>I7', text, 2)
  if kind == 105 then value = after(value) end
  return value, id_of(value)
end

-- Now in Unix seconds, as 8 bytes with the order of (positive) doubles.
local function score_now()
  if S.mode == 'fifo' then return '\128\0\0\0\0\0\0\0' end
  local bytes = struct.pack('>d', NOW / 1000000)
  return string.char(string.byte(bytes, 1) + 128) .. string.sub(bytes, 2)
end

local now_score = S and score_now()
local function job_at(i, past)
  local body = ARGV[i + 2]
  local j = {
    seq = next_seq(), created = NOW, lane = 0, state = 'live', task = ARGV[i + 1],
    digest = ARGV[i + 3], score = ARGV[i + 4], prio = tonumber(ARGV[i + 5]),
    run_at = time_in(ARGV[i + 6]), attempts = 0, retry = -1, crashes = 0, error = false,
    started = false, flagged = false, route = J.route_of(ARGV[i + 7] .. '\0' .. ARGV[i + 8]),
    ttl = tonumber(ARGV[i + 9]), expires = tonumber(ARGV[i + 10]), options = ARGV[i + 12],
    aliases = false, ended = false, key = '', size = #body, body = body,
  }
  if j.score == '' then j.score = hex(now_score) end
  if past then
    local failures, made, tried, died, why = string.match(past, '^(%d+) (%d+) (%d+) (%d+) (.*)$')
    j.attempts, j.retry, j.error, j.ended = tonumber(failures), failures - 1, optional(why), tonumber(died)
    if made ~= '0' then j.created = tonumber(made) end
    if tried ~= '0' then j.started = tonumber(tried) end
  end
  return j
end

-- The equal waiting jobs, by lane and digest, as looked up so far. Those of lanes from before the batch are looked up
-- together; the record of a lane of one job has its own.
local equals = {}
local function look_for_equals()
  if not S.merges or takes == '2' then return end
  local wanted = {}
  for i = 1, B.max do
    local id = ids[B.keys[i]]
    local field = id and B.texts[i] and id .. digest_in(B.texts[i], 20)
    B.fields[i] = field
    if field and equals[field] == nil and not is_single(records[id]) then
      equals[field] = false
      wanted[#wanted + 1] = field
    end
  end
  for i, seq in ipairs(fields(K.equal, wanted)) do equals[wanted[i]] = seq end
end

-- The job of a list that equals one with this digest.
local function equal_in(id, field)
  if not records[id] or is_single(records[id]) then return false end
  if equals[field] == nil then equals[field] = call('HGET', K.equal, field) end
  return equals[field]
end

local refusal = check()
if refusal then return refusal end
if dry then
  call('SETRANGE', P .. 'nothing', 0, '') -- writes nothing, but a server whose memory is full refuses it
  return { 'OK', {} }
end
if ARGV[5] ~= '0' then
  S.token, S.counted = math.max(S.token, tonumber(ARGV[5])), true
end

if keyed then look_for_equals() end
local answer, told = {}, 0
local function tell(seq, status, created, until_)
  answer[told + 1], answer[told + 2] = seq, status
  told = told + 2
  if created then
    answer[told + 1], answer[told + 2] = created, until_
    told = told + (until_ and 2 or 1)
  end
end

-- New lanes of one job, to be written together. They arrive in order unless the clock went back.
local new = { lanes = {}, keys = {}, arrivals = {}, ready = {}, wakes = {}, bodies = {}, count = 0, pending = 0, arriving = 0 }
local function add(list, name, value)
  local at = #list
  list[at + 1], list[at + 2] = name, value
end

local function is_in_order()
  if new.in_order == nil then
    local last = call('LINDEX', K.arrivals, -1)
    new.in_order = not last or number_in(last) <= NOW
  end
  return new.in_order
end

-- Plain jobs are mostly the same up to their lengths, so values derived from that part are cached: run_at, priority,
-- score, and the beginning of the record.
local kind_of
do
local kinds = {}

function kind_of(text)
  local like = string.sub(text, 1, 19)
  local kind = kinds[like]
  if kind then return kind end
  local run_at, bytes = time_in(text)
  local prio_bytes = string.sub(text, 9, 10)
  local score = string.byte(text, 11) == 49 and string.sub(text, 12, 19) or now_score
  local prio = struct.unpack('>I2', prio_bytes)
  kind = {
    run_at = run_at, bytes = bytes, prio = prio, prio_bytes = prio_bytes, score = score,
    head = now_bytes .. bytes .. prio_bytes .. score,
    arrives = run_at == NOW and prio == ARRIVAL_PRIO and is_in_order(),
  }
  kind.begins = (kind.arrives and 's' or 'S') .. kind.head
  kinds[like] = kind
  return kind
end
end

if S and S.window then
  local w = S.window

  -- Whether a plain job leaves the due time of a lane as it is that waits.
  function w.leaves(record, id, text, kind)
    local size = size_in(text, 20)
    if is_single(record) then
      return w.keeps(struct.unpack('>I7', record, 9), w.latest(record, id) or 0, kind.run_at, 2, size + size_in(record, 26))
    end
    local due, next_due, jobs_count, bytes = struct.unpack('>I7I7xxI4xxxxxxxxI5', record, 2)
    return w.keeps(due, next_due, kind.run_at, jobs_count + 1, bytes + size)
  end
end

-- Keeps the payload of a plain job that is stored, if it is apart.
function B.keep_body(i, seq)
  if B.bodies[i] then add(new.bodies, num(seq), B.bodies[i]) end
end

local function put_single(key, text)
  local kind, seq, pending = kind_of(text), next_seq(), new.pending
  local id, at, lanes = id_of(seq), 2 * pending, new.lanes
  local record = kind.begins .. string.sub(text, 20)
  lanes[at + 1], lanes[at + 2] = id, record
  if keyed then
    new.keys[at + 1], new.keys[at + 2] = key, id
    ids[key], records[id] = id, record
  end
  new.pending = pending + 1
  if kind.arrives then
    local arriving = new.arriving + 1
    new.arrivals[arriving], new.arriving = now_bytes .. id, arriving
  elseif kind.run_at <= NOW then add(new.ready, 0, '\0\0\0' .. kind.prio_bytes .. kind.bytes .. id)
  else add(new.wakes, num(kind.run_at), id) end
  return seq
end

-- The new records of lists in this batch, and other writes for them.
local changed, jobs_listed, equal_listed, held, listed_count = {}, {}, {}, {}, 0
local pending = {} -- records of listed jobs that this batch wrote or changed

local put_listed, put_merged
do
-- The field under which an equal job would find the job of a lane of one.
local function field_of_single(id, record)
  if not S.merges or busy[id] then return end
  return id .. digest_in(record, 26)
end

-- Converts the record of a lane of one job into a list.
local function list_up(id, record)
  local l, size = list_of(id, record)
  if S.window and not busy[id] then l.next_due = S.window.latest(record, id) end
  if busy[id] then
    add(held, id, string.sub(busy[id], 1, 7) .. '\0')
    if S.mode == 'accumulate' then
      l.closed, l.edge, l.shut_prio, l.shut_bytes, l.prio, l.bytes = 1, number_in(id), l.prio, size, NO_PRIO, 0
    end
  end
  local field = field_of_single(id, record)
  if field then
    add(equal_listed, field, id)
    equals[field] = id
  end
  pending[id] = 'J' .. id .. id .. string.sub(record, 2)
  add(jobs_listed, id, pending[id])
  return list_record(is_arrival(record) and 'q' or 'Q', l, '')
end

local function is_less(a, b)
  local a_high, a_low = struct.unpack('>I4I4', a)
  local b_high, b_low = struct.unpack('>I4I4', b)
  return a_high < b_high or (a_high == b_high and a_low < b_low)
end

-- Whether a lane of one job can become a list with a plain job behind it: that is in order, and in `accumulate` it is like the other
-- one, and the lane keeps its position.
local function fits_single(id, record, text, kind)
  if S.mode == 'fifo' then return not is_less(kind.score, string.sub(record, 18, 25)) end
  local due, prio = struct.unpack('>I7I2', record, 9)
  local _, at, to = size_in(record, 26)
  local _, its_at, its_to = size_in(text, 20)
  if string.sub(text, its_at, its_to - 1) ~= string.sub(record, at, to - 1) then return false end
  return busy[id] or (kind.prio == prio and (S.due ~= 'earliest' or kind.run_at >= due)
    and (not S.window or S.window.leaves(record, id, text, kind)))
end

-- A list's record with a plain job, and the bytes of the seqs at its end, if the job can be appended without other changes: it is
-- in order, or the list is short; in `accumulate` it is like the others, and the lane keeps its position. Writes nothing.
local function with_job(id, record, text, kind, name)
  local due, next_due, prio, jobs_count, last, bytes, flags, front_length, _, closed, _, _, _, _, key_length, task_length,
    state_length = struct.unpack(LIST, record, 2)
  if state_length > 0 then return end
  local is_after = kind.score == last or not is_less(kind.score, last)
  if S.mode == 'accumulate' then
    if flags >= FAILED or jobs_count >= UNSORTED_MAX and (not is_after or flags % 2 == UNSORTED) then return end
    local task_at = TEXTS_AT + key_length
    local size, its_at, its_to = size_in(text, 20)
    if string.sub(text, its_at, its_to - 1) ~= string.sub(record, task_at, task_at + task_length - 1) then return end
    if closed == 0 then
      if kind.prio ~= prio or S.due == 'earliest' and kind.run_at < due
        or S.window and not S.window.leaves(record, id, text, kind) then return end
    else
      if closed < jobs_count and kind.prio ~= prio then return end
      prio = kind.prio
      if next_due == 0 then next_due = S.window and after(S.window.max_wait) or kind.run_at
      elseif S.due == 'earliest' then next_due = math.min(next_due, kind.run_at) end
    end
    bytes = bytes + size
    if not is_after and flags % 2 == 0 then flags = flags + UNSORTED end
  elseif not is_after then return end
  if is_after then last = kind.score end
  local letter, split = string.sub(record, 1, 1), #record - front_length
  record = letter .. struct.pack(LIST_CHANGING, due, next_due, prio, jobs_count + 1, last, bytes, flags, front_length)
    .. string.sub(record, CHANGING_END + 1, split) .. name .. string.sub(record, split + 1)
  return record, split + 8 - TEXTS_AT - key_length - task_length
end

-- A list's record, with a run of the seqs at its end if there are many.
local function put_away_of(id, record, bytes)
  if bytes < RUN_BYTES then return record end
  local l = { id = id }
  read_list(l, record)
  put_away(l)
  return list_record(string.sub(record, 1, 1), l, '')
end

-- Appends a plain job to the list of its lane; false if that is not simple.
function put_listed(id, text, field)
  local record = appends and records[id]
  if not record then return false end
  local kind, seq = kind_of(text), S.seq + 1
  local name = id_of(seq)
  if is_single(record) then
    if field and field == field_of_single(id, record) or not fits_single(id, record, text, kind) then return false end
    record = with_job(id, list_up(id, record), text, kind, name)
  else
    local bytes
    record, bytes = with_job(id, record, text, kind, name)
    if not record then return false end
    record = put_away_of(id, record, bytes)
  end
  next_seq()
  local job = 'J' .. id .. name .. kind.head .. string.sub(text, 20)
  add(jobs_listed, name, job)
  if field then
    add(equal_listed, field, name)
    equals[field], pending[name] = name, job
  end
  records[id], changed[id] = record, record
  listed_count = listed_count + 1
  return seq
end

-- Whether a merged job changes when a claimed lane is due next.
local function changes_due(record, kind)
  local next_due = struct.unpack('>I7', record, 9)
  if struct.unpack('>I4', record, CHANGING_END + 6) == 0 then return false end
  return next_due == 0 or (S.due == 'earliest' and kind.run_at < next_due)
end

-- Merges a plain job with an equal one that waits, if all that changes is the score, and the lane's order is not kept
-- by it. Returns the job's seq and when it was created.
function put_merged(id, text, field, name)
  local record = records[id]
  if not record then return end
  local single = is_single(record)
  if single then name = field == field_of_single(id, record) and id end
  if not name then return end
  local kind = kind_of(text)
  if not (single and fits_single or with_job)(id, record, text, kind, name) then return end
  local job = single and record or pending[name] or call('HGET', K.jobs, name)
  local from = single and 2 or 16
  local created, _, prio, score = struct.unpack('>I7I7I2c8', job, from)
  if prio ~= kind.prio or (not single and changes_due(record, kind)) then return end
  if (S.merge == 'min') ~= is_less(kind.score, score) then return name, created end
  if score == kind.score then return name, created end
  job = string.sub(job, 1, from + 15) .. kind.score .. string.sub(job, from + 24)
  if single then record = job
  else
    local due, next_due, its, jobs_count, last, bytes, flags, front_length = struct.unpack(LIST_CHANGING, record, 2)
    if jobs_count > UNSORTED_MAX then return end
    if flags % 2 == 0 then flags = flags + UNSORTED end
    if is_less(last, kind.score) then last = kind.score end
    record = string.sub(record, 1, 1)
      .. struct.pack(LIST_CHANGING, due, next_due, its, jobs_count, last, bytes, flags, front_length)
      .. string.sub(record, CHANGING_END + 1)
    pending[name] = job
    add(jobs_listed, name, job)
  end
  records[id], changed[id] = record, record
  return name, created
end
end

-- Writes everything collected.
local function flush()
  many('HSET', K.lanes, new.lanes)
  many('HSET', K.keys, new.keys)
  many('RPUSH', K.arrivals, new.arrivals)
  many('ZADD', K.ready, new.ready)
  many('ZADD', K.wake, new.wakes)
  many('HSET', K.bodies, new.bodies)
  new.lanes, new.keys, new.arrivals, new.ready, new.wakes, new.bodies = {}, {}, {}, {}, {}, {}
  new.count, new.pending, new.arriving = new.count + new.pending, 0, 0
  local list = {}
  for id, record in pairs(changed) do add(list, id, record) end
  if list[1] then
    many('HSET', K.lanes, list)
    many('HSET', K.jobs, jobs_listed)
    many('HSET', K.equal, equal_listed)
    many('HSET', K.busy, held)
    changed, jobs_listed, equal_listed, held, pending = {}, {}, {}, {}, {}
  end
  write_out()
end

local put_slowly
local function define_put_slowly()
local function note_arrival(l, run_at, merged)
  if S.window then return S.window.push(l, run_at, merged) end
  L.arrive(l, run_at, merged)
end

local function merge(l, queued, j)
  L.take(l, queued)
  queued.score = L.merged_score(queued.score, j.score)
  queued.prio = math.min(queued.prio, j.prio)
  note_arrival(l, j.run_at, true)
  L.enter(l, queued)
  if S.window then S.window.end_full(l) end
end

-- Puts a new job into its lane; returns the job that now represents it, and whether it merged.
local function put(key, j, text)
  local l = key ~= '' and L.lane_of_key(key)
  if not l then l = L.open_lane(j.seq, key, j.run_at, j.route) end
  touch(l)
  -- In `accumulate`, failures belong to the lane, and only the job that opens it sets them.
  if S.mode == 'accumulate' and not text then
    if l.count == 0 and l.strays == 0 and not l.token then l.retry, l.error = j.retry, j.error end
    j.retry, j.error = -1, false
  end
  j.ended = false
  local field = S.merges and j.digest ~= '' and l.id .. j.digest
  local equal = field and call('HGET', K.equal, field)
  local queued = equal and J.job_of(number_in(equal))
  if queued then
    merge(l, queued, j)
    return queued, 1
  end
  note_arrival(l, j.run_at, false)
  count('jobs', 1)
  if text then
    j.lane, jobs[j.seq] = l.n, j
    job_records[id_of(j.seq)] = 'J' .. l.id .. id_of(j.seq) .. kind_of(text).head .. string.sub(text, 20)
    L.insert(l, j, call)
  else
    J.set_apart(j)
    L.enter(l, j)
  end
  if S.window then S.window.end_full(l) end
  return j, 0
end

-- Puts a job of any kind into a lane in any state.
function put_slowly(i, key, text)
  if keyed and ids[key] and records[ids[key]] then
    flush()
    L.lane_of(number_in(ids[key]), records[ids[key]])
    records[ids[key]] = nil
  elseif next(changed) or new.pending > 0 then
    flush()
  end
  equals = {}
  if not text then return put(key, job_at(B.starts[i], B.pasts[i])) end
  local seq = next_seq()
  return put(key, job_in(seq, 0, 'S' .. kind_of(text).head .. string.sub(text, 20), 2), text)
end
end

-- Adds one job; tells it, and returns it as the value for its idempotency key: seq and created.
local function put_one(i, key, text)
  local id = keyed and ids[key]
  if takes ~= '0' and not (takes == '1' and id) then return tell(0, 3) end
  if text and not id and not (S.window and size_in(text, 20) >= S.window.max_bytes) then
    local seq = put_single(key, text)
    if B.bodies[i] then B.keep_body(i, seq) end
    tell(seq, 0)
    return seq, NOW
  end
  if text and id then
    local field = S.merges and (B.fields[i] or id .. digest_in(text, 20))
    local equal, name, created = field and equal_in(id, field), nil, nil
    if field then name, created = put_merged(id, text, field, equal) end
    if name then
      tell({ number_in(name) }, 1, created)
      return number_in(name), created
    end
    local seq = not equal and put_listed(id, text, field)
    if seq then
      B.keep_body(i, seq)
      tell(seq, 0)
      return seq, NOW
    end
  end
  if not put_slowly then define_put_slowly() end
  local j, status = put_slowly(i, key, text)
  if status == 0 then B.keep_body(i, j.seq) end
  tell({ j.seq }, status, j.created)
  return j.seq, j.created
end

-- Idempotency keys, looked up together and written together: first those of the shard, then those of the store. The job
-- that throttles a key is under an idempotency key of no letters, which no job has.
local remembered = {}
W.hashes, W.orders, W.new, W.old = { K.idem, W.idem }, { K.idemold, W.idemold }, { {}, {} }, { {}, {} }
do
  local names = { {}, {} }
  for i = 1, B.max do
    local list = names[B.whole[i] and 2 or 1]
    if B.idems[i] ~= '' then list[#list + 1] = field_of(i) end
    if B.throttle > 0 then names[1][#names[1] + 1] = B.keys[i] .. '\0' end
  end
  for kind, list in ipairs(names) do
    for i, known in ipairs(fields(W.hashes[kind], list)) do remembered[list[i]] = known end
  end
end

local untils = {} -- as text, by length
local function remember(field, kind, seq, created, length)
  local until_ = NOW + length
  untils[length] = untils[length] or num(until_)
  if kind == 1 then remembered[field] = cmsgpack.pack(seq, created, until_)
  else remembered[field] = cmsgpack.pack(seq, created, until_, string.match(P, '{q(%d+):(%d+)}')) end
  add(W.new[kind], field, remembered[field])
  add(W.old[kind], untils[length], field)
end

-- The job that throttles this key now, when it was created, and until when. Unlike an idempotency key, it does so no longer
-- while it is stored.
function B.throttling(key)
  local known = B.throttle > 0 and remembered[key .. '\0']
  if not known then return end
  local seq, created, until_ = cmsgpack.unpack(known)
  if until_ > NOW then return seq, created, until_ end
end

-- Puts a job into the morgue that died elsewhere.
function B.bury(i, key)
  if takes ~= '0' then return tell(0, 3) end
  local j = job_at(B.starts[i], B.pasts[i])
  J.set_apart(j)
  count('jobs', 1)
  J.bury(j, key, nil, j.ended)
  tell({ j.seq }, 0, j.created)
  return j.seq, j.created
end

-- Adds one job, if none throttles its key. Returns the same as put_one; of a refused one nothing, as its idempotency key
-- stands for no job.
function B.put(i, key, text)
  if B.dead[i] then return B.bury(i, key) end
  local seq, created, until_ = B.throttling(key)
  if seq then
    tell({ seq }, 4, created, until_)
    if B.refuses then return end
    return seq, created
  end
  seq, created = put_one(i, key, text)
  if seq and B.throttle > 0 then remember(key .. '\0', 1, seq, created, B.throttle) end
  return seq, created
end

-- The job that was pushed with this idempotency key: its names for the answer, and when it was created.
local function first_of(field)
  if not remembered[field] then return end
  local names, created, has_expired = B.first(remembered[field])
  if not has_expired then return names, created end
  flush()
  if W.knows(names[1], names[2], names[3]) then return names, created end
end

for i = 1, B.max do
  local key, text = B.keys[i], B.texts[i]
  if B.idems[i] == '' then
    if text and B.throttle == 0 then put_one(i, key, text) else B.put(i, key, text) end
  else
    local field = field_of(i)
    local names, made = first_of(field)
    if names then tell(names, 2, made)
    else
      local seq, created = B.put(i, key, text)
      if seq then remember(field, B.whole[i] and 2 or 1, seq, created, S.remember) end
    end
  end
end
flush()
if new.count > 0 then
  bell.rings = bell.rings or true
  count('jobs', new.count)
  count('lanes', new.count)
end
count('jobs', listed_count)
for kind = 1, 2 do
  many('HSET', W.hashes[kind], W.new[kind])
  many('ZADD', W.orders[kind], W.old[kind])
end
bell.hears = true
commit()
return { 'OK', NOW, answer, S.token }
