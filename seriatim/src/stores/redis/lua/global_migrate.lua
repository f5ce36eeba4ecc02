-- Stores the version of the format, if there is none. ARGV: version. Answers the stored one.
--
-- Reads the version in meta; writes it if there is none.
local call, P = redis.call, KEYS[1]
local known = tonumber(call('HGET', P .. 'meta', 'version') or '0')
if known > 0 then return known end
call('HSET', P .. 'meta', 'version', ARGV[1])
return tonumber(ARGV[1])
