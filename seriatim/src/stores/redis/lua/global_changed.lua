-- Records that a queue was defined, changed or deleted. The stamp grows, and is never one from before a wipe.
--
-- Reads and writes the stamp in meta.
local was = tonumber(call('HGET', P .. 'meta', 'stamp') or '0')
call('HSET', P .. 'meta', 'stamp', string.format('%.0f', math.max(was + 1, now)))
return 1
