-- Takes these members of a set, if they are still there, unless a batch is in flight.
-- KEYS: set, in flight, sequence. ARGV: now in ms, mark of the routes, run id of the server, members.
if redis.call('EXISTS', KEYS[2]) == 1 then return {'held', 0} end

-- Few commands: each call from a script costs more than what it does here, and producers wait for all of them.
-- Redis has ZMSCORE since 6.2.
local scores = redis.pcall('ZMSCORE', KEYS[1], unpack(ARGV, 4))
if scores.err then
  scores = {}
  for i = 4, #ARGV do scores[i - 3] = redis.call('ZSCORE', KEYS[1], ARGV[i]) end
end
local members = {}
for i = 4, #ARGV do
  if scores[i - 3] then members[#members + 1] = {scores[i - 3], ARGV[i]} end
end
if #members == 0 then return {'none', 0} end
-- Begun anew, it begins behind what it ever was: numbers name jobs that have no id.
if redis.call('EXISTS', KEYS[3]) == 0 then redis.call('SET', KEYS[3], string.format('%.0f', ARGV[1] * 1000)) end
local first = redis.call('INCRBY', KEYS[3], #members) - #members + 1
local fields = {'batch', string.format('%.0f', first), 'at', ARGV[1], 'routes', ARGV[2], 'run', ARGV[3]}
for i = 1, #members do
  fields[#fields + 1] = string.format('%.0f', first + i - 1)
  fields[#fields + 1] = members[i][1] .. ' ' .. members[i][2]
  members[i] = members[i][2]
end
redis.call('HMSET', KEYS[2], unpack(fields))
redis.call('ZREM', KEYS[1], unpack(members))
return {'taken', #members}
