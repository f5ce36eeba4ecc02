-- The part of a heartbeat for turns in this shard. ARGV: now, node, then for each turn: lane, token, progress,
-- extension ('' = none). Answers {lost turns by index, {lane, token, {seq, created, ...}}..., whether any job is
-- flagged}.
--
-- Reads busy, claims and flags; writes progress, and for a claim with its own lease claims and leases. No lane
-- changes.
NOW = clock(ARGV[1])
even_when_full()
local node = ARGV[2]

-- Extends a claim with an own lease; others follow their node.
local function extend(token, length)
  local t = num(token)
  local holder, kind, ttl, until_, made_at = cmsgpack.unpack(call('HGET', K.claims, t))
  if kind ~= 'own' then return end
  if length ~= '' then until_ = math.max(until_, NOW + tonumber(length)) end
  call('HSET', K.claims, t, cmsgpack.pack(holder, kind, ttl, until_, made_at, NOW))
  call('ZADD', K.leases, num(until_), t)
end

local lost, named, highest = {}, {}, 0
for i = 3, #ARGV, 4 do
  local id, token = id_of(tonumber(ARGV[i])), tonumber(ARGV[i + 1])
  local busy = S and call('HGET', K.busy, id)
  if busy and number_in(busy) == token then
    named[id] = true
    local progress = optional(ARGV[i + 2])
    if progress then call('HSET', K.progress, id, id_of(NOW) .. progress) end
    extend(token, ARGV[i + 3])
  else
    lost[#lost + 1] = (i - 3) / 4
    highest = math.max(highest, tonumber(ARGV[i + 1]))
  end
end
-- A replica that took over may lack the last tokens, and its clock may be behind.
if S and highest > S.token then call('HSET', K.meta, 'token', num(highest)) end

local notices, any = {}, 0
local flags = call('HGETALL', K.flags)
for i = 1, #flags, 2 do
  any = 1
  local busy = call('HGET', K.busy, flags[i])
  local token = busy and number_in(busy)
  if token and (named[flags[i]] or cmsgpack.unpack(call('HGET', K.claims, num(token))) == node) then
    local list = {}
    for _, seq in ipairs(cmsgpack.unpack(flags[i + 1])) do
      list[#list + 1], list[#list + 2] = seq, J.job_of(seq).created
    end
    notices[#notices + 1] = { number_in(flags[i]), token, list }
  end
end
return { lost, notices, any }
