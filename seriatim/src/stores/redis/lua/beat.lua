-- The part of a heartbeat for turns in this shard. ARGV: now, node, then for each turn: lane, token, progress,
-- extension ('' = none). Answers {lost turns by index, {lane, token, {seq, created, ...}}..., whether any job is
-- flagged}.
NOW = clock(ARGV[1])
even_when_full()
local node = ARGV[2]

local function claim_of(l)
  return cmsgpack.unpack(call('HGET', K.claims, num(l.token)))
end

-- Extends a claim with an own lease; others follow their node.
local function extend(l, length)
  local t = num(l.token)
  local holder, kind, ttl, until_, made_at = claim_of(l)
  until_ = math.max(until_, NOW + length)
  if kind ~= 'own' then return end
  call('HSET', K.claims, t, cmsgpack.pack(holder, kind, ttl, until_, made_at))
  call('ZADD', K.leases, num(until_), t)
end

local lost, named = {}, {}
for i = 3, #ARGV, 4 do
  local l = S and lane_of(tonumber(ARGV[i]))
  if l and l.claimed_at and l.token == tonumber(ARGV[i + 1]) then
    local progress = optional(ARGV[i + 2])
    l.beat_at, named[l.n] = NOW, true
    if progress then call('HSET', K.progress, id_of(l.n), progress) end
    if ARGV[i + 3] ~= '' then extend(l, tonumber(ARGV[i + 3])) end
    store_lane(l)
  else
    lost[#lost + 1] = (i - 3) / 4
  end
end

local notices, any = {}, 0
local flags = call('HGETALL', K.flags)
for i = 1, #flags, 2 do
  any = 1
  local l = lane_of(number_in(flags[i]))
  if l and l.claimed_at and (named[l.n] or claim_of(l) == node) then
    local list = {}
    for _, seq in ipairs(cmsgpack.unpack(flags[i + 1])) do
      list[#list + 1] = seq
      list[#list + 1] = job_of(seq).created
    end
    notices[#notices + 1] = { l.n, l.token, list }
  end
end
return { lost, notices, any }
