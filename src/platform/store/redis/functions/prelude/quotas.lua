-- The quota of an owner.

-- Reads {documents, bytes, sessions, jobs} that an owner may keep, 0 = no limit; false without a quota.
local function take_quota(take)
  return take() == '1' and { tonumber(take()), tonumber(take()), tonumber(take()), tonumber(take()) }
end

-- Returns {'over', which, used, added, allowed} if there is no room for `adds`. A quota that operators set for the
-- owner takes precedence over `quota`.
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

-- Returns what writes add to the stored documents; `fresh`: as if none were stored, which is the most.
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

-- Returns the refusal of writes, as `over` does.
local function writes_over(o, quota, writes)
  return over(o, quota, growth_of(o, writes, true)) and over(o, quota, growth_of(o, writes))
end
