-- A recount of what an owner keeps: of its documents, then of its sessions.

-- Limits of one step of a recount.
local RECOUNT_DOCUMENTS = 1000
local RECOUNT_BYTES = 4194304
local RECOUNT_SESSIONS = 50

-- Runs one step of a recount, which begins if there is none; returns whether everything is counted.
local function recount_on(o)
  local counted = call('HGET', o .. ':count', 'counted') or ''
  local is_of_sessions, last = string.sub(counted, 1, 1) == 's', string.sub(counted, 2)
  local from, tally = last == '' and '-' or '(' .. last, 0
  local found
  if is_of_sessions then
    found = call('ZRANGEBYLEX', o .. ':sessions', from, '+', 'LIMIT', 0, RECOUNT_SESSIONS)
    for _, s in ipairs(found) do
      counted, tally = 's' .. s, tally + weight_of(o, s)
    end
  else
    found = call('ZRANGEBYLEX', o .. ':keys', from, '+', 'LIMIT', 0, RECOUNT_DOCUMENTS)
    for _, key in ipairs(found) do
      local version, value = doc(o, key)
      if not version or not value then
        error({ err = 'CORRUPT document `' .. key .. '` is listed, and gone or damaged' })
      end
      counted, tally = 'd' .. key, tally + #key + #value
      if tally >= RECOUNT_BYTES then
        break
      end
    end
    counted = #found > 0 and counted or 's'
  end
  call('HSET', o .. ':count', 'counted', counted)
  call('HINCRBY', o .. ':count', 'tally', text(tally))
  return is_of_sessions and #found == 0
end

-- Ends a recount and returns its bytes; they are stored if there was no count before, or with `mend`.
local function end_recount(o, mend)
  local f = call('HMGET', o .. ':count', 'bytes', 'tally')
  if mend or not f[1] then
    call('HSET', o .. ':count', 'bytes', f[2])
  end
  call('HDEL', o .. ':count', 'counted', 'tally')
  return tonumber(f[2])
end
