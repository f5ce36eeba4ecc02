-- Lanes in any state -----------------------------------------------------------------------------
--
-- What most lanes need is done by their records as bytes (compact.lua). These functions do it with a lane as a table, and are
-- made when a script needs the first of them: to make all takes as long as a push of one job.
--
-- Reads and writes lanes, keys, busy, closed, progress, equal, open, later, ready, wake, parked, trouble and failing; reads jobs and
-- claims; writes aliases.

local function define_lanes()
-- The state that most lanes do not have:
--   held, paused, retry, crashes, error, route, shown (retry count in `trouble`), failing (whether in `failing`),
--   flagged (whether in `flags`), odd (jobs that are not plain), bad (open jobs that failed), strays (how many),
--   apart (closed strays; true: in `closed`), prios and shut (how many open and closed jobs have each priority, if
--   they differ), falls (turns that the first jobs of the list had; each: last seq, claimed at, whether it counts),
--   ready and wake (position), group (for which the turn counts, of a lane that waited as its)
function L.state_of(l)
  local plain = ready_member(0, l.prio, l.due, l.n)
  local stands = l.token or (l.ready == plain and not l.wake) or (not l.ready and l.wake == l.due)
  if stands and not (l.held or l.paused or l.retry >= 0 or l.crashes > 0 or l.error or l.route ~= 0 or l.shown >= 0
    or l.failing or l.flagged or l.odd > 0 or l.bad > 0 or l.strays > 0 or l.apart or l.prios or l.shut or l.falls
    or l.group) then
    return ''
  end
  return cmsgpack.pack(l.held, l.paused, l.retry, l.crashes, l.error, l.route, l.shown, l.failing, l.flagged, l.odd,
    l.bad, l.strays, l.apart, l.prios, l.shut, l.falls, l.ready, l.wake, l.group)
end

function L.read_state(l, text)
  l.held, l.paused, l.retry, l.crashes, l.error, l.route, l.shown, l.failing, l.flagged, l.odd, l.bad, l.strays,
    l.apart, l.prios, l.shut, l.falls, l.ready, l.wake, l.group = cmsgpack.unpack(text)
end

-- In `exclusive`, a job's members among the due ones and the later ones; else its member among the strays.
function L.later_member(l, j) return pad(l.n) .. pad(j.run_at) .. pad(j.seq) end
function L.open_member(l, j)
  if S.mode == 'exclusive' then
    return pad(l.n) .. string.format('%05.0f', j.prio) .. pad(j.run_at) .. pad(j.seq)
  end
  return pad(l.n) .. j.score .. pad(j.seq)
end

function L.add_stray(l, j)
  l.strays = l.strays + 1
  if S.mode == 'exclusive' and (l.token or j.run_at > NOW) then
    call('ZADD', K.later, 0, L.later_member(l, j))
  else
    call('ZADD', K.open, 0, L.open_member(l, j))
  end
end

do -- Lua limits a function to 200 local names
-- Reads the claim of a lane from its value in `busy`.
local function hold(l, busy)
  l.token, l.claimed_at = number_in(busy), claimed_at(busy)
  if l.closed == 0 and not l.apart and l.count > 0 then l.closed, l.edge = 1, head_in(l) end
end

-- Moves the job of a lane's record to `jobs`: something happens to it that the record has no place for.
local function spread(l, j, record)
  job_records[l.id] = 'J' .. l.id .. l.id .. string.sub(record, 2)
  if S.mode == 'exclusive' then
    l.count, l.front, l.closed, l.edge = 0, '', 0, 0
    if l.token then l.apart = { l.n } else L.add_stray(l, j) end
  end
  if S.merges and not l.token and j.digest ~= '' then call('HSET', K.equal, l.id .. j.digest, l.id) end
  touch(l)
end

local function read_single(l, record)
  local j
  j, l.key = job_in(l.n, l.n, record, 2)
  jobs[l.n] = j
  l.due, l.prio, l.count, l.front, l.last = j.run_at, j.prio, 1, l.id, string.sub(record, 18, 25)
  if S.mode == 'accumulate' then l.task, l.bytes = j.task, j.size end
  if S.window then l.next_due = S.window.latest(record, l.id) end
  return j
end

