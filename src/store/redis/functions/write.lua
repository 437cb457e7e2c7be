-- Documents outside a turn, all or none.

register('write', function(keys, args)
  local o, take = keys[1], reader(args)
  local now = clock(take())
  local writes = list(take, take_write)
  local found = conflicts(o, writes)
  if #found > 0 then
    return { 'conflict', found }
  end
  apply(o, now, writes)
  gates_changed(o, now, writes)
  return { 'done' }
end, {})
