-- Claims lanes. ARGV: now, node, kind of lease, ttl, lanes_max, crashed_max, promote_max, turn_jobs, turn_bytes,
-- ticket, whether KEYS[2] has the living nodes (else the caller has checked), the queue's version as the caller knows
-- it, the longest lease of a job's own, the most bytes to return and the bytes that a job counts besides its payload,
-- then the routes that the caller may take besides the unbound one. Answers {now, turns, next_due, token, version,
-- index members without a lane, whether a turn did not fit}; nil if the shard has no queue or another version: after a
-- wipe of the store, its number may belong to another queue. A turn is an answer of `turn_of`, or for the token: an id
-- and then the compact record of its lane; or the record of a job in a listed lane; or 'M' and a number of jobs (4
-- bytes), and then their records, in no order. 0 if the node is not alive.
if ARGV[11] == '1' and not call('ZSCORE', KEYS[2], ARGV[2]) then return 0 end
if not S or num(S.version) ~= ARGV[12] then return false end
local refused = refusal(ARGV[2], ARGV[10])
if refused then return refused end
NOW = clock(ARGV[1])
even_when_full()
local node, kind, lease = ARGV[2], ARGV[3], tonumber(ARGV[4])
local lanes_max, crashed_left = tonumber(ARGV[5]), tonumber(ARGV[6])
local lease_max = tonumber(ARGV[13])
local turn_jobs_max, turn_bytes_max = tonumber(ARGV[8]), tonumber(ARGV[9])
local room, job_bytes = tonumber(ARGV[14]) or math.huge, tonumber(ARGV[15])
if S.paused then return { NOW, {}, false, 0, S.version, 0, 0 } end

