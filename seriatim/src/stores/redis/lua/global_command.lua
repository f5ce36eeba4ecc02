-- Sets a command for a living node. ARGV: node, command ('' removes it). Answers 0 if the node is not alive.
--
-- Reads alive; writes commands.
if not call('ZSCORE', P .. 'alive', ARGV[1]) then return 0 end
if ARGV[2] == '' then
  call('HDEL', P .. 'commands', ARGV[1])
else
  call('HSET', P .. 'commands', ARGV[1], ARGV[2])
end
return 1
