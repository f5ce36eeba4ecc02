-- Names this run of the server: another after each start, and another on each server.
return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
