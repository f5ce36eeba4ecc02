-- Takes the oldest jobs of a queue, unless a batch is in flight: copies them, then cuts the lists. Redis undoes nothing
-- of a script that runs out of memory, and its first write is the one that may be refused. What is too long to be a job
-- goes beside the queue at once, one in a call: a batch of such ones would be in memory several times.
-- KEYS: queue, woken, in flight, sequence, paused, rejected. ARGV: name of the queue, most jobs, most bytes, now in ms,
-- mark of the routes, run id of the server, most bytes of one job.
if redis.call('EXISTS', KEYS[3]) == 1 then return {'held', 0} end
if redis.call('SISMEMBER', KEYS[5], ARGV[1]) == 1 then return {'paused', 0} end
local most, room, longest = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[7])
local taken, is_full = {}, false

-- From the right end of a list, where the oldest are; how many, and whether the oldest of all is too long. One by one: their
-- length is known only when they are read.
local function gather(key)
  local count = 0
  while #taken < most and not is_full do
    local element = redis.call('LINDEX', key, -count - 1)
    if not element then return count, false end
    if #element > longest and #taken == 0 then return 0, true end
    is_full = #element > longest or (#taken > 0 and #element > room)
    if not is_full then
      room = room - #element
      count = count + 1
      taken[#taken + 1] = element
    end
  end
  return count, false
end

local function reject(key)
  redis.call('RPOPLPUSH', key, KEYS[6])
  return {'refused', 1}
end

-- What woke the bridge is older than the rest.
local woken, is_long = gather(KEYS[2])
if is_long then return reject(KEYS[2]) end
local waiting
waiting, is_long = gather(KEYS[1])
if is_long then return reject(KEYS[1]) end
if #taken == 0 then return {'none', 0} end
-- Begun anew, it begins behind what it ever was: numbers name jobs that have no id.
if redis.call('EXISTS', KEYS[4]) == 0 then redis.call('SET', KEYS[4], string.format('%.0f', ARGV[4] * 1000)) end
local first = redis.call('INCRBY', KEYS[4], #taken) - #taken + 1
local fields = {'batch', string.format('%.0f', first), 'at', ARGV[4], 'routes', ARGV[5], 'run', ARGV[6]}
for i = 1, #taken do
  fields[#fields + 1] = string.format('%.0f', first + i - 1)
  fields[#fields + 1] = taken[i]
end
-- One command: each call from a script costs more than what it does here, and producers wait for all of them.
redis.call('HMSET', KEYS[3], unpack(fields))
if woken > 0 then redis.call('LTRIM', KEYS[2], 0, -woken - 1) end
if waiting > 0 then redis.call('LTRIM', KEYS[1], 0, -waiting - 1) end
return {'taken', #taken}
