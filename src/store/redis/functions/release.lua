-- Gives a lease back without a commit.

register('release', function(keys, args)
  local o, take = keys[1], reader(args)
  local now, s, epoch = clock(take()), take(), take()
  local then_ = take_after(take)
  if fact(o, s, 'epoch') ~= epoch then
    return { 'fenced' }
  elseif not fact(o, s, 'until') then
    -- Nobody has had it since: this very call, once more.
    return { 'done', RELEASED_BEFORE }
  end
  return { 'done', after(o, now, s, then_) }
end, { 'allow-oom' })
