-- Registers an owner unless its tenant has as many users as it may. KEYS[1] is the list of owners, which is in no shard.

-- `own` is the tenant's own owner, which is no user; `from` and `to` are the bounds of the tenant's owners.
-- {'listed'}, or {'full', users}
register('register_owner', function(keys, args)
  local take = reader(args)
  local owner, own, from, to, most = take(), take(), take(), take(), tonumber(take())
  if call('ZSCORE', keys[1], owner) then
    return { 'listed' }
  end
  local users = call('ZLEXCOUNT', keys[1], from, to) - (call('ZSCORE', keys[1], own) and 1 or 0)
  if users >= most then
    return { 'full', users }
  end
  call('ZADD', keys[1], 0, owner)
  return { 'listed' }
end, {})
