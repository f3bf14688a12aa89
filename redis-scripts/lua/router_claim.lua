--[[
purpose   Note what the name of a media router stands for, unless it stands for another router already.
key  1    string   router
arg  1    text     route
arg  2    u64      generation
arg  3    ms       ttl
returns   {"mine"} | {"taken"}
keeps     I-17
]]
local router_key = KEYS[1]
local route, generation, ttl = ARGV[1], ARGV[2], ARGV[3]
local is = generation .. " " .. route
local was = redis.call("GET", router_key)
if was and was ~= is then
  return { "taken" }
end
redis.call("SET", router_key, is, "PX", ttl)
return { "mine" }
