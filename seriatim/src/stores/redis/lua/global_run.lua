-- The server's run id: differs after each start and between servers.
--
-- Reads INFO; writes nothing.
return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
