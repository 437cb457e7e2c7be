-- Registers a worker as alive. KEYS[1] is the list of workers, which is in no shard.

-- {now, live workers}
register('due', function(keys, args)
  local take = reader(args)
  local now, worker, lapse = clock(take()), take(), tonumber(take())
  call('ZADD', keys[1], now, worker)
  call('ZREMRANGEBYSCORE', keys[1], '-inf', '(' .. text(now - lapse))
  -- A report from before the clock was set back.
  call('ZREMRANGEBYSCORE', keys[1], '(' .. text(now + lapse), '+inf')
  return { text(now), call('ZRANGE', keys[1], 0, -1) }
end, { 'allow-oom' })
