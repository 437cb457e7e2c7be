-- The keys and the record of a session, and its mailbox.

local function mailbox_key(o, s)
  return o .. ':mailbox:' .. s
end

local function event_key(o, s)
  return o .. ':event:' .. s
end

local function crash_key(o, s)
  return o .. ':crash:' .. s
end

local function call_key(o, s)
  return o .. ':call:' .. s
end

local function agent_of(s)
  return string.match(s, '^[^/]+')
end

-- Outside, `order|id`; inside, NUL sorts below whatever an order contains.
local function place(key)
  return (string.gsub(key, '|', '\0', 1))
end

local function unplace(member)
  return (string.gsub(member, '%z', '|', 1))
end

local function gate_key(agent)
  return 'g/' .. agent .. '/gate'
end

-- Status, concurrency, mailbox limit, busy policy; nothing without a gate, nor, with
-- `lenient`, with a damaged one.
local function gate(o, agent, lenient)
  local _, line = doc(o, gate_key(agent))
  if not line then
    return nil
  end
  local status, concurrency, mailbox, busy = string.match(line, '^(%u+) (%d+) (%d+) (%l+)$')
  if not status and not lenient then
    error({ err = 'CORRUPT gate of agent ' .. agent })
  end
  return status, tonumber(concurrency), tonumber(mailbox), busy
end

-- Documents that a turn stands on.
local function stands_on(s)
  return { gate_key(agent_of(s)), 'policy', 'erasures' }
end

-- Versions of what a turn stands on: the agent's gate, the owner's policy, the mark of its erasures.
local function ground(o, s)
  read_ahead(o, stands_on(s))
  local gate, line = doc(o, gate_key(agent_of(s)))
  return { line and gate or 0, (doc(o, 'policy')), (doc(o, 'erasures')) }
end

-- {member, kind, job or false, job's status or false, crashes, body}; nothing of one that can't be read.
local function mail_entry(o, s, member, raw)
  local kind, job, rest = string.match(raw or '', '^(%l) (%S+) ()')
  if not kind or job ~= '-' and not (#job == 32 and string.match(job, '^%x+$')) then
    return nil
  end
  job = job ~= '-' and job
  local crashes = tonumber(call('HGET', crash_key(o, s), member) or 0)
  return { member, kind, job, job and job_status(o, job), crashes, string.sub(raw, rest) }
end

-- What the order of the first task may begin with: `HIGH` of src/domain/priority.rs.
local TASKS = '25-'

-- A task is always among them, however much lies before it that only it may see: the one that was begun, else the first.
local function task_first(o, s, entries, limit)
  local first, at
  for i, entry in ipairs(entries) do
    first = first or entry[2] == 't' and i
  end
  local task = fact(o, s, 'task')
  if not task and not first then
    task = call('ZRANGEBYLEX', mailbox_key(o, s), '[' .. TASKS, '+', 'LIMIT', 0, 1)[1]
  end
  for i, entry in ipairs(entries) do
    at = entry[1] == task and i or at
  end
  if not task or at and at == first then
    return entries
  end
  local raw = not at and call('HGET', event_key(o, s), task)
  local entry = at and table.remove(entries, at) or raw and mail_entry(o, s, task, raw)
  if entry then
    if limit == 0 then
      entry[6] = ''
    elseif #entries >= limit then
      table.remove(entries)
    end
    table.insert(entries, math.min(first or #entries + 1, #entries + 1), entry)
  end
  return entries
end

-- The first pending events, and none behind GRANT_BYTES of them. 0 = all, without their bodies: those of a thousand
-- would be a gigabyte in here. Those that can't be read are left out, and come to `damaged`, where that is given.
local function pending(o, s, limit, damaged)
  local entries, bytes = {}, 0
  local members = call('ZRANGE', mailbox_key(o, s), 0, limit - 1)
  for _, member in ipairs(members) do
    if bytes >= GRANT_BYTES then
      break
    end
    local entry = mail_entry(o, s, member, call('HGET', event_key(o, s), member))
    if not entry then
      if damaged then
        damaged[#damaged + 1] = member
      end
    else
      if limit == 0 then
        entry[6] = ''
      end
      entries[#entries + 1] = entry
      bytes = bytes + #entry[6]
    end
  end
  return task_first(o, s, entries, limit)
end

-- What goes out: places as the caller writes them.
local function answer(entries)
  for _, entry in ipairs(entries) do
    entry[1] = unplace(entry[1])
  end
  return entries
end

-- What a session remembers and what waits for it.
local function weight_of(o, s)
  local weight = call('HSTRLEN', session_key(o, s), 'state')
  for _, member in ipairs(call('HKEYS', event_key(o, s))) do
    weight = weight + call('HSTRLEN', event_key(o, s), member)
  end
  return weight
end

local function weigh_state(o, s, state)
  weigh(o, 's' .. s, #state - call('HSTRLEN', session_key(o, s), 'state'))
end

-- How many of these members were there.
local function drop(o, s, members)
  local dropped, begun = 0, fact(o, s, 'task')
  for _, member in ipairs(members) do
    if member == begun then
      note(o, s, 'task', false)
    end
    if call('ZREM', mailbox_key(o, s), member) == 1 then
      weigh(o, 's' .. s, -call('HSTRLEN', event_key(o, s), member))
      call('HDEL', event_key(o, s), member)
      call('HDEL', crash_key(o, s), member)
      dropped = dropped + 1
    end
  end
  if dropped > 0 then
    note(o, s, 'consumed', text(number(o, s, 'consumed') + dropped))
  end
  return dropped
end

-- The holder serves the first task and all other events: remembers them, for crash counting.
local function serve(o, now, s, entries)
  local served, task = {}, nil
  for _, entry in ipairs(entries) do
    local first = entry[2] == 't' and not task
    task = first and entry or task
    -- A paused one is served by nobody, and so are those behind it.
    if entry[2] ~= 't' or first and entry[4] ~= 'PAUSED' then
      served[#served + 1] = entry[1]
    end
  end
  task = task and task[4] ~= 'PAUSED' and task
  if task and task[4] == 'PENDING' then
    set_status(o, now, task[3], 'STARTED')
    task[4] = 'STARTED'
  end
  note(o, s, 'served', table.concat(served, '\n'))
  note(o, s, 'job', task and task[3] or '')
  if task then
    note(o, s, 'task', task[1])
  end
  note_gone(o, s, 'nudged')
end

-- The lease of this epoch is there, neither taken by another nor given back.
local function holds(o, s, epoch)
  return fact(o, s, 'epoch') == epoch and fact(o, s, 'until') and true
end

-- Ended from outside: cancelled, or completed or failed for the turn that serves it.
local function is_cancelled(o, job)
  return job and job ~= '' and TERMINAL[job_status(o, job) or ''] or false
end

-- What a holder is told that serves this job.
local function still_held(o, job)
  return { 'yes', is_cancelled(o, job) and 1 or 0, (doc(o, 'policy')) }
end

local function set_due(o, s, at)
  if at then
    look_at(tonumber(at))
    call('ZADD', o .. ':due', at, s)
  else
    call('ZREM', o .. ':due', s)
  end
end
