-- One step of a listing: the rows from which a page is chosen. ARGV: what, where the step begins ('' is the
-- beginning), most rows of all steps together (where an index has the order), then the arguments of `what`. Answers {where the
-- next step begins, '' after the last one; rows}: for each lane {number, key, due, shown retry count, crashes, state, node}, for
-- each job {seq, key, state, ended at, created at}, and for a live one of a key or a turn {…, score, priority, run at}. What is in
-- no order may come twice, as after a step on another server (scan.lua).
--   lanes, live, dead, done   all of them, in no order
--   prefixed PATTERN          the lanes of keys that fit, in no order; the records of the others are not read
--   names, failing            the ids of all lanes and of those with a failed job, in no order
--   held                      the claimed lanes, in no order; only these and `lane` return the node
--   holder NODE               those that this node holds
--   running [KEY]             the jobs of turns, of one key or all, in no order
--   one NUMBER                this lane, with its node
--   lane KEY                  the lane of a key
--   jobs KEY                  its live jobs, in no order; one that moves meanwhile may come twice. The state of those of its
--                             turn is `running`
--   turns KEY SEQ WAITING     the same, only those behind this one, and only the first ones, if the lane is in order; with 1
--                             then only those that wait
--   deadkey KEY               its dead jobs
--   failed                    the lanes with a failure, in no order
--   trouble SCORE NUMBER      those behind this place, by retry count
--   parked                    the lanes that are held or paused, in no order; where these are in no index, all lanes
--   due SCORE NUMBER WHICH    the lanes behind this place that are not claimed, by due time: `all`, those that are `waiting`, or
--                             those of `later`. `most` is of this step; with '-' as the next place there is no such order
--   bykey MEMBER              dead jobs behind this member, by key
--   newest SCORE NUMBER       dead jobs behind this place, the last ones first
--
-- Reads one step of one index and the records of its rows; writes nothing.
READ_ONLY = true
if not S then return { '', {} } end
local what, from, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local rows, next_from = {}, ''

-- A step ends when it has read this much, some 4 ms: rows, as many for a lane or job that is read as a table as that takes, two
-- for a job of a key, and bytes of records. It exceeds this by one part.
local ROWS_MAX, TABLE_ROWS, BYTES_MAX, PART = 1000, 6, 1024 * 1024, 10
local rows_left, bytes_left = ROWS_MAX, BYTES_MAX
local function spend(more_rows, more_bytes) rows_left, bytes_left = rows_left - more_rows, bytes_left - more_bytes end
local function is_full() return rows_left <= 0 or bytes_left <= 0 end

-- Lanes -------------------------------------------------------------------------------------------

local function node_of(token) return (cmsgpack.unpack(call('HGET', K.claims, token))) end