-- A list whose first job failed has the state that other lanes have for it.
local function read_failed(l)
  local retry, _, _, why = trouble_in(call('HGET', K.jobs, string.sub(l.front, -7)))
  l.flags, l.odd, l.shown = l.flags - FAILED, 1, retry
  if S.mode == 'accumulate' then l.retry, l.error, l.failing = retry, why, true
  elseif not l.token then l.bad, l.failing = 1, true end
end

-- `record` and `busy` are the lane's values, if they are known.
function L.lane_of(n, record, busy)
  if lanes[n] ~= nil then return lanes[n] end
  local l = new_lane(n, '', 0, 0)
  record = record or call('HGET', K.lanes, l.id)
  if not record then return false end
  lanes[n] = l
  local single, state = is_single(record) and read_single(l, record), ''
  if not single then state = read_list(l, record) end
  if state ~= '' then L.read_state(l, state) end
  if busy == nil then busy = call('HGET', K.busy, l.id) end
  if busy then
    hold(l, busy)
    if single and S.mode == 'accumulate' then
      l.shut_bytes, l.shut_prio, l.bytes, l.prio, l.next_due = l.bytes, l.prio, 0, NO_PRIO, false
    end
  elseif state == '' and not READ_ONLY then
    local member = ready_member(0, l.prio, l.due, n)
    if is_arrival(record) or call('ZSCORE', K.ready, member) then l.ready = member else l.wake = l.due end
  end
  if l.flags >= FAILED then read_failed(l) end
  l.arrived = l.ready and is_arrival(record)
  l.parked = not busy and (l.held or l.paused)
  if single and not READ_ONLY then spread(l, single, record) end
  return l
end
end

function L.lane_of_key(key)
  local id = ids[key]
  if id == nil then id = call('HGET', K.keys, key) end
  return id and L.lane_of(number_in(id))
end

function L.open_lane(n, key, due, route)
  local l = new_lane(n, key, due, route)
  if key ~= '' then
    ids[key] = l.id
    call('HSET', K.keys, key, l.id)
  end
  count('lanes', 1)
  lanes[n] = l
  return l
end

function L.save_lane(l)
  local failing = l.bad > 0 or (S.mode == 'accumulate' and l.retry >= 0)
  if failing ~= l.failing then
    later(failing and 'SADD' or 'SREM', K.failing, l.id)
    l.failing = failing
  end
  local apart, closed, edge = l.apart, l.closed, l.edge
  if apart and apart ~= true and #apart > INLINE_CLOSED_MAX then
    call('HSET', K.closed, l.id, cmsgpack.pack(apart))
    l.apart = true
  end
  if l.token then later('HSET', K.busy, l.id, struct.pack('>I7', l.token) .. '\0' .. id_of(l.claimed_at)) end
  if closed == 1 and not apart and S.mode ~= 'accumulate' then l.closed, l.edge = 0, 0 end -- as in any claim of one job
  later('HSET', K.lanes, l.id, list_record(l.arrived and 'q' or 'Q', l, L.state_of(l)))
  l.apart, l.closed, l.edge = apart, closed, edge
end

function L.remove_lane(l)
  if l.key ~= '' then
    later('HDEL', K.keys, l.key)
    ids[l.key] = false
  end
  if l.failing then later('SREM', K.failing, l.id) end
  later('HDEL', K.lanes, l.id)
  later('HDEL', K.progress, l.id)
  count('lanes', -1)
  lanes[l.n] = false
end

-- The jobs of a lane ------------------------------------------------------------------------------

function L.is_before(a, b)
  if a.score ~= b.score then return a.score < b.score end
  return a.seq < b.seq
end

-- Adds the turns that the first jobs of the list had to what a job's record says.
function L.age(l, j)
  if not l.falls or j.aged then return end
  j.aged = true
  for _, fall in ipairs(l.falls) do
    if fall[1] >= j.seq then j.started, j.attempts = j.started or fall[2], j.attempts + fall[3] end
  end
end

function L.apart_of(l)
  if l.apart == true then l.apart = cmsgpack.unpack(call('HGET', K.closed, l.id)) end
  return l.apart or {}
end

