-- The turn with this token. ARGV: lane, token.
READ_ONLY = true
local l = S and lane_of(tonumber(ARGV[1]))
if not l or not l.claimed_at or l.token ~= tonumber(ARGV[2]) then return false end
return turn_of(l, true)
