-- Records what a running turn must not do twice.

register('checkpoint', function(keys, args)
  local o, take = keys[1], reader(args)
  local now, s, epoch, turn = clock(take()), take(), take(), tonumber(take())
  local reply = optional(take)
  local calls = list(take, function(t)
    return { t(), t() }
  end)
  local open, outbox = list(take, take_job), list(take, take_entry)
  if not holds(o, s, epoch) then
    return { 'fenced' }
  end
  local f = call('HMGET', session_key(o, s), 'version', 'job')
  -- A request that timed out may arrive after the commit of its turn.
  if turn == tonumber(f[1] or 0) + 1 then
    if reply then
      call('HSET', session_key(o, s), 'reply', reply)
    end
    for _, entry in ipairs(calls) do
      call('HSET', call_key(o, s), entry[1], entry[2])
    end
    for _, job in ipairs(open) do
      open_job(o, now, job)
    end
    send(o, now, outbox)
  end
  return still_held(o, f[2])
end, { 'allow-oom' })
