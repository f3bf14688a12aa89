--[[
include   sessions
purpose   A user's sessions: whose they are, and whether that instance lives.
defines   session_of(field), standing_of(instances_key, record_key, instance)
]]
local function session_of(field)
  return string.match(field, "^([^|]*)|(.*)$")
end

-- Whether the instance lives, and whether it is gone for good; one that has just no score is neither.
local function standing_of(instances_key, record_key, instance)
  if redis.call("ZSCORE", instances_key, instance) then
    return true, false
  end
  local gone = redis.pcall("HGET", record_key, "gone")
  return false, redis.call("EXISTS", record_key) == 0 or gone == "1"
end
