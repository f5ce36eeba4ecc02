-- Adds jobs. ARGV: dry, now, version, then 13 for each job.
-- Answers {'OK', {seq, created, status, ...}}, {'STALE'} or {'ROUTE', index}.
local FIELDS = 13
local dry = ARGV[1] == '1'
NOW = clock(ARGV[2])

local function check()
  if not S or num(S.version) ~= ARGV[3] then return { 'STALE' } end
  local keyed, bound = S.mode ~= 'parallel', {}
  for i = 4, #ARGV, FIELDS do
    local key, idem, wanted = ARGV[i], ARGV[i + 11], ARGV[i + 7] .. '\0' .. ARGV[i + 8]
    if (key ~= '') ~= keyed then return { 'STALE' } end
    if S.mode == 'accumulate' or S.mode == 'fifo' then
      if not bound[key] then
        local l = lane_of_key(key)
        bound[key] = l and route_text(l.route) or wanted
      end
      local repeated = idem ~= '' and call('HEXISTS', K.idem, key .. '\0' .. idem) == 1
      if bound[key] ~= wanted and not repeated then return { 'ROUTE', (i - 4) / FIELDS } end
    end
  end
end

local function due_of(text)
  local kind, value = string.sub(text, 1, 1), string.sub(text, 2)
  if kind == 'n' then return NOW end
  if kind == 'i' then return after(tonumber(value)) end
  return tonumber(value)
end

-- Now in Unix seconds, as 16 hex digits that order as the (positive) doubles do.
local function score_now()
  if S.mode == 'fifo' then return '8000000000000000' end
  local bytes = struct.pack('>d', NOW / 1000000)
  local hex = { string.format('%02x', string.byte(bytes, 1) + 128) }
  for b = 2, 8 do hex[b] = string.format('%02x', string.byte(bytes, b)) end
  return table.concat(hex)
end

local function remembered(field)
  local known = call('HGET', K.idem, field)
  if not known then return end
  local seq, created, until_ = cmsgpack.unpack(known)
  if until_ > NOW or call('HEXISTS', K.jobs, num(seq)) == 1
    or call('HEXISTS', K.aliases, num(seq)) == 1 then
    return seq, created
  end
end

local function job_at(i, now_score)
  local body = ARGV[i + 2]
  local j = {
    seq = next_seq(), created = NOW, lane = 0, state = 'live', task = ARGV[i + 1],
    digest = ARGV[i + 3], score = ARGV[i + 4], prio = tonumber(ARGV[i + 5]),
    run_at = due_of(ARGV[i + 6]), attempts = 0, retry = -1, crashes = 0, error = false,
    started = false, flagged = false, route = route_of(ARGV[i + 7] .. '\0' .. ARGV[i + 8]),
    ttl = tonumber(ARGV[i + 9]), expires = tonumber(ARGV[i + 10]), options = ARGV[i + 12],
    aliases = false, ended = false, key = '', size = #body, body = body,
  }
  if j.score == '' then j.score = now_score end
  return j
end

-- Puts a new job into its lane; returns the job it is known as, and whether it merged.
local function put(key, j)
  local l = key ~= '' and lane_of_key(key)
  if not l then l = open_lane(j.seq, key, j.run_at, j.route) end
  touch(l)
  local equal = S.merges and j.digest ~= '' and call('HGET', K.equal, pad(l.n) .. j.digest)
  local queued = equal and job_of(tonumber(equal))
  if queued then
    take(l, queued)
    queued.score = merged_score(queued.score, j.score)
    queued.prio = math.min(queued.prio, j.prio)
    arrive(l, j.run_at, true)
    insert(l, queued)
    save_job(queued)
    return queued, 1
  end
  arrive(l, j.run_at, false)
  insert(l, j)
  if j.size > INLINE_BYTES_MAX then
    call('HSET', K.bodies, num(j.seq), j.body)
    j.body = false
  end
  save_job(j)
  count('jobs', 1)
  return j, 0
end

local refusal = check()
if refusal then return refusal end
if dry then return { 'OK', {} } end

local answer, now_score = {}, score_now()
local function tell(seq, created, status)
  local at = #answer
  answer[at + 1], answer[at + 2], answer[at + 3] = seq, created, status
end
for i = 4, #ARGV, FIELDS do
  local key, idem = ARGV[i], ARGV[i + 11]
  local field = key .. '\0' .. idem
  local seq, created
  if idem ~= '' then seq, created = remembered(field) end
  if seq then
    tell(seq, created, 2)
  else
    local j, status = put(key, job_at(i, now_score))
    if idem ~= '' then
      local until_ = NOW + S.remember
      call('HSET', K.idem, field, cmsgpack.pack(j.seq, j.created, until_))
      call('ZADD', K.idemold, num(until_), field)
    end
    tell(j.seq, j.created, status)
  end
end
commit()
return { 'OK', answer }
