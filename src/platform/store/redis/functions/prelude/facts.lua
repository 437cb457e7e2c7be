-- What the running call knows of sessions, by token and field; its changes are written at its end, in few commands.
-- Only the list of sessions reads their records directly.

local function session_key(o, s)
  return o .. ':session:' .. s
end

-- Fields that are read together: all but the large ones.
local SMALL = {
  'epoch', 'version', 'arrivals', 'consumed', 'until', 'token', 'worker', 'served', 'job', 'limit', 'task', 'nudged',
  'backoff', 'attempts', 'charged', 'done', 'calls',
}

local facts, noted

local function facts_of(o, s)
  local known = facts[s]
  if not known then
    known = {}
    for i, value in ipairs(call('HMGET', session_key(o, s), unpack(SMALL))) do
      known[SMALL[i]] = value
    end
    facts[s] = known
  end
  return known
end

-- Returns a field as it is stored; false if it is absent.
local function fact(o, s, field)
  local known = facts_of(o, s)
  if known[field] == nil then
    known[field] = call('HGET', session_key(o, s), field)
  end
  return known[field]
end

local function number(o, s, field)
  return tonumber(fact(o, s, field) or 0)
end

-- Sets a field; false deletes it.
local function note(o, s, field, value)
  facts_of(o, s)[field] = value
  noted[s] = noted[s] or {}
  noted[s][field] = true
end

local function note_gone(o, s, ...)
  for _, field in ipairs({ ... }) do
    if fact(o, s, field) then
      note(o, s, field, false)
    end
  end
end

-- Drops what is known of a session whose record is deleted.
local function forget_facts(s)
  facts[s], noted[s] = nil, nil
end

local begin_documents, end_documents = begin_call, end_call

begin_call = function()
  begin_documents()
  facts, noted = {}, {}
end

end_call = function(o)
  local write_documents, records = end_documents(o), {}
  for s, fields in pairs(noted) do
    local set, gone = {}, {}
    for field in pairs(fields) do
      local value = facts[s][field]
      if value then
        set[#set + 1] = field
        set[#set + 1] = value
      else
        gone[#gone + 1] = field
      end
    end
    records[#records + 1] = { session_key(o, s), set, gone }
    -- A key of another type fails here.
    call('HLEN', session_key(o, s))
  end
  return function()
    write_documents()
    for _, record in ipairs(records) do
      write_parts('HSET', record[1], record[2])
      write_parts('HDEL', record[1], record[3])
    end
  end
end
