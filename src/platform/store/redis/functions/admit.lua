-- Deduplication, checks, the append and the lease. `grant` is the same for a wake, which may run at the memory limit.

local function take_event(take)
  return {
    id = take(), hash = take(), kind = take(), job = optional(take), order = take(), body = take(),
    open = list(take, take_job), finish = list(take, take_finish), outbox = list(take, take_entry),
    quota = take_quota(take), asks_way = take() == '1',
  }
end

local function is_busy(o, s)
  for _, entry in ipairs(pending(o, s, 0)) do
    if entry[2] == 't' and not (entry[4] and TERMINAL[entry[4]]) then
      return true
    end
  end
  return false
end

-- Returns the refusal if the event exceeds its owner's quota: the same as `NewEvent::adds` in src/platform/store/types.rs.
local function event_over(o, s, event)
  local bytes = #event.body
  for _, job in ipairs(event.open) do
    bytes = bytes + #job[2]
  end
  local sessions = call('ZSCORE', o .. ':sessions', s) and 0 or 1
  local documents = event.kind == 'r' and 0 or math.max(1, 3 * #event.open)
  return over(o, event.quota, { documents, bytes, sessions, #event.open })
end

-- Returns why the event is not appended, or nil.
local function refusal(o, s, g, event)
  local seen = call('HGET', o .. ':seen', event.id)
  if seen then
    return { seen == event.hash and 'duplicate' or 'conflict' }
  end
  for _, finish in ipairs(event.finish) do
    if TERMINAL[job_status(o, finish[1])] then
      return { 'duplicate' }
    end
  end
  if not g.status then
    return { 'unknown' }
  elseif g.status == 'TERMINATED' then
    return { 'terminated' }
  elseif event.kind == 't' and g.busy == 'replace' and event.asks_way then
    return { 'replaces' }
  elseif event.kind == 't' and g.busy == 'reject' and is_busy(o, s) then
    return { 'busy' }
  elseif event.kind ~= 'r' and call('ZCARD', mailbox_key(o, s)) >= g.mailbox then
    return { 'full', g.mailbox }
  elseif event.quota then
    return event_over(o, s, event)
  end
end

local function append(o, now, s, event)
  local member = event.order .. '\0' .. event.id
  local entry = event.kind .. ' ' .. (event.job or '-') .. ' ' .. event.body
  weigh(o, 's' .. s, #entry - call('HSTRLEN', event_key(o, s), member))
  call('HSET', o .. ':seen', event.id, event.hash)
  call('ZADD', o .. ':sessions', 0, s)
  call('ZADD', mailbox_key(o, s), 0, member)
  call('HSET', event_key(o, s), member, entry)
  note(o, s, 'touched', text(now))
  note(o, s, 'arrivals', text(number(o, s, 'arrivals') + 1))
  place_again(o, s)
  for _, job in ipairs(event.open) do
    open_job(o, now, job)
  end
  for _, finish in ipairs(event.finish) do
    finish_job(o, now, finish)
  end
  send(o, now, event.outbox)
end

-- Counts a crash of the holder whose lease lapsed unreleased, for each event that it served.
local function count_crash(o, s, served)
  for member in string.gmatch(served, '[^\n]+') do
    if call('ZSCORE', mailbox_key(o, s), member) then
      call('HINCRBY', crash_key(o, s), member, 1)
    end
  end
end

-- Records the holder of the lapsed lease; the last `kept` records stay until the next commit.
local function note_crash(o, s, kept)
  local job, lines = fact(o, s, 'job'), {}
  job = job and job ~= '' and job or '-'
  for line in string.gmatch(fact(o, s, 'attempts') or '', '[^\n]+') do
    lines[#lines + 1] = line
  end
  local worker = string.gsub(fact(o, s, 'worker'), '\n', ' ')
  local epoch, turn, lapsed = fact(o, s, 'epoch'), text(number(o, s, 'version') + 1), fact(o, s, 'until')
  lines[#lines + 1] = table.concat({ epoch, turn, lapsed, job, worker }, ' ')
  if #lines > kept then
    table.remove(lines, 1)
  end
  note(o, s, 'attempts', table.concat(lines, '\n'))
end

-- The same words as `verdict` in src/domain/dead.rs, without the quotes of JSON.
local function verdict(o, s, job, crashes)
  local names, said = {}, 'its worker died ' .. crashes .. ' times while serving it'
  for line in string.gmatch(fact(o, s, 'attempts') or '', '[^\n]+') do
    local served, worker = string.match(line, '^%d+ %d+ %d+ (%S+) (.*)$')
    if served == job then
      names[#names + 1] = '`' .. worker .. '`'
    end
  end
  if #names > 0 then
    said = said .. ': ' .. (#names < crashes and '…, ' or '') .. table.concat(names, ', ')
  end
  return string.sub(cjson.encode(said), 2, -2)
end

local function bury(o, now, s, entries, limit, dead)
  for _, entry in ipairs(entries) do
    if entry[2] == 't' then
      if entry[4] == 'PAUSED' then
        return
      end
      if entry[5] > 0 and entry[5] >= limit and entry[3] and not TERMINAL[entry[4]] then
        local said = verdict(o, s, entry[3], entry[5])
        local result = string.gsub(dead, '{verdict}', function() return said end)
        finish_job(o, now, { entry[3], 'FAILED', result })
        entry[4] = 'FAILED'
      end
      return
    end
  end
end

-- Returns everything that the holder needs.
local function hand_out(o, now, s, lease, entries)
  serve(o, now, s, entries)
  local ends = now + lease.ttl
  hold_until(o, s, ends)
  local f = call('HMGET', session_key(o, s), 'state', 'reply')
  local calls = call('HGETALL', call_key(o, s))
  if #calls / 2 < number(o, s, 'calls') then
    -- `LOST_CALLS` of src/platform/store/types.rs.
    calls[#calls + 1] = '4294967294'
    calls[#calls + 1] = ''
  end
  return {
    'run', number(o, s, 'epoch'), ends, versions(o, s), number(o, s, 'version'), fact(o, s, 'done') or '', f[1], f[2], calls,
    answer(entries),
    number(o, s, 'arrivals'), fact(o, s, 'attempts') or '',
  }
end

local function grant(o, now, s, lease, crashed)
  if crashed then
    count_crash(o, s, crashed)
    note(o, s, 'charged', text(number(o, s, 'epoch')) .. '\n' .. crashed)
    note_crash(o, s, lease.attempts)
  end
  local entries = pending(o, s, lease.mailbox_limit)
  bury(o, now, s, entries, lease.crash_limit, lease.dead)
  local before = fact(o, s, 'epoch') or call('HGET', o .. ':count', 'epoch') or 0
  -- The epoch contains the time, so that a store that was set back gives no one the epoch of a forgotten holder.
  note(o, s, 'epoch', text(math.max(now, tonumber(before) + 1)))
  note(o, s, 'token', lease.token)
  note(o, s, 'worker', lease.worker)
  note(o, s, 'limit', text(lease.mailbox_limit))
  note_gone(o, s, 'backoff')
  return hand_out(o, now, s, lease, entries)
end

local function take_lease(take)
  if take() == '0' then
    return nil
  end
  return {
    token = take(), worker = take(), ttl = tonumber(take()), mailbox_limit = tonumber(take()),
    crash_limit = tonumber(take()), dead = take(), attempts = tonumber(take()), owner_cap = take(),
  }
end

-- Nothing to do: the session leaves the queue and is not due. A lapsed lease is kept while there is mail: its crash
-- still counts.
local function rest(o, now, s)
  local agent = agent_of(s)
  local waited = call('ZSCORE', o .. ':waiting:' .. agent, s)
  if call('ZCARD', mailbox_key(o, s)) == 0 then
    run_no_more(o, s)
  end
  note_gone(o, s, 'backoff')
  set_due(o, s, nil)
  wait_no_more(o, s)
  if waited then
    -- The session was woken for a slot that it doesn't need; another session may take it.
    wake_waiting(o, now, agent, LOOK_AGAIN_MS)
  end
  return { 'empty' }
end

local function try(o, now, s, g, lease)
  local ends, backoff = fact(o, s, 'until'), fact(o, s, 'backoff')
  if ends and fact(o, s, 'token') == lease.token then
    -- The holder repeats a call whose answer was lost.
    return hand_out(o, now, s, lease, pending(o, s, tonumber(fact(o, s, 'limit'))))
  elseif ends and tonumber(ends) > now then
    return { 'lease', tonumber(ends) }
  end
  local agent = agent_of(s)
  if not g.status or g.status == 'TERMINATED' or call('ZCARD', mailbox_key(o, s)) == 0 then
    return rest(o, now, s)
  elseif g.status == 'SUSPENDED' then
    wait(o, s)
    return { 'suspended' }
  elseif backoff and tonumber(backoff) > now then
    return { 'backoff', tonumber(backoff) }
  end
  set_cap(o, lease.owner_cap)
  if not has_place(o, now, s, agent, g.concurrency) then
    local was_told = call('HEXISTS', o .. ':woken', s) == 1
    wait(o, s)
    if was_told then
      -- A more urgent session came in between: it is woken instead.
      wake_waiting(o, now, agent, LOOK_AGAIN_MS)
    end
    return { 'waiting' }
  elseif not has_turn(o, now, s) then
    wait(o, s)
    take_turn(o, agent)
    return { 'waiting' }
  end
  call('ZREMRANGEBYSCORE', o .. ':running:' .. agent, '-inf', text(now))
  call('ZREMRANGEBYSCORE', o .. ':running:', '-inf', text(now))
  return grant(o, now, s, lease, ends and (fact(o, s, 'served') or ''))
end

-- Sets the due time, unless the end of a lease, of a backoff or of a wait in a queue does.
local function look_soon(o, now, s)
  local leased, backing_off = number(o, s, 'until') > now, number(o, s, 'backoff') > now
  if not leased and not backing_off and not call('ZSCORE', o .. ':waiting:' .. agent_of(s), s) then
    look_at(now + LOOK_AGAIN_MS)
    call('ZADD', o .. ':due', 'LT', now + LOOK_AGAIN_MS, s)
  end
end

local function admit(keys, args)
  local o, take = keys[1], reader(args)
  local now, s = clock(take()), take()
  local event = take() == '1' and take_event(take)
  local lease = take_lease(take)
  local wanted = stands_on(s)
  for _, job in ipairs(event and event.open or {}) do
    add_job(wanted, job[1])
  end
  for _, finish in ipairs(event and event.finish or {}) do
    add_job(wanted, finish[1])
  end
  wanted[#wanted + 1] = event and event.quota and 'quota' or nil
  read_ahead(o, wanted)
  local g = {}
  g.status, g.concurrency, g.mailbox, g.busy = gate(o, agent_of(s))
  local intake = { 'nothing' }
  if event then
    intake = refusal(o, s, g, event) or { 'new' }
  end
  if intake[1] == 'new' then
    append(o, now, s, event)
    -- A requested lease sets the due time itself, whatever its outcome.
    if not lease then
      look_soon(o, now, s)
    end
  elseif intake[1] ~= 'nothing' and intake[1] ~= 'duplicate' then
    return { intake, { 'none' } }
  end
  return { intake, lease and try(o, now, s, g, lease) or { 'none' } }
end

register('admit', admit, {})
register('grant', admit, { 'allow-oom' })
