-- Writes documents outside a turn, all or none. `write_at_limit` is the same for writes that free memory, or that
-- accepted work needs to go on: it may run at the memory limit. `known`: the caller takes the owner for registered; an
-- owner without documents may not be any more.

local function write(keys, args)
  local o, take = keys[1], reader(args)
  local now, known = clock(take()), take() == '1'
  if known and is_empty(o) then
    return { 'unregistered' }
  end
  local writes = list(take, take_write)
  local quota = take_quota(take)
  read_ahead(o, of_writes(writes))
  local found = conflicts(o, writes)
  if #found > 0 then
    return { 'conflict', found }
  end
  local refused = quota and writes_over(o, quota, writes)
  if refused then
    return refused
  end
  apply(o, now, writes)
  gates_changed(o, now, writes)
  return { 'done' }
end

register('write', write, {})
register('write_at_limit', write, { 'allow-oom' })
