-- The facts of sessions for operators, and the mail of one session as its next turn gets it.

local function session_facts(o, s)
  local f = call('HMGET', session_key(o, s), 'version', 'epoch', 'until', 'arrivals', 'consumed', 'state', 'touched',
    'worker')
  for i = 1, 7 do
    if i ~= 6 and f[i] and not string.match(f[i], '^%d+$') then
      error({ err = 'a number of it is none: `' .. f[i] .. '`' })
    end
  end
  local due, damaged = call('ZSCORE', o .. ':due', s), {}
  return {
    s, tonumber(f[1] or 0), tonumber(f[2] or 0), f[3], f[8], due, tonumber(f[4] or 0), tonumber(f[5] or 0),
    answer(pending(o, s, 0, damaged)), f[6], tonumber(f[7] or 0), damaged, false, damage.of_session(o, s),
  }
end

register('sessions', function(keys, args)
  local o, take = keys[1], reader(args)
  local from, to, limit = take(), take(), take()
  local facts = {}
  for i, s in ipairs(call('ZRANGEBYLEX', o .. ':sessions', from, to, 'LIMIT', 0, limit)) do
    -- A damaged session keeps no other from being listed.
    local ok, found = pcall(session_facts, o, s)
    local why = not ok and (type(found) == 'table' and found.err or tostring(found))
    facts[i] = ok and found or { s, 0, 0, false, false, false, 0, 0, {}, false, 0, {}, why, {} }
  end
  return facts
end, { 'no-writes' })

register('mail', function(keys, args)
  local o, take = keys[1], reader(args)
  local s, limit = take(), tonumber(take())
  return { answer(pending(o, s, limit)) }
end, { 'no-writes' })
