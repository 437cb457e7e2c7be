-- How many sessions of an agent and of an owner run at once, and which wait.

-- Returns how many sessions have an unexpired lease, of an agent, or ('') of all agents of the owner.
local function running(o, now, agent)
  return call('ZCOUNT', o .. ':running:' .. agent, '(' .. text(now), '+inf')
end

-- Returns the rank of a session among waiting ones: -1 with an urgent task, 1 with only tasks of low priority, else 0.
-- The orders are those of src/domain/priority.rs.
local function rank_of(o, s)
  if #call('ZRANGEBYLEX', mailbox_key(o, s), '[25-', '(25.', 'LIMIT', 0, 1) > 0 then
    return -1
  end
  local first = call('ZRANGE', mailbox_key(o, s), 0, 0)[1]
  return first and string.sub(first, 1, 2) == '4-' and 1 or 0
end

-- Difference between the scores of two ranks.
local RANK = 2 ^ 51

-- Moves a waiting session to the place of its current tasks.
local function place_again(o, s)
  local queue = o .. ':waiting:' .. agent_of(s)
  local place = call('ZSCORE', queue, s)
  local moved = place and tonumber(place) % RANK + RANK * rank_of(o, s)
  if place and moved ~= tonumber(place) then
    call('ZADD', queue, text(moved), s)
  end
  return place
end

-- Joins the agent's queue, or keeps the place there.
local function wait(o, s)
  local agent = agent_of(s)
  if not place_again(o, s) then
    local number = call('HINCRBY', o .. ':count', 'waiting', 1)
    call('ZADD', o .. ':waiting:' .. agent, text(number + RANK * rank_of(o, s)), s)
    call('SADD', o .. ':waiting', agent)
  end
  call('HDEL', o .. ':woken', s)
  set_due(o, s, nil)
end

local function wait_no_more(o, s)
  local agent = agent_of(s)
  if call('ZREM', o .. ':waiting:' .. agent, s) == 1 then
    call('HDEL', o .. ':woken', s)
    if call('EXISTS', o .. ':waiting:' .. agent) == 0 then
      call('SREM', o .. ':waiting', agent)
      call('ZREM', o .. ':turns', agent)
    end
  end
end

-- Whether the agent has a slot: more urgent ones go first, then those that wait longer.
local function has_place(o, now, s, agent, concurrency)
  local queue = o .. ':waiting:' .. agent
  local free = concurrency - running(o, now, agent)
  local before = call('ZRANK', queue, s)
  if not before then
    before = call('EXISTS', queue) == 1 and call('ZCOUNT', queue, '-inf', '(' .. text(RANK * (rank_of(o, s) + 1))) or 0
  end
  return before < free
end

-- If the owner has a cap, agents that have a free slot but wait for one of their owner take turns, so that no agent
-- starves the others.

-- Sets the owner's cap, 0 = none: the last lease request counts.
local function set_cap(o, cap)
  if call('HGET', o .. ':count', 'cap') ~= cap then
    call('HSET', o .. ':count', 'cap', cap)
    -- Other sessions may get a slot by the new cap.
    look_at(0)
  end
end

-- Returns the slots that the cap leaves free; nil without a cap.
local function free_of_owner(o, now)
  local cap = tonumber(call('HGET', o .. ':count', 'cap') or 0)
  if cap > 0 then
    return cap - running(o, now, '')
  end
end

-- Whether a waiting session was woken less than `again` ago, or its wake is unpublished: time alone adds no second one.
-- `woken` is its field there, or false.
local function is_on_its_way(o, now, woken, again)
  local told, id = string.match(woken or '', '^(%d+) ?(.*)$')
  return told and (tonumber(told) + again > now or again > 0 and call('HEXISTS', o .. ':outbox', id) == 1)
end

-- Returns how many slots are reserved for woken sessions.
local function promised(o, now, again)
  local slots = 0
  for _, woken in ipairs(call('HVALS', o .. ':woken')) do
    if is_on_its_way(o, now, woken, again) then
      slots = slots + 1
    end
  end
  return slots
end

-- Whether the owner has a slot: woken sessions go first, then those that wait.
local function has_turn(o, now, s)
  local free = free_of_owner(o, now)
  if not free or free < 1 then
    return not free
  end
  local is_told = call('HEXISTS', o .. ':woken', s) == 1
  return is_told or call('EXISTS', o .. ':turns') == 0 and promised(o, now, LOOK_AGAIN_MS) < free
end

-- Queues the agent for a slot of its owner, behind the others, unless it is queued.
local function take_turn(o, agent)
  if not call('ZSCORE', o .. ':turns', agent) then
    call('ZADD', o .. ':turns', call('HINCRBY', o .. ':count', 'turn', 1), agent)
  end
end

-- Removes the lease.
local function run_no_more(o, s)
  note_gone(o, s, 'until', 'token', 'worker', 'served', 'job', 'limit')
  call('ZREM', o .. ':running:' .. agent_of(s), s)
  call('ZREM', o .. ':running:', s)
end

-- Extends the lease to `ends`; the holder waits for no slot.
local function hold_until(o, s, ends)
  note(o, s, 'until', text(ends))
  call('ZADD', o .. ':running:' .. agent_of(s), ends, s)
  call('ZADD', o .. ':running:', ends, s)
  set_due(o, s, ends)
  wait_no_more(o, s)
end
