-- The common part of those that take the time. ARGV[1]: now, or ''.
--
-- Writes nothing.
local now = tonumber(ARGV[1])
if not now then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

