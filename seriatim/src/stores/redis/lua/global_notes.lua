-- The notebook. Values are in the hash `notes`; `note_names` orders their names.
-- ARGV: 'write', then names and values in turn; or 'read' / 'delete', first name, name behind the last, '1' if backwards,
-- most notes, '1' if values are left out. Answers names and values in turn, or the number of deleted notes.
--
-- Reads note_names and, for `read`, notes; `write` and `delete` write both.
local call, P = redis.call, KEYS[1]
local NAMES, VALUES = P .. 'note_names', P .. 'notes'
if ARGV[1] == 'write' then
  for i = 2, #ARGV, 2 do
    call('HSET', VALUES, ARGV[i], ARGV[i + 1])
    call('ZADD', NAMES, 0, ARGV[i])
  end
  return 0
end
local from, to = '[' .. ARGV[2], '(' .. ARGV[3]
local names
if ARGV[4] == '1' then names = call('ZREVRANGEBYLEX', NAMES, to, from, 'LIMIT', 0, ARGV[5])
else names = call('ZRANGEBYLEX', NAMES, from, to, 'LIMIT', 0, ARGV[5]) end
if ARGV[1] == 'read' then
  local found = {}
  for i, name in ipairs(names) do
    found[2 * i - 1], found[2 * i] = name, ARGV[6] == '0' and call('HGET', VALUES, name) or ''
  end
  return found
end
for _, name in ipairs(names) do
  call('ZREM', NAMES, name)
  call('HDEL', VALUES, name)
end
return #names