local function tell_table(l, node)
  local head = S.mode ~= 'accumulate' and L.shown_job(l)
  local state = l.token and 'claimed' or l.paused and 'paused' or l.held and 'held' or 'waiting'
  local _, crashes = L.trouble_of(l)
  rows[#rows + 1] = { l.n, l.key, head and head.run_at or l.due, l.shown, crashes, state, node or '' }
  spend(TABLE_ROWS, head and head.body and #head.body or 0)
end

-- Most lanes have no state but what their record's header says.
local function tell_lane(id, record, busy, node)
  spend(1, #record)
  local due, key
  if is_single(record) then due, key = struct.unpack('>I7', record, 9), key_in(record)
  elseif is_light(record) then
    due = struct.unpack('>I7', record, 2)
    key = string.sub(record, TEXTS_AT, TEXTS_AT - 1 + struct.unpack('>I2', record, TEXTS_AT - 6))
  else
    return tell_table(L.lane_of(number_in(id), record, busy), node)
  end
  rows[#rows + 1] = { number_in(id), key, due, -1, 0, busy and 'claimed' or 'waiting', node or '' }
end

-- The lanes with these ids, as far as they exist.
local function tell_lanes(ids)
  local claims = fields(K.busy, ids)
  for i, record in ipairs(fields(K.lanes, ids)) do
    if record then tell_lane(ids[i], record, claims[i]) end
  end
end

local function tell_one(l)
  if l then tell_table(l, l.token and node_of(num(l.token))) end
end

-- Jobs --------------------------------------------------------------------------------------------

-- A job whose record has its fields from this offset on; with its place in the order of turns, if its key is known.
local function tell_plain(seq, record, at, key)
  spend(key and 2 or 1, #record)
  local created, run_at, prio, score, length = struct.unpack('>I7I7I2c8I2', record, at)
  local row = { seq, key or string.sub(record, at + 33, at + 32 + length), 'live', 0, created }
  if key then row[6], row[7], row[8] = hex(score), prio, run_at end
  rows[#rows + 1] = row
end

local function tell_job(seq, record, key)
  local letter = string.byte(record, 1)
  if letter == 74 then return tell_plain(seq, record, 16, key) end
  spend(letter == 68 and 1 or TABLE_ROWS, #record)
  if letter == 68 then return end
  local j = J.read_job(seq, record)
  if j.state ~= 'live' then return end
  rows[#rows + 1] = { seq, key or L.lane_of(j.lane).key, 'live', 0, j.created, j.score, j.prio, j.run_at }
end

-- Live jobs of a lane, as far as they exist; those up to `edge` are of its turn.
local function tell_jobs(l, names, edge)
  local first = #rows + 1
  for i, record in ipairs(fields(K.jobs, names)) do
    if record then tell_job(number_in(names[i]), record, l.key)
    elseif names[i] == l.id then
      local single = call('HGET', K.lanes, l.id)
      if single and is_single(single) then tell_plain(l.n, single, 2, l.key) end
    end
  end
  for i = first, #rows do
    if rows[i][1] <= edge then rows[i][3] = 'running' end
  end
end

local function tell_ended(names)
  for i, record in ipairs(fields(K.jobs, names)) do
    if record and string.byte(record, 1) == 68 then
      spend(1, #record)
      local ended, created = number_in(string.sub(record, 2, 8)), number_in(string.sub(record, 30, 36))
      local key = string.sub(record, 63, 62 + struct.unpack('>I2', record, 54))
      rows[#rows + 1] = { number_in(names[i]), key, 'done', ended, created }
    elseif record then
      spend(TABLE_ROWS, #record)
      local j = J.read_job(number_in(names[i]), record)
      rows[#rows + 1] = { j.seq, j.key, j.state, j.ended, j.created }
    end
  end
end

-- Scans -------------------------------------------------------------------------------------------

-- Tells what a scan finds until the step is full: answers where the next one begins, '' after the last one.
local function scan(command, key, begin, tell, count, pattern)
  local cursor = Scan.from(begin)
  repeat
    local answer = call(command, key, cursor, 'COUNT', count or PART, 'MATCH', pattern or '*')
    cursor = answer[1]
    tell(answer[2])
  until cursor == '0' or is_full()
  return Scan.next(cursor)
end

-- Each second one of a list: names without values or scores.
local function names_in(found, name)
  local names = {}
  for i = 1, #found, 2 do names[#names + 1] = name(found[i]) end
  return names
end

local function id_in(text) return id_of(tonumber(text)) end

local steps = {}

function steps.lanes()
  next_from = scan('HSCAN', K.lanes, from, function(found)
    local claims = fields(K.busy, names_in(found, tostring))
    for i = 1, #found, 2 do tell_lane(found[i], found[i + 1], claims[(i + 1) / 2]) end
  end)
end

-- The server itself compares names, and passes by so many in the time of so many rows.
local NAMES_PART, NAMES_ROWS = 100, 25
function steps.prefixed()
  next_from = scan('HSCAN', K.keys, from, function(found)
    local ids = {}
    for i = 2, #found, 2 do ids[#ids + 1] = found[i] end
    spend(NAMES_ROWS, 0)
    tell_lanes(ids)
  end, NAMES_PART, ARGV[4])
end

function steps.names()
  next_from = scan('HSCAN', K.lanes, from, function(found)
    for i = 1, #found, 2 do
      spend(1, #found[i + 1])
      rows[#rows + 1] = found[i]
    end
  end)
end

function steps.failing()
  next_from = scan('SSCAN', K.failing, from, function(found)
    spend(#found, 0)
    for _, id in ipairs(found) do rows[#rows + 1] = id end
  end)
end

function steps.failed()
  next_from = scan('ZSCAN', K.trouble, from, function(found) tell_lanes(names_in(found, id_in)) end)
end

-- First the jobs in records of lanes: one that moves to `jobs` meanwhile is returned twice, not missed.
function steps.live()
  if string.sub(from, 1, 1) == 'j' then
    next_from = scan('HSCAN', K.jobs, string.sub(from, 2), function(found)
      for i = 1, #found, 2 do tell_job(number_in(found[i]), found[i + 1]) end
    end)
    if next_from ~= '' then next_from = 'j' .. next_from end
    return
  end
  next_from = scan('HSCAN', K.lanes, from, function(found)
    for i = 1, #found, 2 do
      local record = found[i + 1]
      if is_single(record) then tell_plain(number_in(found[i]), record, 2) else spend(1, #record) end
    end
  end)
  if next_from == '' then next_from = 'j' end
end

local function scan_ended(index)
  next_from = scan('ZSCAN', index, from, function(found) tell_ended(names_in(found, id_in)) end)
end
function steps.dead() scan_ended(K.dead) end
function steps.done() scan_ended(K.done) end

-- Jobs of a lane ----------------------------------------------------------------------------------

-- The parts of a lane. Each tells some jobs behind a place, and answers the next place: false after the last.
local parts = {}

function parts.apart(l, place)
  local seqs, names = L.apart_of(l), {}
  local to = math.min((tonumber(place) or 0) + PART, #seqs)
  for i = (tonumber(place) or 0) + 1, to do names[#names + 1] = id_of(seqs[i]) end
  tell_jobs(l, names, math.huge)
  return to < #seqs and num(to)
end

local function strays(index, l, place)
  if l.strays == 0 then return false end
  local begin = place == '' and '[' .. pad(l.n) or '(' .. place
  local members, names = call('ZRANGEBYLEX', index, begin, '(' .. pad(l.n) .. '~', 'LIMIT', 0, PART), {}
  for i, member in ipairs(members) do names[i] = id_of(L.seq_in(member)) end
  tell_jobs(l, names, 0)
  return members[PART] or false
end
function parts.open(l, place) return strays(K.open, l, place) end
function parts.later(l, place) return S.mode == 'exclusive' and strays(K.later, l, place) end

local function edge_of(l) return l.closed > 0 and l.edge or 0 end

-- Tells jobs of the list behind this one; answers the last one, or nothing if none is left. To find the place in a long list
-- takes a dozen commands, so many names are read at once.
local NAMES = 100
local function tell_behind(l, seq, most)
  local names, told = L.ids_behind(l, seq, math.min(most, NAMES)), 0
  while told < #names and (told == 0 or not is_full()) do
    local some = { unpack(names, told + 1, math.min(told + PART, #names)) }
    tell_jobs(l, some, edge_of(l))
    told = told + #some
  end
  return told > 0 and number_in(names[told])
end

function parts.list(l, place)
  local last = tell_behind(l, tonumber(place) or 0, NAMES)
  return last and num(last)
end

function parts.closed(l, place)
  local edge, names = edge_of(l), {}
  for i, name in ipairs(edge > 0 and L.ids_behind(l, tonumber(place) or 0, PART) or {}) do
    if number_in(name) <= edge then names[i] = name end
  end
  tell_jobs(l, names, edge)
  return names[PART] and num(number_in(names[PART])) or false
end

-- Jobs move between the parts: a claim, from later ones to those that are apart; a failure, back.
local ALL_PARTS, CLOSED_PARTS = { 'apart', 'later', 'open', 'list', 'apart' }, { 'apart', 'closed' }

-- Tells jobs of a lane until the step is full. `place` is the number of a part and a place in it, or '', as is the answer.
local function walk_lane(l, names, place)
  local part, at = string.match(place, '^(%d+):(.*)$')
  part = tonumber(part) or 1
  while names[part] do
    at = parts[names[part]](l, at or '')
    if not at then part = part + 1 end
    if is_full() then return names[part] and part .. ':' .. (at or '') or '' end
  end
  return ''
end

local function walk_key(names)
  local l = L.lane_of_key(ARGV[4])
  if l and (l.token or names == ALL_PARTS) then next_from = walk_lane(l, names, from) end
end

function steps.jobs() walk_key(ALL_PARTS) end

function steps.turns()
  local l = L.lane_of_key(ARGV[4])
  if not l or S.mode == 'exclusive' or l.strays > 0 or l.apart or l.flags % 2 == UNSORTED then return walk_key(ALL_PARTS) end
  local left, seq = string.match(from, '^(%d+) (%d+)$')
  left, seq = tonumber(left) or most, tonumber(seq) or tonumber(ARGV[5])
  if ARGV[6] == '1' then seq = math.max(seq, edge_of(l)) end
  while left > 0 and not is_full() do
    local before, last = #rows, tell_behind(l, seq, left)
    if not last then return end
    left, seq = left - #rows + before, last
  end
  if left > 0 then next_from = num(left) .. ' ' .. num(seq) end
end

-- Claims ------------------------------------------------------------------------------------------

-- Visits the lanes of claims until the step is full. `more` answers the tokens behind a cursor, and the next cursor: '' after
-- the last one. `visit` answers where it goes on with a lane that it could not finish, or ''. A step begins at a lane of the
-- first of the tokens that the last one left.
local function walk_claims(more, visit)
  local at, place, left, cursor = string.match(from, '^(%d+);([%d:]*);([%d,]*);(.*)$')
  local tokens = {}
  at, place, cursor = tonumber(at) or 1, place or '', cursor or 'first'
  for token in string.gmatch(left or '', '%d+') do tokens[#tokens + 1] = token end
  while not is_full() and (tokens[1] or cursor ~= '') do
    if not tokens[1] then tokens, cursor = more(cursor)
    else
      local list = call('HGET', K.held, tokens[1]) or ''
      local ids = each_id(string.sub(list, at, at + 7 * PART - 1), {})
      local records, claims = fields(K.lanes, ids), fields(K.busy, ids)
      for i, id in ipairs(ids) do
        spend(1, 0)
        place = records[i] and claims[i] and num(number_in(claims[i])) == tokens[1]
          and visit(id, records[i], claims[i], tokens[1], place) or ''
        if place ~= '' then break end
        at = at + 7
      end
      if at > #list then
        table.remove(tokens, 1)
        at = 1
      end
    end
  end
  if tokens[1] or cursor ~= '' then
    next_from = at .. ';' .. place .. ';' .. table.concat(tokens, ',') .. ';' .. cursor
  end
end

local nodes = {}
local function visit_lane(id, record, busy, token)
  nodes[token] = nodes[token] or node_of(token)
  tell_lane(id, record, busy, nodes[token])
  return ''
end

local function all_claims(cursor)
  local answer = call('HSCAN', K.held, Scan.from(cursor), 'COUNT', PART)
  for i = 2, #answer[2], 2 do spend(0, #answer[2][i]) end
  return names_in(answer[2], tostring), Scan.next(answer[1])
end

function steps.held() walk_claims(all_claims, visit_lane) end

function steps.running()
  if ARGV[4] then return walk_key(CLOSED_PARTS) end
  walk_claims(all_claims, function(id, record, busy, _, place)
    return walk_lane(L.lane_of(number_in(id), record, busy), CLOSED_PARTS, place)
  end)
end

-- First the claims with the node's lease, then those with their own.
local function claims_of(node, cursor)
  local tokens = {}
  if string.sub(cursor, 1, 1) == 'o' then
    local answer = call('ZSCAN', K.leases, Scan.from(string.sub(cursor, 2)), 'COUNT', PART)
    for _, token in ipairs(names_in(answer[2], tostring)) do
      spend(1, 0)
      if node_of(token) == node then tokens[#tokens + 1] = token end
    end
    local behind = Scan.next(answer[1])
    return tokens, behind ~= '' and 'o' .. behind or ''
  end
  local head = string.sub(holder_member(node, 0, 0), 1, 4 + #node)
  local begin = cursor == 'first' and '[' .. head or '(' .. cursor
  local members = call('ZRANGEBYLEX', K.holders, begin, '(' .. head .. '~', 'LIMIT', 0, PART)
  for i, member in ipairs(members) do tokens[i] = num(L.seq_in(member)) end
  return tokens, members[PART] or 'o'
end

function steps.holder() walk_claims(function(cursor) return claims_of(ARGV[4], cursor) end, visit_lane) end

function steps.lane() tell_one(L.lane_of_key(ARGV[4])) end
function steps.one() tell_one(L.lane_of(tonumber(ARGV[4]))) end

-- Indexes with an order ---------------------------------------------------------------------------

-- Members of the morgue by key, from a place on.
local function dead_by_key(begin, to)
  local left, last = string.match(from, '^(%d+) (.*)$')
  left = tonumber(left) or most
  if last then begin = '(' .. last end
  while left > 0 and not is_full() do
    local members = call('ZRANGEBYLEX', K.deadkeys, begin, to, 'LIMIT', 0, math.min(left, PART))
    if not members[1] then return end
    local names = {}
    for i, member in ipairs(members) do names[i] = id_of(L.seq_in(member)) end
    tell_ended(names)
    left, last = left - #members, members[#members]
    begin = '(' .. last
  end
  if left > 0 then next_from = num(left) .. ' ' .. last end
end

function steps.deadkey() dead_by_key('[' .. ARGV[4] .. '\0', '(' .. ARGV[4] .. '\0~') end
function steps.bykey() dead_by_key(ARGV[4] == '' and '-' or '(' .. ARGV[4], '+') end

-- Where a step in an index by score begins: how many rows are left, and behind which score (as text; '' is none) and number.
local function place_in_index()
  local left, score, number = string.match(from, '^(%d+) (%S+) (%d+)$')
  if left then return tonumber(left), score, tonumber(number) end
  return most, ARGV[4], tonumber(ARGV[5])
end

-- The rank of the first member behind a place; those with one score are in the order of their numbers.
local function rank_behind(index, score, number, number_of)
  local low, high = call('ZCOUNT', index, '-inf', '(' .. score), call('ZCOUNT', index, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if number_of(call('ZRANGE', index, middle, middle)[1]) <= number then low = middle + 1 else high = middle end
  end
  return low
end

-- Tells members between two ranks, as many as may be; answers how many, and the number of the last one.
local function tell_ranks(index, at, to, number_of, tell)
  local numbers, ids = {}, {}
  for i, member in ipairs(call('ZRANGE', index, at, math.min(to, at + PART) - 1)) do
    numbers[i] = number_of(member)
    ids[i] = id_of(numbers[i])
  end
  tell(ids)
  return #ids, numbers[#ids]
end

local function go_on(left, score, number) next_from = num(left) .. ' ' .. score .. ' ' .. num(number) end

local function upwards(index, number_of)
  local left, score, number = place_in_index()
  local at = score == '' and 0 or rank_behind(index, score, number, number_of)
  while left > 0 do
    local count, last = tell_ranks(index, at, at + left, number_of, tell_lanes)
    if count == 0 then return end
    at, left, number = at + count, left - count, last
    if left > 0 and is_full() then
      return go_on(left, call('ZRANGE', index, at - 1, at - 1, 'WITHSCORES')[2], number)
    end
  end
end
function steps.trouble() upwards(K.trouble, tonumber) end

-- By due time. A lane that is not claimed is in one of `arrivals`, `ready`, `wake` and `parked`, by when it is due. In `exclusive` one
-- that is ready may be in `wake` too, for a later job, and an entry of `arrivals` may mean nothing: an entry counts whose lane
-- is due then.
do
local READ, GROUPS_MAX, TOLD_MAX = 50, 32, 100

-- Each of these answers a function that adds due times and numbers of the next entries of an index, behind a place if there is one.
local function of_arrivals(due, number)
  local at, to = 0, due and call('LLEN', K.arrivals) or 0
  while at < to do
    local middle = math.floor((at + to) / 2)
    local its, n = struct.unpack('>I7I7', call('LINDEX', K.arrivals, middle))
    if its < due or its == due and n <= number then at = middle + 1 else to = middle end
  end
  return function(dues, numbers)
    local entries = call('LRANGE', K.arrivals, at, at + READ - 1)
    for i, entry in ipairs(entries) do dues[i], numbers[i] = struct.unpack('>I7I7', entry) end
    at = at + #entries
  end
end

local function of_scores(index, due, number)
  local at = due and rank_behind(index, num(due), number, number_in) or 0
  return function(dues, numbers)
    local found = call('ZRANGE', index, at, at + READ - 1, 'WITHSCORES')
    for i = 1, #found / 2 do dues[i], numbers[i] = tonumber(found[2 * i]), number_in(found[2 * i - 1]) end
    at = at + #found / 2
  end
end

-- Those of one class and priority, and of one group.
local function of_ready(head, due, number)
  local from = '[' .. head
  if due then from = '(' .. head .. id_of(math.max(0, math.min(due, TIME_MAX))) .. id_of(math.min(number, TIME_MAX)) end
  return function(dues, numbers)
    local members = call('ZRANGEBYLEX', K.ready, from, '(' .. head .. '\255', 'LIMIT', 0, READ)
    for i, member in ipairs(members) do dues[i], numbers[i] = struct.unpack('>I7I7', member, #member - 13) end
    if members[1] then from = '(' .. members[#members] end
  end
end

-- The indexes with these lanes; nothing if there are too many, or they lack some.
local function indexes_behind(due, number, which)
  local indexes = {}
  local function add(read, arrives) indexes[#indexes + 1] = { read = read, arrives = arrives, at = 1, dues = {}, numbers = {} } end
  add(of_scores(K.wake, due, number))
  if which == 'later' then return indexes end
  if which == 'all' then
    if call('HGET', K.meta, 'parks') ~= '1' then return end
    add(of_scores(K.parked, due, number))
  end
  add(of_arrivals(due, number), true)
  local from = '-'
  for groups = 0, GROUPS_MAX do
    local member = call('ZRANGEBYLEX', K.ready, from, '+', 'LIMIT', 0, 1)[1]
    if not member then return indexes end
    if groups == GROUPS_MAX then return end
    local head = string.sub(member, 1, -15)
    add(of_ready(head, due, number))
    from = '(' .. head .. '\255'
  end
end

-- The index with the next entry, and this; nothing behind the last one.
local function next_of(indexes)
  local first, due, number
  for _, index in ipairs(indexes) do
    if not index.dues[index.at] and not index.is_read then
      index.at, index.dues, index.numbers = 1, {}, {}
      index.read(index.dues, index.numbers)
      index.is_read = #index.dues < READ
    end
    local its, n = index.dues[index.at], index.numbers[index.at]
    if its and (not first or its < due or its == due and n < number) then first, due, number = index, its, n end
  end
  return first, due, number
end

-- Tells the lanes of these entries that count.
local function tell_entries(ids, dues, arrives)
  local claims = fields(K.busy, ids)
  for i, record in ipairs(fields(K.lanes, ids)) do
    local told = #rows
    if record and not claims[i] and (not arrives[i] or is_arrival(record)) then tell_lane(ids[i], record, false)
    else spend(1, 0) end
    if #rows > told and rows[#rows][3] ~= dues[i] then rows[#rows] = nil end
  end
end

function steps.due()
  local due, number = string.match(from, '^(%S+) (%d+)$')
  due, number = tonumber(due or ARGV[4]), tonumber(number or ARGV[5])
  local indexes = indexes_behind(due, number, ARGV[6])
  if not indexes then
    next_from = '-'
    return
  end
  while #rows < most and not is_full() do
    local ids, dues, arrives = {}, {}, {}
    local wanted = math.min(TOLD_MAX, most - #rows)
    local index, its, n = next_of(indexes)
    -- All entries of one place: the next step begins behind it.
    while index and (#ids < wanted or its == due and n == number) do
      local at = #ids + 1
      ids[at], dues[at], arrives[at], due, number = id_of(n), its, index.arrives, its, n
      index.at = index.at + 1
      index, its, n = next_of(indexes)
    end
    tell_entries(ids, dues, arrives)
    if not index then return end
  end
  next_from = num(due) .. ' ' .. num(number)
end
end

function steps.parked()
  if call('HGET', K.meta, 'parks') ~= '1' then return steps.lanes() end
  next_from = scan('ZSCAN', K.parked, from, function(found) tell_lanes(names_in(found, tostring)) end)
end

function steps.newest()
  local left, score, number = place_in_index()
  -- The ranks of those of one time that are left, and of the first of that time: what is below is older.
  local at, to, first = 0, 0, 0
  if score == '' then first = call('ZCARD', K.dead)
  else
    at, to = rank_behind(K.dead, score, number, tonumber), call('ZCOUNT', K.dead, '-inf', score)
    first = call('ZCOUNT', K.dead, '-inf', '(' .. score)
  end
  while left > 0 and (at < to or first > 0) do
    if at == to then
      score = call('ZRANGE', K.dead, first - 1, first - 1, 'WITHSCORES')[2]
      at, to = call('ZCOUNT', K.dead, '-inf', '(' .. score), first
      first = at
      spend(1, 0)
    end
    local count
    count, number = tell_ranks(K.dead, at, math.min(to, at + left), tonumber, tell_ended)
    at, left = at + count, left - count
    if left > 0 and is_full() then return go_on(left, score, number) end
  end
end

steps[what]()
return { next_from, rows }
