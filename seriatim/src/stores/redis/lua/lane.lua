-- Lanes -----------------------------------------------------------------------------------------

local lanes = {}
local touched = {}
local rings = false

local function read_lane(n, record)
  local l = { n = n }
  l.key, l.token, l.claimed_at, l.held, l.paused, l.closed, l.open, l.bad, l.retry, l.crashes,
    l.error, l.due, l.next_due, l.route, l.solo, l.ready, l.wake, l.shown, l.beat_at, l.failing,
    l.list = cmsgpack.unpack(record)
  l.list = l.list and read_list(id_of(n), l.list)
  return l
end

local function new_lane(n, key, due, route)
  return {
    n = n, key = key, token = 0, claimed_at = false, held = false, paused = false, closed = false,
    open = 0, bad = 0, retry = -1, crashes = 0, error = false, due = due, next_due = false,
    route = route, solo = false, ready = false, wake = false, shown = -1, beat_at = 0,
    failing = false, list = false,
  }
end

local function ready_member(class, prio, due, n)
  return struct.pack('>I3I2I7I7', class, prio, due, n)
end

local READ_ONLY = false -- read-only scripts do not unfold records
local unfold, unfold_list, draw

-- Reads the claim of a lane from its value in `busy`.
local function hold(l, busy, closed)
  l.token = struct.unpack('>I7', busy)
  local node, kind, ttl, until_, made_at = cmsgpack.unpack(call('HGET', K.claims, num(l.token)))
  l.claimed_at, l.beat_at, l.closed = made_at, made_at, closed
end

local function compact_lane(n, record)
  local j = compact_job(n, record)
  local l = new_lane(n, key_in(record), j.run_at, 0)
  lanes[n], jobs[n] = l, j
  local busy = call('HGET', K.busy, id_of(n))
  if busy then hold(l, busy, { n })
  else l.open, l.solo = 1, n end
  if READ_ONLY then l.single = not busy and j else unfold(l, j, busy) end
  return l
end

local function is_before(a, b)
  if a.score ~= b.score then return a.score < b.score end
  return a.seq < b.seq
end

