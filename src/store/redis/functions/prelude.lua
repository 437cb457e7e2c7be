-- Helpers of all functions. The layout of every key is in ../mod.rs.
-- `o` is the base key of an owner, `s` a session token, `now` milliseconds since the epoch.

-- `redis.call` is not there yet while the library loads.
local function call(...)
  return redis.call(...)
end

-- A session with a new event, or one that was woken, is looked at again after this.
local LOOK_AGAIN_MS = 5000
-- Version of a deleted document is kept so long.
local TOMBSTONE_MS = 86400000
local GRANT_BYTES = 1048576
-- Of one step of a recount.
local RECOUNT_DOCUMENTS = 1000
local RECOUNT_BYTES = 4194304
local RECOUNT_SESSIONS = 50

local TERMINAL = { COMPLETE = true, FAILED = true, CANCELLED = true, REJECTED = true }

-- tostring() of large numbers is `1.7e+12`.
local function text(number)
  return string.format('%.0f', number)
end

-- What the call that runs has added to the weight of its owner; see `weigh`.
local growth

local function register(name, callback, flags)
  local function counted(keys, args)
    growth = nil
    local answer = callback(keys, args)
    if growth and growth.known and growth.bytes ~= 0 then
      call('HINCRBY', growth.key, 'bytes', text(growth.bytes))
    end
    if growth and growth.tally ~= 0 then
      call('HINCRBY', growth.key, 'tally', text(growth.tally))
    end
    return answer
  end
  redis.register_function { function_name = LIBRARY .. '_' .. name, callback = counted, flags = flags }
end

-- Arguments one after the other.
local function reader(args)
  local at = 0
  return function()
    at = at + 1
    return args[at]
  end
end

local function optional(take)
  if take() == '1' then
    return take()
  end
  return false
end

-- A count, then so many items.
local function list(take, item)
  local all = {}
  for i = 1, tonumber(take()) do
    all[i] = item(take)
  end
  return all
end

local function clock(given)
  if given ~= '' then
    return tonumber(given)
  end
  local t = call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- What an owner keeps ---------------------------------------------------------------------------