local dangling = 0
local function promote_lanes()
  local due = call('ZRANGEBYSCORE', K.wake, '-inf', num(NOW), 'LIMIT', 0, ARGV[7])
  if not due[1] then return end
  local ready, woken = {}, {}
  for i, record in ipairs(fields(K.lanes, due)) do
    if record and is_compact(record) then
      local run_at, prio = struct.unpack('>I7I2', record, 9)
      ready[#ready + 1] = ready_member(0, prio, run_at, number_in(due[i]))
      woken[#woken + 1] = due[i]
    elseif record and is_listed(record) then
      local lane_due, _, prio = struct.unpack('>I7I7I2', record, 2)
      ready[#ready + 1] = ready_member(0, prio, lane_due, number_in(due[i]))
      woken[#woken + 1] = due[i]
    elseif record then
      place(lane_of(number_in(due[i]), record))
    else
      -- The lane does not exist: a stray entry must not block the shard.
      dangling, woken[#woken + 1] = dangling + 1, due[i]
    end
  end
  write_out()
  many('ZREM', K.wake, woken)
  add_members(K.ready, ready)
end
promote_lanes()

-- The first ready lanes of each class that the caller may take.
local classes = {}
local function look(class, most)
  local from = struct.pack('>I3', class)
  return call('ZRANGEBYLEX', K.ready, '[' .. from, '(' .. from .. '\255', 'LIMIT', 0, most)
end
for i = 15, #ARGV do
  local route = i == 15 and 0 or call('HGET', K.routes, ARGV[i])
  if route then
    classes[#classes + 1] = route * 2
    classes[#classes + 1] = route * 2 + 1
  end
end

-- Members of several classes in the order of priority, due time and age.
local function in_order(lists)
  local merged, heads = { merged = true }, {}
  local function next_of(list)
    local member = list[list.at]
    if member then
      local class, prio, due, n = struct.unpack('>I3I2I7I7', member)
      heads[#heads + 1] = { list = list, prio = prio, due = due, n = n, member = member }
    end
  end
  for _, list in ipairs(lists) do
    list.at = 1
    next_of(list)
  end
  while heads[1] and #merged < lanes_max do
    local first = 1
    for i = 2, #heads do
      local a, b = heads[i], heads[first]
      if a.prio ~= b.prio then if a.prio < b.prio then first = i end
      elseif a.due ~= b.due then if a.due < b.due then first = i end
      elseif a.n < b.n then first = i end
    end
    local head = table.remove(heads, first)
    merged[#merged + 1] = head.member
    head.list.at = head.list.at + 1
    next_of(head.list)
  end
  return merged
end

-- The lanes to claim now, in order, at most `most`.
local function candidates(most)
  local lists = {}
  for _, class in ipairs(classes) do
    local limit = class % 2 == 1 and math.min(most, crashed_left) or most
    local list = limit > 0 and look(class, limit) or {}
    if list[1] then lists[#lists + 1] = list end
  end
  if #lists <= 1 then return lists[1] or {} end
  return in_order(lists)
end

local function fresh(j) return j.retry < 0 and j.crashes == 0 and j.run_at <= NOW end

-- The jobs of this lane's turn, in the order of execution.
local function choose(l)
  promote(l)
  local head = head_of(l)
  if not head then return {} end
  local most = 1
  if S.mode == 'accumulate' then most = turn_jobs_max
  elseif S.mode == 'fifo' and head.retry < 0 and head.crashes == 0 then most = S.take end
  if most == 1 then return { head } end
  local chosen, bytes, seqs = {}, 0, {}
  for i, member in ipairs(members(K.open, l, most)) do seqs[i] = seq_in(member) end
  read_jobs(seqs)
  for i, seq in ipairs(seqs) do
    local j = job_of(seq)
    bytes = bytes + j.size
    local fits = j.task == head.task and bytes <= turn_bytes_max
      and (S.mode == 'accumulate' or fresh(j))
    if i > 1 and not fits then break end
    chosen[i] = j
  end
  return chosen
end

-- Claims made by this call, by ttl; one with an own lease has one lane, so that it can be extended separately.
local claims, of_ttl = {}, {}
local function claim_for(ttl)
  local claim = of_ttl[ttl]
  if not claim or kind == 'own' then
    claim = { ttl = ttl, token = next_token(), lanes = {} }
    of_ttl[ttl] = claim
    claims[#claims + 1] = claim
  end
  return claim
end

-- Takes a chosen job; like `take`, but deferred.
local function take_chosen(l, j)
  if S.mode == 'parallel' then return take(l, j) end
  later('ZREM', K.open, open_member(l, j))
  open_no_more(l, j, later)
end

local is_full = false
local function fits_in(chosen)
  for _, j in ipairs(chosen) do room = room - j.size - job_bytes end
  is_full = room < 0
  return not is_full
end

local function close(l)
  local chosen, closed, ttl = choose(l), {}, lease
  if not chosen[1] or not fits_in(chosen) then return place(l) end
  if S.mode ~= 'accumulate' then show(l, chosen[1].retry) end
  for i, j in ipairs(chosen) do
    take_chosen(l, j)
    closed[i] = j.seq
    ttl = math.max(ttl, math.min(j.ttl, lease_max))
  end
  local claim = claim_for(ttl)
  claim.lanes[#claim.lanes + 1] = id_of(l.n)
  l.closed, l.token, l.claimed_at, l.beat_at = closed, claim.token, NOW, NOW
  l.next_due = l.open > 0 and l.due
  if #closed > INLINE_CLOSED_MAX then
    call('HSET', K.closed, id_of(l.n), cmsgpack.pack(closed))
  end
  count('running', 1)
  place(l)
  return turn_of(l, true)
end

local turns, taken, closing, busy, simple = {}, 0, {}, {}, false
-- The light forms have no own lease and no byte limit.
local is_light = kind == 'node' and room == math.huge

local function claim_simple(member, id)
  if not simple then
    local claim = claim_for(lease)
    simple = { claim = claim, token = struct.pack('>I7', claim.token) }
  end
  local held = simple.claim.lanes
  held[#held + 1] = id
  closing[#closing + 1] = member
end

-- A lane with a compact record stays unchanged except in `ready` and `busy`.
local function close_simple(member, id, record)
  claim_simple(member, id)
  local at = #busy
  busy[at + 1] = id
  busy[at + 2] = S.mode == 'parallel' and simple.token or simple.token .. key_in(record)
  at = #turns
  turns[at + 1], turns[at + 2] = id, record
end

-- Whether a turn of a listed lane is its head, or all of it.
local function is_whole(record)
  if S.mode == 'fifo' then return S.take == 1 end
  return struct.unpack('>I4', record, 18) <= turn_jobs_max
end

-- Jobs still to be read, and their places in `turns`.
local wanted, places = {}, {}
local function tell_job(name)
  wanted[#wanted + 1], places[#places + 1], turns[#turns + 1] = name, #turns + 1, false
end

local function close_listed(member, id, record)
  claim_simple(member, id)
  local at = #busy
  busy[at + 1], busy[at + 2] = id, simple.token .. '\0'
  if S.mode == 'fifo' then return tell_job(string.sub(record, -7)) end
  local q = read_list(id, record)
  turns[#turns + 1] = 'M' .. struct.pack('>I4', q.count)
  for _, name in ipairs(ids_in(q)) do tell_job(name) end
  q.closed, q.next_due, q.prio = q.count, 0, NO_PRIO
  later('HSET', K.lanes, id, list_record(q))
end

local function tell_jobs()
  for i, record in ipairs(fields(K.jobs, wanted)) do
    turns[places[i]] = record
    if S.merges then
      local _, _, digest = texts_in(record, 16)
      later('HDEL', K.equal, string.sub(record, 2, 8) .. digest)
    end
  end
  wanted, places = {}, {}
end

while taken < lanes_max and not is_full do
  local members = candidates(lanes_max - taken)
  if not members[1] then break end
  local lane_ids = {}
  for i, member in ipairs(members) do lane_ids[i] = string.sub(member, 13) end
  for i, record in ipairs(fields(K.lanes, lane_ids)) do
    local crashed = string.byte(members[i], 3) % 2
    if not record then
      dangling, closing[#closing + 1] = dangling + 1, members[i]
    elseif is_full then
      break
    elseif is_light and is_compact(record) then
      close_simple(members[i], lane_ids[i], record)
      taken = taken + 1
    elseif is_light and is_listed(record) and is_whole(record) then
      close_listed(members[i], lane_ids[i], record)
      taken = taken + 1
    elseif crashed <= crashed_left then
      local turn = close(lane_of(number_in(lane_ids[i]), record))
      if turn then
        taken, turns[#turns + 1] = taken + 1, turn
        crashed_left = crashed_left - crashed
      end
    end
  end
  if closing[1] and #closing == #members and not members.merged then
    -- No other members are between the first and the last: one command removes all.
    call('ZREMRANGEBYLEX', K.ready, '[' .. closing[1], '[' .. closing[#closing])
  else
    many('ZREM', K.ready, closing)
  end
  closing = {}
  write_out()
end
tell_jobs()
many('HSET', K.busy, busy)
count('running', #busy / 2)
for _, claim in ipairs(claims) do
  store_claim(node, kind, claim.ttl, claim.token, claim.lanes)
end
rings = false
commit()
local next_due = false
for _, class in ipairs(classes) do
  if not next_due and look(class, 1)[1] then next_due = NOW end
end
if not next_due then
  local wake = call('ZRANGE', K.wake, 0, 0, 'WITHSCORES')[2]
  next_due = wake and tonumber(wake) or false
end
return { NOW, turns, next_due, simple and simple.claim.token or 0, S.version, dangling, is_full and 1 or 0 }
