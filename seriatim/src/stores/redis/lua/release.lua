-- Releases claims: a new token, no holder, an expired lease. ARGV: now, the name for "no holder", lanes_max, latest
-- claim time, then key, lane, queue or node, and its name. Answers the turns.
--
-- Reads claims, held and the lanes; writes as take_over.lua does.
if not S then return {} end
NOW = clock(ARGV[1])
even_when_full()
local no_holder, lanes_left, made_by = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local what, name = ARGV[5], ARGV[6]

-- The tokens of the selected claims, oldest first.
local function chosen()
  local list, all = {}, call('HGETALL', K.claims)
  for i = 1, #all, 2 do
    local holder, _, _, _, made_at = cmsgpack.unpack(all[i + 1])
    if made_at <= made_by and (what == 'queue' or holder == name) then list[#list + 1] = tonumber(all[i]) end
  end
  table.sort(list)
  return list
end

if what == 'key' or what == 'lane' then
  local l
  if what == 'key' then l = L.lane_of_key(name) else l = L.lane_of(tonumber(name)) end
  if l and l.token and l.claimed_at <= made_by then take_over(l.token, id_of(l.n), lanes_left) end
else
  for _, old in ipairs(chosen()) do
    if lanes_left == 0 or is_spent() then break end
    lanes_left = take_over(old, call('HGET', K.held, num(old)), lanes_left)
  end
end
if taken[1] then store_claim(no_holder, 'own', 0, token, taken) end
commit()
return turns
