-- The sweep: one owner's overdue work.

local function purge(o, now, limit)
  local old = call('ZRANGEBYSCORE', o .. ':gone', '-inf', '(' .. text(now - TOMBSTONE_MS), 'LIMIT', 0, limit)
  for _, key in ipairs(old) do
    call('HDEL', o .. ':doc', key)
    call('ZREM', o .. ':gone', key)
  end
end

-- Returns members of a zset up to `last`, at most `limit`, moved on to `next`; and whether there are more.
local function overdue(key, last, next, limit)
  local found = call('ZRANGEBYSCORE', key, '-inf', text(last), 'LIMIT', 0, limit + 1)
  local more = #found > limit
  if more then
    found[#found] = nil
  end
  for _, member in ipairs(found) do
    call('ZADD', key, next, member)
  end
  return found, more
end

local function messages(o, ids)
  local entries = {}
  for _, id in ipairs(ids) do
    local raw = call('HGET', o .. ':outbox', id)
    entries[#entries + 1] = raw and unpack_entry(id, raw) or nil
  end
  table.sort(entries, function(a, b)
    return a[1] < b[1]
  end)
  return entries
end

-- Runs a step of the first count of an owner; returns whether there is more.
local function count_old(o)
  if call('HEXISTS', o .. ':count', 'bytes') == 1 or keeps_nothing(o) then
    return false
  end
  local is_done = recount_on(o)
  if is_done then
    end_recount(o)
  end
  return not is_done
end

local function first_score(key)
  return tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
end

-- Returns the time of the owner's next sweep, or false: whatever becomes due sets its own time.
local function next_look(o, now, grace, more, first)
  local times = { more and now or nil }
  local function by(at)
    times[#times + 1] = at
  end
  by(first_score(o .. ':due'))
  local relay, gone = first_score(o .. ':relay'), first_score(o .. ':gone')
  by(relay and relay + grace)
  by(gone and gone + TOMBSTONE_MS + 1)
  -- Woken sessions that didn't come are woken again.
  by(call('EXISTS', o .. ':woken') == 1 and now + grace or nil)
  for _, key in ipairs(first) do
    local at = key and marked_for(key)
    -- Due work is done after this sweep; the next one checks that it was.
    by(at and (at > now and at or now + LOOK_SOON_MS) or nil)
  end
  return #times > 0 and math.min(unpack(times))
end

local function set_look(o, at)
  local due, owner = looks(o)
  if at then
    call('ZADD', due, text(at), owner)
  else
    call('ZREM', due, owner)
  end
  look = nil
end

-- Adds messages that are in the outbox but not in `relay` to `relay` again.
local function relay_again(o)
  if call('HLEN', o .. ':outbox') <= call('ZCARD', o .. ':relay') then
    return
  end
  for _, id in ipairs(call('HKEYS', o .. ':outbox')) do
    if not call('ZSCORE', o .. ':relay', id) then
      call('ZADD', o .. ':relay', 0, id)
    end
  end
end

local function sweep(o, take, args, now)
  local grace, limit = tonumber(take()), tonumber(take())
  local due, more_due = overdue(o .. ':due', now, now + grace, limit)
  -- Part of this answer: the sweep returns wakes without grace.
  wake_all(o, now, grace)
  relay_again(o)
  local ids, more_ids = overdue(o .. ':relay', now - grace, now, limit)
  purge(o, now, limit)
  local more = count_old(o) or more_due or more_ids
  -- The first document under each of `SWEPT` in src/platform/store/keys/marks.rs; most owners have none.
  local first = {}
  for i = 1, (#args - 3) / 2 do
    first[i] = call('ZRANGEBYLEX', o .. ':keys', take(), take(), 'LIMIT', 0, 1)[1] or false
  end
  local again = next_look(o, now, grace, more, first)
  set_look(o, again)
  return { due, messages(o, ids), more and 1 or 0, first, again and text(again) }
end

register('sweep', function(keys, args)
  local o, take = keys[1], reader(args)
  local now = clock(take())
  return sweep(o, take, args, now)
end, { 'allow-oom' }, function(keys, args)
  -- A damaged owner must not delay the others: it is swept after them.
  set_look(keys[1], clock(args[1]) + LOOK_SOON_MS)
end)
