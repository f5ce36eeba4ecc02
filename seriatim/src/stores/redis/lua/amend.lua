-- Changes a waiting job. ARGV: now, seq, creation millisecond, at|node|delete, then the time; or the node, the options
-- that the caller saw and those to set. Answers 0 if the job is not waiting, 1 if it was changed, 2 if the options are
-- others.
NOW = clock(ARGV[1])
even_when_full()
local j = S and resolve(tonumber(ARGV[2]), tonumber(ARGV[3]))
local l = j and j.state == 'live' and lane_of(j.lane)
if not l then return 0 end
local change = ARGV[4]
if change == 'node' and j.options ~= ARGV[6] then return 2 end
if not take(l, j) then return 0 end
if change == 'delete' then
  count('jobs', -1)
  forget(j)
else
  if change == 'node' then
    local group = string.match(route_text(j.route), '%z(.*)$')
    j.route, j.options = route_of(ARGV[5] .. '\0' .. group), ARGV[7]
    l.route = j.route
  elseif S.mode == 'accumulate' then l.due = tonumber(ARGV[5])
  else j.run_at = tonumber(ARGV[5]) end
  insert(l, j)
  save_job(j)
end
touch(l)
commit()
return 1
