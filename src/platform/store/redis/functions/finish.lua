-- Ends a job from outside its turn.

-- Returns the places of the job's task and of the messages to it.
local function entries_of(o, s, job)
  local members = {}
  for _, entry in ipairs(pending(o, s, 0)) do
    if entry[2] ~= 'r' and entry[3] == job then
      members[#members + 1] = entry[1]
    end
  end
  return members
end

register('finish', function(keys, args)
  local o, take = keys[1], reader(args)
  local now, known, s = clock(take()), take() == '1', take()
  if known and is_empty(o) then
    return { 'unregistered' }
  end
  local finish, open, outbox = take_finish(take), list(take, take_job), list(take, take_entry)
  local status = job_status(o, finish[1])
  if status and TERMINAL[status] then
    return { 'already', status }
  elseif not status and #open == 0 then
    return { 'unknown' }
  end
  for _, job in ipairs(open) do
    describe_job(o, now, job)
  end
  finish_job(o, now, finish)
  send(o, now, outbox)
  -- A job of an external worker has no task here: its result will be an event of its own.
  local tasks = entries_of(o, s, finish[1])
  if #tasks > 0 then
    if number(o, s, 'until') > now then
      note(o, s, 'nudged', '1')
    else
      drop(o, s, tasks)
    end
    note_gone(o, s, 'backoff')
    set_due(o, s, now)
  end
  return { 'done' }
end, { 'allow-oom' })

-- Pauses an open job, or resumes a paused one.
register('set_job_paused', function(keys, args)
  local o, take = keys[1], reader(args)
  local now, s, job, pause = clock(take()), take(), take(), take() == '1'
  local _, line = doc(o, 'j/' .. job .. '/s')
  if not line then
    return { 'unknown' }
  end
  local status = string.match(line, '^%S+')
  if TERMINAL[status] or pause == (status == 'PAUSED') then
    return { 'already', status }
  elseif pause then
    put(o, 'j/' .. job .. '/s', 'PAUSED ' .. text(now) .. ' ' .. status)
    return { 'done' }
  end
  put(o, 'j/' .. job .. '/s', (string.match(line, '^%S+ %S+ (%S+)$') or 'PENDING') .. ' ' .. text(now))
  if number(o, s, 'until') > now then
    -- A held session is due again at the end of its lease.
    note(o, s, 'nudged', '1')
  elseif call('ZCARD', mailbox_key(o, s)) > 0 and not call('ZSCORE', o .. ':waiting:' .. agent_of(s), s) then
    set_due(o, s, now)
  end
  return { 'done' }
end, { 'allow-oom' })
