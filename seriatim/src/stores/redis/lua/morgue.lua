-- Requeues, deletes, lists or hands out dead jobs. ARGV: now, what, rows_max, version, lowest token, how many of the chosen jobs
-- to pass by, all|jobs|keys, then (seq, creation millisecond) or keys. Answers {count, whether there are more, rows, how many of
-- those looked at stay}. Operations that may open a lane (`requeue`, `join`) require this version; else the count is -1. `join` requeues
-- only if the key has a lane. The rows of `list` are seq, created, key; those of `undigested` seq, created, task, payload of jobs
-- without a digest, up to some bytes; those of `hand_out` are the input of `take_in.lua` for each job; the others have none. A job
-- whose payload is lost can only be listed and deleted: a waiting job that equals it would lose its own to it.
--
-- Reads dead or deadkeys and the jobs; writes these, and the lanes of requeued jobs.
if not S then return { 0, 0, {}, 0 } end
NOW = clock(ARGV[1])
local opens = ARGV[2] == 'requeue' or ARGV[2] == 'join'
if opens and num(S.version) ~= ARGV[4] then return { -1, 0, {}, 0 } end
even_when_full()
local rows_max = tonumber(ARGV[3])

-- The first jobs to look at, in their order, and one more if there are more.
local function chosen()
  local list, passed, most = {}, tonumber(ARGV[6]), rows_max + 1
  if ARGV[7] == 'all' then
    for _, seq in ipairs(call('ZRANGE', K.dead, passed, passed + rows_max)) do list[#list + 1] = tonumber(seq) end
  elseif ARGV[7] == 'jobs' then
    local all, known = {}, {}
    for i = 8, #ARGV, 2 do
      local seq = tonumber(ARGV[i])
      local j = J.job_of(seq)
      local is_it = j and j.state == 'dead' and math.floor(j.created / 1000) == tonumber(ARGV[i + 1])
      if is_it and not known[seq] then all[#all + 1], known[seq] = seq, true end
    end
    table.sort(all)
    for i = passed + 1, math.min(#all, passed + most) do list[#list + 1] = all[i] end
  else
    for i = 8, #ARGV do
      if #list == most then break end
      local from, to = '[' .. ARGV[i] .. '\0', '(' .. ARGV[i] .. '\0~'
      local found = call('ZRANGEBYLEX', K.deadkeys, from, to, 'LIMIT', passed, most - #list)
      if passed > 0 then passed = math.max(0, passed - call('ZLEXCOUNT', K.deadkeys, from, to)) end
      for _, member in ipairs(found) do list[#list + 1] = L.seq_in(member) end
    end
  end
  return list
end

local function requeue(j)
  j.retry, j.crashes, j.error, j.run_at = -1, 0, false, NOW
  -- One that was buried untried counts as tried: what a person brings back does not expire.
  if j.expires > 0 then j.attempts = math.max(j.attempts, 1) end
  j.state, j.ended = 'live', false
  local key = j.key
  j.key = ''
  count('jobs', 1)
  local l = L.put_back(key, j.route, j)
  if not l.token then l.due, l.retry, l.crashes = NOW, -1, 0 end
end

if opens and tonumber(ARGV[5]) > S.token then S.token, S.counted = tonumber(ARGV[5]), true end

local acted, rows = 0, {}
local function tell(...)
  for _, value in ipairs({ ... }) do rows[#rows + 1] = value end
end

local bytes_left = 16 * 1024 * 1024
local function tell_undigested(j)
  if j.digest ~= '' or bytes_left <= 0 then return end
  bytes_left = bytes_left - j.size
  tell(j.seq, j.created, j.task, J.body_of(j))
end

local function act(j)
  if ARGV[2] == 'list' then return tell(j.seq, j.created, j.key) end
  if ARGV[2] ~= 'delete' and not J.has_body(j) then return end
  if ARGV[2] == 'undigested' then return tell_undigested(j) end
  if ARGV[2] == 'hand_out' then
    return tell(cmsgpack.pack(j.key, J.route_text(j.route), j.created, j.task, j.digest, j.score,
      j.prio, j.attempts, j.ttl, j.expires, j.options, j.started, J.body_of(j)))
  end
  if ARGV[2] == 'join' and call('HEXISTS', K.keys, j.key) == 0 then return tell(S.token) end
  J.unbury(j)
  if ARGV[2] == 'delete' then J.forget(j) else requeue(j) end
  acted = acted + 1
end

local list = chosen()
local more = #list > rows_max
list[rows_max + 1] = nil
table.sort(list)
for _, seq in ipairs(list) do
  local j = J.job_of(seq)
  if j then act(j) end
end
commit()
return { acted, more and 1 or 0, rows, #list - acted }
