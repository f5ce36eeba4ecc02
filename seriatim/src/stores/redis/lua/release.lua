-- Releases claims: a new token, no holder, an expired lease. ARGV: now, the name for "no holder", lanes_max, latest
-- claim time, then key, lane, queue or node, and its name, and where this step begins among the claims ('' is the beginning).
-- Answers the turns, and where the next step begins: '' after the last one.
--
-- Reads of a key or lane its claim, else some of claims at a time and held; and the lanes. Writes as take_over.lua does.
if not S then return { {}, '' } end
NOW = clock(ARGV[1])
even_when_full()
local no_holder, lanes_left, made_by = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local what, name, cursor = ARGV[5], ARGV[6], ARGV[7]

-- The tokens of the selected claims among these fields and values of `claims`.
local function chosen(found)
  local list = {}
  for i = 1, #found, 2 do
    local holder, _, _, _, made_at = cmsgpack.unpack(found[i + 1])
    if made_at <= made_by and (what == 'queue' or holder == name) then list[#list + 1] = tonumber(found[i]) end
  end
  table.sort(list)
  return list
end

-- What is left over of this part of the scan, the next step finds there again.
local SCANNED, READS_MAX = 100, 1000
local function release_some()
  local reads_left = READS_MAX
  repeat
    local answer = call('HSCAN', K.claims, Scan.from(cursor), 'COUNT', SCANNED)
    for _, old in ipairs(chosen(answer[2])) do
      if lanes_left == 0 or is_spent() then return end
      lanes_left = take_over(old, call('HGET', K.held, num(old)), lanes_left)
    end
    if lanes_left == 0 or is_spent() then return end
    cursor, reads_left = Scan.next(answer[1]), reads_left - SCANNED
  until cursor == '' or reads_left <= 0
end

if what == 'key' or what == 'lane' then
  local l
  if what == 'key' then l = L.lane_of_key(name) else l = L.lane_of(tonumber(name)) end
  if l and l.token and l.claimed_at <= made_by then take_over(l.token, id_of(l.n), lanes_left) end
else
  release_some()
end
if taken[1] then store_claim(no_holder, 'own', 0, token, taken) end
commit()
return { turns, cursor }
