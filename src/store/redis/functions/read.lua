-- Documents by key.

register('read', function(keys, args)
  local docs = {}
  read_ahead(keys[1], args)
  for i, key in ipairs(args) do
    docs[i] = { doc(keys[1], key) }
  end
  return docs
end, { 'no-writes' })
