--[[
purpose   Count what an instance holds, for a dry run of the reaper.
key  1    set      instance_rooms
key  2    set      instance_watches
returns   {"ok", rooms, watches}
keeps     I-18
]]
local instance_rooms_key, instance_watches_key = KEYS[1], KEYS[2]
return { "ok", redis.call("SCARD", instance_rooms_key), redis.call("SCARD", instance_watches_key) }
