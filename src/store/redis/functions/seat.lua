-- Sets a session that has neither turns nor events to a turn, or forgets one but for its epoch.

local function forget(o, s)
  local key = session_key(o, s)
  local epoch = call('HGET', key, 'epoch')
  call('DEL', key, mailbox_key(o, s), event_key(o, s), crash_key(o, s), call_key(o, s))
  call('ZREM', o .. ':running:' .. agent_of(s), s)
  call('ZREM', o .. ':sessions', s)
  set_due(o, s, nil)
  wait_no_more(o, s)
  if epoch then
    call('HSET', key, 'epoch', epoch)
  end
end

register('seat', function(keys, args)
  local o, take = keys[1], reader(args)
  local now, s = clock(take()), take()
  local key = session_key(o, s)
  local f = call('HMGET', key, 'until', 'version', 'arrivals', 'state')
  if f[1] and tonumber(f[1]) > now then
    return { 'held', tonumber(f[1]) }
  end
  if take() == '0' then
    forget(o, s)
    return { 'done' }
  end
  local version, state = take(), take()
  if f[3] or f[2] and (f[2] ~= version or f[4] ~= state) then
    return { 'taken' }
  end
  call('ZADD', o .. ':sessions', 0, s)
  call('HSET', key, 'version', version, 'state', state)
  return { 'done' }
end, {})
