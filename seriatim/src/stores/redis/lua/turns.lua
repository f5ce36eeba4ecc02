-- Making turns: the common part of claim.lua and settle.lua. Reads routes, ready, and of the lanes that it claims their records
-- and jobs; writes what claim.lua names.
--
-- T.list has for each turn an answer of `turn_of`, or values after the token (a number) that they have in
-- common: an id and then the record of its lane, of one job; or the record of one job of a list; or a table of such records, in no
-- order. Payloads that are apart are not in it: the caller reads them from `bodies`.
local T = { list = {}, claims = {}, of_ttl = {}, busy = {}, wanted = {}, places = {}, series = {}, taken = 0 }

-- One script claims about this much: lanes with many or large jobs are left to the next.
T.jobs_left, T.bytes_left = 10000, 16 * 1024 * 1024

-- Most bytes of the jobs of a turn that are handed over one after the other. A script with such turns claims fewer jobs,
-- about 6 ms: fewer lanes with longer turns cost less.
T.series_bytes = 256 * 1024
local SERIES_JOBS_LEFT = 1600
-- Most lanes as tables, which take 30 to 55 µs each. Each counts as a part of the jobs.
local TABLES_MAX = 80

-- The beginning of the classes of a group.
T.group = ''

-- Whether any payload of the shard is apart.
function T.has_bodies()
  if T.bodies == nil then T.bodies = call('EXISTS', K.bodies) == 1 end
  return T.bodies
end

-- Removes the payloads of these jobs, as far as they are apart.
function T.drop_bodies(names)
  if not T.has_bodies() then return end
  local fields = {}
  for i, name in ipairs(names) do fields[i] = num(number_in(name)) end
  many('HDEL', K.bodies, fields)
end

-- Begins to claim, and makes what that needs: most settles claim nothing. ARGV from `at`: node, kind of lease, ttl, most jobs and
-- bytes of a turn, the longest lease of a job's own, most jobs of a turn that are handed over one after the other.
function T.begin(at)
T.has_bodies()
T.node, T.kind, T.lease = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
T.jobs_max, T.bytes_max, T.lease_max = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
local is_series = S.mode == 'fifo' and S.take == 1 and S.keep == 0 and not S.shared
T.series_max = is_series and tonumber(ARGV[at + 6]) or 1
if T.series_max > 1 then T.jobs_left = SERIES_JOBS_LEFT end
T.table_jobs = T.jobs_left / TABLES_MAX

