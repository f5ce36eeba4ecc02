-- Applies an action to lanes. ARGV: now, action, whether only failed jobs, then lanes ('n' and the number, or 'k' and
-- the key). Answers how many.
if not S then return 0 end
NOW = clock(ARGV[1])
even_when_full()
local action, only_failed = ARGV[2], ARGV[3] == '1'
local owns_failures = S.mode == 'accumulate'

local function take_failed(l)
  local list = {}
  for _, j in ipairs(open_jobs(l)) do
    if j.retry >= 0 and take(l, j) then list[#list + 1] = j end
  end
  return list
end

local function take_all(l)
  local list = open_jobs(l)
  for _, j in ipairs(list) do take(l, j) end
  return list
end

local function bury_failed(l)
  l.held = false
  if not owns_failures then
    for _, j in ipairs(take_failed(l)) do bury(j, l.key) end
    return
  end
  local why, head = l.error, head_of(l)
  l.retry, l.crashes, l.error, l.due = -1, 0, false, NOW
  if head then
    take(l, head)
    bury(head, l.key, why)
  end
end

local function delete_waiting(l)
  local list = (not owns_failures and only_failed) and take_failed(l) or take_all(l)
  for _, j in ipairs(list) do
    count('jobs', -1)
    forget(j)
  end
end

local function run_now(l)
  l.held = false
  if S.mode == 'accumulate' then
    l.due = NOW
  elseif S.mode == 'exclusive' then
    for _, j in ipairs(take_all(l)) do
      j.run_at = math.min(j.run_at, NOW)
      insert(l, j)
      save_job(j)
    end
  else
    local head = head_of(l)
    if head then
      head.run_at = NOW
      save_job(head)
    end
  end
end

local function act(l)
  if action == 'pause' then l.paused = true
  elseif action == 'resume' then l.paused, l.held = false, false
  elseif l.claimed_at then return 0
  elseif action == 'run_now' then run_now(l)
  elseif action == 'bury' then bury_failed(l)
  else delete_waiting(l) end
  touch(l)
  return 1
end

local acted = 0
for i = 4, #ARGV do
  local name = string.sub(ARGV[i], 2)
  local l
  if string.sub(ARGV[i], 1, 1) == 'k' then l = lane_of_key(name) else l = lane_of(tonumber(name)) end
  if l and (not only_failed or l.failing) then acted = acted + act(l) end
end
commit()
return acted
