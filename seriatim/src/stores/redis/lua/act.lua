-- Applies an action to lanes. ARGV: now, action, whether only failed jobs (2: goes on with lanes that had more), then lanes
-- ('n' and the number, or 'k' and the key). Answers how many, and the numbers of those that have more jobs than one script may
-- delete, bury or make due.
--
-- Reads and writes the lanes and, but for `pause`, `resume` and `accumulate`'s `run_now`, their waiting jobs.
if not S then return { 0, {} } end
NOW = clock(ARGV[1])
even_when_full()
local action, only_failed, goes_on = ARGV[2], ARGV[3] == '1', ARGV[3] == '2'
local owns_failures = S.mode == 'accumulate'

-- How many jobs of `exclusive` that are not due are looked at first.
local LATER_MAX = 16

-- How many jobs may still leave.
local jobs_left, unfinished = 200, {}

-- Takes jobs, all or those that failed, as many as still may leave; notes a lane that has more.
local function take_some(l, all)
  local list, look = {}, all and jobs_left or 16 -- failed ones are usually among the first
  local function left() return all and open_count(l) or l.bad end
  local function take(jobs)
    for _, j in ipairs(jobs) do
      if (all or j.retry >= 0) and #list < jobs_left and L.take(l, j) then list[#list + 1] = j end
    end
  end
  -- In `exclusive` they wait for their retries, behind all that are due.
  if not all and S.mode == 'exclusive' and l.strays > 0 then take(L.strays_in(K.later, l, LATER_MAX)) end
  while left() > 0 and #list < jobs_left and look <= 16 * ALL do
    take(L.open_jobs(l, look))
    look = look * 16
  end
  jobs_left = jobs_left - #list
  if left() > 0 and jobs_left == 0 then unfinished[#unfinished + 1] = l.n end
  return list
end

local function delete(j)
  count('jobs', -1)
  J.forget(j)
end

local function end_failed(l)
  local list, why = {}, nil
  if not owns_failures then
    l.held, list = false, take_some(l)
  elseif l.retry >= 0 then
    list, why = take_some(l, true), l.error
    if open_count(l) == 0 then
      l.held, l.retry, l.crashes, l.error, l.due = false, -1, 0, false, NOW
    end
  end
  for _, j in ipairs(list) do
    if action == 'bury' then J.bury(j, l.key, why) else delete(j) end
  end
  return list[1] and 1 or 0
end

local function run_now(l)
  l.held = false
  if S.mode == 'accumulate' then
    l.due = NOW
  elseif S.mode == 'exclusive' then
    -- Those that are due already are found by the next claim.
    local list = L.strays_in(K.later, l, jobs_left, NOW + 1)
    for _, j in ipairs(list) do
      L.take(l, j)
      j.run_at = math.min(j.run_at, NOW)
      L.enter(l, j)
    end
    jobs_left = jobs_left - #list
    if L.members_in(K.later, l, 1, NOW + 1)[1] then unfinished[#unfinished + 1] = l.n end
  else
    local head = L.head_of(l)
    if head then
      head.run_at = NOW
      L.change(l, head)
    end
  end
end

local function act(l)
  local done = 1
  if action == 'pause' then l.paused = true
  elseif action == 'resume' then l.paused, l.held = false, false
  elseif l.token and not (goes_on and action == 'run_now') then return 0 -- the first step has woken workers
  elseif action == 'run_now' then run_now(l)
  elseif jobs_left <= 0 then
    unfinished[#unfinished + 1] = l.n
    return (action == 'delete' or l.failing) and 1 or 0
  elseif action ~= 'delete' then done = end_failed(l)
  else for _, j in ipairs(take_some(l, true)) do delete(j) end end
  touch(l)
  return done
end

local acted = 0
for i = 4, #ARGV do
  local name = string.sub(ARGV[i], 2)
  local l
  if string.sub(ARGV[i], 1, 1) == 'k' then l = L.lane_of_key(name) else l = L.lane_of(tonumber(name)) end
  if l and (not only_failed or l.failing) then acted = acted + act(l) end
end
commit()
return { acted, unfinished }
