-- Extends a lease.

register('renew', function(keys, args)
  local o, take = keys[1], reader(args)
  local now, s, epoch, ttl = clock(take()), take(), take(), tonumber(take())
  if not holds(o, s, epoch) then
    return { 'fenced' }
  end
  hold_until(o, s, now + ttl)
  return still_held(o, fact(o, s, 'job'))
end, { 'allow-oom' })
