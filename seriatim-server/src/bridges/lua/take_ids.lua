-- Takes ids of Lowkiq with all their payloads, as its own server does: into the keys of what it works on, from where a
-- server that starts puts them back. Nothing is taken while a batch is in flight, while somebody else has ids in those keys,
-- or if an id is not in the shard where it must be.
-- KEYS: in flight, sequence. ARGV: prefix of Lowkiq's keys, name of the bridge, most payloads, most bytes, most payloads of
-- one id, most bytes of one id, now in ms, mark of the routes, run id of the server; then each id behind its shard.
-- Answers a word, a number, and what it is about.
local prefix, name = ARGV[1], ARGV[2]
local lengths = prefix .. 'processing_length_by_shard'
if redis.call('EXISTS', KEYS[1]) == 1 then return {'held', 0, ''} end
local busy = redis.call('HKEYS', lengths)
if #busy > 0 then return {'busy', busy[1], redis.call('HGET', lengths, busy[1])} end

-- Whether something is in the way of this id. It also reads all that is written below: a key of another type ends the script
-- before its first write.
local function is_in_the_way(shard, id)
  redis.call('HEXISTS', prefix .. 'errors', id)
  redis.call('ZSCORE', prefix .. 'all_ids_scored_by_retry_count', id)
  redis.call('ZSCORE', prefix .. 'all_ids_lex', id)
  for _, of in ipairs({'ids_with_perform_in:', 'ids_with_retry_count:', 'errors:'}) do
    if redis.call('HLEN', prefix .. 'processing:' .. of .. shard) > 0 then return true end
  end
  return redis.call('EXISTS', prefix .. 'processing:payloads:' .. id) == 1
end

local most, room = tonumber(ARGV[3]), tonumber(ARGV[4])
local taken, payloads, wrong = {}, 0, nil
for i = 10, #ARGV, 2 do
  local shard, id = ARGV[i], ARGV[i + 1]
  if redis.call('ZSCORE', prefix .. 'all_ids_scored_by_perfrom_in', id) then
    if not redis.call('ZSCORE', prefix .. 'ids_scored_by_perform_in:' .. shard, id) then return {'shards', 0, id} end
    if is_in_the_way(shard, id) then return {'left', shard, id} end
    -- What is too many stops the look before it is read.
    local count = redis.call('ZCARD', prefix .. 'payloads:' .. id)
    if count == 0 or count > tonumber(ARGV[5]) then wrong = wrong or {'whole', count, id}
    elseif not wrong and room > 0 and (#taken == 0 or payloads + count <= most) then
      local bytes = 0
      for _, payload in ipairs(redis.call('ZRANGE', prefix .. 'payloads:' .. id, 0, -1)) do bytes = bytes + #payload end
      if bytes > tonumber(ARGV[6]) then wrong = {'whole', count, id}
      elseif #taken == 0 or bytes <= room then
        payloads = payloads + count
        taken[#taken + 1] = {shard, id, count}
      end
      room = room - bytes
    end
  end
end
if #taken == 0 then return wrong or {'none', 0, ''} end

-- From a set into a hash.
local function move(from, to, id)
  local score = redis.call('ZSCORE', from, id)
  if not score then return end
  redis.call('ZREM', from, id)
  redis.call('HSET', to, id, score)
end

-- Begun anew, it begins behind what it ever was: numbers name jobs.
if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('SET', KEYS[2], string.format('%.0f', ARGV[7] * 1000)) end
local first = redis.call('INCRBY', KEYS[2], payloads) - payloads + 1
local batch = string.format('%.0f', first)
redis.call('HMSET', KEYS[1], 'batch', batch, 'at', ARGV[7], 'routes', ARGV[8], 'run', ARGV[9])
local of_shard = {}
for i = 1, #taken do
  local shard, id, count = taken[i][1], taken[i][2], taken[i][3]
  redis.call('HSET', KEYS[1], string.format('%.0f', first), shard .. ' ' .. count .. ' ' .. id)
  first = first + count
  of_shard[shard] = (of_shard[shard] or 0) + 1
  -- Lowkiq reads the number at the beginning; the rest tells whose it is.
  redis.call('HSET', lengths, shard, of_shard[shard] .. ' seriatim ' .. name .. ' ' .. batch)
  redis.call('ZREM', prefix .. 'all_ids_lex', id)
  redis.call('ZREM', prefix .. 'ids_scored_by_perform_in:' .. shard, id)
  move(prefix .. 'all_ids_scored_by_perfrom_in', prefix .. 'processing:ids_with_perform_in:' .. shard, id)
  move(prefix .. 'all_ids_scored_by_retry_count', prefix .. 'processing:ids_with_retry_count:' .. shard, id)
  redis.call('RENAME', prefix .. 'payloads:' .. id, prefix .. 'processing:payloads:' .. id)
  local failure = redis.call('HGET', prefix .. 'errors', id)
  if failure then
    redis.call('HDEL', prefix .. 'errors', id)
    redis.call('HSET', prefix .. 'processing:errors:' .. shard, id, failure)
  end
end
return {'taken', payloads, ''}