-- Bytewise, as sorted sets are; `<=` of Lua follows the server's language.
local function is_up_to(place, last)
  for i = 1, math.min(#place, #last) do
    local a, b = string.byte(place, i), string.byte(last, i)
    if a ~= b then
      return a < b
    end
  end
  return #place <= #last
end

local function keeps_nothing(o)
  return call('EXISTS', o .. ':keys', o .. ':sessions') == 0
end

-- The bytes of documents with their keys, of states and of events are counted; before what has them
-- is changed, and once per call written down. `place` is `d<document key>` or `s<session>`: a recount goes
-- along these, and what lies where it has been counts for it, too.
local function weigh(o, place, delta)
  if not growth then
    local key = o .. ':count'
    local f = call('HMGET', key, 'bytes', 'counted')
    growth = { key = key, known = f[1], counted = f[2], bytes = 0, tally = 0 }
    -- What was kept before anybody counted, a sweep counts.
    if not f[1] and keeps_nothing(o) then
      call('HSET', key, 'bytes', 0)
      growth.known = true
    end
  end
  growth.bytes = growth.bytes + delta
  if growth.counted and is_up_to(place, growth.counted) then
    growth.tally = growth.tally + delta
  end
end

-- Documents, bytes, sessions, jobs.
local function usage(o)
  local f = call('HMGET', o .. ':count', 'bytes', 'tally')
  local bytes = math.max(0, tonumber(f[1] or f[2] or 0))
  return { call('ZCARD', o .. ':keys'), bytes, call('ZCARD', o .. ':sessions'), call('ZLEXCOUNT', o .. ':keys', '[l/', '(l0') }
end

-- Documents -------------------------------------------------------------------------------------

-- Version (0 = never written) and value (false = none).
local function decode(raw)
  if not raw then
    return 0, false
  end
  local gap = string.find(raw, ' ', 1, true)
  if not gap then
    return tonumber(raw), false
  end
  return tonumber(string.sub(raw, 1, gap - 1)), string.sub(raw, gap + 1)
end

local function doc(o, key)
  return decode(call('HGET', o .. ':doc', key))
end

-- As an owner is that was never written to, or whose server was emptied.
local function is_empty(o)
  return call('EXISTS', o .. ':keys') == 0
end

-- `version` and `old` are what `doc` says of the key.
local function put_after(o, key, version, old, value)
  weigh(o, 'd' .. key, old and #value - #old or #key + #value)
  call('HSET', o .. ':doc', key, text(version + 1) .. ' ' .. value)
  if not old then
    call('ZADD', o .. ':keys', 0, key)
    if version > 0 then
      call('ZREM', o .. ':gone', key)
    end
  end
end

local function put(o, key, value)
  local version, old = doc(o, key)
  put_after(o, key, version, old, value)
end

local function delete(o, now, key)
  local version, old = doc(o, key)
  if old then
    weigh(o, 'd' .. key, -#key - #old)
    call('HSET', o .. ':doc', key, text(version + 1))
    call('ZREM', o .. ':keys', key)
    call('ZADD', o .. ':gone', now, key)
  end
end

-- {key, expected version or '' for any, 'p' | 'd' | 'c', bytes of a 'p'}
local function take_write(take)
  local write = { take(), take(), take() }
  if write[3] == 'p' then
    write[4] = take()
  end
  return write
end

-- {key, actual version} of every write whose condition does not hold.
local function conflicts(o, writes)
  local found = {}
  for _, write in ipairs(writes) do
    if write[2] ~= '' then
      local version = doc(o, write[1])
      if version ~= tonumber(write[2]) then
        found[#found + 1] = { write[1], version }
      end
    end
  end
  return found
end

local function apply(o, now, writes)
  for _, write in ipairs(writes) do
    if write[3] == 'p' then
      put(o, write[1], write[4])
    elseif write[3] == 'd' then
      delete(o, now, write[1])
    end
  end
end

-- Quotas ----------------------------------------------------------------------------------------

-- {documents, bytes, sessions, jobs} that an owner may keep, 0 = any number; false: whatever it is.
local function take_quota(take)
  return take() == '1' and { tonumber(take()), tonumber(take()), tonumber(take()), tonumber(take()) }
end

-- {'over', which, used, added, allowed} when there is no room for so many more. What operators say of this
-- owner counts before the venue's.
local function over(o, quota, adds)
  local _, own = doc(o, 'quota')
  local at, used = 0, nil
  for word in string.gmatch(own or '', '%S+') do
    at = at + 1
    quota[at] = tonumber(word) or quota[at]
  end
  for kind = 1, 4 do
    if quota[kind] > 0 and adds[kind] > 0 then
      used = used or usage(o)
      if used[kind] + adds[kind] > quota[kind] then
        return { 'over', kind, used[kind], adds[kind], quota[kind] }
      end
    end
  end
end

-- What writes add to what is there; `fresh`: as if there were nothing, which is the most.
local function growth_of(o, writes, fresh)
  local sum = { 0, 0, 0, 0 }
  for _, write in ipairs(writes) do
    local key, new = write[1], write[4]
    local old = not fresh and write[3] ~= 'c' and select(2, doc(o, key))
    local number = (new and 1 or 0) - (old and 1 or 0)
    sum[1] = sum[1] + number
    sum[2] = sum[2] + (new and #key + #new or 0) - (old and #key + #old or 0)
    sum[4] = sum[4] + (string.sub(key, 1, 2) == 'l/' and number or 0)
  end
  return sum
end

-- The same as `over`, of writes.
local function writes_over(o, quota, writes)
  return over(o, quota, growth_of(o, writes, true)) and over(o, quota, growth_of(o, writes))
end

-- Jobs ------------------------------------------------------------------------------------------

-- {id, head}
local function take_job(take)
  return { take(), take(), take() }
end

-- {id, status, result}
local function take_finish(take)
  return { take(), take(), take() }
end

local function job_status(o, job)
  local _, value = doc(o, 'j/' .. job .. '/s')
  return value and string.match(value, '^%S+')
end

-- Unless `may` says no of the status before. Whether it did.
local function set_status(o, now, job, status, may)
  local key = 'j/' .. job .. '/s'
  local version, old = doc(o, key)
  if may and not may(old and string.match(old, '^%S+')) then
    return false
  end
  put_after(o, key, version, old, status .. ' ' .. text(now))
  return true
end

local function is_none(status)
  return not status
end

local function is_open(status)
  return not (status and TERMINAL[status])
end

-- Head and place in the list, unless it has them.
local function describe_job(o, now, job)
  local version, head = doc(o, 'j/' .. job[1])
  if not head then
    put_after(o, 'j/' .. job[1], version, head, job[2])
    put(o, 'l/' .. string.format('%016.0f', now) .. '-' .. job[1], '')
    if job[3] ~= '' then
      put(o, 'j/' .. job[3] .. '/c/' .. job[1], '')
    end
  end
end

local function open_job(o, now, job)
  describe_job(o, now, job)
  set_status(o, now, job[1], 'PENDING', is_none)
end

-- Unless it has ended.
local function finish_job(o, now, finish)
  if set_status(o, now, finish[1], finish[2], is_open) then
    put(o, 'j/' .. finish[1] .. '/r', finish[3])
  end
end

-- As a turn says it; of a paused one, that as which it goes on.
local function serve_job(o, now, job, status)
  local before = job_status(o, job)
  if before == 'PAUSED' then
    put(o, 'j/' .. job .. '/s', 'PAUSED ' .. text(now) .. ' ' .. status)
  elseif is_open(before) then
    set_status(o, now, job, status)
  end
end

-- Outbox ----------------------------------------------------------------------------------------

-- {id, message}
local function take_entry(take)
  return { take(), take() }
end

-- `at` is when somebody last had them at hand. One that is there already stays as it is.
local function send(o, at, entries)
  for _, entry in ipairs(entries) do
    if call('HEXISTS', o .. ':outbox', entry[1]) == 0 then
      local nth = call('HINCRBY', o .. ':count', 'outbox', 1)
      call('HSET', o .. ':outbox', entry[1], text(nth) .. ' ' .. entry[2])
      call('ZADD', o .. ':relay', at, entry[1])
    end
  end
end

-- {number of the entry, id, message}
local function unpack_entry(id, raw)
  local nth, rest = string.match(raw, '^(%d+) ()')
  return { tonumber(nth), id, string.sub(raw, rest) }
end

-- Sessions --------------------------------------------------------------------------------------

local function session_key(o, s)
  return o .. ':session:' .. s
end

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

-- Status, concurrency, mailbox limit, busy policy, version; nothing without a gate, nor, with
-- `lenient`, with a damaged one.
local function gate(o, agent, lenient)
  local version, line = doc(o, 'g/' .. agent .. '/gate')
  if not line then
    return nil
  end
  local status, concurrency, mailbox, busy = string.match(line, '^(%u+) (%d+) (%d+) (%l+)$')
  if not status and not lenient then
    error({ err = 'CORRUPT gate of agent ' .. agent })
  end
  return status, tonumber(concurrency), tonumber(mailbox), busy, version
end

-- {member, kind, job or false, job's status or false, crashes, body}
local function mail_entry(o, s, member, raw)
  local kind, job, rest = string.match(raw, '^(%l) (%S+) ()')
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
  local task = call('HGET', session_key(o, s), 'task')
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
-- would be a gigabyte in here.
local function pending(o, s, limit)
  local entries, bytes = {}, 0
  local members = call('ZRANGE', mailbox_key(o, s), 0, limit - 1)
  for i, member in ipairs(members) do
    if bytes >= GRANT_BYTES then
      break
    end
    entries[i] = mail_entry(o, s, member, call('HGET', event_key(o, s), member))
    if limit == 0 then
      entries[i][6] = ''
    end
    bytes = bytes + #entries[i][6]
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

-- One step of a recount, which is begun when there is none. Whether everything is counted.
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
      local _, value = doc(o, key)
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

-- What was found; it counts from now on where nothing was counted before, or it is to be mended.
local function end_recount(o, mend)
  local f = call('HMGET', o .. ':count', 'bytes', 'tally')
  if mend or not f[1] then
    call('HSET', o .. ':count', 'bytes', f[2])
  end
  call('HDEL', o .. ':count', 'counted', 'tally')
  return tonumber(f[2])
end

-- How many of these members were there.
local function drop(o, s, members)
  local dropped, begun = 0, call('HGET', session_key(o, s), 'task')
  for _, member in ipairs(members) do
    if member == begun then
      call('HDEL', session_key(o, s), 'task')
    end
    if call('ZREM', mailbox_key(o, s), member) == 1 then
      weigh(o, 's' .. s, -call('HSTRLEN', event_key(o, s), member))
      call('HDEL', event_key(o, s), member)
      call('HDEL', crash_key(o, s), member)
      dropped = dropped + 1
    end
  end
  if dropped > 0 then
    call('HINCRBY', session_key(o, s), 'consumed', dropped)
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
  call('HSET', session_key(o, s), 'served', table.concat(served, '\n'), 'job', task and task[3] or '')
  if task then
    call('HSET', session_key(o, s), 'task', task[1])
  end
  call('HDEL', session_key(o, s), 'nudged')
end

-- Of the answer to `HMGET … epoch until`: the lease of this epoch is there, neither taken by another nor given back.
local function is_holder(f, epoch)
  return f[1] == epoch and f[2] and true
end

local function holds(o, s, epoch)
  return is_holder(call('HMGET', session_key(o, s), 'epoch', 'until'), epoch)
end

-- Ended from outside: cancelled, or completed or failed for the turn that serves it.
local function is_cancelled(o, job)
  return job and job ~= '' and TERMINAL[job_status(o, job) or ''] or false
end

local function set_due(o, s, at)
  if at then
    call('ZADD', o .. ':due', at, s)
  else
    call('ZREM', o .. ':due', s)
  end
end

-- Capacity --------------------------------------------------------------------------------------

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

-- A token as the JSON string of what it names.
local function json_name(token)
  local name = string.gsub(token, '%%(%x%x)', function(hex)
    return string.char(tonumber(hex, 16))
  end)
  return '"' .. string.gsub(name, '["\\]', '\\%0') .. '"'
end

-- {id, `Message` of `src/bus/mod.rs`}. The next sweep hands it out: a free slot can't wait for the
-- grace of a holder who may be gone.
local function send_wake(o, s)
  local owner, agent, name = string.match(o, '{(.*)}$'), string.match(s, '^(.-)/(.*)$')
  local to = '{"in":{"owner":' .. json_name(owner) .. ',"agent":' .. json_name(agent) .. ',"kind":"wake"}}'
  local id = 'wake-' .. s .. '-' .. text(call('HINCRBY', o .. ':count', 'wake', 1))
  local entry = { id, '{"to":' .. to .. ',"body":{"session":' .. json_name(name) .. '}}' }
  send(o, 0, { entry })
  return entry
end

-- Nobody has it.
local function run_no_more(o, s)
  call('HDEL', session_key(o, s), 'until', 'token', 'worker', 'served', 'job', 'limit')
  call('ZREM', o .. ':running:' .. agent_of(s), s)
  call('ZREM', o .. ':running:', s)
end

-- The holder has it until then, and waits for no slot.
local function hold_until(o, s, ends)
  call('HSET', session_key(o, s), 'until', text(ends))
  call('ZADD', o .. ':running:' .. agent_of(s), ends, s)
  call('ZADD', o .. ':running:', ends, s)
  set_due(o, s, ends)
  wait_no_more(o, s)
end

-- At most `limit` waiting sessions for which an agent has a slot and which aren't on their way, in order.
local function untold(o, now, agent, again, limit)
  local found = {}
  if limit < 1 or call('EXISTS', o .. ':waiting:' .. agent) == 0 then
    return found
  end
  -- Nothing that was written before may stay half done because of it.
  local status, concurrency = gate(o, agent, true)
  local free = status == 'ACTIVE' and concurrency - running(o, now, agent) or 0
  -- No more than were told can stand before those that weren't.
  local last = math.min(free, limit + call('HLEN', o .. ':woken')) - 1
  for _, s in ipairs(last >= 0 and call('ZRANGE', o .. ':waiting:' .. agent, 0, last) or {}) do
    if #found < limit and not is_on_its_way(o, now, call('HGET', o .. ':woken', s), again) then
      found[#found + 1] = s
    end
  end
  return found
end

-- Tells a waiting session to come; it keeps its place until it is granted. Its wake.
local function tell(o, now, s)
  local wake = send_wake(o, s)
  call('HSET', o .. ':woken', s, text(now) .. ' ' .. wake[1])
  return wake
end

-- The agent waits for a slot of its owner, if a session of it does that could come.
local function offer(o, now, agent, again)
  if #untold(o, now, agent, again, 1) > 0 then
    take_turn(o, agent)
  end
end

-- Tells sessions to come for the free slots of their owner: one of each agent, then again. Agents
-- without another one leave, so that each look tells somebody or is the last at its agent.
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

-- Wakes waiting sessions for which there is room. The wakes made.
local function wake_waiting(o, now, agent, again)
  local free = free_of_owner(o, now)
  if free then
    -- Who was told a moment ago has its slot already.
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

-- The same for all agents of the owner.
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

-- Resumed, or given more slots.
local function gates_changed(o, now, writes)
  for _, write in ipairs(writes) do
    local agent = string.match(write[1], '^g/([^/]+)/gate$')
    if agent then
      wake_waiting(o, now, agent, 0)
    end
  end
end

-- Giving a lease back ---------------------------------------------------------------------------

-- Asked once more: the wakes of that time went out with the first answer, or are the sweep's.
local RELEASED_BEFORE = { 'released', {} }

-- {'keep'} or {'release', arrivals, due or false, backoff}
local function take_after(take)
  local kind = take()
  if kind == 'keep' then
    return { kind }
  end
  return { kind, tonumber(take()), optional(take), take() == '1' }
end

local function held(o, now, s)
  local f = call('HMGET', session_key(o, s), 'arrivals', 'limit')
  local entries = pending(o, s, tonumber(f[2]))
  serve(o, now, s, entries)
  return { 'held', answer(entries), tonumber(f[1] or 0) }
end

-- {'released', wakes} or {'held', mailbox, arrivals}
local function after(o, now, s, then_)
  local key = session_key(o, s)
  local f = call('HMGET', key, 'arrivals', 'nudged')
  if then_[1] == 'keep' or tonumber(f[1] or 0) > then_[2] then
    return held(o, now, s)
  end
  -- A job ended during the lease and its entry is still here: look again at once.
  local again = f[2] and call('ZCARD', mailbox_key(o, s)) > 0
  call('HDEL', key, 'nudged', 'backoff')
  run_no_more(o, s)
  wait_no_more(o, s)
  set_due(o, s, again and now or then_[3])
  if then_[3] and then_[4] and not again then
    call('HSET', key, 'backoff', then_[3])
  end
  return { 'released', wake_waiting(o, now, agent_of(s), LOOK_AGAIN_MS) }
end
