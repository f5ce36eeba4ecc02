-- Lanes -----------------------------------------------------------------------------------------
--
-- A lane is a list of jobs that came in order (compact.lua), and strays: jobs that did not, in `open`, and in
-- `exclusive`, where all are strays, also in `later`. The order of a lane merges both. Closed jobs, those of a turn,
-- stay at the beginning of the list; closed strays are named in the lane's state (`apart`). So no operation rewrites a
-- lane because it is long.
--
-- Reads lanes, busy, keys, and what a lane refers to. Writes open, later, equal, closed, aliases and a claim's records at once;
-- `commit` writes the rest that a script has changed: lanes, keys, busy, jobs, ready, wake, parked, trouble, failing, turns, the
-- counters in meta, and sleepers, whom it wakes.

local lanes = {}
local touched = {}
-- Who is to be woken, and what does it; see below.
local bell = { rings = false, hears = false }
local ids = {} -- ids of lanes by key, as looked up by this script
local READ_ONLY = false -- such scripts leave lanes of one job as they are

local function new_lane(n, key, due, route)
  return {
    n = n, id = id_of(n), key = key, task = '', due = due, next_due = false, prio = NO_PRIO, count = 0,
    last = '\0\0\0\0\0\0\0\0', bytes = 0, flags = 0, shut_bytes = 0, closed = 0, edge = 0, shut_prio = NO_PRIO,
    first = 0, next = 0, front = '', fill = '', token = false, claimed_at = false, held = false, paused = false,
    retry = -1, crashes = 0, error = false, route = route, shown = -1, failing = false, flagged = false, odd = 0,
    bad = 0, strays = 0, apart = false, prios = false, shut = false, falls = false, ready = false, wake = false,
    group = false, arrived = false, parked = false,
  }
end

local function ready_member(class, prio, due, n, group)
  local member = struct.pack('>I3I2I7I7', class, prio, due, n)
  return group and '\255' .. group .. member or member
end

-- When a claim was made.
local made = {}
local function made_at(token)
  if not made[token] then
    local node, kind, ttl, until_, at = cmsgpack.unpack(call('HGET', K.claims, num(token)))
    made[token] = at
  end
  return made[token]
end

-- When a lane was claimed that has this value in `busy`.
local function claimed_at(busy)
  if #busy > 8 and string.byte(busy, 8) == 0 then return (struct.unpack('>I7', busy, 9)) end
  return made_at(number_in(busy))
end

