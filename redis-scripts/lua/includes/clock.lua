--[[
include   clock
purpose   Redis's own time, and numbers as text without an exponent.
defines   now_ms(), digits(n)
]]
local function now_ms()
  local time = redis.call("TIME")
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function digits(n)
  return string.format("%.0f", n)
end
