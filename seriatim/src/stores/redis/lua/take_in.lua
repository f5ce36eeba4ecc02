-- Moves a dead job of another shard into the lane of its key. ARGV: now, version, what is accepted (as in push.lua),
-- lowest token, old place, and the answer of `hand_out` of morgue.lua. Answers {'OK', seq, created}; {'ELSEWHERE',
-- last token} or {'STALE'}.
--
-- Reads idem and keys; writes the job, its lane and idem.
if not S or num(S.version) ~= ARGV[2] then return { 'STALE' } end
NOW = clock(ARGV[1])
even_when_full()
local j = {}
local key, route
key, route, j.created, j.task, j.digest, j.score, j.prio, j.attempts, j.ttl, j.expires, j.options,
  j.started, j.body = cmsgpack.unpack(ARGV[6])

-- An interrupted move is repeated, and finds the copy from the first attempt.
local field = key .. '\0\1' .. ARGV[5]
local known = call('HGET', K.idem, field)
if known then
  local seq, created = cmsgpack.unpack(known)
  return { 'OK', seq, created }
end
local takes = ARGV[3]
if takes == '2' or (takes == '1' and call('HEXISTS', K.keys, key) == 0) then
  return { 'ELSEWHERE', S.token }
end

S.token = math.max(S.token, tonumber(ARGV[4]))
j.seq, j.lane, j.state, j.run_at, j.retry, j.crashes = next_seq(), 0, 'live', NOW, -1, 0
j.error, j.flagged, j.aliases, j.ended, j.key = false, false, false, false, ''
j.route, j.size = J.route_of(route), #j.body
if j.expires > 0 then j.attempts = math.max(j.attempts, 1) end -- as in morgue.lua
J.set_apart(j)
count('jobs', 1)
local l = L.put_back(key, j.route, j)
if not l.token then l.due, l.retry, l.crashes = NOW, -1, 0 end
local until_ = NOW + math.max(S.remember, 86400000000)
call('HSET', K.idem, field, cmsgpack.pack(j.seq, j.created, until_))
call('ZADD', K.idemold, num(until_), field)
commit()
return { 'OK', j.seq, j.created }
