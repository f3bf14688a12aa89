--[[
include   inbox
purpose   Has what was just put into a room's inbox read: by its owner now, or by whoever has the room next.
defines   due_from(now, held, owner_key, room_key, inbox_key), inbox_notice(route_json, entry)
]]
-- Nobody reads it before somebody owns the room: now, or when the lease ends that its owner may renew no more.
local function due_from(now, held, owner_key, room_key, inbox_key)
  if held then
    return now + math.max(redis.call("PTTL", owner_key), 0)
  end
  local life = redis.call("PTTL", room_key)
  if life > 0 then
    redis.call("PEXPIRE", inbox_key, life)
  end
  return now
end

-- What the owner is told.
local function inbox_notice(route_json, entry)
  return '{"room":' .. route_json .. ',"inbox":"' .. entry .. '"}'
end
