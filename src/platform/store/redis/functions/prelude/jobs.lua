-- Heads, statuses and results of jobs.

-- {id, head, parent or ''}
local function take_job(take)
  return { take(), take(), take() }
end

-- {id, status, result}
local function take_finish(take)
  return { take(), take(), take() }
end

-- Adds the keys of the documents that describe a job.
local function add_job(wanted, job)
  wanted[#wanted + 1] = 'j/' .. job
  wanted[#wanted + 1] = 'j/' .. job .. '/s'
  wanted[#wanted + 1] = 'j/' .. job .. '/r'
end

-- Returns the status in a document; false if it can't be read: then the job is open until a turn sets it.
local function status_of(value)
  local status = value and string.match(value, '^(%u[%u_]+) %d+')
  return status and STATUSES[status] and status or false
end

local function job_status(o, job)
  local _, value = doc(o, 'j/' .. job .. '/s')
  return status_of(value)
end

-- Sets the status if `may` allows it for the one before; returns whether it did.
local function set_status(o, now, job, status, may)
  local key = 'j/' .. job .. '/s'
  local version, old = doc(o, key)
  if may and not may(status_of(old)) then
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

-- Writes head and place in the list, unless the job has them.
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

-- Ends a job unless it has ended.
local function finish_job(o, now, finish)
  if set_status(o, now, finish[1], finish[2], is_open) then
    put(o, 'j/' .. finish[1] .. '/r', finish[3])
  end
end

-- Sets the status of an open job as its turn commits it; for a paused job, the status that it resumes with.
local function serve_job(o, now, job, status)
  local before = job_status(o, job)
  if before == 'PAUSED' then
    put(o, 'j/' .. job .. '/s', 'PAUSED ' .. text(now) .. ' ' .. status)
  elseif is_open(before) then
    set_status(o, now, job, status)
  end
end
