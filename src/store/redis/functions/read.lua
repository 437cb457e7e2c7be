-- Documents by key.

register('read', function(keys, args)
  local docs = {}
  for i, key in ipairs(args) do
    docs[i] = { doc(keys[1], key) }
  end
  return docs
end, { 'no-writes' })
