-- The oldest element of a list, unless it is too long to be a job. KEYS: list. ARGV: most bytes.
local element = redis.call('LINDEX', KEYS[1], -1)
if element and #element <= tonumber(ARGV[1]) then return element end
return false
