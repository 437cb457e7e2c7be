-- All unpublished outbox entries.

register('outbox', function(keys)
  local all = call('HGETALL', keys[1] .. ':outbox')
  local entries = {}
  for i = 1, #all, 2 do
    entries[#entries + 1] = unpack_entry(all[i], all[i + 1])
  end
  return entries
end, { 'no-writes' })
