--[[
purpose   List every instance with its last heartbeat.
key  1    zset     instances
returns   {"ok", now_ms, instances}
keeps     I-18
]]
--%include clock
local instances_key = KEYS[1]
return { "ok", now_ms(), redis.call("ZRANGE", instances_key, 0, -1, "WITHSCORES") }
