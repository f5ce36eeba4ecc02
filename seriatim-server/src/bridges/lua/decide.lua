-- A person has decided on a batch in doubt. KEYS: in flight. ARGV: batch, 'again' or 'drop', now in ms.
if redis.call('HGET', KEYS[1], 'batch') ~= ARGV[1] then return 0 end
if ARGV[2] == 'drop' then
  redis.call('DEL', KEYS[1])
else
  redis.call('HSET', KEYS[1], 'at', ARGV[3])
end
return 1
