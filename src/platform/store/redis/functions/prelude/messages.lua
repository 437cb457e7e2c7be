-- The outbox of an owner.

-- {id, message}
local function take_entry(take)
  return { take(), take() }
end

-- Adds entries that their holder had at `at`; one that is there already stays as it is.
local function send(o, at, entries)
  local fresh, seen = {}, {}
  for _, entry in ipairs(entries) do
    if not seen[entry[1]] and call('HEXISTS', o .. ':outbox', entry[1]) == 0 then
      fresh[#fresh + 1] = entry
    end
    seen[entry[1]] = true
  end
  if #fresh == 0 then
    return
  end
  local nth = call('HINCRBY', o .. ':count', 'outbox', #fresh) - #fresh
  local messages, places = {}, {}
  for i, entry in ipairs(fresh) do
    messages[#messages + 1] = entry[1]
    messages[#messages + 1] = text(nth + i) .. ' ' .. entry[2]
    places[#places + 1] = at
    places[#places + 1] = entry[1]
  end
  look_at(at == 0 and 0 or at + LOOK_AGAIN_MS)
  in_parts('HSET', o .. ':outbox', messages)
  in_parts('ZADD', o .. ':relay', places)
end

-- {number of the entry, id, message}; a damaged one has the number 0.
local function unpack_entry(id, raw)
  local nth, rest = string.match(raw, '^(%d+) ()')
  return { tonumber(nth or 0), id, string.sub(raw, rest or 1) }
end