-- Jobs of the list by name.
function L.listed(l, names)
  local seqs, list = {}, {}
  for i, name in ipairs(names) do seqs[i] = number_in(name) end
  J.read_jobs(seqs)
  for i, seq in ipairs(seqs) do
    list[i] = J.job_of(seq)
    list[i].stray = nil
    L.age(l, list[i])
  end
  return list
end

-- The jobs of a lane's turn, in the order of execution.
function L.closed_jobs(l)
  local list = l.closed > 0 and L.listed(l, ids_in(l, l.closed)) or {}
  for _, seq in ipairs(L.apart_of(l)) do list[#list + 1] = J.job_of(seq) end
  if l.apart or l.flags % 2 == UNSORTED then table.sort(list, L.is_before) end
  return list
end

-- Of `later`, those that are due at a time or after it.
function L.members_in(key, l, most, from)
  local first = '[' .. pad(l.n) .. (from and pad(from) or '')
  return call('ZRANGEBYLEX', key, first, '(' .. pad(l.n) .. '~', 'LIMIT', 0, most)
end
function L.seq_in(member) return tonumber(string.sub(member, -16)) end

function L.strays_in(key, l, most, from)
  local seqs, list = {}, {}
  for i, member in ipairs(L.members_in(key, l, most, from)) do seqs[i] = L.seq_in(member) end
  J.read_jobs(seqs)
  for i, seq in ipairs(seqs) do
    list[i] = J.job_of(seq)
    list[i].stray = true
  end
  return list
end

-- The first open jobs in order, at most `most`; in `exclusive` the due ones.
function L.first_jobs(l, most)
  local list, strays, is_unsorted = {}, {}, l.flags % 2 == UNSORTED
  if l.count > l.closed then
    local names, open = ids_in(l, is_unsorted and l.count or l.closed + most), {}
    for i = l.closed + 1, #names do open[#open + 1] = names[i] end
    list = L.listed(l, open)
  end
  if l.strays > 0 then strays = L.strays_in(K.open, l, most) end
  for _, j in ipairs(strays) do list[#list + 1] = j end
  if S.mode ~= 'exclusive' and (is_unsorted or strays[1]) then table.sort(list, L.is_before) end
  for i = #list, most + 1, -1 do list[i] = nil end
  return list
end

-- In `exclusive`, the first job that is not due.
function L.first_later(l)
  return S.mode == 'exclusive' and l.strays > 0 and L.strays_in(K.later, l, 1)[1] or false
end

-- The first open job of an unclaimed lane; in `exclusive` the first due one.
function L.head_of(l)
  if l.strays == 0 and l.flags % 2 == 0 then
    local j = l.count > 0 and J.job_of(head_in(l))
    if j then L.age(l, j) end
    return j
  end
  return L.first_jobs(l, 1)[1] or false
end

-- The first job of a turn, but for `accumulate`; those that are apart are in order.
local function first_closed(l)
  local seq = L.apart_of(l)[1]
  local stray, head = seq and J.job_of(seq), l.closed > 0 and J.job_of(head_in(l))
  if head then L.age(l, head) end
  if stray and head then return L.is_before(stray, head) and stray or head end
  return stray or head
end

-- The job whose state a lane shows, but for `accumulate`.
function L.shown_job(l)
  if l.token then return first_closed(l) end
  return L.head_of(l) or L.first_later(l)
end
-- The first open jobs, at most `most`; in `exclusive` those that are not due come last.
function L.open_jobs(l, most)
  local list = L.first_jobs(l, most)
  if S.mode == 'exclusive' and l.strays > 0 and #list < most then
    for _, j in ipairs(L.strays_in(K.later, l, most - #list)) do list[#list + 1] = j end
  end
  return list
end

-- Counts the priorities of open jobs in `accumulate`; `by` is how many jobs more. The state of a lane with more different
-- ones than PRIOS_MAX stays small: it keeps the lowest until no job is open (`prios` is true).
L.PRIOS_MAX = 1000
do
  local function counted(l, prio, by)
    local before = l.prios[prio] or 0
    if before + by < 0 then return end
    l.prios[prio] = before + by > 0 and before + by or nil
    l.prio = math.min(l.prio, prio)
    if before == 0 then l.kinds = l.kinds + 1
    elseif not l.prios[prio] then
      l.kinds = l.kinds - 1
      if prio ~= l.prio then return end
      l.prio = NO_PRIO
      for known in pairs(l.prios) do l.prio = math.min(l.prio, known) end
    end
  end

  function L.count_prio(l, prio, by, open)
    if open + by == 0 then
      l.prio, l.prios = NO_PRIO, false
    elseif open == 0 then
      l.prio = prio
    elseif l.prios == true then
      l.prio = math.min(l.prio, prio)
    elseif l.prios or prio ~= l.prio then
      if not l.prios then l.prios, l.kinds = { [l.prio] = open }, 1 end
      if not l.kinds then
        l.kinds = 0
        for _ in pairs(l.prios) do l.kinds = l.kinds + 1 end
      end
      counted(l, prio, by)
      if l.kinds > L.PRIOS_MAX then l.prios = true
      elseif l.kinds == 1 then l.prios = false end
    end
  end
end

-- Only what was never attempted expires; `run` is `call` or `later`.
function L.let_expire(j, run)
  if j.expires > 0 and j.attempts == 0 then run('ZADD', K.expiring, num(j.expires), pad(j.seq)) end
end

-- What the indexes have of an open job, but for its place.
function L.index_job(l, j, run)
  if j.retry >= 0 then l.bad = l.bad + 1 end
  L.let_expire(j, run)
  if S.merges and j.digest ~= '' then run('HSET', K.equal, l.id .. j.digest, id_of(j.seq)) end
end

function L.unindex_job(l, j, run)
  if j.retry >= 0 then l.bad = l.bad - 1 end
  if j.expires > 0 then run('ZREM', K.expiring, pad(j.seq)) end
  if S.merges and j.digest ~= '' then run('HDEL', K.equal, l.id .. j.digest) end
end

-- An empty list forgets what its jobs had in common; any other the turns that none of its jobs had: a busy lane of
-- `accumulate` is never empty, and would keep its state after one failure for good.
function L.clear_list(l)
  if l.count == 0 then l.flags, l.falls, l.bytes, l.task = 0, false, 0, '' end
  if not l.falls then return end
  local first, falls = head_in(l), {}
  for _, fall in ipairs(l.falls) do
    if fall[1] >= first then falls[#falls + 1] = fall end
  end
  l.falls = falls[1] and falls or false
end

-- Appends a job if that keeps the list as it must be; its record is in `jobs`, or will be.
function L.append(l, j)
  if S.mode == 'exclusive' or (l.count > 0 and j.seq <= tail_of(l)) then return false end
  for _, fall in ipairs(l.falls or {}) do
    if fall[1] >= j.seq then return false end
  end
  local score = string.gsub(j.score, '..', function(digits) return string.char(tonumber(digits, 16)) end)
  if l.count == 0 then
    l.last, l.task = score, S.mode == 'accumulate' and j.task or ''
  else
    local is_after = j.score >= hex(l.last)
    if S.mode ~= 'accumulate' then
      if not is_after then return false end
    elseif (not is_after or l.flags % 2 == UNSORTED) and l.count >= UNSORTED_MAX then
      return false
    end
    if is_after then l.last = score elseif l.flags % 2 == 0 then l.flags = l.flags + UNSORTED end
    if S.mode == 'accumulate' and j.task ~= l.task and l.flags < MIXED then l.flags = l.flags + MIXED end
  end
  append_to(l, id_of(j.seq))
  if S.mode == 'accumulate' then l.bytes = l.bytes + j.size end
  return true
end

-- Adds an open job. `run` is `call` or `later`.
function L.insert(l, j, run)
  L.index_job(l, j, run)
  if not j.plain then l.odd = l.odd + 1 end
  if S.mode == 'accumulate' then L.count_prio(l, j.prio, 1, open_count(l)) end
  if not L.append(l, j) then L.add_stray(l, j) end
end

-- Adds a job that is stored anew.
function L.enter(l, j)
  j.lane = l.n
  J.save_job(j)
  L.insert(l, j, call)
end

-- Stores an open or closed job that changed where it is.
function L.change(l, j)
  if j.plain then l.odd = l.odd + 1 end
  J.save_job(j)
end

-- Removes an open job; false if it is not among them.
function L.take(l, j)
  local open = open_count(l)
  if l.strays > 0 and (call('ZREM', K.open, L.open_member(l, j)) == 1
    or S.mode == 'exclusive' and call('ZREM', K.later, L.later_member(l, j)) == 1) then
    l.strays = l.strays - 1
  else
    if (l.closed > 0 and j.seq <= l.edge) or l.count == 0 or not remove_from(l, id_of(j.seq)) then return false end
    L.age(l, j)
    if S.mode == 'accumulate' then l.bytes = l.bytes - j.size end
    L.clear_list(l)
  end
  if S.mode == 'accumulate' then L.count_prio(l, j.prio, -1, open) end
  if not j.plain then l.odd = l.odd - 1 end
  L.unindex_job(l, j, call)
  return true
end

-- Positions ---------------------------------------------------------------------------------------

L.promotable = 1000 -- PROMOTE_JOBS_MAX of model/limits.rs

-- In `exclusive`, moves due jobs to the open ones, as many as the script still may; returns when the next is due.
function L.promote(l)
  if S.mode ~= 'exclusive' or l.strays == 0 then return false end
  local due = '(' .. pad(l.n) .. pad(NOW) .. '~'
  for _, member in ipairs(call('ZRANGEBYLEX', K.later, '[' .. pad(l.n), due, 'LIMIT', 0, L.promotable)) do
    L.promotable = L.promotable - 1
    call('ZREM', K.later, member)
    call('ZADD', K.open, 0, L.open_member(l, J.job_of(L.seq_in(member))))
  end
  local first = L.members_in(K.later, l, 1)[1]
  return first and tonumber(string.sub(first, 17, 32))
end

function L.show(l, retry)
  if retry == l.shown then return end
  if retry >= 0 then later('ZADD', K.trouble, -retry, pad(l.n))
  else later('ZREM', K.trouble, pad(l.n)) end
  l.shown = retry
end

-- An entry in `arrivals` stays there until a claim comes to it, and then means nothing.
function L.stand(l, ready, wake, parked)
  if ready ~= l.ready then
    if l.ready and not l.arrived then later('ZREM', K.ready, l.ready) end
    if ready then later('ZADD', K.ready, 0, ready) end
    -- Not every process may take a lane of a route, or one with earlier crashes.
    if ready and string.sub(ready, -19, -17) ~= '\0\0\0' then bell.rings = 'all' end
    l.ready, l.arrived, bell.rings = ready, false, bell.rings or ready
  end
  if wake ~= l.wake then
    if wake then later('ZADD', K.wake, num(wake), l.id)
    else later('ZREM', K.wake, l.id) end
    if wake and G.parts_of(l.route) ~= 0 then bell.rings = 'all' end
    l.wake, bell.rings = wake, bell.rings or wake
  end
  if parked then later('ZADD', K.parked, num(l.due), l.id)
  elseif l.parked then later('ZREM', K.parked, l.id) end
  l.parked = parked
end

-- Puts an unclaimed lane with open jobs at its position.
function L.position(l)
  local next_later, route, crashes, is_due = L.promote(l), l.route, l.crashes, true
  if S.mode == 'accumulate' then
    L.show(l, l.retry)
  else
    local head = L.head_of(l)
    local shown = head or L.first_later(l)
    L.show(l, shown.retry)
    l.due, l.prio, crashes, is_due = shown.run_at, shown.prio, shown.crashes, head
    if S.mode ~= 'fifo' then route = shown.route end
  end
  if l.held or l.paused then return L.stand(l, false, false, true) end
  if not is_due then return L.stand(l, false, next_later) end
  if l.due > NOW then return L.stand(l, false, l.due) end
  local bound, group = G.parts_of(route)
  L.stand(l, ready_member(bound * 2 + (crashes > 0 and 1 or 0), l.prio, l.due, l.n, group), next_later)
end

-- Saves a lane at its position, or removes it if it is empty; `write_out` does the writes.
function L.place(l)
  if l.token then
    -- What arrived during the turn has left: the next job to arrive says when the lane is due.
    if open_count(l) == 0 then l.next_due = false end
    L.stand(l, false, false)
  elseif open_count(l) == 0 then
    L.stand(l, false, false)
    L.show(l, -1)
    return L.remove_lane(l)
  else
    L.position(l)
  end
  L.save_lane(l)
end

-- Merging and arriving ----------------------------------------------------------------------------

-- The score of two merged jobs (hex digits have the order of the scores).
function L.merged_score(a, b)
  if S.merge == 'none' then return a end
  if (S.merge == 'min') == (a < b) then return a end
  return b
end

-- Inserts a job into a lane. If an equal job waits there (`other`, if it is known), they merge and the older id survives.
function L.unite(l, j, other)
  other = other or S.merges and j.digest ~= '' and call('HGET', K.equal, l.id .. j.digest)
  other = other and J.job_of(number_in(other))
  if not other then return L.enter(l, j) end
  L.take(l, other)
  local survivor, gone = other, j
  if j.seq < other.seq then survivor, gone = j, other end
  survivor.score = L.merged_score(survivor.score, gone.score)
  survivor.prio = math.min(survivor.prio, gone.prio)
  survivor.attempts = math.max(survivor.attempts, gone.attempts)
  survivor.aliases = survivor.aliases or {}
  table.insert(survivor.aliases, gone.seq)
  for _, alias in ipairs(gone.aliases or {}) do table.insert(survivor.aliases, alias) end
  gone.aliases = false
  J.forget(gone)
  count('jobs', -1)
  call('HSET', K.aliases, num(gone.seq), cmsgpack.pack(survivor.seq, gone.created))
  L.enter(l, survivor)
end

-- Updates the due time of an `accumulate` lane for an arrival. A job with a history moves no window.
function L.arrive(l, run_at, merged)
  if S.mode ~= 'accumulate' then return end
  local earliest = S.due == 'earliest'
  if l.token then
    if not l.next_due then l.next_due = run_at
    elseif earliest then l.next_due = math.min(l.next_due, run_at) end
  elseif open_count(l) == 0 and not merged then
    l.due = run_at
  elseif earliest then
    l.due = math.min(l.due, run_at)
  end
end

-- Puts a job with a history back into its lane: requeued, or kept while its queue changed.
function L.put_back(key, route, j)
  local l = key ~= '' and L.lane_of_key(key)
  -- Lane numbers are never reused: a job that returns to a key without a lane opens a lane with a new number. In
  -- `parallel` the lane is the job.
  if not l then l = L.open_lane(key == '' and j.seq or next_seq(), key, j.run_at, route) end
  L.arrive(l, j.run_at, false)
  L.unite(l, j)
  touch(l)
  return l
end

-- Claims ------------------------------------------------------------------------------------------

-- Retry count, crashes and error: the lane's own in `accumulate`, else its head's.
function L.trouble_of(l)
  if S.mode == 'accumulate' then return l.retry, l.crashes, l.error end
  local head = L.shown_job(l)
  if not head then return -1, 0, false end
  return head.retry, head.crashes, head.error
end

-- A turn, and the bytes of its payloads. Without bodies, each is empty; else one that is apart is false: the caller reads it itself.
function L.turn_of(l, with_bodies)
  local list, bytes = {}, 0
  for i, j in ipairs(L.closed_jobs(l)) do
    bytes = bytes + j.size
    list[i] = { j.seq, j.created, j.task, not with_bodies and '' or j.body, j.score, j.prio,
      j.run_at, j.attempts, j.options }
  end
  local retry, crashes, why = L.trouble_of(l)
  return { l.n, l.key, l.token, retry, crashes, why, l.claimed_at, list }, bytes
end

-- The node and the kind of lease of a claimed lane, when its holder last reported progress or extended it, the progress,
-- and the end and the length of the lease.
function L.holder_of(l)
  local node, kind, ttl, until_, at, beat_at = cmsgpack.unpack(call('HGET', K.claims, num(l.token)))
  local progress = call('HGET', K.progress, l.id)
  if progress then beat_at = math.max(beat_at or 0, number_in(string.sub(progress, 1, 7))) end
  return node, kind, math.max(l.claimed_at, beat_at or 0), progress and string.sub(progress, 8), until_, ttl
end
end

setmetatable(L, { __index = function(_, name)
  setmetatable(L, nil)
  define_lanes()
  return L[name]
end })