-- The jobs of a listed lane: those of its turn, in order, and the waiting ones.
local function split_list(q, is_held)
  local closed_count, closed, waiting = is_held and math.max(q.closed, 1) or 0, {}, {}
  for i, id in ipairs(ids_in(q)) do
    if i <= closed_count then closed[i] = number_in(id)
    else waiting[#waiting + 1] = number_in(id) end
  end
  if S.mode == 'accumulate' then
    read_jobs(closed)
    table.sort(closed, function(a, b) return is_before(jobs[a], jobs[b]) end)
  end
  return closed, waiting
end

local function listed_lane(n, record)
  local q = read_list(id_of(n), record)
  local l = new_lane(n, q.key, q.due, 0)
  l.next_due = q.next_due > 0 and q.next_due
  lanes[n] = l
  local busy = call('HGET', K.busy, q.id)
  if READ_ONLY then
    -- The list may be long: read it only on demand.
    l.listed = q
    if busy then hold(l, busy, S.mode == 'fifo' and { head_in(q) } or (split_list(q, true))) end
    l.open = q.count - (l.closed and #l.closed or 0)
    return l
  end
  if S.mode == 'fifo' then
    if busy then
      hold(l, busy, { head_in(q) })
      take_first(q, 1, {})
    end
    l.open, l.list = q.count, q.count > 0 and q
    unfold_list(l, q, busy)
  else
    local closed, waiting = split_list(q, busy)
    if busy then hold(l, busy, closed) end
    l.open = #waiting
    unfold_list(l, q, busy, waiting)
  end
  return l
end

function lane_of(n, record)
  if lanes[n] ~= nil then return lanes[n] end
  record = record or call('HGET', K.lanes, id_of(n))
  if not record then return false end
  if is_compact(record) then return compact_lane(n, record) end
  if is_listed(record) then return listed_lane(n, record) end
  lanes[n] = read_lane(n, record)
  return lanes[n]
end

-- Ids of lanes by key, as looked up by this script.
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

-- Marks a lane for `commit`, which saves it at its position.
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
    l.ready, l.wake, l.shown, l.beat_at, l.failing, l.list and list_record(l.list))
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

-- A job's member among the open ones of its lane.
local function open_member(l, j)
  if S.mode == 'exclusive' then
    return pad(l.n) .. string.format('%05.0f', j.prio) .. pad(j.run_at) .. pad(j.seq)
  end
  return pad(l.n) .. j.score .. pad(j.seq)
end

local function later_member(l, j) return pad(l.n) .. pad(j.run_at) .. pad(j.seq) end
local function prio_member(l, j) return pad(l.n) .. string.format('%05.0f', j.prio) .. pad(j.seq) end

-- Moves the first listed jobs of a lane to `open`. Writes immediately, as unfolding does.
function draw(l, most)
  local names, seqs, open = {}, {}, {}
  take_first(l.list, math.min(most, l.list.count), names)
  for i, name in ipairs(names) do seqs[i] = number_in(name) end
  read_jobs(seqs)
  for i, seq in ipairs(seqs) do open[i] = open_member(l, jobs[seq]) end
  add_members(K.open, open)
  if l.list.count == 0 then l.list = false end
  store_lane(l)
  write_out()
end

-- Listed jobs stay behind all other open jobs of their lane.
local function make_room(l, j)
  if l.list and not is_before(j, job_of(head_in(l.list))) then draw(l, l.list.count) end
end

local function insert(l, j)
  make_room(l, j)
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
    if S.merges and j.digest ~= '' then call('HSET', K.equal, id_of(l.n) .. j.digest, id_of(j.seq)) end
  end
end

-- Removes an open job from the other indexes; `run` is `call` or `later`.
local function open_no_more(l, j, run)
  l.open = l.open - 1
  if j.retry >= 0 then l.bad = l.bad - 1 end
  if j.expires > 0 then run('ZREM', K.expiring, pad(j.seq)) end
  if S.mode == 'accumulate' then
    run('ZREM', K.prios, prio_member(l, j))
    if S.merges and j.digest ~= '' then run('HDEL', K.equal, id_of(l.n) .. j.digest) end
  end
end

-- Removes a job from the open ones; false if it is not among them.
local function take(l, j)
  if S.mode == 'parallel' then
    if l.open == 0 or l.solo ~= j.seq then return false end
  elseif call('ZREM', K.open, open_member(l, j)) == 0 then
    if l.list then
      if not remove_from(l.list, id_of(j.seq)) then return false end
      if l.list.count == 0 then l.list = false end
    elseif S.mode ~= 'exclusive' or call('ZREM', K.later, later_member(l, j)) == 0 then return false end
  end
  open_no_more(l, j, call)
  return true
end

local function members_in(key, l, most)
  return call('ZRANGEBYLEX', key, '[' .. pad(l.n), '(' .. pad(l.n) .. '~', 'LIMIT', 0, most)
end

-- The first members of a lane in a lexical index. Listed jobs come after those in `open` and are moved there when
-- needed.
local function members(key, l, most)
  local found = members_in(key, l, most)
  if not l.list or key ~= K.open then return found end
  local missing = most < 0 and l.list.count or most - #found
  if missing <= 0 then return found end
  if not READ_ONLY then
    draw(l, missing)
    return members_in(key, l, most)
  end
  for i, id in ipairs(ids_in(l.list)) do
    if i > missing then break end
    found[#found + 1] = open_member(l, job_of(number_in(id)))
  end
  return found
end

local function seq_in(member) return tonumber(string.sub(member, -16)) end

-- The first open job; in `exclusive` the first due one.
local function head_of(l)
  if l.open == 0 then return false end
  if l.single then return l.single end
  if l.listed then return job_of(head_in(l.listed)) end
  if S.mode == 'parallel' then return job_of(l.solo) end
  local member = members(K.open, l, 1)[1]
  return member and job_of(seq_in(member))
end

-- All open jobs of a lane.
local function open_jobs(l)
  if S.mode == 'parallel' then return { head_of(l) or nil } end
  local list = {}
  if l.listed then
    local closed, waiting = split_list(l.listed, l.claimed_at)
    read_jobs(waiting)
    for i, seq in ipairs(waiting) do list[i] = jobs[seq] end
    return list
  end
  for _, key in ipairs({ K.open, K.later }) do
    for _, member in ipairs(members(key, l, -1)) do list[#list + 1] = job_of(seq_in(member)) end
  end
  return list
end

-- In `exclusive`, moves due jobs to the open ones; returns when the next is due.
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

-- Priority, due time, route and crashes that define an unclaimed lane's position.
local function standing(l, head)
  if S.mode ~= 'accumulate' then
    local route = S.mode == 'fifo' and l.route or head.route
    return head.prio, head.run_at, route, head.crashes
  end
  local first = members(K.prios, l, 1)[1]
  return tonumber(string.sub(first, 17, 21)), l.due, l.route, l.crashes
end

-- Puts an unclaimed lane with open jobs at its position.
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

-- Whether all jobs of a lane are listed, so that it can become a listed lane again.
local function is_foldable(l)
  return l.list and l.list.count == l.open and S.take == 1 and not l.claimed_at and not l.held and not l.paused
    and l.route == 0
end

local function fold(l)
  local q, head = l.list, job_of(head_in(l.list))
  show(l, -1)
  q.closed, q.next_due, q.due, q.prio = 0, 0, head.run_at, head.prio
  if q.due > NOW then stand(l, false, q.due)
  else stand(l, ready_member(0, q.prio, q.due, l.n), false) end
  if l.failing then call('SREM', K.failing, id_of(l.n)) end
  later('HSET', K.lanes, id_of(l.n), list_record(q))
  lanes[l.n] = nil
end

-- Saves a lane at its position, or removes it if it is empty; `write_out` does the writes.
local function place(l)
  if is_foldable(l) then return fold(l) end
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

-- Converts a compact record into a general one; the lane keeps its position.
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

-- The same for a listed lane. In `fifo` it keeps its list, of any length, and `members` draws from it. In `accumulate`
-- all jobs are added to the indexes. Writes immediately: not every operation ends with `commit`.
function unfold_list(l, q, busy, waiting)
  if busy then call('HDEL', K.busy, q.id)
  else
    local member = ready_member(0, q.prio, q.due, l.n)
    if call('ZSCORE', K.ready, member) then l.ready = member else l.wake = q.due end
  end
  if busy and #l.closed > INLINE_CLOSED_MAX then
    call('HSET', K.closed, q.id, cmsgpack.pack(l.closed))
  end
  if waiting then
    for number = q.first, q.next - 1 do call('HDEL', K.runs, run_name(q, number)) end
    read_jobs(waiting)
    local open, prios = {}, {}
    for i, seq in ipairs(waiting) do
      open[i], prios[i] = open_member(l, jobs[seq]), prio_member(l, jobs[seq])
    end
    add_members(K.open, open)
    add_members(K.prios, prios)
  end
  store_lane(l)
  write_out()
end

-- Ends an operation: saves the touched lanes.
local function commit()
  for _, l in ipairs(touched) do place(l) end
  write_out()
  for field, by in pairs(counts) do
    if by ~= 0 then call('HINCRBY', K.meta, field, by) end
  end
  if S.counted then call('HSET', K.meta, 'seq', num(S.seq), 'token', num(S.token)) end
  if rings then call('PUBLISH', string.match(P, '^(.*){') .. 'wake', S.number) end
end

-- The score of two merged jobs (hex digits have the order of the scores).
local function merged_score(a, b)
  if S.merge == 'none' then return a end
  if (S.merge == 'min') == (a < b) then return a end
  return b
end

-- Inserts a job into a lane. If an equal job waits there, they merge and the older id survives.
local function unite(l, j)
  local other = S.merges and j.digest ~= '' and call('HGET', K.equal, id_of(l.n) .. j.digest)
  other = other and job_of(number_in(other))
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

-- Updates the due time of an `accumulate` lane for an arrival.
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

-- Puts a job with a history back into its lane: requeued, or kept while its queue changed.
local function put_back(key, route, j)
  local l = key ~= '' and lane_of_key(key)
  -- Lane numbers are never reused: a job that returns to a key without a lane opens a lane with a new number. In
  -- `parallel` the lane is the job.
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

-- Subtracts lanes from a claim, and removes it if none are left.
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

-- The earliest due time of the shard's unclaimed lanes: of the scheduled ones, and of the first ready one in each
-- class and priority.
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
