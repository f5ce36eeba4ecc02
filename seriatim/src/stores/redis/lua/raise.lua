-- The version of the stored format, raised from an earlier one as soon as every living node can read the newest: each says in its
-- description which it knows. A store of nobody is raised too. Who cannot read a version opens no store of it.
--
-- Reads the version in meta, alive and nodes; writes the version.
local function raised(known, newest)
  if known == 0 or known >= newest then return known end
  local mark = '{"layout":' .. newest .. ','
  for _, node in ipairs(call('ZRANGE', P .. 'alive', 0, -1)) do
    local description = call('HGET', P .. 'nodes', node) or ''
    if string.sub(description, 1, #mark) ~= mark then return known end
  end
  call('HSET', P .. 'meta', 'version', newest)
  return newest
end

