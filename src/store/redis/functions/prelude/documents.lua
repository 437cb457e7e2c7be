-- Versioned documents.

-- Version (0 = never written) and value (false = none).
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

local function doc(o, key)
  return decode(call('HGET', o .. ':doc', key))
end

-- As an owner is that was never written to, or whose server was emptied.
local function is_empty(o)
  return call('EXISTS', o .. ':keys') == 0
end

-- `version` and `old` are what `doc` says of the key.
local function put_after(o, key, version, old, value)
  weigh(o, 'd' .. key, old and #value - #old or #key + #value)
  call('HSET', o .. ':doc', key, text(version + 1) .. ' ' .. value)
  if not old then
    call('ZADD', o .. ':keys', 0, key)
    if version > 0 then
      call('ZREM', o .. ':gone', key)
    end
  end
end

local function put(o, key, value)
  local version, old = doc(o, key)
  put_after(o, key, version, old, value)
end

local function delete(o, now, key)
  local version, old = doc(o, key)
  if old then
    weigh(o, 'd' .. key, -#key - #old)
    call('HSET', o .. ':doc', key, text(version + 1))
    call('ZREM', o .. ':keys', key)
    call('ZADD', o .. ':gone', now, key)
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

-- {key, actual version} of every write whose condition does not hold.
local function conflicts(o, writes)
  local found = {}
  for _, write in ipairs(writes) do
    if write[2] ~= '' then
      local version = doc(o, write[1])
      if version ~= tonumber(write[2]) then
        found[#found + 1] = { write[1], version }
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
