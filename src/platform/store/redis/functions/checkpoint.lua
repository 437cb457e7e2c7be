-- Records what a running turn must not do twice.

register('checkpoint', function(keys, args)
  local o, take = keys[1], reader(args)
  local now, s, epoch, turn = clock(take()), take(), take(), tonumber(take())
  local reply = optional(take)
  local calls = list(take, function(t)
    return { t(), t() }
  end)
  local open, outbox, writes = list(take, take_job), list(take, take_entry), list(take, take_write)
  if not holds(o, s, epoch) then
    return { 'fenced' }
  end
  -- A request that timed out may arrive after the commit of its turn.
  if turn == number(o, s, 'version') + 1 then
    if reply then
      note(o, s, 'reply', reply)
    end
    for _, entry in ipairs(calls) do
      call('HSET', call_key(o, s), entry[1], entry[2])
    end
    if #calls > 0 then
      note(o, s, 'calls', call('HLEN', call_key(o, s)))
    end
    for _, job in ipairs(open) do
      open_job(o, now, job)
    end
    send(o, now, outbox)
    apply(o, now, writes)
  end
  return still_held(o, fact(o, s, 'job'))
end, { 'allow-oom' })
