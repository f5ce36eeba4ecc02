-- Rescues expired claims. ARGV: now, node, ttl, lanes_max, ticket, the time by the clock that heartbeats have, then
-- (node, last heartbeat; '-' for a forgotten one) of all nodes. Answers {turns, holders that the caller did not name}.
--
-- Reads leases, holders, held and the lanes; writes as take_over.lua does, and removes what leases and holders have of claims
-- that do not exist.
if not S then return { {}, {} } end
local refused = refusal(ARGV[2], ARGV[5])
if refused then return refused end
NOW = clock(ARGV[1])
even_when_full()
local node, lease, lanes_left = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local beats, beaten_at = {}, tonumber(ARGV[6])
for i = 7, #ARGV, 2 do beats[ARGV[i]] = ARGV[i + 1] end

-- Tokens of claims, with the index that has them and the member there.
local expired, unknown = {}, {}
for _, t in ipairs(call('ZRANGEBYSCORE', K.leases, '-inf', '(' .. num(NOW), 'LIMIT', 0, lanes_left)) do
  expired[#expired + 1] = { tonumber(t), K.leases, t }
end

-- Claims whose ttl is shorter than the time since their node's last heartbeat.
local function look_at(holder, head)
  local to = '(' .. head .. '~'
  if beats[holder] ~= '-' then
    local silence = beaten_at - tonumber(beats[holder])
    if silence <= 0 then return end
    to = '(' .. head .. pad(silence)
  end
  for _, member in ipairs(call('ZRANGEBYLEX', K.holders, '[' .. head, to, 'LIMIT', 0, lanes_left)) do
    expired[#expired + 1] = { L.seq_in(member), K.holders, member }
  end
end

local from = '-'
while true do
  local member = call('ZRANGEBYLEX', K.holders, from, '+', 'LIMIT', 0, 1)[1]
  if not member then break end
  local head = string.sub(member, 1, 4 + tonumber(string.sub(member, 1, 4)))
  local holder = string.sub(head, 5)
  if beats[holder] then look_at(holder, head) else unknown[#unknown + 1] = holder end
  from = '(' .. head .. '~'
end

for _, claim in ipairs(expired) do
  if lanes_left == 0 or is_spent() then break end
  local old, index, member = unpack(claim)
  local ids = call('HGET', K.held, num(old))
  if ids then lanes_left = take_over(old, ids, lanes_left) else call('ZREM', index, member) end
end
if taken[1] then store_claim(node, 'node', lease, token, taken) end
commit()
return { turns, unknown }
