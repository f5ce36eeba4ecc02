-- Gives jobs to Sidekiq, each once, however often it is asked. Of a queue, the oldest comes last and is taken first.
-- KEYS: queues, queue, schedule, retry, dead, then a marker for each job. ARGV: name of the queue, seconds that markers
-- last, then for each job where it goes (2 to 5), its score and its bytes. Answers 1 for each that is given now.
--
-- The marker comes last: a write that is refused ends the script, and what is not written must not count as given.
local given = {}
for i = 6, #KEYS do
  local at = 3 + (i - 6) * 3
  local is_new = redis.call('EXISTS', KEYS[i]) == 0
  if is_new then
    local place = tonumber(ARGV[at])
    if place == 2 then
      redis.call('SADD', KEYS[1], ARGV[1])
      redis.call('RPUSH', KEYS[2], ARGV[at + 2])
    else
      redis.call('ZADD', KEYS[place], ARGV[at + 1], ARGV[at + 2])
    end
    redis.call('SET', KEYS[i], '1', 'EX', ARGV[2])
  end
  given[#given + 1] = is_new and 1 or 0
end
return given
