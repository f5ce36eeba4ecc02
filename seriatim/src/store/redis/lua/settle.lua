-- Ends turns. ARGV: now, then for each turn: lane, token, rest, job whose state is kept ('' = the
-- lane's), due, retry_count, crashes, error, counted, hold, n, then n times (seq, fate).
-- Answers for each turn nil (stale) or the cancelled jobs {seq, created, ...}.
NOW = clock(ARGV[1])
even_when_full()

local function read_turn(at)
  local turn = {
    lane = tonumber(ARGV[at]), token = tonumber(ARGV[at + 1]), rest = ARGV[at + 2],
    job = tonumber(ARGV[at + 3]), due = ARGV[at + 4], retry = tonumber(ARGV[at + 5]),
    crashes = tonumber(ARGV[at + 6]), error = optional(ARGV[at + 7]),
    counted = ARGV[at + 8] == '1', hold = ARGV[at + 9] == '1', fates = {},
  }
  local n = tonumber(ARGV[at + 10])
  for i = at + 11, at + 10 + 2 * n, 2 do
    -- The first that names a job decides.
    local seq = tonumber(ARGV[i])
    turn.fates[seq] = turn.fates[seq] or ARGV[i + 1]
  end
  return turn, at + 11 + 2 * n
end

local function due_after(was, due)
  if due == 'u' then return was end
  if due == 'n' then return NOW end
  return after(tonumber(due))
end

-- Ends the claim of a lane; returns its jobs and when it was made.
local function end_claim(l)
  local closed, claimed_at = closed_of(l), l.claimed_at
  release_claim(l.token, 1)
  if #closed > INLINE_CLOSED_MAX then call('HDEL', K.closed, num(l.n)) end
  call('HDEL', K.flags, num(l.n))
  l.closed, l.claimed_at = false, false
  count('running', -1)
  return closed, claimed_at
end

-- What becomes of one job; returns it when it goes back.
local function end_job(l, turn, j, cancelled)
  local fate, why = turn.fates[j.seq] or turn.rest, turn.error
  if j.flagged and fate ~= 'done' then
    fate, why = 'cancel', 'canceled'
    cancelled[#cancelled + 1] = j.seq
    cancelled[#cancelled + 1] = j.created
  end
  -- What ends was tried; what is kept was tried if its claim counts.
  if fate ~= 'keep' or turn.counted then j.attempts = j.attempts + 1 end
  if fate == 'keep' then return j end
  if fate == 'done' then finish(j, l.key, 'done')
  elseif fate == 'cancel' then finish(j, l.key, 'canceled', why)
  elseif fate == 'expire' then finish(j, l.key, 'canceled', 'expired')
  elseif fate == 'bury' then bury(j, l.key, why)
  else
    count('jobs', -1)
    forget(j)
  end
end

local function settle_lane_state(l, turn, any_kept)
  local arrived = l.next_due
  l.next_due = false
  if any_kept then
    l.retry, l.crashes, l.error = turn.retry, turn.crashes, turn.error
    l.due = due_after(l.due, turn.due)
  else
    l.retry, l.crashes, l.error = -1, 0, false
    l.due = arrived or l.due
  end
end

local function return_to_lane(l, turn, kept)
  local owner_is_kept = not turn.job
  for _, j in ipairs(kept) do owner_is_kept = owner_is_kept or j.seq == turn.job end
  if turn.hold and owner_is_kept and kept[1] then l.held = true end
  if S.mode == 'accumulate' then settle_lane_state(l, turn, kept[1] ~= nil) end
  for _, j in ipairs(kept) do
    if S.mode ~= 'accumulate' and j.seq == turn.job then
      j.retry, j.crashes, j.error = turn.retry, turn.crashes, turn.error
      j.run_at = due_after(j.run_at, turn.due)
    end
    unite(l, j)
  end
  touch(l)
end

local function settle(turn)
  local l = lane_of(turn.lane)
  if not l or not l.claimed_at or l.token ~= turn.token then return false end
  local closed, claimed_at = end_claim(l)
  local kept, cancelled = {}, {}
  for _, seq in ipairs(closed) do
    local j = job_of(seq)
    j.started = j.started or claimed_at
    kept[#kept + 1] = end_job(l, turn, j, cancelled)
  end
  if not kept[1] and l.open > 0 then call('HDEL', K.progress, num(l.n)) end
  return_to_lane(l, turn, kept)
  if turn.counted then count('failed', 1)
  elseif turn.rest == 'done' then count('processed', 1) end
  return cancelled
end

local answer, at = {}, 2
while at <= #ARGV do
  local turn
  turn, at = read_turn(at)
  answer[#answer + 1] = S and settle(turn) or false
end
if S then commit() end
return answer
