-- Makes the number of a deleted queue free for another one. ARGV: the number.
--
-- Writes free.
return call('SADD', P .. 'free', ARGV[1])
