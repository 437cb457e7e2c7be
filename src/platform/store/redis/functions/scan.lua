-- Returns present documents between two bounds in ZRANGEBYLEX notation.

register('scan', function(keys, args)
  local o, take = keys[1], reader(args)
  local from, to, reverse, limit = take(), take(), take() == '1', take()
  local found
  if reverse then
    found = call('ZREVRANGEBYLEX', o .. ':keys', to, from, 'LIMIT', 0, limit)
  else
    found = call('ZRANGEBYLEX', o .. ':keys', from, to, 'LIMIT', 0, limit)
  end
  local docs = {}
  read_ahead(o, found)
  for i, key in ipairs(found) do
    local version, value = doc(o, key)
    -- A damaged document is listed as an empty one.
    docs[i] = { key, version or 0, value or false }
  end
  return docs
end, { 'no-writes' })
