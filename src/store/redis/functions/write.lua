-- Documents outside a turn, all or none. `erase` is the same for writes that put nothing: what
-- frees memory may run at the memory limit.

local function write(keys, args)
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
end

register('write', write, {})
register('erase', write, { 'allow-oom' })
