-- Claims of queues with groups or limits: groups take turns, and no limit is exceeded. The rule is that of
-- `stores/sharing.rs`, and what a limit allows that of `model/flow.rs`. Made only for such queues.
--
-- What a group gets is a text in `shares`, else `each` of `meta`: weight, most turns at once (0 is no limit), time between two
-- turns (ns; 0 is no rate), burst; `whole` of `meta` is the limit of the queue. Group 0 has the lanes without a group: all that
-- are in `arrivals`, or in `ready` before byte 255.
--
-- Reads of each group that it visits turns and paced if it has a limit, and shares if any has settings of its own; writes
-- round of meta, and paced of groups with a rate.
if S and S.shared then
  local STEPS_MAX = 10000     -- about 70 ms: a visit is one step, and each lane of a group LANE_STEPS more
  local LANE_STEPS = 10
  local WEIGHT_MAX = 1000     -- also that of lanes without groups, and of those left from a time with some
  local NOTHING_SAID = num(WEIGHT_MAX) .. ' 0 0 0' -- of a queue whose groups were removed while some had lanes
  local WHOLE = 'all'
  local round, running, grouped, each, whole, is_over, any_named
  local uses = {} -- what groups get and use, by name

  local function bytes_of(group) return struct.pack('>I6', group) end

  -- What a group, or the whole queue, gets and uses.
  local function read_use(name, settings, runs)
    local weight, limit, interval, burst = string.match(settings, '^(%d+) (%d+) (%d+) (%d+)$')
    local use = {
      -- An earlier build wrote more where lanes have no groups.
      weight = math.min(tonumber(weight), WEIGHT_MAX), limit = tonumber(limit), interval = tonumber(interval), burst = tonumber(burst), us = 0, ns = 0,
    }
    use.running = use.limit > 0 and runs() or 0
    local paced = use.interval > 0 and call('HGET', K.paced, name)
    if paced then use.us, use.ns = struct.unpack('>I7I2', paced) end
    uses[name] = use
    return use
  end

  local function use_of(group)
    local name = bytes_of(group)
    if uses[name] then return uses[name] end
    return read_use(name, group > 0 and any_named and call('HGET', K.shares, name) or each, function()
      if group == 0 then return running - grouped end
      return tonumber(call('HGET', K.turns, name) or '0')
    end)
  end

  local function read_all()
    local known = call('HMGET', K.meta, 'running', 'grouped', 'round', 'whole', 'each', 'named')
    running, grouped = tonumber(known[1] or '0'), tonumber(known[2] or '0')
    local from, given = string.match(known[3] or '0 0', '^(%d+) (%d+)$')
    round = { from = tonumber(from), given = tonumber(given), was = known[3] }
    each, is_over, any_named = known[5] or NOTHING_SAID, not known[5], known[6] == '1'
    whole = read_use(WHOLE, known[4] or NOTHING_SAID, function() return running end)
  end

  -- How many turns may start; if none may because of the rate, when the next one may.
  local function free_of(use)
    local free = use.limit > 0 and math.max(use.limit - use.running, 0) or math.huge
    if free == 0 or use.interval == 0 then return free end
    local ahead = use.us >= NOW and (use.us - NOW) * 1000 + use.ns or 0
    local room = use.burst * use.interval - ahead
    if room < use.interval then return 0, NOW + math.ceil((use.interval - room) / 1000) end
    return math.min(free, math.floor(room / use.interval))
  end

  local function start(use, turns)
    use.running = use.running + turns
    if use.interval == 0 or turns == 0 then return end
    if use.us < NOW then use.us, use.ns = NOW, 0 end
    local ns = use.ns + use.interval * turns
    use.us, use.ns, use.is_changed = use.us + math.floor(ns / 1000), ns % 1000, true
  end

  local function write_all()
    local said, paced = num(round.from) .. ' ' .. num(round.given), {}
    if said ~= round.was then call('HSET', K.meta, 'round', said) end
    for name, use in pairs(uses) do
      if use.is_changed then paced[#paced + 1], paced[#paced + 2] = name, struct.pack('>I7I2', use.us, use.ns) end
    end
    many('HSET', K.paced, paced)
  end

  -- The first group from this number on that has ready lanes.
  local function group_from(from)
    local arrives = from == 0 and T.passed <= T.PASSED_MAX and first_arrival(P, true)
    if from == 0 and (arrives or call('ZRANGEBYLEX', K.ready, '-', '(\255', 'LIMIT', 0, 1)[1]) then return 0 end
    local member = call('ZRANGEBYLEX', K.ready, '[\255' .. bytes_of(from), '+', 'LIMIT', 0, 1)[1]
    return member and (struct.unpack('>I6', member, 2))
  end

  local function earlier(a, b) return a and b and math.min(a, b) or a or b end

  function T.share_out(most, take)
    read_all()
    local left, soonest, nothing_since, giver, steps = most, false, false, false, 0

    -- Claims lanes of a group within its limit.
    local function give(use, wanted)
      local free, later_on = free_of(use)
      if free == 0 then
        if later_on and T.is_ready() then soonest = earlier(soonest, later_on) end
        return 0
      end
      local given = take(math.min(wanted, free))
      start(use, given)
      return given
    end

    -- One group's turn. Answers nothing if there may be others, else whether more may be ready.
    local function visit()
      if left == 0 or T.is_full or T.is_spent() then return true end
      local free, later_on = free_of(whole)
      if free == 0 then
        soonest = earlier(soonest, later_on)
        return false
      end
      local group = group_from(round.from) or round.from > 0 and group_from(0)
      if not group or group == nothing_since then return false end
      if group ~= round.from then round.from, round.given = group, 0 end
      local use = use_of(group)
      if round.given < use.weight then
        -- If none of the others gave anything since its last visit, they have nothing in this claim: it takes many turns
        -- at once.
        local wanted = math.min(left, free, group == giver and left or use.weight - round.given)
        T.group = group > 0 and '\255' .. bytes_of(group) or ''
        local given = give(use, wanted)
        if given > 0 then
          start(whole, given)
          left, nothing_since, giver = left - given, false, group
          round.given = (round.given + given - 1) % use.weight + 1
          if group > 0 then steps = steps + LANE_STEPS * given end
        else
          nothing_since = nothing_since or group
        end
        -- The next claim goes on with its turn if this one has claimed enough.
        if (given == wanted or T.is_spent()) and round.given < use.weight then return end
      end
      round.from, round.given = group + 1, 0
    end

    local is_full
    while is_full == nil and steps < STEPS_MAX do
      steps = steps + 1
      is_full = visit()
    end
    write_all()
    T.group = ''
    if is_over and not group_from(1) then call('HSET', K.meta, 'due', S.due) end
    -- Not at once again, if so many groups have nothing to give.
    if is_full == nil and left == most then return false, earlier(soonest, NOW + 1000000) end
    return is_full ~= false, soonest
  end

  -- Whether the caller may take any ready lane, whatever the limits.
  function T.is_any_ready()
    if T.is_ready() then return true end
    local mine, from = {}, '[\255'
    for _, class in ipairs(T.classes) do mine[struct.pack('>I3', class)] = true end
    for _ = 1, CLASSES_MAX do
      local member = call('ZRANGEBYLEX', K.ready, from, '+', 'LIMIT', 0, 1)[1]
      if not member or mine[string.sub(member, 8, 10)] then return member end
      from = '(' .. string.sub(member, 1, 10) .. '\255'
    end
    return true
  end
end
