-- Sets a session without turns and events to a turn, changes or removes one; and removes what retention is over for.

-- Removes a session with all its records; later sessions of its owner begin with a higher epoch.
local function erase_session(o, s)
  local epoch = number(o, s, 'epoch')
  if epoch > tonumber(call('HGET', o .. ':count', 'epoch') or 0) then
    call('HSET', o .. ':count', 'epoch', text(epoch))
  end
  weigh(o, 's' .. s, -weight_of(o, s))
  run_no_more(o, s)
  call('DEL', session_key(o, s), mailbox_key(o, s), event_key(o, s), crash_key(o, s), call_key(o, s))
  call('ZREM', o .. ':sessions', s)
  set_due(o, s, nil)
  wait_no_more(o, s)
  forget_facts(s)
end

register('set_session', function(keys, args)
  local o, take = keys[1], reader(args)
  local now, known, s = clock(take()), take() == '1', take()
  if known and is_empty(o) then
    return { 'unregistered' }
  end
  if number(o, s, 'until') > now then
    return { 'held', number(o, s, 'until') }
  end
  local checks, forgets = list(take, take_write), take() == '0'
  if #conflicts(o, checks) > 0 then
    local is_gone = forgets and not call('ZSCORE', o .. ':sessions', s)
    return { is_gone and 'done' or 'changed' }
  end
  if forgets then
    erase_session(o, s)
    return { 'done' }
  end
  local version, state, quota = take(), take(), take_quota(take)
  local has = fact(o, s, 'version')
  if fact(o, s, 'arrivals') or has and (has ~= version or fact(o, s, 'state') ~= state) then
    return { 'taken' }
  end
  local is_known = call('ZSCORE', o .. ':sessions', s)
  local refused = quota and not is_known and over(o, quota, { 0, #state, 1, 0 })
  if refused then
    return refused
  end
  weigh_state(o, s, state)
  call('ZADD', o .. ':sessions', 0, s)
  note(o, s, 'version', version)
  note(o, s, 'state', state)
  note(o, s, 'touched', text(now))
  return { 'done' }
end, {})

register('amend', function(keys, args)
  local o, take = keys[1], reader(args)
  local now, s = clock(take()), take()
  local version, was, state, arrivals = take(), optional(take), optional(take), take()
  local writes = list(take, take_write)
  local has = fact(o, s, 'state')
  local known, is_version = call('ZSCORE', o .. ':sessions', s), (fact(o, s, 'version') or '0') == version
  if fact(o, s, 'until') then
    return { 'held' }
  elseif state and is_version and has == state or not state and not known then
    -- An earlier try of this call has done it.
    return { 'done' }
  end
  local checks = {}
  for _, write in ipairs(writes) do
    checks[#checks + 1] = write[3] == 'c' and write or nil
  end
  local fits = state and version ~= '0' or not state and (fact(o, s, 'arrivals') or '0') == arrivals
  if not known or not is_version or has ~= was or not fits or #conflicts(o, checks) > 0 then
    return { 'changed' }
  end
  if state then
    weigh_state(o, s, state)
    note(o, s, 'state', state)
  else
    erase_session(o, s)
  end
  apply(o, now, writes)
  return { 'done' }
end, { 'allow-oom' })

-- {session, its arrivals as the caller read them}
local function take_resting(take)
  return { take(), take() }
end

-- Whether a session has work or new events. An absent one was forgotten by an earlier try of this call.
local function has_changed(o, s, arrivals)
  if not call('ZSCORE', o .. ':sessions', s) then
    return false
  end
  local held = fact(o, s, 'until') or fact(o, s, 'backoff')
  local busy = held or call('ZSCORE', o .. ':due', s) or call('ZSCORE', o .. ':waiting:' .. agent_of(s), s)
  return busy or (fact(o, s, 'arrivals') or '0') ~= arrivals or (fact(o, s, 'consumed') or '0') ~= arrivals
end

register('forget', function(keys, args)
  local o, take = keys[1], reader(args)
  local now = clock(take())
  local documents, events = list(take, function(t) return t() end), list(take, function(t) return t() end)
  local sessions, lost = list(take, take_resting), list(take, function(t) return t() end)
  for _, resting in ipairs(sessions) do
    if has_changed(o, resting[1], resting[2]) then
      return { 'changed', resting[1] }
    end
  end
  for _, resting in ipairs(sessions) do
    erase_session(o, resting[1])
  end
  for _, s in ipairs(lost) do
    local arrivals, damaged = number(o, s, 'arrivals'), {}
    -- Damaged entries can't be served.
    pending(o, s, 0, damaged)
    drop(o, s, damaged)
    local there = call('ZCARD', mailbox_key(o, s))
    if arrivals > 0 then
      note(o, s, 'consumed', text(arrivals - there))
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
