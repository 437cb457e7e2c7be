-- Helpers of all functions. The layout of every key is in ../../keyspace.rs.
-- `o` is the base key of an owner, `s` a session token, `now` milliseconds since the epoch.

-- `redis.call` is not there yet while the library loads.
local function call(...)
  return redis.call(...)
end

-- A session with a new event, or one that was woken, is looked at again after this.
local LOOK_AGAIN_MS = 5000
-- What a sweep found due and left to its caller is looked for again after this.
local LOOK_SOON_MS = 200
-- Version of a deleted document is kept so long.
local TOMBSTONE_MS = 86400000
local GRANT_BYTES = 1048576

local TERMINAL = { COMPLETE = true, FAILED = true, CANCELLED = true, REJECTED = true }

-- tostring() of large numbers is `1.7e+12`.
local function text(number)
  return string.format('%.0f', number)
end

-- What the call that runs has added to the weight of its owner; see `weigh`.
local growth

-- When somebody must look at the owner at the latest, for what the call that runs made due; see `look_at`.
local look

-- A sweep looks at the owner at this time, or before.
local function look_at(at)
  look = math.min(look or at, at)
end

-- The shard's owners, by when they are looked at, and the owner's name in there.
local function looks(o)
  local shard, owner = string.match(o, '^(.-}):(.*)$')
  return shard .. ':due', owner
end

-- Every call begins and ends with what later files say.
local begin_call, end_call

local function register(name, callback, flags)
  local function counted(keys, args)
    growth, look = nil, nil
    begin_call()
    local ok, answer = pcall(callback, keys, args)
    -- After a mistake, too: what was changed before it stands in other keys already.
    end_call(keys[1])
    if growth and growth.known and growth.bytes ~= 0 then
      call('HINCRBY', growth.key, 'bytes', text(growth.bytes))
    end
    if growth and growth.tally ~= 0 then
      call('HINCRBY', growth.key, 'tally', text(growth.tally))
    end
    if look then
      local due, owner = looks(keys[1])
      call('ZADD', due, 'LT', text(look), owner)
    end
    if not ok then
      error(answer)
    end
    return answer
  end
  redis.register_function { function_name = LIBRARY .. '_' .. name, callback = counted, flags = flags }
end

-- Arguments one after the other.
local function reader(args)
  local at = 0
  return function()
    at = at + 1
    return args[at]
  end
end

local function optional(take)
  if take() == '1' then
    return take()
  end
  return false
end

-- A count, then so many items.
local function list(take, item)
  local all = {}
  for i = 1, tonumber(take()) do
    all[i] = item(take)
  end
  return all
end

local function clock(given)
  if given ~= '' then
    return tonumber(given)
  end
  local t = call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
