-- A write that always changes something. `WAIT` counts only what its connection has written: after a call that found
-- its work done already, this write stands for everything written before.
register('mark', function(keys)
  return { call('INCR', keys[1]) }
end, { 'allow-oom' })
