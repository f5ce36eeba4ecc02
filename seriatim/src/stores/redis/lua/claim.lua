-- Claims lanes. ARGV: now, node, kind of lease, ttl, most jobs and bytes of a turn, the longest lease of a job's own, most
-- jobs of a turn that are handed over one after the other, lanes_max, crashed_max, promote_max, ticket, whether KEYS[2] has the living nodes (else the caller has checked), the
-- queue's version as the caller knows it, the most bytes to return and the bytes that a job counts besides its payload,
-- then the routes that the caller may take besides the unbound one. Answers {now, turns (see turns.lua), next_due,
-- version, index members without a lane, whether a turn did not fit}; nil if the shard has no queue or another version:
-- after a wipe of the store, its number may belong to another queue. 0 if the node is not alive.
--
-- In a queue with groups or limits these take turns, and are not exceeded: share.lua.
--
-- Reads arrivals, ready, wake, and of each claimed lane its record in lanes and its jobs; writes busy, one record of the
-- claim (claims, held, left, holders), and in `accumulate` lanes.
if ARGV[13] == '1' and not call('ZSCORE', KEYS[2], ARGV[2]) then return 0 end
if not S or num(S.version) ~= ARGV[14] then return false end
local refused = refusal(ARGV[2], ARGV[12])
if refused then return refused end
NOW = clock(ARGV[1])
even_when_full()
T.begin(2)
local lanes_max, crashed_left = tonumber(ARGV[9]), tonumber(ARGV[10])
T.room, T.job_bytes = tonumber(ARGV[15]), tonumber(ARGV[16])
if S.paused then return { NOW, {}, false, S.version, 0, 0 } end
T.read_classes(17, #ARGV)

-- Lanes that are now due move to `ready`: the first ones, if more are due than a script should move. The next claim goes on.
local dangling = 0
local PROMOTED_MAX, PROMOTED_TABLES_MAX = 1000, 60
local due = call('ZRANGEBYSCORE', K.wake, '-inf', num(NOW), 'LIMIT', 0, math.min(tonumber(ARGV[11]), PROMOTED_MAX))
if due[1] then
  local ready, woken, tables_left = {}, {}, PROMOTED_TABLES_MAX
  for i, record in ipairs(fields(K.lanes, due)) do
    if tables_left == 0 then break end
    if record and (is_single(record) or is_bare(record)) then
      local lane_due, prio
      if is_single(record) then lane_due, prio = struct.unpack('>I7I2', record, 9)
      else lane_due, prio = struct.unpack('>I7xxxxxxxI2', record, 2) end
      ready[#ready + 1], ready[#ready + 2] = 0, ready_member(0, prio, lane_due, number_in(due[i]))
      woken[#woken + 1] = due[i]
    elseif record then
      L.place(L.lane_of(number_in(due[i]), record, false))
      tables_left = tables_left - 1
    else
      -- The lane does not exist: a stray entry must not block the shard.
      dangling, woken[#woken + 1] = dangling + 1, due[i]
    end
  end
  write_out()
  many('ZREM', K.wake, woken)
  many('ZADD', K.ready, ready)
end

-- Members of several lists in the order of priority, due time and age.
local function in_order(lists, most)
  local merged = { merged = true }
  local function go_to(list, at)
    local member = list[at]
    list.at = at
    if not member then list.prio = NO_PRIO + 1
    elseif list.arrivals then list.prio, list.due, list.n = ARRIVAL_PRIO, struct.unpack('>I7I7', member)
    else list.prio, list.due, list.n = struct.unpack('>I2I7I7', member, #member - 15) end
  end
  for _, list in ipairs(lists) do go_to(list, 1) end
  while #merged < most do
    local a = lists[1]
    for i = 2, #lists do
      local b = lists[i]
      if b.prio < a.prio or (b.prio == a.prio and (b.due < a.due or (b.due == a.due and b.n < a.n))) then a = b end
    end
    if a.prio > NO_PRIO then break end
    merged[#merged + 1] = a[a.at]
    go_to(a, a.at + 1)
  end
  return merged
end

-- The lanes to claim now, in order, at most `most`. Those in `arrivals` have 14 bytes.
local function candidates(most)
  local lists = { T.group == '' and call('LRANGE', K.arrivals, 0, most - 1) or {} }
  if lists[1][1] then lists[1].arrivals = true else lists = {} end
  for _, class in ipairs(T.classes) do
    local limit = class % 2 == 1 and math.min(most, crashed_left) or most
    local list = limit > 0 and T.look(class, limit) or {}
    if list[1] then lists[#lists + 1] = list end
  end
  if #lists <= 1 then return lists[1] or {} end
  return in_order(lists, most)
end

local gone = {} -- members of `ready` whose lanes are claimed or do not exist

-- Claims one of them. False if the claim ends before it.
local function take_lane(member, id, record)
  if #member == 14 and is_single(record) then
    T.close_single(id, record)
    return not T.is_full
  end
  local crashed = #member > 14 and string.byte(member, -17) % 2 or 0
  if crashed > crashed_left then return true end
  local before = T.taken
  if T.close_light(id, record) then
    if T.taken > before and #member > 14 then gone[#gone + 1] = member end
  else
    T.close(L.lane_of(number_in(id), record, false))
  end
  if T.taken > before then crashed_left = crashed_left - crashed end
  return not T.is_full
end

local BATCH = 1000
-- Jobs whose size is not known yet, where payloads may be large.
local TOLD_MAX = 50

-- Entries of `arrivals` that mean nothing any more, as those of deleted lanes, are removed here. There may be a million: a claim
-- that has passed this many leaves the others to the next, which its caller is told to make at once.
T.passed, T.PASSED_MAX = 0, 10000

-- Passes the first ones, together: where few lanes are wanted, a round for each would take too long.
function T.pass_some()
  local of_lanes, passed = {}, 0
  for i, entry in ipairs(call('LRANGE', K.arrivals, 0, BATCH - 1)) do of_lanes[i] = string.sub(entry, 8) end
  for _, record in ipairs(fields(K.lanes, of_lanes)) do
    if record and is_arrival(record) then break end
    passed = passed + 1
  end
  if passed > 0 then call('LTRIM', K.arrivals, passed, -1) end
  T.passed = T.passed + passed
end

-- Rounds after which nothing is claimed and nothing removed: a lane whose record is wrong must not hold the server up for ever.
local VAIN_MAX = 100

-- Claims the first lanes, at most so many. Answers whether it has claimed all that were ready.
local function take_lanes(most)
local all, is_drained, vain = T.taken + most, false, 0
while vain < VAIN_MAX and T.taken < all and not is_drained and not T.is_full and not T.is_spent() and T.passed <= T.PASSED_MAX do
  local wanted, before = math.min(all - T.taken, BATCH), T.taken
  local members, lane_ids, sub = candidates(wanted), {}, string.sub
  if not members[1] then return crashed_left > 0 end
  for i = 1, #members do lane_ids[i] = sub(members[i], -7) end
  local records = fields(K.lanes, lane_ids)
  local popped = members.arrivals and T.close_arrivals(lane_ids, records) or 0
  for i = popped + 1, #members do
    local record = records[i]
    if T.bodies and T.untold() > TOLD_MAX then T.tell_jobs() end
    if T.is_spent() then break end
    local arrives = #members[i] == 14
    local waits = record and (not arrives or is_arrival(record))
    if not record and not arrives then dangling, gone[#gone + 1] = dangling + 1, members[i] end
    if waits and not take_lane(members[i], lane_ids[i], record) then break end
    if arrives then popped = popped + 1 end
    if arrives and not waits then T.passed = T.passed + 1 end
  end
  if popped > 0 then call('LTRIM', K.arrivals, popped, -1) end
  if popped > 0 and T.taken == before and not T.is_full then T.pass_some() end
  is_drained = popped == #members and popped < wanted and crashed_left > 0
  if gone[1] and #gone == #members and not members.merged then
    -- No other members are between the first and the last: one command removes all.
    call('ZREMRANGEBYLEX', K.ready, '[' .. gone[1], '[' .. gone[#gone])
  else
    many('ZREM', K.ready, gone)
  end
  vain = T.taken == before and popped == 0 and not gone[1] and vain + 1 or 0
  gone = {}
  T.tell_jobs()
  write_out()
end
return is_drained
end

-- The same of a group: see share.lua.
local crashed_stay = false
local function take_of_group(most)
  local before = T.taken
  take_lanes(most)
  if T.taken - before < most and crashed_left == 0 and not T.is_full then
    crashed_stay = crashed_stay or T.is_ready()
  end
  return T.taken - before
end

local is_full, held_back, is_drained = true, false, false
if S.shared then is_full, held_back = T.share_out(lanes_max, take_of_group) else is_drained = take_lanes(lanes_max) end
T.store()
bell.rings = false
commit()
local next_due = false
if T.passed > T.PASSED_MAX then next_due = NOW
elseif S.shared then next_due = (crashed_stay or is_full and T.is_any_ready()) and NOW
elseif not is_drained and T.is_ready() then next_due = NOW end
-- A caller that asks for no lanes claims from here next, or has enough from other shards.
if T.taken < lanes_max or lanes_max == 0 and not next_due then bell.sleep()
elseif lanes_max > 0 then
  bell.stay_awake()
  if next_due then bell.ring('some') end
end
if not next_due then
  local first = call('ZRANGE', K.wake, 0, 0, 'WITHSCORES')[2]
  next_due = first and tonumber(first) or false
  if held_back and (not next_due or held_back < next_due) then next_due = held_back end
end
return { NOW, T.list, next_due, S.version, dangling, T.is_full and 1 or 0 }
