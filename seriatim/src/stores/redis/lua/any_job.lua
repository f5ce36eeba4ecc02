-- Jobs in any state ------------------------------------------------------------------------------
--
-- As any_lane.lua: made when a script needs the first of these functions.
--
-- Reads jobs, lanes, bodies, routes and aliases. Writes bodies, routes, the number of routes in meta, dead, deadkeys, done and aliases;
-- `write_out` writes jobs.

local function define_jobs()
function J.read_job(seq, record)
  local plain = plain_job(record)
  if plain then
    jobs[seq] = plain
    return plain
  end
  local j = { seq = seq }
  j.created, j.lane, j.state, j.task, j.digest, j.score, j.prio, j.run_at, j.attempts, j.retry,
    j.crashes, j.error, j.started, j.flagged, j.route, j.ttl, j.expires, j.options, j.aliases,
    j.ended, j.key, j.size, j.body = cmsgpack.unpack(record)
  jobs[seq] = j
  return j
end

function J.job_of(seq)
  local known = jobs[seq]
  if known ~= nil then return known end
  local record = call('HGET', K.jobs, id_of(seq))
  if record then return J.read_job(seq, record) end
  -- It may be the only job of the lane with its number.
  record = call('HGET', K.lanes, id_of(seq))
  return record and is_single(record) and L.lane_of(seq, record) and jobs[seq] or false
end

-- Loads jobs that are not cached yet, with one command.
function J.read_jobs(seqs)
  local unknown, names = {}, {}
  for _, seq in ipairs(seqs) do
    if jobs[seq] == nil then
      unknown[#unknown + 1], names[#names + 1] = seq, id_of(seq)
    end
  end
  for i, record in ipairs(fields(K.jobs, names)) do
    if record then J.read_job(unknown[i], record) end
  end
end

-- `plain` is nil afterwards: the record is no longer as the client wrote it.
function J.save_job(j)
  jobs[j.seq], j.plain = j, nil
  job_records[id_of(j.seq)] = cmsgpack.pack(j.created, j.lane, j.state, j.task, j.digest, j.score, j.prio, j.run_at,
    j.attempts, j.retry, j.crashes, j.error, j.started, j.flagged, j.route, j.ttl, j.expires,
    j.options, j.aliases, j.ended, j.key, j.size, j.body)
end

-- Puts a long payload apart.
function J.set_apart(j)
  if j.size <= INLINE_BYTES_MAX then return end
  call('HSET', K.bodies, num(j.seq), j.body)
  j.body = false
end

-- False if it is apart and not there.
function J.body_of(j)
  return j.body or call('HGET', K.bodies, num(j.seq))
end

function J.has_body(j)
  return j.body or call('HEXISTS', K.bodies, num(j.seq)) == 1
end

-- Removes all traces of a job and its aliases.
function J.forget(j)
  jobs[j.seq] = false
  job_records[id_of(j.seq)] = false
  if not j.body then later('HDEL', K.bodies, num(j.seq)) end
  for _, alias in ipairs(j.aliases or {}) do call('HDEL', K.aliases, num(alias)) end
end

function J.finish(j, key, state, why)
  count('jobs', -1)
  if S.keep == 0 then return J.forget(j) end
  if why then j.error = why end
  j.state, j.ended, j.key, j.lane = state, NOW, key, 0
  J.save_job(j)
  later('ZADD', K.done, num(NOW + S.keep), pad(j.seq))
end

function J.bury(j, key, why, at)
  count('jobs', -1)
  if why then j.error = why end
  j.state, j.ended, j.key, j.lane, j.flagged = 'dead', at or NOW, key, 0, false
  J.save_job(j)
  later('ZADD', K.dead, num(j.ended), pad(j.seq))
  later('ZADD', K.deadkeys, 0, key .. '\0' .. pad(j.seq))
end

-- Removes a job from the morgue; the caller decides what happens to it.
function J.unbury(j)
  call('ZREM', K.dead, pad(j.seq))
  call('ZREM', K.deadkeys, j.key .. '\0' .. pad(j.seq))
end

-- The job with this seq and creation millisecond, or the one it was merged into.
function J.resolve(seq, millis)
  local j = J.job_of(seq)
  local made = j and j.created
  while not j do
    local alias = call('HGET', K.aliases, num(seq))
    if not alias then return false end
    local created
    seq, created = cmsgpack.unpack(alias)
    made, j = made or created, J.job_of(seq)
  end
  return math.floor(made / 1000) == millis and j
end

-- Routes ----------------------------------------------------------------------------------------
--
-- For whom a job is: the number of the node and the consumer group that it is bound to, 0 is none; with a group, that
-- (6 bytes) and the number (3). As text: node, NUL, consumer group; with a group, NUL and its number.

-- `limits::ROUTES_MAX`. The class of a ready lane has room for no much higher number.
J.ROUTES_MAX = 1000000

-- Fails if there is no number for it: call it before anything is written.
function J.route_of(text)
  if text == NO_ROUTE then return 0 end
  local bound, group = string.match(text, '^([^%z]*%z[^%z]*)%z?(%d*)$')
  if group ~= '' then return struct.pack('>I6I3', tonumber(group), J.route_of(bound)) end
  local known = call('HGET', K.routes, text)
  if known then return tonumber(known) end
  local number = call('HINCRBY', K.meta, 'routes', 1)
  if number > J.ROUTES_MAX then error('TOOMANYROUTES there are no more numbers') end
  call('HSET', K.routes, text, number, '#' .. num(number), text)
  return number
end

function J.route_text(route)
  if route == 0 then return NO_ROUTE end
  if type(route) == 'string' then
    local group, bound = struct.unpack('>I6I3', route)
    return J.route_text(bound) .. '\0' .. num(group)
  end
  return call('HGET', K.routes, '#' .. num(route)) or NO_ROUTE
end
end

setmetatable(J, { __index = function(_, name)
  setmetatable(J, nil)
  define_jobs()
  return J[name]
end })

