-- The payloads of a batch are in the store: keeps what was refused beside the source, and then ends as Lowkiq ends what it
-- has worked on. What Lowkiq took back meanwhile is left to it.
-- KEYS: in flight, rejected. ARGV: batch, prefix of Lowkiq's keys, name of the bridge, refused payloads.
if redis.call('HGET', KEYS[1], 'batch') ~= ARGV[1] then return 0 end
local prefix, fence = ARGV[2], ' seriatim ' .. ARGV[3] .. ' ' .. ARGV[1]
for i = 4, #ARGV do redis.call('RPUSH', KEYS[2], ARGV[i]) end
local fields = redis.call('HKEYS', KEYS[1])
local lengths = prefix .. 'processing_length_by_shard'
local is_ours = {}
for i = 1, #fields do
  local shard, id = redis.call('HGET', KEYS[1], fields[i]):match('^(%d+) %d+ (.*)$')
  if tonumber(fields[i]) and shard then
    if is_ours[shard] == nil then
      local owner = redis.call('HGET', lengths, shard)
      is_ours[shard] = owner and owner:sub(-#fence) == fence or false
    end
    local with = prefix .. 'processing:ids_with_perform_in:' .. shard
    if is_ours[shard] or redis.call('HEXISTS', with, id) == 0 then
      redis.call('DEL', prefix .. 'processing:payloads:' .. id)
    end
  end
end
for shard, ours in pairs(is_ours) do
  if ours then
    for _, of in ipairs({'ids_with_perform_in:', 'ids_with_retry_count:', 'errors:'}) do
      redis.call('DEL', prefix .. 'processing:' .. of .. shard)
    end
    redis.call('HDEL', lengths, shard)
  end
end
redis.call('DEL', KEYS[1])
return 1
