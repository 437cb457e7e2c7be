-- Reports that a process uses the library of its build. KEYS[1] is the list of libraries, which is in no shard.

-- Returns the libraries without a report for `lapse`.
register('libraries', function(keys, args)
  local take = reader(args)
  local now, lapse = clock(take()), tonumber(take())
  call('ZADD', keys[1], now, LIBRARY)
  return call('ZRANGEBYSCORE', keys[1], '-inf', '(' .. text(now - lapse))
end, { 'allow-oom' })
