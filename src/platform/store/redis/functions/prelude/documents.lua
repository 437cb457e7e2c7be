-- Versioned documents of an owner.

-- Returns version (0 = never written) and value (false = none).
local function decode(raw)
  if not raw then
    return 0, false
  end
  local gap = string.find(raw, ' ', 1, true)
  if not gap then
    return tonumber(raw), false
  end
  return tonumber(string.sub(raw, 1, gap - 1)), string.sub(raw, gap + 1)
end

-- What the running call knows of documents, by key: {version, value}, and which of them it has changed: {key, version
-- and whether there was one before it, when}. They are written at its end, in few commands; nothing else in this call
-- reads their keys directly.
local pages, changed

-- Runs a command with these arguments, in parts that fit on Lua's stack.
local function in_parts(command, key, list)
  for from = 1, #list, PART do
    call(command, key, unpack(list, from, math.min(from + PART - 1, #list)))
  end
end

-- Runs a write that can't fail and needs no undoing, in such parts.
local function write_parts(command, key, list)
  for from = 1, #list, PART do
    redis.call(command, key, unpack(list, from, math.min(from + PART - 1, #list)))
  end
end

-- Reads documents that will be needed, in one command.
local function read_ahead(o, wanted)
  local unknown = {}
  for _, key in ipairs(wanted) do
    unknown[#unknown + 1] = not pages[key] and key or nil
  end
  for from = 1, #unknown, PART do
    local last = math.min(from + PART - 1, #unknown)
    for i, raw in ipairs(call('HMGET', o .. ':doc', unpack(unknown, from, last))) do
      pages[unknown[from + i - 1]] = { decode(raw) }
    end
  end
end

local function doc(o, key)
  local page = pages[key]
  if not page then
    page = { decode(call('HGET', o .. ':doc', key)) }
    pages[key] = page
  end
  return page[1], page[2]
end

-- Whether the owner has no documents: it was never written to, or its server was emptied.
local function is_empty(o)
  return call('EXISTS', o .. ':keys') == 0
end

local function change(key, version, old, now, page)
  if not changed[key] then
    changed[#changed + 1] = key
    changed[key] = { version, old and true }
  end
  changed[key][3] = now
  pages[key] = page
end

-- Returns when the document with this key makes the owner due: the time in its key, or 0; nil if it doesn't.
local function marked_for(key)
  local prefix, rest = string.match(key, '^([^/]*/)(.*)$')
  local kind = prefix and SWEPT[prefix]
  return kind and tonumber(kind == 'timed' and string.match(rest, '^(%d+)-') or 0)
end

-- Rebuilds an index that became a key of another type: with the venue's own documents, all work would stop.
local function check_index(o, name)
  local size = redis.pcall('ZCARD', o .. name)
  if type(size) ~= 'table' or not size.err then
    return
  end
  call('DEL', o .. name)
  local all = name == ':keys' and call('HGETALL', o .. ':doc') or {}
  for i = 1, #all, 2 do
    if select(2, decode(all[i + 1])) then
      redis.call('ZADD', o .. name, 0, all[i])
    end
  end
end

-- Returns the function that writes the changed documents.
local function prepare_pages(o)
  local docs, new, back, left, gone = {}, {}, {}, {}, {}
  for _, key in ipairs(changed) do
    local page, before = pages[key], changed[key]
    docs[#docs + 1] = key
    docs[#docs + 1] = page[2] and text(page[1]) .. ' ' .. page[2] or text(page[1])
    if page[2] and not before[2] then
      new[#new + 1] = 0
      new[#new + 1] = key
      local at = marked_for(key)
      if at then
        look_at(at)
      end
      back[#back + 1] = before[1] > 0 and key or nil
    elseif not page[2] then
      left[#left + 1] = before[2] and key or nil
      gone[#gone + 1] = before[3]
      gone[#gone + 1] = key
      look_at(before[3] + TOMBSTONE_MS + 1)
    end
  end
  pages, changed = {}, {}
  if #docs > 0 then
    -- A key of another type fails here.
    call('HLEN', o .. ':doc')
    check_index(o, ':keys')
    check_index(o, ':gone')
  end
  return function()
    write_parts('HSET', o .. ':doc', docs)
    write_parts('ZADD', o .. ':keys', new)
    write_parts('ZREM', o .. ':gone', back)
    write_parts('ZREM', o .. ':keys', left)
    write_parts('ZADD', o .. ':gone', gone)
  end
end

begin_call = function()
  pages, changed = {}, {}
end

end_call = prepare_pages

-- `version` and `old` are what `doc` returns for the key.
local function put_after(o, key, version, old, value)
  weigh(o, 'd' .. key, old and #value - #old or #key + #value)
  -- A damaged document has no version.
  change(key, version or 0, old, nil, { (version or 0) + 1, value })
end

local function put(o, key, value)
  local version, old = doc(o, key)
  put_after(o, key, version, old, value)
end

local function delete(o, now, key)
  local version, old = doc(o, key)
  if old then
    weigh(o, 'd' .. key, -#key - #old)
    change(key, version or 0, old, now, { (version or 0) + 1, false })
  end
end

-- {key, expected version or '' for any, 'p' | 'd' | 'c', bytes of a 'p'}
local function take_write(take)
  local write = { take(), take(), take() }
  if write[3] == 'p' then
    write[4] = take()
  end
  return write
end

-- Returns the keys that the writes read, without unconditional deletions: these may be many, and are read one by one.
local function of_writes(writes)
  local wanted = {}
  for _, write in ipairs(writes) do
    wanted[#wanted + 1] = not (write[3] == 'd' and write[2] == '') and write[1] or nil
  end
  return wanted
end

-- Returns {key, actual version} of every write whose condition does not hold.
local function conflicts(o, writes)
  local found = {}
  for _, write in ipairs(writes) do
    if write[2] ~= '' then
      local version = doc(o, write[1])
      if version ~= tonumber(write[2]) then
        found[#found + 1] = { write[1], version or 0 }
      end
    end
  end
  return found
end

local function apply(o, now, writes)
  for _, write in ipairs(writes) do
    if write[3] == 'p' then
      put(o, write[1], write[4])
    elseif write[3] == 'd' then
      delete(o, now, write[1])
    end
  end
end
