-- Gives jobs to Sidekiq, each once, however often it is asked.
-- KEYS: queues, queue, schedule, retry, dead, then a marker for each job. ARGV: name of the queue, seconds that markers
-- last, 1 if the jobs came while others were given back, the newest of these, then for each job where it goes (2 to 5),
-- its score and its bytes. Answers 1 for each that is given now.
--
-- Of a queue, the oldest comes last and is taken first. Those that came later are told oldest first, and go behind the
-- newest; if Sidekiq has taken it, and so all of them, before what is there.
--
-- The marker comes last: a write that is refused ends the script, and what is not written must not count as given.
local given, comes_later, newest = {}, ARGV[3] == '1', ARGV[4]
for i = 6, #KEYS do
  local at = 5 + (i - 6) * 3
  local is_new = redis.call('EXISTS', KEYS[i]) == 0
  if is_new then
    local place = tonumber(ARGV[at])
    if place == 2 then
      redis.call('SADD', KEYS[1], ARGV[1])
      local job = ARGV[at + 2]
      if not comes_later or redis.call('LINSERT', KEYS[2], 'BEFORE', newest, job) < 1 then
        redis.call('RPUSH', KEYS[2], job)
      end
      newest = job
    else
      redis.call('ZADD', KEYS[place], ARGV[at + 1], ARGV[at + 2])
    end
    redis.call('SET', KEYS[i], '1', 'EX', ARGV[2])
  end
  given[#given + 1] = is_new and 1 or 0
end
return given
