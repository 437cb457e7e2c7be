-- One owner's overdue work.

local PURGED_AT_ONCE = 200

local function purge(o, now)
  local old = call('ZRANGEBYSCORE', o .. ':gone', '-inf', text(now - TOMBSTONE_MS), 'LIMIT', 0, PURGED_AT_ONCE)
  for _, key in ipairs(old) do
    call('HDEL', o .. ':doc', key)
    call('ZREM', o .. ':gone', key)
  end
end

-- Members of a zset that are due, at most `limit`, moved on; and whether there are more.
local function overdue(key, now, grace, limit)
  local found = call('ZRANGEBYSCORE', key, '-inf', text(now), 'LIMIT', 0, limit + 1)
  local more = #found > limit
  if more then
    found[#found] = nil
  end
  for _, member in ipairs(found) do
    call('ZADD', key, now + grace, member)
  end
  return found, more
end

register('sweep', function(keys, args)
  local o, take = keys[1], reader(args)
  local now, grace, limit = clock(take()), tonumber(take()), tonumber(take())
  purge(o, now)
  for _, agent in ipairs(call('SMEMBERS', o .. ':waiting')) do
    for _, s in ipairs(wake_waiting(o, now, agent, grace, limit)) do
      set_due(o, s, now)
    end
  end
  local due, more_due = overdue(o .. ':due', now, grace, limit)
  local ids, more_ids = overdue(o .. ':relay', now, grace, limit)
  local entries = {}
  for i, id in ipairs(ids) do
    entries[i] = { id, call('HGET', o .. ':outbox', id) }
  end
  return { due, entries, (more_due or more_ids) and 1 or 0 }
end, { 'allow-oom' })
