-- Removes published outbox entries.

register('published', function(keys, args)
  in_parts('HDEL', keys[1] .. ':outbox', args)
  in_parts('ZREM', keys[1] .. ':relay', args)
  return #args
end, { 'allow-oom' })
