-- The usage of an owner, and how it is counted.

-- Compares bytewise, as sorted sets do; `<=` of Lua follows the server's locale.
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

-- Counts the bytes of documents with their keys, of states and of events; called before they change, and written once
-- per call. `place` is `d<document key>` or `s<session>`: a recount advances along these places, and a change behind
-- its position counts for the recount, too.
local function weigh(o, place, delta)
  if not growth then
    local key = o .. ':count'
    local f = redis.pcall('HMGET', key, 'bytes', 'counted')
    -- Damaged counts are rebuilt by a sweep: those of the venue's own owner would stop all work.
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
    -- A sweep counts what was written by builds without counters.
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

-- {documents, bytes, sessions, jobs}
local function usage(o)
  local f = call('HMGET', o .. ':count', 'bytes', 'tally')
  local bytes = math.max(0, tonumber(f[1] or f[2] or 0))
  return { call('ZCARD', o .. ':keys'), bytes, call('ZCARD', o .. ':sessions'), call('ZLEXCOUNT', o .. ':keys', '[l/', '(l0') }
end
