-- Removes the contents of a shard of a queue that is being deleted. ARGV: the queue's version, whether to remove its
-- settings too. The server frees the memory in the background. The last job number and token stay: a queue that gets
-- this number continues from them. Answers how many jobs there were; -1 if the version is another, -2 if a lane is
-- claimed.
--
-- Reads meta and how many jobs dead and done have; removes all keys of the shard, but for parts of meta.
if not S then return 0 end
if num(S.version) ~= ARGV[1] then return -1 end
if tonumber(call('HGET', K.meta, 'running') or '0') > 0 then return -2 end
even_when_full()
local jobs = tonumber(call('HGET', K.meta, 'jobs') or '0') + call('ZCARD', K.dead) + call('ZCARD', K.done)
for _, name in ipairs({ 'lanes', 'busy', 'keys', 'jobs', 'runs', 'bodies', 'closed', 'progress', 'flags', 'open',
  'later', 'equal', 'arrivals', 'ready', 'wake', 'parked', 'trouble', 'failing', 'claims', 'left', 'held', 'holders', 'leases', 'done',
  'dead', 'deadkeys', 'expiring', 'aliases', 'idem', 'idemold', 'given_up0', 'given_up1', 'routes', 'sleepers', 'shares',
  'turns', 'paced' }) do
  call('UNLINK', K[name])
end
if ARGV[2] == '1' then
  call('DEL', K.meta)
  call('HSET', K.meta, 'seq', num(S.seq), 'token', num(S.token))
else
  call('HDEL', K.meta, 'lanes', 'jobs', 'running', 'processed', 'failed', 'routes', 'grouped', 'round')
end
return jobs
