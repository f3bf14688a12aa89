--[[
purpose   Renew a lease that is not a room's.
key  1    string   lease
arg  1    text     holder           name/incarnation
arg  2    u64      token
arg  3    ms       ttl
returns   {"ok"} | {"lost", lease}
keeps     I-18
]]
local lease_key = KEYS[1]
local holder, token, ttl = ARGV[1], ARGV[2], ARGV[3]
local held = redis.call("GET", lease_key)
if held ~= holder .. " " .. token then
  return { "lost", held or "" }
end
redis.call("PEXPIRE", lease_key, ttl)
return { "ok" }
