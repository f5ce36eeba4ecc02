-- Defines the queue in this shard. The first shard decides; the others adopt its version. ARGV: dry, version ('' in
-- the first shard), declared ('0': it is not, and changes no queue that exists; '2': it is, and changes none that was declared before),
-- paused ('' = unchanged), then the settings: number, shards, mode, merge, due, take, keep, remember, keep_dead, dead_max, definition; the lowest token; whether all who write know `parked`; the time; if it has groups or limits `whole`,
-- `each` and `rates`, then the fields and values of `shares`. Answers {'OK', version}, {'EXISTS'}, {'CLOSING'}, {'SHARDS', n}, {'SPREAD'}, {'OTHER', name}, {'BIG', jobs} or
-- {'CONFLICT', mode, merge, declared, whether jobs are running}.
--
-- Reads and writes meta and shares, deletes paced if the rates change; everything of the queue if its mode changes while jobs wait.
local NAMES = { 'number', 'shards', 'mode', 'merge', 'due', 'take', 'keep', 'remember', 'keepdead',
  'deadmax', 'definition' }
local CONVERTED_JOBS_MAX = 20000
local dry, adopted, only_new = ARGV[1] == '1', ARGV[2], ARGV[3] == '2'
local declared = only_new and '1' or ARGV[3]
local mode, merge = ARGV[7], ARGV[8]
NOW = clock(ARGV[18])

local function number_of(field) return tonumber(call('HGET', K.meta, field) or '0') end

-- What was shared out stays so until no lane waits that has a group: a claim looks for the others elsewhere.
local function share_out()
  local is_shared = ARGV[19] ~= nil
  if not is_shared and not (S and S.shared) then return end
  call('DEL', K.shares)
  if call('HGET', K.meta, 'rates') ~= ARGV[21] then call('DEL', K.paced) end
  call('HDEL', K.meta, 'whole', 'each', 'named', 'rates')
  if is_shared then
    call('HSET', K.meta, 'whole', ARGV[19], 'each', ARGV[20], 'rates', ARGV[21], 'named', ARGV[22] and '1' or '0')
    if ARGV[22] then call('HSET', K.shares, unpack(ARGV, 22)) end
  elseif call('ZRANGEBYLEX', K.ready, '[\255', '+', 'LIMIT', 0, 1)[1] then
    call('HSET', K.meta, 'due', ARGV[9] .. ' shared')
  end
  if S then bell.ring('all') end
end

local function write(version)
  for i, name in ipairs(NAMES) do call('HSET', K.meta, name, ARGV[4 + i]) end
  -- Lanes up to this number were opened without the window.
  if S and not S.window and string.sub(ARGV[9], 1, 7) == 'window ' then call('HSET', K.meta, 'windowed', num(S.seq)) end
  call('HSET', K.meta, 'version', num(tonumber(version)), 'declared', declared)
  if ARGV[4] ~= '' then call('HSET', K.meta, 'paused', ARGV[4]) end
  if number_of('token') < tonumber(ARGV[16]) then call('HSET', K.meta, 'token', ARGV[16]) end
  -- Of no lanes, `parked` has all. Of those from before, the sweep makes it (park.lua).
  if ARGV[17] == '1' and number_of('lanes') == 0 then call('HSET', K.meta, 'parks', '1') end
  share_out()
end

local function is_same()
  local was = call('HMGET', K.meta, 'declared', unpack(NAMES))
  if was[1] ~= declared then return false end
  for i = 1, #NAMES do if was[i + 1] ~= ARGV[4 + i] then return false end end
  return true
end

-- Whether a job had no score of its own: it got the time in seconds.
local function is_unscored(j)
  local made = struct.pack('>d', j.created / 1000000)
  return j.score == hex(string.char(string.byte(made, 1) + 128) .. string.sub(made, 2))
end

-- Every open job of the queue with its key and route, in order of arrival. Those without a score of their own get that of
-- the new mode.
local function all_open()
  local list = {}
  for _, id in ipairs(call('HKEYS', K.lanes)) do
    local l = L.lane_of(number_in(id))
    for _, j in ipairs(L.open_jobs(l, ALL)) do
      if mode == 'fifo' and is_unscored(j) then j.score = '8000000000000000' end
      list[#list + 1] = { job = j, key = l.key, route = math.max(l.route, j.route), paused = l.paused }
    end
  end
  table.sort(list, function(a, b) return a.job.seq < b.job.seq end)
  return list
end

-- Recreates the lanes of the queue under its new mode. Paused ones stay paused.
local function push_again(list)
  write_out()
  for _, key in ipairs({ 'open', 'later', 'equal', 'arrivals', 'ready', 'wake', 'parked', 'trouble', 'failing', 'lanes',
    'runs', 'keys', 'progress', 'expiring' }) do
    call('DEL', K[key])
  end
  count('lanes', -number_of('lanes'))
  lanes, touched, ids = {}, {}, {}
  load_settings()
  for _, entry in ipairs(list) do
    local l = L.put_back(entry.key, entry.route, entry.job)
    if entry.paused then l.paused = true end
  end
  commit()
end

-- During a wipe of the store, a definition may arrive for the previous queue with this number. Returns the name of the
-- queue that has the number now, if it is another one.
local was = S and cjson.decode(call('HGET', K.meta, 'definition')).name
local other = S and was ~= cjson.decode(ARGV[15]).name and was
if other and number_of('lanes') > 0 then return { 'OTHER', other } end
-- What is decided, all shards adopt: claims and pushes fail while one has not.
if adopted ~= '' then even_when_full() end
if not S or other then
  -- The clock: versions cached before a wipe then match no queue of the new store.
  local first = adopted ~= '' and adopted or num(clock(''))
  if not dry then write(first) end
  return { 'OK', tonumber(first) }
end
if adopted == '' and call('HGET', K.meta, 'closing') == '1' then return { 'CLOSING' } end
if adopted ~= '' and S.version >= tonumber(adopted) then return { 'OK', S.version } end
if adopted == '' and (declared == '0' or only_new and S.declared) then return { 'EXISTS' } end
if adopted == '' and S.shards ~= ARGV[6] then return { 'SHARDS', tonumber(S.shards) } end
if adopted == '' and ARGV[19] and (S.shards ~= '1' or (call('HGET', K.meta, 'older') or '') ~= '') then return { 'SPREAD' } end
local version = adopted ~= '' and tonumber(adopted) or S.version + 1
if S.mode == mode and S.merge == merge then
  if adopted == '' and is_same() then return { 'OK', S.version } end
  if not dry then write(version) end
  return { 'OK', version }
end
local again = number_of('lanes') > 0
if again then
  -- The first shard has decided, so jobs that came here meanwhile are converted too, however many they are. After a
  -- change to or from `parallel` they keep their key, or have none, like requeued ones.
  local convertible = adopted ~= '' or not S.declared and S.mode ~= 'parallel' and mode ~= 'parallel'
  if not convertible or number_of('running') > 0 then
    return { 'CONFLICT', S.mode, S.merge, S.declared and 1 or 0, number_of('running') > 0 and 1 or 0 }
  end
  if adopted == '' and number_of('jobs') > CONVERTED_JOBS_MAX then return { 'BIG', number_of('jobs') } end
end
if dry then return { 'OK', version } end
local list = again and all_open()
write(version)
if again then push_again(list) end
return { 'OK', version }
