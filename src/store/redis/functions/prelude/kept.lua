-- What an owner keeps, and how that is counted.

-- Bytewise, as sorted sets are; `<=` of Lua follows the server's language.
local function is_up_to(place, last)
  for i = 1, math.min(#place, #last) do
    local a, b = string.byte(place, i), string.byte(last, i)
    if a ~= b then
      return a < b
    end
  end
  return #place <= #last
end

local function keeps_nothing(o)
  return call('EXISTS', o .. ':keys', o .. ':sessions') == 0
end

-- The bytes of documents with their keys, of states and of events are counted; before what has them
-- is changed, and once per call written down. `place` is `d<document key>` or `s<session>`: a recount goes
-- along these, and what lies where it has been counts for it, too.
local function weigh(o, place, delta)
  if not growth then
    local key = o .. ':count'
    local f = redis.pcall('HMGET', key, 'bytes', 'counted')
    -- Counts that are damaged are made anew by a sweep: the work of all goes by those of the venue.
    if f.err then
      call('DEL', key)
      f = { false, false }
      look_at(0)
    elseif f[1] and not string.match(f[1], '^%-?%d+$') then
      call('HDEL', key, 'bytes')
      f[1] = false
      look_at(0)
    end
    growth = { key = key, known = f[1], counted = f[2], bytes = 0, tally = 0 }
    -- What was kept before anybody counted, a sweep counts.
    if not f[1] and keeps_nothing(o) then
      call('HSET', key, 'bytes', 0)
      growth.known = true
    end
  end
  growth.bytes = growth.bytes + delta
  if growth.counted and is_up_to(place, growth.counted) then
    growth.tally = growth.tally + delta
  end
end

-- Documents, bytes, sessions, jobs.
local function usage(o)
  local f = call('HMGET', o .. ':count', 'bytes', 'tally')
  local bytes = math.max(0, tonumber(f[1] or f[2] or 0))
  return { call('ZCARD', o .. ':keys'), bytes, call('ZCARD', o .. ':sessions'), call('ZLEXCOUNT', o .. ':keys', '[l/', '(l0') }
end
