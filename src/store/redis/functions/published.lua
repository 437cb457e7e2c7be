-- Removes published outbox entries.

register('published', function(keys, args)
  for _, id in ipairs(args) do
    call('HDEL', keys[1] .. ':outbox', id)
    call('ZREM', keys[1] .. ':relay', id)
  end
  return #args
end, { 'allow-oom' })
