-- Sessions as an operator sees them, and the mail of one as its next turn gets it.

register('sessions', function(keys, args)
  local o, take = keys[1], reader(args)
  local from, to, limit = take(), take(), take()
  local facts = {}
  for i, s in ipairs(call('ZRANGEBYLEX', o .. ':sessions', from, to, 'LIMIT', 0, limit)) do
    local f = call('HMGET', session_key(o, s), 'version', 'epoch', 'until', 'arrivals', 'consumed', 'state', 'touched')
    local due = call('ZSCORE', o .. ':due', s)
    facts[i] = {
      s, tonumber(f[1] or 0), tonumber(f[2] or 0), f[3], due, tonumber(f[4] or 0), tonumber(f[5] or 0),
      answer(pending(o, s, 0)), f[6], tonumber(f[7] or 0),
    }
  end
  return facts
end, { 'no-writes' })

register('mail', function(keys, args)
  local o, take = keys[1], reader(args)
  local s, limit = take(), tonumber(take())
  return { answer(pending(o, s, limit)) }
end, { 'no-writes' })
