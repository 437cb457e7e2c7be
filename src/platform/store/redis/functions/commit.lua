-- The one atomic write of a turn.

local function take_commit(take)
  return {
    turn = take(),
    consume = list(take, function(t)
      return place(t())
    end),
    writes = list(take, take_write), status = take() == '1' and { take(), take() },
    finish = list(take, take_finish), outbox = list(take, take_entry), state = take(), unless_cancelled = optional(take), after = take_after(take),
  }
end

-- Returns the documents that the commit will read, as far as they are known before.
local function of_commit(s, c)
  local wanted = stands_on(s)
  for _, key in ipairs(of_writes(c.writes)) do
    wanted[#wanted + 1] = key
  end
  for _, finish in ipairs(c.finish) do
    add_job(wanted, finish[1])
  end
  if c.status then
    add_job(wanted, c.status[1])
  end
  return wanted
end

local function record(o, now, s, epoch, c)
  drop(o, s, c.consume)
  apply(o, now, c.writes)
  if c.status then
    serve_job(o, now, c.status[1], c.status[2])
  end
  for _, finish in ipairs(c.finish) do
    finish_job(o, now, finish)
  end
  send(o, now, c.outbox)
  weigh_state(o, s, c.state)
  note(o, s, 'version', c.turn)
  note(o, s, 'state', c.state)
  note(o, s, 'done', epoch .. ' ' .. c.turn)
  note(o, s, 'touched', text(now))
  note(o, s, 'reply', false)
  note_gone(o, s, 'attempts', 'charged', 'calls')
  call('DEL', call_key(o, s), crash_key(o, s))
end

register('commit', function(keys, args)
  local o, take = keys[1], reader(args)
  local now, s, epoch = clock(take()), take(), take()
  local c = take_commit(take)
  local is_held = holds(o, s, epoch)
  if fact(o, s, 'done') == epoch .. ' ' .. c.turn then
    return { 'done', is_held and held(o, now, s) or RELEASED_BEFORE }
  elseif not is_held or tonumber(c.turn) ~= number(o, s, 'version') + 1 then
    return { 'fenced' }
  end
  read_ahead(o, of_commit(s, c))
  if is_cancelled(o, c.unless_cancelled) then
    return { 'cancelled' }
  end
  local found = conflicts(o, c.writes)
  if #found > 0 then
    return { 'conflict', found }
  end
  record(o, now, s, epoch, c)
  local onward = after(o, now, s, c.after)
  gates_changed(o, now, c.writes)
  return { 'done', onward }
end, { 'allow-oom' })
