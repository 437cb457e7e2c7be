-- What is wrong with the records of an owner that no write of these functions causes, in words: for the audit. It is
-- all in one table, since there may be 200 locals in this scope.

local damage = {}

-- Types of an owner's keys, by what follows the owner's base.
damage.TYPES = {
  doc = 'hash', keys = 'zset', gone = 'zset', seen = 'hash', sessions = 'zset', due = 'zset', turns = 'zset',
  waiting = 'set', woken = 'hash', outbox = 'hash', relay = 'zset', count = 'hash', ['running:'] = 'zset',
}

damage.NUMBERS = { 'waiting', 'turn', 'wake', 'outbox', 'cap', 'epoch', 'bytes', 'tally' }

-- Appends a line if a key is of another type.
function damage.check_type(found, o, name, wanted)
  local is = call('TYPE', o .. ':' .. name).ok
  if is ~= 'none' and is ~= wanted then
    found[#found + 1] = 'the key `' .. name .. '` is a ' .. is .. ', not a ' .. wanted
  end
end

-- Calls `each` with the fields of a hash of documents, some at a time, and whether there is a value.
function damage.scan_documents(o, each)
  local cursor = '0'
  repeat
    local page = call('HSCAN', o .. ':doc', cursor, 'COUNT', 1000)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      each(page[2][i], select(2, decode(page[2][i + 1])) and true or false)
    end
  until cursor == '0'
end

-- Whether the indexes have fewer entries than there are documents, so that some can't be listed.
function damage.lacks_entries(o)
  return call('HLEN', o .. ':doc') > call('ZCARD', o .. ':keys') + call('ZCARD', o .. ':gone')
end

-- Appends a line if the index lacks documents.
function damage.check_entries(found, o)
  if not damage.lacks_entries(o) then
    return
  end
  local lacking, first = 0, nil
  damage.scan_documents(o, function(key, is_present)
    if is_present and not call('ZSCORE', o .. ':keys', key) then
      lacking, first = lacking + 1, first or key
    end
  end)
  if lacking > 0 then
    found[#found + 1] = 'the index `keys` lacks ' .. text(lacking) .. ' documents of `doc`, such as `' .. first .. '`'
  end
end

-- Adds the documents that the indexes lack to them; deleted ones keep their versions from now on.
function damage.rebuild_index(o)
  if not damage.lacks_entries(o) then
    return
  end
  local present, deleted, now = {}, {}, clock('')
  damage.scan_documents(o, function(key, is_present)
    local list = is_present and present or deleted
    list[#list + 1] = is_present and 0 or now
    list[#list + 1] = key
    if is_present then
      local at = marked_for(key)
      if at then
        look_at(at)
      end
    end
  end)
  for from = 1, #present, PART do
    redis.call('ZADD', o .. ':keys', unpack(present, from, math.min(from + PART - 1, #present)))
  end
  for from = 1, #deleted, PART do
    redis.call('ZADD', o .. ':gone', 'NX', unpack(deleted, from, math.min(from + PART - 1, #deleted)))
  end
end

-- Returns a line for each key of another type.
function damage.of_types(o)
  local found = {}
  for name, wanted in pairs(damage.TYPES) do
    damage.check_type(found, o, name, wanted)
  end
  return found
end

function damage.of_owner(o)
  local found = damage.of_types(o)
  if #found > 0 then
    return found
  end
  for _, field in ipairs(damage.NUMBERS) do
    local value = call('HGET', o .. ':count', field)
    if value and not string.match(value, '^%-?%d+$') then
      found[#found + 1] = 'the count `' .. field .. '` is no number'
    end
  end
  damage.check_entries(found, o)
  return found
end

-- Whether a text contains bytes that no name in a record has.
function damage.is_junk(value)
  return value and string.match(value, '[%c\192\193\254\255]') and true or false
end

-- Fields of the record that are numbers.
damage.SESSION_NUMBERS = { 'epoch', 'version', 'arrivals', 'consumed', 'touched', 'until', 'limit', 'backoff', 'calls' }

function damage.check_lease(found, o, s)
  if fact(o, s, 'until') then
    for _, field in ipairs({ 'epoch', 'token', 'worker', 'limit' }) do
      if not fact(o, s, field) then
        found[#found + 1] = 'it is held, and `' .. field .. '` of its record is gone'
      end
    end
  end
  for _, field in ipairs({ 'token', 'worker' }) do
    if damage.is_junk(fact(o, s, field)) then
      found[#found + 1] = '`' .. field .. '` of its record is damaged'
    end
  end
  local job = fact(o, s, 'job')
  if job and job ~= '' and not (#job == 32 and string.match(job, '^%x+$')) then
    found[#found + 1] = '`job` of its record is none'
  end
  for line in string.gmatch(fact(o, s, 'attempts') or '', '[^\n]+') do
    local of = string.match(line, '^%d+ %d+ %d+ (%S+) .+$')
    if damage.is_junk(line) or not of or of ~= '-' and #of ~= 32 then
      found[#found + 1] = '`attempts` of its record is damaged'
    end
  end
end

-- Checks what a predecessor of the next turn has recorded.
function damage.check_turn(found, o, s)
  local reply = fact(o, s, 'reply')
  if reply and not pcall(cjson.decode, reply) then
    found[#found + 1] = 'the reply that was recorded for its next turn is damaged'
  end
  local calls, is_any = call('HGETALL', call_key(o, s)), false
  for i = 1, #calls, 2 do
    -- The last index is of calls that failed before there was a reply.
    is_any = is_any or calls[i] ~= '4294967295'
    if not pcall(cjson.decode, calls[i + 1]) then
      found[#found + 1] = 'the record of a call of its next turn is damaged'
    end
  end
  -- Calls that wait for people were committed with their reply.
  if is_any and not reply and not string.find(fact(o, s, 'state') or '', '"awaiting":{', 1, true) then
    found[#found + 1] = 'the reply that was recorded for its next turn is gone'
  end
end

function damage.of_session(o, s)
  local found = {}
  for _, field in ipairs(damage.SESSION_NUMBERS) do
    local value = fact(o, s, field)
    if value and not string.match(value, '^%d+$') then
      found[#found + 1] = '`' .. field .. '` of its record is no number'
    end
  end
  for _, queue in ipairs({ 'running:', 'waiting:' }) do
    damage.check_type(found, o, queue .. agent_of(s), 'zset')
  end
  damage.check_lease(found, o, s)
  damage.check_turn(found, o, s)
  return found
end
