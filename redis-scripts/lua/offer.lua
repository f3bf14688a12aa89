--[[
purpose   Offer rooms that nobody owns to instances.
key  1    string   lease            of the reaper
arg  1    text     me               name/incarnation of the leader
arg  2    u64      token            of the leader
arg  3    text     sync_base        what stands before name/incarnation in a router-sync channel
arg  4..  text     offers           for each: route, name/incarnation of who shall adopt the room
derives   the instances' channels from sync_base
returns   {"ok"} | {"not_leader", lease}
keeps     I-18
]]
local lease_key = KEYS[1]
local me, token, sync_base = ARGV[1], ARGV[2], ARGV[3]

local held = redis.call("GET", lease_key)
if held ~= me .. " " .. token then
  return { "not_leader", held or "" }
end
for i = 4, #ARGV, 2 do
  redis.call("PUBLISH", sync_base .. ARGV[i + 1], '{"room":' .. cjson.encode(ARGV[i]) .. ',"adopt":true}')
end
return { "ok" }
