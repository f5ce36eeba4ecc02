-- The batch in flight, field by field as it is kept, with its payloads from where Lowkiq has those that it works on: each is
-- "SHARD PERFORM_IN RETRY_COUNT SCORE LENGTHS ID", the error and the payload (see member.rs). What a server of Lowkiq took back at its start is its own
-- again, and left out. Writes nothing.
-- KEYS: in flight. ARGV: prefix of Lowkiq's keys, name of the bridge.
local prefix = ARGV[1]
local fields = redis.call('HGETALL', KEYS[1])
local of = {}
for i = 1, #fields, 2 do of[fields[i]] = fields[i + 1] end
if not of.batch then return {} end
local fence = ' seriatim ' .. ARGV[2] .. ' ' .. of.batch
local answer, back = {}, 0
for field, value in pairs(of) do
  local shard, count, id = value:match('^(%d+) (%d+) (.*)$')
  if not tonumber(field) or not shard then
    answer[#answer + 1] = field
    answer[#answer + 1] = value
  else
    local payloads = prefix .. 'processing:payloads:' .. id
    local perform_in = redis.call('HGET', prefix .. 'processing:ids_with_perform_in:' .. shard, id)
    local retry_count = redis.call('HGET', prefix .. 'processing:ids_with_retry_count:' .. shard, id)
    local owner = redis.call('HGET', prefix .. 'processing_length_by_shard', shard)
    local is_ours = owner and owner:sub(-#fence) == fence
    if redis.call('EXISTS', payloads) == 0 then
      back = back + 1
    elseif not is_ours and perform_in then
      return {'busy', shard, 'owner', owner or ''}
    else
      local all = redis.call('ZRANGE', payloads, 0, count - 1, 'WITHSCORES')
      local why = redis.call('HGET', prefix .. 'processing:errors:' .. shard, id) or ''
      for j = 1, #all, 2 do
        answer[#answer + 1] = string.format('%.0f', field + (j - 1) / 2)
        answer[#answer + 1] = table.concat({shard, perform_in or '0', retry_count or '-1', all[j + 1], #id .. ':' .. #why, id}, ' ')
          .. why .. all[j]
      end
    end
  end
end
answer[#answer + 1] = 'back'
answer[#answer + 1] = tostring(back)
return answer
