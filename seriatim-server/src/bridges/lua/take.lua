-- Takes the oldest jobs of a queue, unless a batch is in flight: copies them, then cuts the lists. Redis undoes nothing
-- of a script that runs out of memory, and its first write is the one that may be refused.
-- KEYS: queue, woken, in flight, sequence, paused. ARGV: name of the queue, most jobs, most bytes, now in ms, mark of
-- the routes, run id of the server.
if redis.call('EXISTS', KEYS[3]) == 1 then return {'held', 0} end
if redis.call('SISMEMBER', KEYS[5], ARGV[1]) == 1 then return {'paused', 0} end
local most, room = tonumber(ARGV[2]), tonumber(ARGV[3])
local taken = {}

-- From the right end of a list, where the oldest are; how many.
local function gather(key)
  local count = 0
  while true do
    local page = redis.call('LRANGE', key, -count - 50, -count - 1)
    if #page == 0 then return count end
    for i = #page, 1, -1 do
      if #taken >= most or (#taken > 0 and #page[i] > room) then return count end
      room = room - #page[i]
      count = count + 1
      taken[#taken + 1] = page[i]
    end
  end
end

-- What woke the bridge is older than the rest.
local woken = gather(KEYS[2])
local waiting = gather(KEYS[1])
if #taken == 0 then return {'none', 0} end
-- Begun anew, it begins behind what it ever was: numbers name jobs that have no id.
if redis.call('EXISTS', KEYS[4]) == 0 then redis.call('SET', KEYS[4], string.format('%.0f', ARGV[4] * 1000)) end
local first = redis.call('INCRBY', KEYS[4], #taken) - #taken + 1
redis.call('HMSET', KEYS[3], 'batch', string.format('%.0f', first), 'at', ARGV[4], 'routes', ARGV[5], 'run', ARGV[6])
for i = 1, #taken do
  redis.call('HSET', KEYS[3], string.format('%.0f', first + i - 1), taken[i])
end
if woken > 0 then redis.call('LTRIM', KEYS[2], 0, -woken - 1) end
if waiting > 0 then redis.call('LTRIM', KEYS[1], 0, -waiting - 1) end
return {'taken', #taken}
