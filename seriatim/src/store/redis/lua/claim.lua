-- Takes lanes. ARGV: now, node, kind of lease, ttl, lanes_max, crashed_max, promote_max, turn_jobs,
-- turn_bytes, then the routes that the caller may take besides "anybody".
-- Answers {now, turns, next_due}; nil when the queue is not here.
if not S then return false end
NOW = clock(ARGV[1])
even_when_full()
local node, kind, lease = ARGV[2], ARGV[3], tonumber(ARGV[4])
local lanes_max, crashed_left = tonumber(ARGV[5]), tonumber(ARGV[6])
local turn_jobs_max, turn_bytes_max = tonumber(ARGV[8]), tonumber(ARGV[9])
if S.paused then return { NOW, {}, false } end

for _, member in ipairs(call('ZRANGEBYSCORE', K.wake, '-inf', num(NOW), 'LIMIT', 0, ARGV[7])) do
  place(lane_of(tonumber(member)))
end

-- The first ready lane of each class that the caller may take.
local heads = {}
local function look(class)
  local from, to = string.format('[%08.0f', class), string.format('(%08.0f~', class)
  heads[class] = call('ZRANGEBYLEX', K.ready, from, to, 'LIMIT', 0, 1)[1]
end
for i = 9, #ARGV do
  local route = i == 9 and 0 or call('HGET', K.routes, ARGV[i])
  if route then
    look(route * 2)
    look(route * 2 + 1)
  end
end

local function best(crashed)
  local found, place_of
  for class, member in pairs(heads) do
    local rank = string.sub(member, 9)
    if (crashed or class % 2 == 0) and (not found or rank < place_of) then
      found, place_of = class, rank
    end
  end
  return found
end

local function fresh(j) return j.retry < 0 and j.crashes == 0 and j.run_at <= NOW end

-- The jobs that a turn of this lane takes, in the order of handing over.
local function choose(l)
  promote(l)
  local head = head_of(l)
  if not head then return {} end
  local most = 1
  if S.mode == 'accumulate' then most = turn_jobs_max
  elseif S.mode == 'fifo' and head.retry < 0 and head.crashes == 0 then most = S.take end
  if most == 1 then return { head } end
  local chosen, bytes = {}, 0
  for i, member in ipairs(members(K.open, l, most)) do
    local j = job_of(seq_in(member))
    bytes = bytes + j.size
    local fits = j.task == head.task and bytes <= turn_bytes_max
      and (S.mode == 'accumulate' or fresh(j))
    if i > 1 and not fits then break end
    chosen[i] = j
  end
  return chosen
end

-- Claims made by this call, by ttl; one with a lease of its own holds one lane, so that it can be
-- extended alone.
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

local function close(l)
  local chosen, closed, ttl = choose(l), {}, lease
  if not chosen[1] then return place(l) end
  if S.mode ~= 'accumulate' then show(l, chosen[1].retry) end
  for i, j in ipairs(chosen) do
    take(l, j)
    closed[i] = j.seq
    ttl = math.max(ttl, j.ttl)
  end
  local claim = claim_for(ttl)
  claim.lanes[#claim.lanes + 1] = l.n
  l.closed, l.token, l.claimed_at, l.beat_at = closed, claim.token, NOW, NOW
  l.next_due = l.open > 0 and l.due
  if #closed > INLINE_CLOSED_MAX then
    call('HSET', K.closed, num(l.n), cmsgpack.pack(closed))
  end
  count('running', 1)
  place(l)
  return turn_of(l, true)
end

local turns = {}
while #turns < lanes_max do
  local class = best(crashed_left > 0)
  if not class then break end
  local l = lane_of(tonumber(string.sub(heads[class], -16)))
  local turn = close(l)
  if turn then
    crashed_left = crashed_left - class % 2
    turns[#turns + 1] = turn
  end
  look(class)
end
for _, claim in ipairs(claims) do
  store_claim(node, kind, claim.ttl, claim.token, claim.lanes)
end
rings = false
commit()
local wake = call('ZRANGE', K.wake, 0, 0, 'WITHSCORES')[2]
return { NOW, turns, best(true) and NOW or (wake and tonumber(wake)) or false }
