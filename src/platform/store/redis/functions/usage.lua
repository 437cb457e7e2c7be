-- The usage of an owner, and a recount of it: what `weigh` has counted is compared with the records.

register('usage', function(keys)
  local _, own = doc(keys[1], 'quota')
  return { usage(keys[1]), own }
end, { 'no-writes' })

register('recount', function(keys, args)
  local o, mend = keys[1], args[1] == '1'
  if mend and #damage.of_types(o) == 0 then
    damage.rebuild_index(o)
  end
  local damaged = damage.of_owner(o)
  if #damaged > 0 then
    error({ err = 'CORRUPT ' .. table.concat(damaged, ', ') })
  end
  if not recount_on(o) then
    return { 'more' }
  end
  local was = usage(o)
  local counted = end_recount(o, mend)
  return { 'done', was, { was[1], counted, was[3], was[4] } }
end, { 'allow-oom' })
