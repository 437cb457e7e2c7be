-- Keeps or releases a lease.

-- Answer to a repeated call: the wakes were returned with the first answer, or the sweep publishes them.
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
  local entries = pending(o, s, tonumber(fact(o, s, 'limit')))
  serve(o, now, s, entries)
  return { 'held', answer(entries), number(o, s, 'arrivals'), versions(o, s) }
end

-- {'released', wakes} or {'held', mailbox, arrivals, versions}
local function after(o, now, s, then_)
  if then_[1] == 'keep' or number(o, s, 'arrivals') > then_[2] then
    return held(o, now, s)
  end
  -- A job ended during the lease and its entry is still here: the session is due at once.
  local again = fact(o, s, 'nudged') and call('ZCARD', mailbox_key(o, s)) > 0
  note_gone(o, s, 'nudged', 'backoff')
  run_no_more(o, s)
  wait_no_more(o, s)
  set_due(o, s, again and now or then_[3])
  if then_[3] and then_[4] and not again then
    note(o, s, 'backoff', then_[3])
  end
  return { 'released', wake_waiting(o, now, agent_of(s), LOOK_AGAIN_MS) }
end
