-- Releases a lease without a commit.

-- Takes back the crash of this epoch's holder, which is alive although another has its lease, if it was the last one
-- counted.
local function acquit(o, s, epoch)
  local whose, charged = string.match(fact(o, s, 'charged') or '', '^(%d+)\n(.*)$')
  if whose ~= epoch then
    return
  end
  local before, last = string.match(fact(o, s, 'attempts') or '', '^(.-)\n?([^\n]*)$')
  -- A worker of another version records attempts alone.
  if string.match(last, '^%d+') ~= epoch then
    return
  end
  for member in string.gmatch(charged, '[^\n]+') do
    local count = tonumber(call('HGET', crash_key(o, s), member) or 0)
    if count > 1 then
      call('HINCRBY', crash_key(o, s), member, -1)
    else
      call('HDEL', crash_key(o, s), member)
    end
  end
  note(o, s, 'attempts', before ~= '' and before)
  note(o, s, 'charged', false)
end

register('release', function(keys, args)
  local o, take = keys[1], reader(args)
  local now, s, epoch = clock(take()), take(), take()
  local then_ = take_after(take)
  if fact(o, s, 'epoch') ~= epoch then
    acquit(o, s, epoch)
    return { 'fenced' }
  elseif not fact(o, s, 'until') then
    -- No other holder since: this is a repetition of the call.
    return { 'done', RELEASED_BEFORE }
  end
  return { 'done', after(o, now, s, then_) }
end, { 'allow-oom' })
