-- Notes which jobs of a batch have the bytes of jobs before them, once: whoever pushes it again must number them alike.
-- KEYS: in flight. ARGV: batch, note. Answers the note that stands; nothing if another batch does.
if redis.call('HGET', KEYS[1], 'batch') ~= ARGV[1] then return false end
redis.call('HSETNX', KEYS[1], 'again', ARGV[2])
return redis.call('HGET', KEYS[1], 'again')
