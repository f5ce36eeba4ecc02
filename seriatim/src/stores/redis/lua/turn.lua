-- The turn with this token. ARGV: lane, token.
--
-- Reads the lane and its closed jobs; writes nothing.
READ_ONLY = true
local l = S and L.lane_of(tonumber(ARGV[1]))
if not l or l.token ~= tonumber(ARGV[2]) then return false end
return L.turn_of(l, true)
