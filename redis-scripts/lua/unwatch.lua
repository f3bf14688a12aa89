--[[
purpose   Note that nobody here watches a room any more.
key  1    set      watchers
key  2    set      instance_watches
arg  1    text     me               name/incarnation
arg  2    text     route
returns   {"ok"}
keeps     I-5
]]
local watchers_key, instance_watches_key = KEYS[1], KEYS[2]
local me, route = ARGV[1], ARGV[2]
redis.call("SISMEMBER", watchers_key, me)
redis.call("SISMEMBER", instance_watches_key, route)
redis.call("SREM", watchers_key, me)
redis.call("SREM", instance_watches_key, route)
return { "ok" }
