--[[
include   owner
purpose   Tell a room's owner what was done to the room, and mark the room until the owner's heartbeat has looked at it: what is published may be lost.
defines   tell_owner(bases, owner, me, route, now, message), drop_old_marks(unheard_key, now)
]]
local MARKS_LIFE_MS = 3600000

-- bases   of router-sync channels and of marks, separated by a line feed. A caller who owns the room is not told, but may
-- get no answer: the mark is for it too. Where marks are of another type, the room has none, and nothing else fails.
local function tell_owner(bases, owner, me, route, now, message)
  if owner == "" then
    return
  end
  local sync_base, unheard_base = string.match(bases, "^(.*)\n(.*)$")
  redis.pcall("ZADD", unheard_base .. owner, now, route)
  redis.call("PEXPIRE", unheard_base .. owner, MARKS_LIFE_MS)
  if owner ~= me then
    redis.call("PUBLISH", sync_base .. owner, message)
  end
end

-- Those of rooms that their instance has no more.
local function drop_old_marks(unheard_key, now)
  redis.pcall("ZREMRANGEBYSCORE", unheard_key, "-inf", now - MARKS_LIFE_MS)
end
