-- When lanes of a shard are due first: what its scripts and due.lua have in common.
--
-- Reads the first entries of arrivals, ready and wake; may remove some of arrivals.
local call = redis.call

-- When the first lane in `arrivals` is due, after lanes that wait there no more, which are removed if `cleans`. A claim removes
-- them too. Behind so many of them it is not known: then the time of one of these, and false.
local STALE_MAX = 1000
local arrivals_read = 0 -- by this script
local function first_arrival(prefix, cleans)
  for at = 0, STALE_MAX do
    arrivals_read = arrivals_read + 1
    local entry = call('LINDEX', prefix .. 'arrivals', cleans and 0 or at)
    if not entry then return false end
    local record = call('HGET', prefix .. 'lanes', string.sub(entry, 8))
    local is_waiting = record and string.byte(record, 1) > 96
    if is_waiting or at == STALE_MAX then return (struct.unpack('>I7', entry)), is_waiting end
    if cleans then call('LPOP', prefix .. 'arrivals') end
  end
end

-- The earliest due time of the shard's unclaimed lanes: of the scheduled ones, and of the first ready one in each
-- class and priority. Where there are many groups, some of these are not looked at. Then the same without what only may be due.
local CLASSES_MAX = 1000
local function first_due(prefix)
  local arrival, is_known = first_arrival(prefix)
  local best, from = is_known and arrival, '-'
  for _ = 1, CLASSES_MAX do
    local member = call('ZRANGEBYLEX', prefix .. 'ready', from, '+', 'LIMIT', 0, 1)[1]
    if not member then break end
    local due = struct.unpack('>I7', member, #member - 13)
    if not best or due < best then best = due end
    from = '(' .. string.sub(member, 1, #member - 14) .. '\255'
  end
  local wake = call('ZRANGE', prefix .. 'wake', 0, 0, 'WITHSCORES')[2]
  if wake and (not best or tonumber(wake) < best) then best = tonumber(wake) end
  if arrival and (not best or arrival < best) then return arrival, best end
  return best, best
end
