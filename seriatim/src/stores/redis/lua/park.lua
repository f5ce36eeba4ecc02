-- Enters lanes that are held or paused in `parked`, which builds before layout 7 did not write: a step through all lanes. ARGV: where it
-- begins ('' is the beginning). Answers where the next step begins, '' after the last one.
--
-- Reads the lanes; writes parked, and that it has all in meta.
READ_ONLY = true
if not S or call('HGET', K.meta, 'parks') == '1' then return '' end
even_when_full()
local cursor = Scan.from(ARGV[1])

local ROWS_MAX, TABLE_ROWS, PART = 1000, 6, 10 -- as in index.lua
local rows_left = ROWS_MAX
repeat
  local answer = call('HSCAN', K.lanes, cursor, 'COUNT', PART)
  cursor = answer[1]
  for i = 1, #answer[2], 2 do
    local id, record = answer[2][i], answer[2][i + 1]
    rows_left = rows_left - 1
    if not is_single(record) and not is_bare(record) then
      rows_left = rows_left - TABLE_ROWS
      local l = L.lane_of(number_in(id), record)
      if l.parked then call('ZADD', K.parked, num(l.due), id) end
    end
  end
until cursor == '0' or rows_left <= 0
if cursor == '0' then call('HSET', K.meta, 'parks', '1') end
return Scan.next(cursor)
