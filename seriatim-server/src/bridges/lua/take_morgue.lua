-- Takes payloads from the morgue of a queue of Lowkiq, unless a batch is in flight: copies them, in the form of read_ids.lua,
-- and then removes them. An id whose last payload goes, or that has none, goes too.
-- KEYS: in flight, sequence, dead ids. ARGV: prefix of the morgue's keys, most payloads, most bytes, now in ms, mark of the
-- routes, run id of the server; then ids.
if redis.call('EXISTS', KEYS[1]) == 1 then return {'held', 0} end
local prefix, most, room = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local taken, ids = {}, {}

-- False if no more fits.
local function gather(id, died_at)
  local why = redis.call('HGET', prefix .. 'errors', id) or ''
  local some = redis.call('ZRANGE', prefix .. 'payloads:' .. id, 0, most - #taken - 1, 'WITHSCORES')
  for i = 1, #some, 2 do
    if #taken > 0 and #some[i] > room then return false end
    room = room - #some[i]
    local head = table.concat({'0', died_at, '-1', some[i + 1], #id .. ':' .. #why, id}, ' ')
    taken[#taken + 1] = {id, some[i], head .. why .. some[i]}
  end
  return #taken < most
end

for i = 7, #ARGV do
  local died_at = redis.call('ZSCORE', KEYS[3], ARGV[i])
  if died_at then
    ids[#ids + 1] = ARGV[i]
    if not gather(ARGV[i], died_at) then break end
  end
end
if #ids == 0 then return {'none', 0} end
if #taken > 0 then
  -- Begun anew, it begins behind what it ever was: numbers name jobs.
  if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('SET', KEYS[2], string.format('%.0f', ARGV[4] * 1000)) end
  local first = redis.call('INCRBY', KEYS[2], #taken) - #taken + 1
  redis.call('HMSET', KEYS[1], 'batch', string.format('%.0f', first), 'at', ARGV[4], 'routes', ARGV[5], 'run', ARGV[6])
  for i = 1, #taken do redis.call('HSET', KEYS[1], string.format('%.0f', first + i - 1), taken[i][3]) end
end
for i = 1, #taken do redis.call('ZREM', prefix .. 'payloads:' .. taken[i][1], taken[i][2]) end
for _, id in ipairs(ids) do
  if redis.call('EXISTS', prefix .. 'payloads:' .. id) == 0 then
    redis.call('ZREM', prefix .. 'all_ids_lex', id)
    redis.call('HDEL', prefix .. 'errors', id)
    redis.call('ZREM', KEYS[3], id)
  end
end
return {'taken', #taken}
