--[[
purpose   Give up a room's lease, so that the next join pins it at once, or the reaper's leader has it adopted.
key  1    set      instance_rooms   route keys of my rooms
key  2    string   owner
key  3    hash     room             record
key  4    hash     settings
key  5    hash     guests
key  6    hash     peers
key  7    zset     presence
key  8    hash     cell
key  9    stream   inbox
key  10   zset     due
arg  1    text     me               name/incarnation
arg  2    u64      token            fencing token held
arg  3    text     route
arg  4    ms       life             of a room that nobody owns
arg  5    flag     only_empty       1: not while it has people, or entries in its inbox
arg  6    text     due              ms: when something falls due next; empty: nothing does
returns   {"ok"} | {"lost", owner} | {"busy", peer_count, inbox}
keeps     I-1
]]
--%include clock
--%include life
local instance_rooms_key, owner_key, room_key, settings_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local guests_key, peers_key, presence_key, cell_key = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local inbox_key, due_key = KEYS[9], KEYS[10]
local me, token, route, life, only_empty, due = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == "1", ARGV[6]

local held = redis.call("GET", owner_key)
local peers, users, waiting = redis.call("HLEN", peers_key), redis.call("ZCARD", presence_key), redis.call("XLEN", inbox_key)
local status = redis.call("HGET", room_key, "status") or "closed"
redis.call("SISMEMBER", instance_rooms_key, route)
redis.call("ZSCORE", due_key, route)
if held ~= me .. " " .. token then
  return { "lost", held or "" }
end
if only_empty and (peers > 0 or users > 0 or waiting > 0) then
  return { "busy", peers, waiting }
end
redis.call("DEL", owner_key)
redis.call("SREM", instance_rooms_key, route)
local half_way = status ~= "active" and status ~= "closed"
if peers > 0 or users > 0 or waiting > 0 or half_way then
  redis.call("ZADD", due_key, now_ms(), route)
elseif due ~= "" then
  redis.call("ZADD", due_key, due, route)
else
  redis.call("ZREM", due_key, route)
end
end_after(life, { room_key, settings_key, guests_key, peers_key, presence_key, cell_key, inbox_key })
return { "ok" }
