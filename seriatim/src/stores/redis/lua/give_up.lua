-- Makes this shard refuse claims and rescues of a node with a ticket up to this one, for a day or two: much longer than a call can
-- take. ARGV: node, ticket.
--
-- Reads and writes given_up0 or given_up1.
local day = math.floor(tonumber(call('TIME')[1]) / 86400)
local given_up = P .. 'given_up' .. (day % 2 == 0 and '0' or '1')
local known = tonumber(call('HGET', given_up, ARGV[1]) or '0')
if tonumber(ARGV[2]) > known then call('HSET', given_up, ARGV[1], ARGV[2]) end
-- What was written on a day ends together, so that entries of nodes that are gone do not stay.
call('EXPIREAT', given_up, string.format('%.0f', (day + 2) * 86400))
return 1
