-- Helpers of all functions. The layout of every key is in ../../keyspace.rs.
-- `o` is the base key of an owner, `s` a session token, `now` milliseconds since the epoch.

-- Time after which a session with a new event, or a woken one, is due again.
local LOOK_AGAIN_MS = 5000
-- Time until the next sweep of an owner whose due work was left to the caller.
local LOOK_SOON_MS = 200
-- Time for which a deleted document keeps its version.
local TOMBSTONE_MS = 86400000
local GRANT_BYTES = 1048576

local STATUSES = {
  PENDING = true, STARTED = true, PAUSED = true, INPUT_REQUIRED = true, AUTH_REQUIRED = true,
  COMPLETE = true, FAILED = true, CANCELLED = true, REJECTED = true,
}
local TERMINAL = { COMPLETE = true, FAILED = true, CANCELLED = true, REJECTED = true }

-- tostring() of large numbers gives `1.7e+12`.
local function text(number)
  return string.format('%.0f', number)
end

-- What the running call has added to the weight of its owner; see `weigh`.
local growth

-- Latest time of the owner's next sweep, for what the running call made due; see `look_at`.
local look

-- Notes that the owner must be swept at this time or before.
local function look_at(at)
  look = math.min(look or at, at)
end

-- Returns the key of the shard's owners by the time of their next sweep, and the owner's name in it.
local function looks(o)
  local shard, owner = string.match(o, '^(.-}):(.*)$')
  return shard .. ':due', owner
end

-- Every call begins and ends with these, which later files define. `end_call` checks what it is going to write, notes
-- the time of the next sweep, and returns the function that writes: after it nothing can fail.
local begin_call, end_call

-- Runs a call, all or nothing: its changes are written at its end, after everything that can fail.
local function whole_call(callback, keys, args)
  growth, look = nil, nil
  begin_call()
  local answer = callback(keys, args)
  local write_all = end_call(keys[1])
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
  write_all()
  return answer
end

-- `after_failure` is called when all writes of a failed call are undone.
local function register(name, callback, flags, after_failure)
  local function counted(keys, args)
    begin_undo()
    local ok, answer = pcall(whole_call, callback, keys, args)
    if not ok then
      undo()
      if after_failure then
        after_failure(keys, args)
      end
      -- The driver can't decode bytes that aren't text, and would take them for a broken connection.
      if type(answer) == 'table' and answer.err then
        answer.err = string.gsub(answer.err, '[^\32-\126]', '?')
      elseif type(answer) == 'string' then
        answer = string.gsub(answer, '[^\32-\126]', '?')
      end
      error(answer)
    end
    end_undo()
    return answer
  end
  redis.register_function { function_name = LIBRARY .. '_' .. name, callback = counted, flags = flags }
end

-- Returns a function that returns the arguments one after the other.
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

-- Reads a count and then that many items.
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
