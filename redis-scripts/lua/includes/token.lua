--[[
include   token
purpose   The next fencing token of a lease, larger than all before it also when the fence was lost.
defines   next_token(fence_key, floor, now), keep_fence(fence_key, token)
]]
local FENCE_LIFE_MS = 7 * 24 * 3600 * 1000

local function next_token(fence_key, floor, now)
  local fence = tonumber(redis.call("GET", fence_key) or 0)
  return math.max(fence + 1, floor + 1, now)
end

local function keep_fence(fence_key, token)
  redis.call("SET", fence_key, digits(token), "PX", FENCE_LIFE_MS)
end
