-- Sets a session that has neither turns nor events to a turn, changes or forgets one; and forgets what an
-- owner no longer keeps.

-- Drops a session with everything that it has, as if it had never been; sessions of its owner that
-- begin later begin behind its epoch.
local function erase_session(o, s)
  local key = session_key(o, s)
  local epoch = tonumber(call('HGET', key, 'epoch') or 0)
  if epoch > tonumber(call('HGET', o .. ':count', 'epoch') or 0) then
    call('HSET', o .. ':count', 'epoch', text(epoch))
  end
  weigh(o, 's' .. s, -weight_of(o, s))
  run_no_more(o, s)
  call('DEL', key, mailbox_key(o, s), event_key(o, s), crash_key(o, s), call_key(o, s))
  call('ZREM', o .. ':sessions', s)
  set_due(o, s, nil)
  wait_no_more(o, s)
end

register('seat', function(keys, args)
  local o, take = keys[1], reader(args)
  local now, known, s = clock(take()), take() == '1', take()
  if known and is_empty(o) then
    return { 'unregistered' }
  end
  local key = session_key(o, s)
  local f = call('HMGET', key, 'until', 'version', 'arrivals', 'state')
  if f[1] and tonumber(f[1]) > now then
    return { 'held', tonumber(f[1]) }
  end
  if take() == '0' then
    erase_session(o, s)
    return { 'done' }
  end
  local version, state, quota = take(), take(), take_quota(take)
  if f[3] or f[2] and (f[2] ~= version or f[4] ~= state) then
    return { 'taken' }
  end
  local is_known = call('ZSCORE', o .. ':sessions', s)
  local refused = quota and not is_known and over(o, quota, { 0, #state, 1, 0 })
  if refused then
    return refused
  end
  weigh_state(o, s, state)
  call('ZADD', o .. ':sessions', 0, s)
  call('HSET', key, 'version', version, 'state', state, 'touched', text(now))
  return { 'done' }
end, {})

register('amend', function(keys, args)
  local o, take = keys[1], reader(args)
  local now, s = clock(take()), take()
  local version, was, state, arrivals = take(), optional(take), optional(take), take()
  local writes = list(take, take_write)
  local key = session_key(o, s)
  local f = call('HMGET', key, 'until', 'version', 'state', 'arrivals')
  local known, is_version = call('ZSCORE', o .. ':sessions', s), (f[2] or '0') == version
  if f[1] then
    return { 'held' }
  elseif state and is_version and f[3] == state or not state and not known then
    -- Done by this very call before.
    return { 'done' }
  end
  local fits = state and version ~= '0' or not state and (f[4] or '0') == arrivals
  if not known or not is_version or f[3] ~= was or not fits then
    return { 'stirred' }
  end
  if state then
    weigh_state(o, s, state)
    call('HSET', key, 'state', state)
  else
    erase_session(o, s)
  end
  apply(o, now, writes)
  return { 'done' }
end, { 'allow-oom' })

-- {session, events that had arrived when it was seen}
local function take_resting(take)
  return { take(), take() }
end

-- A session that is gone was forgotten by this very call before.
local function stirred(o, s, arrivals)
  local f = call('HMGET', session_key(o, s), 'arrivals', 'consumed', 'until', 'backoff')
  if not call('ZSCORE', o .. ':sessions', s) then
    return false
  end
  local busy = f[3] or f[4] or call('ZSCORE', o .. ':due', s) or call('ZSCORE', o .. ':waiting:' .. agent_of(s), s)
  return busy or (f[1] or '0') ~= arrivals or (f[2] or '0') ~= arrivals
end

register('forget', function(keys, args)
  local o, take = keys[1], reader(args)
  local now = clock(take())
  local documents, events = list(take, function(t) return t() end), list(take, function(t) return t() end)
  local sessions, lost = list(take, take_resting), list(take, function(t) return t() end)
  for _, resting in ipairs(sessions) do
    if stirred(o, resting[1], resting[2]) then
      return { 'stirred', resting[1] }
    end
  end
  for _, resting in ipairs(sessions) do
    erase_session(o, resting[1])
  end
  for _, s in ipairs(lost) do
    local arrivals = tonumber(call('HGET', session_key(o, s), 'arrivals') or 0)
    local there = call('ZCARD', mailbox_key(o, s))
    if arrivals > 0 then
      call('HSET', session_key(o, s), 'consumed', text(arrivals - there))
    end
  end
  for _, key in ipairs(documents) do
    delete(o, now, key)
  end
  for _, event in ipairs(events) do
    call('HDEL', o .. ':seen', event)
  end
  return { 'done' }
end, { 'allow-oom' })
