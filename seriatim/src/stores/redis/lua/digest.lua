-- Notes the digests of dead jobs that were pushed when their queue did not compare payloads. ARGV: now, then seq, creation
-- millisecond and digest of each.
--
-- Reads and writes the jobs.
if not S then return end
NOW = clock(ARGV[1])
even_when_full()
for i = 2, #ARGV, 3 do
  local j = J.job_of(tonumber(ARGV[i]))
  if j and j.state == 'dead' and math.floor(j.created / 1000) == tonumber(ARGV[i + 1]) then
    j.digest = ARGV[i + 2]
    J.save_job(j)
  end
end
commit()
