-- How many sessions of an agent and of an owner run at once, and who waits.

-- Sessions with an unexpired lease, of an agent, or of all of the owner's ('').
local function running(o, now, agent)
  return call('ZCOUNT', o .. ':running:' .. agent, '(' .. text(now), '+inf')
end

-- Where its tasks place a session among those that wait: before the others with an urgent one (-1),
-- behind them with none but tasks of low priority. The orders are those of src/domain/priority.rs.
local function rank_of(o, s)
  if #call('ZRANGEBYLEX', mailbox_key(o, s), '[25-', '(25.', 'LIMIT', 0, 1) > 0 then
    return -1
  end
  local first = call('ZRANGE', mailbox_key(o, s), 0, 0)[1]
  return first and string.sub(first, 1, 2) == '4-' and 1 or 0
end

-- Scores of one rank are so far from those of the next.
local RANK = 2 ^ 51

-- One that waits has the place of its tasks of now.
local function place_again(o, s)
  local queue = o .. ':waiting:' .. agent_of(s)
  local place = call('ZSCORE', queue, s)
  local moved = place and tonumber(place) % RANK + RANK * rank_of(o, s)
  if place and moved ~= tonumber(place) then
    call('ZADD', queue, text(moved), s)
  end
  return place
end

-- Joins the agent's queue, or keeps its place there.
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

-- Whether the agent has a slot: more urgent ones go first, then those who wait longer.
local function has_place(o, now, s, agent, concurrency)
  local queue = o .. ':waiting:' .. agent
  local free = concurrency - running(o, now, agent)
  local before = call('ZRANK', queue, s)
  if not before then
    before = call('EXISTS', queue) == 1 and call('ZCOUNT', queue, '-inf', '(' .. text(RANK * (rank_of(o, s) + 1))) or 0
  end
  return before < free
end

-- Where the owner has a cap, agents that have a slot and none of their owner take turns, so that no
-- agent keeps the others waiting.

-- 0 = none: the last who asked for a lease is right.
local function set_cap(o, cap)
  if call('HGET', o .. ':count', 'cap') ~= cap then
    call('HSET', o .. ':count', 'cap', cap)
    -- Others may have a slot by it.
    look_at(0)
  end
end

-- Slots that the cap leaves free; nothing without a cap.
local function free_of_owner(o, now)
  local cap = tonumber(call('HGET', o .. ':count', 'cap') or 0)
  if cap > 0 then
    return cap - running(o, now, '')
  end
end

-- Whether a waiting session was told to come less than `again` ago, or its wake lies unpublished:
-- time alone makes no second one. `woken` is its field there, or false.
local function is_on_its_way(o, now, woken, again)
  local told, id = string.match(woken or '', '^(%d+) ?(.*)$')
  return told and (tonumber(told) + again > now or again > 0 and call('HEXISTS', o .. ':outbox', id) == 1)
end

-- Slots that sessions are on their way for.
local function promised(o, now, again)
  local slots = 0
  for _, woken in ipairs(call('HVALS', o .. ':woken')) do
    if is_on_its_way(o, now, woken, again) then
      slots = slots + 1
    end
  end
  return slots
end

-- Whether the owner has a slot: those told to come go first, then those who wait.
local function has_turn(o, now, s)
  local free = free_of_owner(o, now)
  if not free or free < 1 then
    return not free
  end
  local is_told = call('HEXISTS', o .. ':woken', s) == 1
  return is_told or call('EXISTS', o .. ':turns') == 0 and promised(o, now, LOOK_AGAIN_MS) < free
end

-- Behind those who wait, or where it is already.
local function take_turn(o, agent)
  if not call('ZSCORE', o .. ':turns', agent) then
    call('ZADD', o .. ':turns', call('HINCRBY', o .. ':count', 'turn', 1), agent)
  end
end

-- Nobody has it.
local function run_no_more(o, s)
  note_gone(o, s, 'until', 'token', 'worker', 'served', 'job', 'limit')
  call('ZREM', o .. ':running:' .. agent_of(s), s)
  call('ZREM', o .. ':running:', s)
end

-- The holder has it until then, and waits for no slot.
local function hold_until(o, s, ends)
  note(o, s, 'until', text(ends))
  call('ZADD', o .. ':running:' .. agent_of(s), ends, s)
  call('ZADD', o .. ':running:', ends, s)
  set_due(o, s, ends)
  wait_no_more(o, s)
end