-- Marks a lane for `commit`, which saves it at its position.
local function touch(l)
  if not l.touched then
    l.touched = true
    touched[#touched + 1] = l
  end
end

local function open_count(l) return l.count - l.closed + l.strays end

local ALL = 1000000

local function place_touched()
  for _, l in ipairs(touched) do
    l.touched = false
    L.place(l)
  end
  touched = {}
  write_out()
end

-- Processes whose last claim found too little are listed in `sleepers`, and wait on channels of their own. So a push costs
-- the same however many of them wait. Two are woken, the last ones first: one may be busy by now. One that leaves something
-- wakes the next two. With `hears`, the caller hears from the answer that it is to claim. (A script may have 200 locals.)
do
  local WAKES, SLEEPERS_MAX = 2, 1000
  -- The caller's own channel, if its process listens.
  local listener = string.match(KEYS[#KEYS], '}:to:(%x+)$')
  local channel = string.match(P, '^(.*){') .. 'wake'

  function bell.stay_awake() return listener and call('ZREM', K.sleepers, listener) == 1 end

  -- Answers who heard it; nothing if the user may not publish: what the script has written is written all the same, and
  -- must be answered.
  local function publish(to)
    local heard = redis.pcall('PUBLISH', to, S.number)
    return type(heard) == 'number' and heard
  end

  function bell.ring(whom)
    if whom == 'all' then return publish(channel) end
    if bell.hears and bell.stay_awake() then return end
    local woken = 0
    while woken < WAKES do
      local sleeper = call('ZPOPMAX', K.sleepers)[1]
      if not sleeper then return end
      -- In a cluster, processes listen at any node.
      local heard = publish(channel .. ':' .. sleeper)
      if not heard then return end
      if heard > 0 or KEYS[2] == P .. 'meta' then woken = woken + 1 end
    end
  end

  function bell.sleep()
    if not listener then return end
    call('ZADD', K.sleepers, num(NOW), listener)
    if call('ZCARD', K.sleepers) > SLEEPERS_MAX then call('ZPOPMIN', K.sleepers) end
  end
end

-- So many more turns of a group run.
function G.count(group, by)
  G.more[group] = (G.more[group] or 0) + by
  count('grouped', by)
end

-- Ends an operation: saves the touched lanes.
local function commit()
  place_touched()
  for group, by in pairs(G.more) do
    if call('HINCRBY', K.turns, group, by) <= 0 then call('HDEL', K.turns, group) end
  end
  for field, by in pairs(counts) do
    if by ~= 0 then call('HINCRBY', K.meta, field, by) end
  end
  if S.counted then call('HSET', K.meta, 'seq', num(S.seq), 'token', num(S.token)) end
  if bell.rings then bell.ring(bell.rings) end
end

local function holder_member(node, ttl, token)
  return string.format('%04d', #node) .. node .. pad(ttl) .. pad(token)
end

local function store_claim(node, kind, ttl, token, taken)
  local t = num(token)
  call('HSET', K.claims, t, cmsgpack.pack(node, kind, ttl, NOW + ttl, NOW))
  if #taken > 1 then call('HSET', K.left, t, #taken) end
  call('HSET', K.held, t, table.concat(taken))
  made[token] = NOW
  if kind == 'node' then call('ZADD', K.holders, 0, holder_member(node, ttl, token))
  else call('ZADD', K.leases, num(NOW + ttl), t) end
end

-- Subtracts lanes from a claim, at least one, and removes it if none are left.
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

load_settings()

-- Windows: the rule is that of `model/window.rs`. Made only for queues that have one.
if S and S.window then
  local w = S.window

  -- Until when pushes may move a lane whose record is of one job; false if it was opened without a window.
  function w.latest(record, id)
    if number_in(id) <= w.from then return false end
    local created, due = struct.unpack('>I7I7', record, 2)
    return math.max(due, math.min(created + w.max_wait, TIME_MAX))
  end

  -- Whether a push leaves a lane as it is that waits, with so many jobs and bytes after it. `latest`: 0 is none.
  function w.keeps(due, latest, run_at, jobs_count, bytes)
    if due <= NOW or latest == 0 then return true end
    return math.min(run_at, latest) <= due + w.step and jobs_count < w.max_jobs and bytes < w.max_bytes
  end

  -- Makes an unclaimed lane due whose window is open and full.
  function w.end_full(l)
    if l.token or not l.next_due or l.due <= NOW then return end
    local bytes, strays = l.bytes, l.strays or 0 -- a light list has none
    if w.max_bytes < math.huge and strays > 0 then
      for _, j in ipairs(L.strays_in(K.open, l, ALL)) do bytes = bytes + j.size end
    end
    if l.count - l.closed + strays >= w.max_jobs or bytes >= w.max_bytes then l.due, l.next_due = NOW, false end
  end

  -- Updates the due time for a push.
  function w.push(l, run_at, merged)
    if l.token then
      l.next_due = l.next_due or after(w.max_wait)
    elseif open_count(l) == 0 and not merged then
      l.due, l.next_due = run_at, math.max(run_at, after(w.max_wait))
    elseif not w.keeps(l.due, l.next_due or 0, run_at, 0, 0) then
      l.due = math.min(run_at, l.next_due)
    end
  end

  -- A turn has ended, with all its jobs.
  function w.after_turn(l)
    if l.next_due then l.due = math.min(l.next_due, after(w.quiet)) end
    w.end_full(l)
  end
end
