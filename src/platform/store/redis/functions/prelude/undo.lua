-- A call that fails changes nothing: its writes are undone before its error is returned.

-- What undoes the writes of the running call, each a command with its arguments; deleted keys are kept under other
-- names until the end of the call.
local undone, moved

-- Arguments that one command takes, within Lua's stack.
local PART = 1000

-- Notes for each name what `back` returns for it and its current value by `read`; false if it is absent.
local function restore(read, key, names, back)
  for from = 1, #names, PART do
    local last = math.min(from + PART - 1, #names)
    for i, old in ipairs(redis.call(read, key, unpack(names, from, last))) do
      undone[#undone + 1] = back(names[from + i - 1], old)
    end
  end
end

local function restore_hash(key, fields)
  restore('HMGET', key, fields, function(field, old)
    return old and { 'HSET', key, field, old } or { 'HDEL', key, field }
  end)
end

local function restore_zset(key, members)
  restore('ZMSCORE', key, members, function(member, old)
    return old and { 'ZADD', key, old, member } or { 'ZREM', key, member }
  end)
end

local function every_second(list, from)
  local found = {}
  for i = from, #list, 2 do
    found[#found + 1] = list[i]
  end
  return found
end

-- By command: notes what undoes it. A command that isn't in this table only reads.
local BEFORE = {
  HSET = function(key, ...)
    restore_hash(key, every_second({ ... }, 1))
  end,
  HDEL = function(key, ...)
    restore_hash(key, { ... })
  end,
  HINCRBY = function(key, field)
    restore_hash(key, { field })
  end,
  ZADD = function(key, ...)
    local list = { ... }
    restore_zset(key, every_second(list, tonumber(list[1]) and 2 or 3))
  end,
  ZREM = function(key, ...)
    restore_zset(key, { ... })
  end,
  ZREMRANGEBYSCORE = function(key, from, to)
    restore_zset(key, redis.call('ZRANGEBYSCORE', key, from, to))
  end,
  SADD = function(key, member)
    undone[#undone + 1] = redis.call('SISMEMBER', key, member) == 0 and { 'SREM', key, member } or nil
  end,
  SREM = function(key, member)
    undone[#undone + 1] = redis.call('SISMEMBER', key, member) == 1 and { 'SADD', key, member } or nil
  end,
  DEL = function(...)
    for _, key in ipairs({ ... }) do
      if redis.call('EXISTS', key) == 1 then
        redis.call('RENAME', key, key .. '\0')
        moved[#moved + 1] = key .. '\0'
        undone[#undone + 1] = { 'RENAME', key .. '\0', key }
      end
    end
  end,
  INCR = function() end,
}

-- `redis.call` doesn't exist yet while the library loads.
local function call(command, ...)
  local before = BEFORE[command]
  if before then
    before(...)
  end
  return redis.call(command, ...)
end

local function begin_undo()
  undone, moved = {}, {}
end

local function undo()
  for i = #undone, 1, -1 do
    redis.pcall(unpack(undone[i]))
  end
end

-- Drops the kept keys; nothing can fail any more.
local function end_undo()
  if #moved > 0 then
    redis.call('DEL', unpack(moved))
  end
end
