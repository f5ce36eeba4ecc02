-- Changes a waiting job. ARGV: now, seq, creation millisecond, at|node|delete, then the time; or the node, the options
-- that the caller saw and those to set. Answers 0 if the job is not waiting, 1 if it was changed, 2 if the options are
-- others.
--
-- Reads the job and its lane; writes both, and the lane's position.
NOW = clock(ARGV[1])
even_when_full()
local change_of = ARGV[4]

local function amend(j)
  local l = j and j.state == 'live' and L.lane_of(j.lane)
  if not l then return 0 end
  if change_of == 'node' and j.options ~= ARGV[6] then return 2 end
  local route
  if change_of == 'node' then
    local group = string.match(J.route_text(j.route), '%z(.*)$')
    route = J.route_of(ARGV[5] .. '\0' .. group)
  end
  if not L.take(l, j) then return 0 end
  touch(l)
  if change_of == 'delete' then
    count('jobs', -1)
    J.forget(j)
    return 1
  end
  if change_of == 'node' then
    j.route, j.options, l.route = route, ARGV[7], route
  elseif S.mode == 'accumulate' then
    if l.token then l.next_due = tonumber(ARGV[5]) else l.due = tonumber(ARGV[5]) end
  else j.run_at = tonumber(ARGV[5]) end
  L.enter(l, j)
  return 1
end

if not S then return 0 end
local answer = amend(J.resolve(tonumber(ARGV[2]), tonumber(ARGV[3])))
commit()
return answer
