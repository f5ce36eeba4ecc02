-- The common part of the scripts that scan in steps: index.lua, park.lua and release.lua. A cursor means something to the run of
-- the server that answered it, and to no other one, which hashes names in another way and would skip some of them. So the
-- next step gets it with that run, and begins anew if a server took over, or the shard moved to another one.
--
-- Reads which run this is; writes nothing.
local Scan = {}
do
  local run = false
  local function this_run()
    run = run or string.match(call('INFO', 'server'), 'run_id:(%x+)')
    return run
  end

  -- Where a step begins, by what the last one answered: '' is the beginning.
  function Scan.from(text)
    local cursor, its = string.match(text, '^(%d+)@(%x+)$')
    return cursor and its == this_run() and cursor or '0'
  end

  -- Where the next step begins: '' after the last one.
  function Scan.next(cursor) return cursor == '0' and '' or cursor .. '@' .. this_run() end
end

