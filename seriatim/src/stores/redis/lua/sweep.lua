-- Removes expired entries. ARGV: now, then the most to remove of each kind: expired jobs, finished jobs, dead jobs,
-- idempotency keys. Answers {expired {seq, created, ...}, finished, dead {seq, created, ...}, keys, whether there is
-- more, whether `parked` lacks lanes}.
--
-- Reads expiring, done, dead and idemold up to now, and the jobs; removes these, from their lanes too, and some of arrivals.
-- With limits also some of paced.
if not S then return { {}, 0, {}, 0, 0, 0 } end
NOW = clock(ARGV[1])
even_when_full()
local more = 0

-- At most `most` members of a ZSET up to a time.
local function old(key, time, most)
  local list = call('ZRANGEBYSCORE', key, '-inf', num(time), 'LIMIT', 0, most + 1)
  if #list > most then
    more = 1
    list[#list] = nil
  end
  return list
end

-- Acts on the jobs of an index. What it names and is gone must not stop the sweep for ever.
local function each(index, list, act)
  local ids = {}
  for _, member in ipairs(list) do
    local j = J.job_of(tonumber(member))
    if j then
      ids[#ids + 1], ids[#ids + 2] = j.seq, j.created
      act(j, member)
    else
      call('ZREM', index, member)
    end
  end
  return ids
end

local expired = each(K.expiring, old(K.expiring, NOW, tonumber(ARGV[2])), function(j)
  local l = L.lane_of(j.lane)
  L.take(l, j)
  J.finish(j, l.key, 'canceled', 'expired')
  touch(l)
end)

local finished = old(K.done, NOW, tonumber(ARGV[3]))
each(K.done, finished, function(j, member)
  call('ZREM', K.done, member)
  J.forget(j)
end)

local function remove_dead(j)
  J.unbury(j)
  J.forget(j)
end
local limits = call('HMGET', K.meta, 'keepdead', 'deadmax')
local dead_most = tonumber(ARGV[4])
local dead = each(K.dead, old(K.dead, NOW - tonumber(limits[1]), dead_most), remove_dead)
local over = call('ZCARD', K.dead) - tonumber(limits[2])
local room = dead_most - #dead / 2
if over > room then
  over, more = room, 1
end
if over > 0 then
  for _, value in ipairs(each(K.dead, call('ZRANGE', K.dead, 0, over - 1), remove_dead)) do
    dead[#dead + 1] = value
  end
end

first_arrival(P, true) -- a paused queue has no claims that remove what means nothing there
place_touched() -- what is removed here is stored no more
local names, are_more = W.sweep(K.idem, K.idemold, NOW, tonumber(ARGV[5]), math.max(S.remember, 60000000))
if are_more then more = 1 end
-- What a rate has forgotten: each sweep looks at some.
local PACED_MAX = 1000
if S.shared then
  local some, gone = call('HRANDFIELD', K.paced, PACED_MAX, 'WITHVALUES'), {}
  for i = 1, #some, 2 do
    if number_in(some[i + 1]) < NOW then gone[#gone + 1] = some[i] end
  end
  many('HDEL', K.paced, gone)
end
commit()
return { expired, #finished, dead, names, more, call('HGET', K.meta, 'parks') == '1' and 0 or 1 }
