--[[
include   fanout
purpose   Tell every instance that watches a room.
defines   fanout(watchers, channel_base, message)
]]
local function fanout(watchers, channel_base, message)
  for _, watcher in ipairs(watchers) do
    redis.call("PUBLISH", channel_base .. watcher, message)
  end
end
