-- All unpublished outbox entries.

register('outbox', function(keys)
  return call('HGETALL', keys[1] .. ':outbox')
end, { 'no-writes' })
