-- The outbox.

-- {id, message}
local function take_entry(take)
  return { take(), take() }
end

-- `at` is when somebody last had them at hand. One that is there already stays as it is.
local function send(o, at, entries)
  for _, entry in ipairs(entries) do
    if call('HEXISTS', o .. ':outbox', entry[1]) == 0 then
      local nth = call('HINCRBY', o .. ':count', 'outbox', 1)
      call('HSET', o .. ':outbox', entry[1], text(nth) .. ' ' .. entry[2])
      call('ZADD', o .. ':relay', at, entry[1])
    end
  end
end

-- {number of the entry, id, message}
local function unpack_entry(id, raw)
  local nth, rest = string.match(raw, '^(%d+) ()')
  return { tonumber(nth), id, string.sub(raw, rest) }
end
