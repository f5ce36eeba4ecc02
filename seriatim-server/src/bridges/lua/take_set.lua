-- Takes these members of a set, if they are still there, unless a batch is in flight.
-- KEYS: set, in flight, sequence. ARGV: now in ms, mark of the routes, run id of the server, members.
if redis.call('EXISTS', KEYS[2]) == 1 then return {'held', 0} end
local taken = {}
for i = 4, #ARGV do
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if score then taken[#taken + 1] = {score, ARGV[i]} end
end
if #taken == 0 then return {'none', 0} end
-- Begun anew, it begins behind what it ever was: numbers name jobs that have no id.
if redis.call('EXISTS', KEYS[3]) == 0 then redis.call('SET', KEYS[3], string.format('%.0f', ARGV[1] * 1000)) end
local first = redis.call('INCRBY', KEYS[3], #taken) - #taken + 1
redis.call('HMSET', KEYS[2], 'batch', string.format('%.0f', first), 'at', ARGV[1], 'routes', ARGV[2], 'run', ARGV[3])
for i = 1, #taken do
  redis.call('HSET', KEYS[2], string.format('%.0f', first + i - 1), taken[i][1] .. ' ' .. taken[i][2])
end
for i = 1, #taken do redis.call('ZREM', KEYS[1], taken[i][2]) end
return {'taken', #taken}
