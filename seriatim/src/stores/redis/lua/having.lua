-- Which shards have something to do, without the common part: most have nothing, so one script looks at many. KEYS[1]: the prefix of a
-- shard; ARGV: a field of meta ('' is none), how many names of keys, these, and the prefixes of others on the same server.
-- Answers for each shard 1 if it has one of the keys, or a queue without the field; else 0.
--
-- Reads whether the keys exist, and meta; writes nothing.
local field, count = ARGV[1], tonumber(ARGV[2])

local function has(prefix)
  local keys = {}
  for i = 1, count do keys[i] = prefix .. ARGV[2 + i] end
  if redis.call('EXISTS', unpack(keys)) > 0 then return 1 end
  if field == '' then return 0 end
  local known = redis.call('HMGET', prefix .. 'meta', 'version', field)
  return known[1] and not known[2] and 1 or 0
end

local answer = { has(KEYS[1]) }
for i = 3 + count, #ARGV do answer[#answer + 1] = has(ARGV[i]) end
return answer
