-- Stores the version of the format, if there is none, or raises it (raise.lua). ARGV: version. Answers the stored one.
--
-- Reads the version in meta; writes it if there is none.
local newest = tonumber(ARGV[1])
local known = tonumber(call('HGET', P .. 'meta', 'version') or '0')
if known > 0 then return raised(known, newest) end
call('HSET', P .. 'meta', 'version', newest)
return newest