-- The classes that the caller may take, whose routes are in ARGV.
function T.read_classes(from, to)
  T.classes = { 0, 1 }
  for i = from, to do
    local route = call('HGET', K.routes, ARGV[i])
    if route then
      T.classes[#T.classes + 1] = route * 2
      T.classes[#T.classes + 1] = route * 2 + 1
    end
  end
end

-- The first ready lanes of a class, but for those in `arrivals`.
function T.look(class, most)
  local from = T.group .. struct.pack('>I3', class)
  return call('ZRANGEBYLEX', K.ready, '[' .. from, '(' .. from .. '\255', 'LIMIT', 0, most)
end

-- Whether the caller may take a ready lane of the group.
function T.is_ready()
  for _, class in ipairs(T.classes) do
    if T.look(class, 1)[1] then return true end
  end
  return T.group == '' and first_arrival(P, true)
end

-- A claim with this ttl; one with an own lease has one lane, so that it can be extended separately.
function T.claim_for(ttl)
  local claim = T.of_ttl[ttl]
  if not claim or T.kind == 'own' then
    claim = { ttl = ttl, token = next_token(), lanes = {}, count = 0 }
    claim.bytes = id_of(claim.token)
    T.of_ttl[ttl] = claim
    T.claims[#T.claims + 1] = claim
  end
  return claim
end

-- Whether jobs of so many bytes still go into the answer; the first lane that does not fit ends the claim.
function T.has_room(bytes, count)
  T.jobs_left, T.bytes_left = T.jobs_left - count, T.bytes_left - bytes
  if not T.room then return true end
  T.room = T.room - bytes - count * T.job_bytes
  T.is_full = T.room < 0
  return not T.is_full
end

-- How much a record adds to the answer, with a payload that is apart; `at` is where its lengths are.
local function weight(record, at) return T.bodies and math.max(#record, (size_in(record, at))) or #record end

function T.is_spent() return T.jobs_left <= 0 or T.bytes_left <= 0 end

-- The ends of lists that grow with each job: to find the end of a table takes Lua as long as ten steps.
local list, told, busy, marked = T.list, 0, T.busy, 0

function T.tell(value)
  told = told + 1
  list[told] = value
end

-- Lanes without special state, of which little is read and written.

-- The claim of these with the usual lease.
local light, light_lanes, light_bytes
local function begin_light()
  if light and T.kind ~= 'own' then return end
  light = T.claim_for(T.lease)
  light_lanes, light_bytes = light.lanes, light.bytes
  T.tell(light.token)
end

local function claim_light(id, key)
  begin_light()
  light.count = light.count + 1
  light_lanes[light.count] = id
  busy[marked + 1], busy[marked + 2] = id, key and light_bytes .. key or light_bytes
  marked, T.taken = marked + 2, T.taken + 1
end

function T.close_single(id, record)
  if T.room then
    local size = size_in(record, 26)
    if not T.has_room(size, 1) then return end
  else
    T.jobs_left, T.bytes_left = T.jobs_left - 1, T.bytes_left - weight(record, 26)
  end
  claim_light(id, S.mode ~= 'parallel' and key_in(record))
  list[told + 1], list[told + 2] = id, record
  told = told + 2
end

-- The same for lanes of one job that wait in `arrivals`, up to the first other one; answers how many. Most claims are of these
-- alone, and a call for each would cost more than the rest.
function T.close_arrivals(ids, records)
  if T.room or T.kind == 'own' then return 0 end
  local taken, bytes, byte, is_keyed, at = 0, T.bytes_left, string.byte, S.mode ~= 'parallel', told
  for i = 1, math.min(#ids, T.jobs_left) do
    local record = records[i]
    if bytes <= 0 or not record or byte(record) ~= 115 then break end
    if i == 1 then
      begin_light()
      at = told
    end
    local id = ids[i]
    light_lanes[light.count + i], list[at + 1], list[at + 2] = id, id, record
    busy[marked + 2 * i - 1], busy[marked + 2 * i] = id, is_keyed and light_bytes .. key_in(record) or light_bytes
    taken, at, bytes = i, at + 2, bytes - (T.bodies and weight(record, 26) or #record)
  end
  told, marked, T.taken = at, marked + 2 * taken, T.taken + taken
  T.jobs_left, T.bytes_left = T.jobs_left - taken, bytes
  if taken > 0 then light.count = light.count + taken end
  return taken
end

-- The head of a list.
function T.close_head(id, record)
  local name = string.sub(record, -7)
  if T.room then
    local job = call('HGET', K.jobs, name)
    if has_failed(record) then job = string.sub(job, 1, select(5, trouble_in(job)) - 1) end
    local size = size_in(job, 40)
    if not T.has_room(size, 1) then return end
  else
    T.jobs_left = T.jobs_left - 1
  end
  claim_light(id, '\0')
  T.wanted[#T.wanted + 1], T.places[#T.places + 1] = name, told + 1
  T.tell(false)
  if has_failed(record) then later('SREM', K.failing, id) end
end

-- The head of a list of `fifo`, and what follows it: jobs of light lists are fresh. How many of them the turn has shows
-- when their records are read.
function T.close_series(id, record)
  local l = { id = id }
  read_list(l, record)
  local most = math.min(T.series_max, l.count)
  if most == 1 or T.room then return T.close_head(id, record) end
  local turn = { l = l, names = ids_in(l, most) }
  T.jobs_left = T.jobs_left - most
  claim_light(id, '\0')
  T.series[#T.series + 1] = turn
  T.tell(turn)
end

-- Options that change nothing of how the job runs.
T.plain = { idempotency_key = true, idempotency_scope = true, partition_key = true, producer = true, consumer = true,
  traceparent = true }

function T.are_plain(options)
  if options == '' or string.find(options, '^{"idempotency_key":"[^"\\]*"}$') then return true end
  for name in pairs(cjson.decode(options)) do
    if not T.plain[name] then return false end
  end
  return true
end

local function join_series(turn, records, from)
  local l, bytes, joined, task = turn.l, 0, 0, nil
  for i = 1, #turn.names do
    local record = records[from + i]
    local size, task_at, digest_at, options_at, body_at = size_in(record, 40)
    local run_at, own_task = struct.unpack('>I7', record, 23), string.sub(record, task_at, digest_at - 1)
    local is_plain = T.are_plain(options_in(record, options_at, body_at))
    bytes = bytes + size
    if i > 1 and (not is_plain or run_at > NOW or own_task ~= task or bytes > T.series_bytes) then break end
    task, joined, turn[i] = own_task, i, record
    T.bytes_left = T.bytes_left - math.max(#record, size)
    if not is_plain then break end
  end
  if joined > 1 then
    l.closed, l.edge = joined, number_in(turn.names[joined])
    later('HSET', K.lanes, l.id, list_record('Q', l, ''))
  end
end

-- Reads the jobs of these turns.
local function tell_series()
  local names, from = {}, 0
  for _, turn in ipairs(T.series) do
    for _, name in ipairs(turn.names) do names[#names + 1] = name end
  end
  local records = fields(K.jobs, names)
  for _, turn in ipairs(T.series) do
    join_series(turn, records, from)
    from = from + #turn.names
  end
  T.series = {}
end

-- How many of these jobs go into a turn, and the bytes of their payloads.
local function fit(records)
  local bytes = 0
  for i, record in ipairs(records) do
    local size = size_in(record, 40)
    if i > 1 and bytes + size > T.bytes_max then return i - 1, bytes end
    bytes = bytes + size
  end
  return #records, bytes
end

-- Whether the turn of a list of `accumulate`, whose jobs are plain, is all of it or its beginning.
function T.is_beginning(l)
  if l.flags % FAILED >= MIXED then return false end
  return l.count <= T.jobs_max and l.bytes <= T.bytes_max or l.flags % FAILED == 0 and not l.prios
end

-- Closes that turn; answers the records of its jobs, or nothing if it does not fit into the answer. In the lane's state of
-- `accumulate`, only what the header says is changed, and which priorities its jobs have.
function T.close_beginning(l)
  local names = ids_in(l, T.jobs_max)
  local records, most, bytes = fields(K.jobs, names), #names, l.bytes
  local is_all = most == l.count and bytes <= T.bytes_max
  if not is_all then most, bytes = fit(records) end
  if not T.has_room(bytes, most) then return end
  for i = #names, most + 1, -1 do records[i] = nil end
  if S.merges then
    for _, record in ipairs(records) do later('HDEL', K.equal, string.sub(record, 2, 8) .. digest_in(record, 40)) end
  end
  l.closed, l.edge, l.shut, l.shut_prio, l.shut_bytes, l.bytes = most, number_in(names[most]), false, l.prio, bytes, l.bytes - bytes
  l.next_due = not is_all and l.due
  if is_all then l.shut, l.prios, l.prio = l.prios, false, NO_PRIO end
  return records
end

-- A list of `accumulate` without special state, if its turn is simple. `l` is as read.
function T.close_list(l)
  if not T.is_beginning(l) then return false end
  local records = T.close_beginning(l)
  if not records then return true end
  claim_light(l.id, '\0')
  T.tell(records)
  later('HSET', K.lanes, l.id, list_record('Q', l, ''))
  return true
end

-- A list, whose new record this is, goes on with its new head, whose record is known too.
function T.go_on(id, record, head)
  if T.series_max > 1 then return T.close_series(id, record) end
  T.jobs_left = T.jobs_left - 1
  claim_light(id, '\0')
  T.tell(head)
end

-- Claims a lane whose record shows no special state; false if its turn is not simple.
function T.close_light(id, record)
  if is_single(record) then T.close_single(id, record)
  elseif not is_bare(record) then return false
  elseif has_failed(record) and S.mode ~= 'accumulate' then T.close_head(id, record)
  elseif S.take > 1 then return false
  elseif S.mode == 'accumulate' then
    local l = { id = id }
    read_list(l, record)
    return T.close_list(l)
  elseif T.series_max > 1 then
    T.close_series(id, record)
  else
    T.close_head(id, record)
  end
  return true
end

-- How many turns of lists are to be told.
function T.untold() return #T.wanted + #T.series end

-- Reads their jobs.
function T.tell_jobs()
  for i, record in ipairs(fields(K.jobs, T.wanted)) do
    T.list[T.places[i]] = record
    T.bytes_left = T.bytes_left - weight(record, 40)
  end
  T.wanted, T.places = {}, {}
  if T.series[1] then tell_series() end
end

-- Any lane. Defined when a script comes to the first one: making functions takes longer than a simple turn.

local function define_close()
local function is_fresh(j) return j.retry < 0 and j.crashes == 0 and j.run_at <= NOW end

-- Whether a job may be handed over with others, one after the other.
local function joins(j) return j.attempts == 0 and T.are_plain(j.options) end

-- The jobs of a lane's turn, in the order of execution.
local function choose(l)
  L.promote(l)
  local head = L.head_of(l)
  if not head then return {} end
  local most = 1
  if S.mode == 'accumulate' then most = T.jobs_max
  elseif S.mode == 'fifo' and head.retry < 0 and head.crashes == 0 then most = S.take end
  local together = most
  if S.mode == 'fifo' and is_fresh(head) and joins(head) then most = math.max(most, T.series_max) end
  local look = l.flags >= MIXED and math.min(most, 16) or most
  while true do
    local list, chosen, bytes = L.first_jobs(l, look), {}, 0
    for i, j in ipairs(list) do
      bytes = bytes + j.size
      local fits = j.task == head.task and (S.mode == 'accumulate' or is_fresh(j))
      if i <= together then fits = fits and bytes <= T.bytes_max
      else fits = fits and bytes <= T.series_bytes and joins(j) end
      if i > 1 and not fits then break end
      chosen[i] = j
    end
    if #chosen < #list or #list < look or look == most then return chosen end
    look = math.min(most, look * 8)
  end
end

-- Takes some jobs out of an unsorted list; they are then strays.
local function set_apart(l, chosen, apart)
  local rest, is_chosen = {}, {}
  for _, j in ipairs(chosen) do
    if not j.stray then
      is_chosen[id_of(j.seq)], apart[#apart + 1] = true, j.seq
      if l.falls then L.change(l, j) end
    end
  end
  for _, name in ipairs(ids_in(l, l.count)) do
    if not is_chosen[name] then rest[#rest + 1] = name end
  end
  for number = l.first, l.next - 1 do later('HDEL', K.runs, run_name(l, number)) end
  l.first, l.count, l.fill, l.front = l.next, #rest, '', backwards(table.concat(rest))
end

-- Priorities and bytes in `accumulate`.
local function shut_counts(l, chosen, open)
  if #chosen == open then
    l.shut, l.shut_prio, l.shut_bytes, l.prios, l.prio, l.bytes = l.prios, l.prio, l.bytes, false, NO_PRIO, 0
    return
  end
  local shut, kinds = {}, 0
  l.shut_prio, l.shut_bytes = NO_PRIO, 0
  for i, j in ipairs(chosen) do
    L.count_prio(l, j.prio, -1, open + 1 - i)
    if not shut[j.prio] then kinds = kinds + 1 end
    shut[j.prio], l.shut_prio = (shut[j.prio] or 0) + 1, math.min(l.shut_prio, j.prio)
    if not j.stray then l.bytes, l.shut_bytes = l.bytes - j.size, l.shut_bytes + j.size end
  end
  if kinds > L.PRIOS_MAX then l.shut = true else l.shut = kinds > 1 and shut end
end

local function shut_jobs(l, chosen)
  local open, from_list, edge, apart = open_count(l), 0, 0, {}
  for _, j in ipairs(chosen) do
    L.unindex_job(l, j, later)
    if j.stray then
      later('ZREM', K.open, L.open_member(l, j))
      l.strays, apart[#apart + 1] = l.strays - 1, j.seq
    else
      from_list, edge = from_list + 1, math.max(edge, j.seq)
    end
  end
  if S.mode == 'accumulate' then shut_counts(l, chosen, open) end
  if l.flags % 2 == UNSORTED and from_list < l.count then set_apart(l, chosen, apart)
  else l.closed, l.edge = from_list, edge end
  l.apart = apart[1] and apart or false
end

local function hold(l, ttl)
  local claim = T.claim_for(ttl)
  claim.count = claim.count + 1
  claim.lanes[claim.count] = l.id
  l.token, l.claimed_at = claim.token, NOW
  l.next_due = S.mode == 'accumulate' and open_count(l) > 0 and l.due
  count('running', 1)
  l.group = l.ready and #l.ready > 19 and string.sub(l.ready, 2, 7)
  if l.group then G.count(l.group, 1) end
  L.place(l)
  T.taken, T.jobs_left = T.taken + 1, T.jobs_left - T.table_jobs
  return true
end

-- The beginning of a list of `accumulate`, whose jobs are plain. Tells their records, and the turns that they had: the last seq
-- of those that had one, how often, and so on.
local function close_listed(l)
  local records, falls = T.close_beginning(l), {}
  if not records then return L.place(l) end
  for _, fall in ipairs(l.falls or {}) do falls[#falls + 1], falls[#falls + 2] = fall[1], fall[3] end
  l.apart = false
  hold(l, T.lease)
  T.tell({ l.n, l.key, l.token, l.retry, l.crashes, l.error, NOW, records, falls })
  return true
end

-- Claims a lane, and tells its turn.
function T.close(l)
  if S.mode == 'accumulate' and l.odd == 0 and l.strays == 0 and T.is_beginning(l) then return close_listed(l) end
  local chosen, ttl, bytes = choose(l), T.lease, 0
  for _, j in ipairs(chosen) do bytes = bytes + j.size end
  if not chosen[1] or not T.has_room(bytes, #chosen) then return L.place(l) end
  for _, j in ipairs(chosen) do ttl = math.max(ttl, math.min(j.ttl, T.lease_max)) end
  if S.mode ~= 'accumulate' then L.show(l, chosen[1].retry) end
  shut_jobs(l, chosen)
  hold(l, ttl)
  T.tell(L.turn_of(l, true))
  return true
end
end

function T.close(l)
  define_close()
  return T.close(l)
end

-- Writes the claims.
function T.store()
  many('HSET', K.busy, T.busy)
  count('running', #T.busy / 2)
  for _, claim in ipairs(T.claims) do
    if claim.lanes[1] then store_claim(T.node, T.kind, claim.ttl, claim.token, claim.lanes) end
  end
end
end
