--[[
include   life
purpose   When the keys of a room that nobody owns end.
defines   end_after(life_ms, keys), keep(keys)
]]
local function end_after(life_ms, keys)
  for _, name in ipairs(keys) do
    redis.call("PEXPIRE", name, life_ms)
  end
end

local function keep(keys)
  for _, name in ipairs(keys) do
    redis.call("PERSIST", name)
  end
end
