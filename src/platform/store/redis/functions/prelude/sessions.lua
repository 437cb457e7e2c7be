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

-- Callers write `order|id`; NUL in its place sorts below whatever an order contains.
local function place(key)
  return (string.gsub(key, '|', '\0', 1))
end

local function unplace(member)
  return (string.gsub(member, '%z', '|', 1))
end

local function gate_key(agent)
  return 'g/' .. agent .. '/gate'
end

-- Returns status, concurrency, mailbox limit and busy policy; nil without a gate and, with `lenient`, for a damaged
-- one.
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

-- Returns the keys of the documents that a turn depends on.
local function stands_on(s)
  return { gate_key(agent_of(s)), 'policy', 'policy.copy', 'erasures' }
end

-- Returns the version of the owner's policy, or of its copy if the policy is missing: then the copy is in force.
local function policy_version(o)
  local version = doc(o, 'policy')
  return version == 0 and (doc(o, 'policy.copy')) or version
end

-- Returns the versions that a turn depends on: the agent's gate, the owner's policy, the mark of its erasures.
local function versions(o, s)
  read_ahead(o, stands_on(s))
  local gate, line = doc(o, gate_key(agent_of(s)))
  return { line and gate or 0, policy_version(o), (doc(o, 'erasures')) }
end

-- {member, kind, job or false, job's status or false, crashes, body}; nil for a damaged entry.
local function mail_entry(o, s, member, raw)
  local kind, job, rest = string.match(raw or '', '^(%l) (%S+) ()')
  if not kind or job ~= '-' and not (#job == 32 and string.match(job, '^%x+$')) then
    return nil
  end
  job = job ~= '-' and job
  local crashes = tonumber(call('HGET', crash_key(o, s), member) or 0)
  return { member, kind, job, job and job_status(o, job), crashes, string.sub(raw, rest) }
end

-- Lowest start of the order of a task: `HIGH_PREFIX` of src/domain/priority.rs.
local TASKS = '25-'

-- Makes sure that the entries contain a task if there is one, however much is before it: the one that has begun, else
-- the first.
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

-- Returns the first pending events, up to GRANT_BYTES. 0 = all, without their bodies: those of a thousand could take a
-- gigabyte of Lua's memory. Damaged entries are left out, and added to `damaged` if it is given.
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

-- Returns entries with places as callers write them.
local function answer(entries)
  for _, entry in ipairs(entries) do
    entry[1] = unplace(entry[1])
  end
  return entries
end

-- Returns the bytes of a session's state and of its pending events.
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

-- Removes entries; returns how many of these members were there.
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

-- Records which events the holder serves, for the count of crashes: the first task and all other events.
local function serve(o, now, s, entries)
  local served, task = {}, nil
  for _, entry in ipairs(entries) do
    local first = entry[2] == 't' and not task
    task = first and entry or task
    -- A paused task is not served, and neither are the tasks behind it.
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

-- Whether the lease of this epoch exists, neither acquired by another worker nor released.
local function holds(o, s, epoch)
  return fact(o, s, 'epoch') == epoch and fact(o, s, 'until') and true
end

-- Whether the job was ended from outside: cancelled, completed or failed.
local function is_cancelled(o, job)
  return job and job ~= '' and TERMINAL[job_status(o, job) or ''] or false
end

-- Returns the check of a lease whose holder serves this job.
local function still_held(o, job)
  read_ahead(o, { 'policy', 'policy.copy' })
  return { 'yes', is_cancelled(o, job) and 1 or 0, policy_version(o) }
end

local function set_due(o, s, at)
  if at then
    look_at(tonumber(at))
    call('ZADD', o .. ':due', at, s)
  else
    call('ZREM', o .. ':due', s)
  end
end
