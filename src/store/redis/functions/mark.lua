-- A write, whatever was there before. A server counts only what a connection has written when it is asked which replicas
-- have it: behind a call that found everything done, this stands for all that was written before.
register('mark', function(keys)
  return { call('INCR', keys[1]) }
end, { 'allow-oom' })
