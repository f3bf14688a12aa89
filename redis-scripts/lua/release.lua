--[[
purpose   Give up a room's lease, so that the next join pins it at once.
key  1    set      instance_rooms   route keys of my rooms
key  2    string   owner
key  3    hash     room             record
key  4    hash     settings
key  5    hash     guests
key  6    hash     peers
key  7    zset     presence
arg  1    text     me               name/incarnation
arg  2    u64      token            fencing token held
arg  3    text     route
arg  4    ms       life             of a room that nobody owns
arg  5    flag     only_empty       1: not while it has peers
returns   {"ok"} | {"lost", owner} | {"busy", peer_count}
keeps     I-1
]]
--%include life
local instance_rooms_key, owner_key, room_key, settings_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local guests_key, peers_key, presence_key = KEYS[5], KEYS[6], KEYS[7]
local me, token, route, life, only_empty = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == "1"

local held = redis.call("GET", owner_key)
local peers = redis.call("HLEN", peers_key)
redis.call("SISMEMBER", instance_rooms_key, route)
if held ~= me .. " " .. token then
  return { "lost", held or "" }
end
if only_empty and peers > 0 then
  return { "busy", peers }
end
redis.call("DEL", owner_key)
redis.call("SREM", instance_rooms_key, route)
end_after(life, { room_key, settings_key, guests_key, peers_key, presence_key })
return { "ok" }
