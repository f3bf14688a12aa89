--[[
include   instance
purpose   Whether an incarnation is the newest of its name, and what a lease's value says.
defines   newer_than(incarnation_key, mine), lease_of(value), name_of(instance)
]]
-- The newer incarnation's number, or nil: a missing key says nothing, the next heartbeat writes it.
local function newer_than(incarnation_key, mine)
  local newest = redis.call("GET", incarnation_key)
  if newest and tonumber(newest) > tonumber(mine) then
    return newest
  end
  return nil
end

local function lease_of(value)
  local holder, token = string.match(value, "^(.*) (%d+)$")
  return holder, tonumber(token)
end

local function name_of(instance)
  local name, incarnation = string.match(instance, "^(.*)/(%d+)$")
  return name, tonumber(incarnation)
end
