-- The common part of rescue.lua and release.lua: taking lanes from their holders, with one new token.
--
-- Reads the lanes and their closed jobs; writes busy and lanes of each, and one record of the new claim.
local token, taken, turns = false, {}, {}

-- One script takes over about this much: some 4 ms, unless turns are large. What is left over, the next one takes.
local tables_left, jobs_left, bytes_left = 150, 10000, 16 * 1024 * 1024
local function is_spent() return tables_left <= 0 or jobs_left <= 0 or bytes_left <= 0 end

-- Gives the new token to those of these lanes that the old claim still has, until the limit; the others stay with it.
-- Answers how many more may be taken.
local function take_some(old, ids, lanes_left)
  local is_old = id_of(old)
  for i, busy in ipairs(fields(K.busy, ids)) do
    if lanes_left == 0 or is_spent() then break end
    local l = busy and string.sub(busy, 1, 7) == is_old and L.lane_of(number_in(ids[i]), nil, busy)
    if l then
      l.token = token
      touch(l)
      lanes_left, tables_left = lanes_left - 1, tables_left - 1
      taken[#taken + 1] = id_of(l.n)
      local turn, bytes = L.turn_of(l, false)
      turns[#turns + 1], jobs_left, bytes_left = turn, jobs_left - #turn[8], bytes_left - bytes
    end
  end
  return lanes_left
end

local PART = 200
local function take_over(old, list, lanes_left)
  token = token or next_token()
  local before = #taken
  for at = 1, #list, 7 * PART do
    if lanes_left == 0 or is_spent() then break end
    lanes_left = take_some(old, each_id(string.sub(list, at, at + 7 * PART - 1), {}), lanes_left)
  end
  if #taken > before then release_claim(old, #taken - before) end
  return lanes_left
end

