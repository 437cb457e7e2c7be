-- All unpublished outbox entries.

register('outbox', function(keys)
  local all = call('HGETALL', keys[1] .. ':outbox')
  local entries, there = {}, {}
  for i = 1, #all, 2 do
    there[all[i]] = true
    entries[#entries + 1] = unpack_entry(all[i], all[i + 1])
  end
  -- An id in `relay` without a message is returned with an empty one.
  for _, id in ipairs(call('ZRANGE', keys[1] .. ':relay', 0, -1)) do
    if not there[id] then
      entries[#entries + 1] = { 0, id, '' }
    end
  end
  return entries
end, { 'no-writes' })
