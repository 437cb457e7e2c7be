-- Returns the number of documents between two bounds in ZRANGEBYLEX notation, and a page of them.

register('page', function(keys, args)
  local o, take = keys[1], reader(args)
  local from, to, reverse, values, skip, limit = take(), take(), take() == '1', take() == '1', take(), take()
  local found
  if reverse then
    found = call('ZREVRANGEBYLEX', o .. ':keys', to, from, 'LIMIT', skip, limit)
  else
    found = call('ZRANGEBYLEX', o .. ':keys', from, to, 'LIMIT', skip, limit)
  end
  local docs = {}
  read_ahead(o, values and found or {})
  for i, key in ipairs(found) do
    if values then
      local version, value = doc(o, key)
      docs[i] = { key, version or 0, value or false }
    else
      docs[i] = { key }
    end
  end
  return { call('ZLEXCOUNT', o .. ':keys', from, to), docs }
end, { 'no-writes' })
