-- Which waiting sessions are woken.

-- Returns the name in a token as a JSON string.
local function json_name(token)
  local name = string.gsub(token, '%%(%x%x)', function(hex)
    return string.char(tonumber(hex, 16))
  end)
  return '"' .. string.gsub(name, '["\\]', '\\%0') .. '"'
end

-- Adds a wake, {id, `Message` of src/domain/message.rs}, to the outbox. The next sweep returns it: a free slot can't
-- wait for the grace of a holder that may be dead.
local function send_wake(o, s)
  local _, owner = looks(o)
  local agent, name = string.match(s, '^(.-)/(.*)$')
  local to = '{"in":{"owner":' .. json_name(owner) .. ',"agent":' .. json_name(agent) .. ',"kind":"wake"}}'
  local id = 'wake-' .. s .. '-' .. text(call('HINCRBY', o .. ':count', 'wake', 1))
  local entry = { id, '{"to":' .. to .. ',"body":{"session":' .. json_name(name) .. '}}' }
  send(o, 0, { entry })
  return entry
end

-- Returns at most `limit` waiting sessions, in order, for which an agent has a slot and which have no recent wake.
local function untold(o, now, agent, again, limit)
  local found = {}
  if limit < 1 or call('EXISTS', o .. ':waiting:' .. agent) == 0 then
    return found
  end
  -- A damaged gate must not stop the call, whose writes before it would be undone.
  local status, concurrency = gate(o, agent, true)
  local free = status == 'ACTIVE' and concurrency - running(o, now, agent) or 0
  -- At most as many as were woken can be before those that weren't.
  local last = math.min(free, limit + call('HLEN', o .. ':woken')) - 1
  for _, s in ipairs(last >= 0 and call('ZRANGE', o .. ':waiting:' .. agent, 0, last) or {}) do
    if #found < limit and not is_on_its_way(o, now, call('HGET', o .. ':woken', s), again) then
      found[#found + 1] = s
    end
  end
  return found
end

-- Wakes a waiting session, which keeps its place until its lease is granted; returns the wake.
local function tell(o, now, s)
  local wake = send_wake(o, s)
  call('HSET', o .. ':woken', s, text(now) .. ' ' .. wake[1])
  return wake
end

-- Queues the agent for a slot of its owner, if one of its sessions waits without a wake.
local function offer(o, now, agent, again)
  if #untold(o, now, agent, again, 1) > 0 then
    take_turn(o, agent)
  end
end

-- Wakes sessions for the free slots of their owner: one of each agent, then again. Agents without another session leave
-- the queue, so that each step wakes a session or removes an agent.
local function take_turns(o, now, again, free)
  local wakes, left = {}, {}
  free = free > 0 and free - promised(o, now, again) or 0
  while #wakes < free do
    local agents = call('ZRANGE', o .. ':turns', 0, 63)
    if #agents == 0 then
      break
    end
    for _, agent in ipairs(agents) do
      if #wakes >= free then
        break
      end
      left[agent] = left[agent] or { at = 1, sessions = untold(o, now, agent, again, free - #wakes) }
      local mine = left[agent]
      call('ZREM', o .. ':turns', agent)
      if mine.sessions[mine.at] then
        wakes[#wakes + 1] = tell(o, now, mine.sessions[mine.at])
        mine.at = mine.at + 1
        if mine.sessions[mine.at] then
          take_turn(o, agent)
        end
      end
    end
  end
  return wakes
end

-- Wakes waiting sessions that have a free slot; returns the wakes.
local function wake_waiting(o, now, agent, again)
  local free = free_of_owner(o, now)
  if free then
    -- A session woken a moment ago has its slot already.
    again = math.max(again, LOOK_AGAIN_MS)
    offer(o, now, agent, again)
    return take_turns(o, now, again, free)
  end
  local wakes = {}
  for i, s in ipairs(untold(o, now, agent, again, math.huge)) do
    wakes[i] = tell(o, now, s)
  end
  return wakes
end

-- Wakes waiting sessions of all agents of the owner.
local function wake_all(o, now, again)
  local agents, free = call('SMEMBERS', o .. ':waiting'), free_of_owner(o, now)
  table.sort(agents)
  for _, agent in ipairs(agents) do
    if free then
      offer(o, now, agent, again)
    else
      wake_waiting(o, now, agent, again)
    end
  end
  if free then
    take_turns(o, now, again, free)
  end
end

-- Wakes sessions of agents that were resumed or given more slots.
local function gates_changed(o, now, writes)
  for _, write in ipairs(writes) do
    local agent = string.match(write[1], '^g/([^/]+)/gate$')
    if agent then
      wake_waiting(o, now, agent, 0)
    end
  end
end
