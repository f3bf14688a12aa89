--[[
purpose   Note that this instance has clients which watch a room, and read the room.
key  1    set      watchers
key  2    set      instance_watches
key  3    hash     room             record
key  4    hash     settings
key  5    hash     guests
key  6    hash     peers
key  7    zset     presence
key  8    hash     cell
key  9    string   owner
arg  1    text     me               name/incarnation
arg  2    text     route
arg  3    text     instance_base    what stands before name/incarnation in a record's key
derives   the owner's record from instance_base
returns   {"ok", whole, proved, now_ms, owner, token, url, room} | {"missing"}
keeps     I-5
]]
--%include clock
--%include instance
--%include history
--%include room
local watchers_key, instance_watches_key, room_key, settings_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local guests_key, peers_key, presence_key, cell_key, owner_key = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local me, route, instance_base = ARGV[1], ARGV[2], ARGV[3]

redis.call("SISMEMBER", watchers_key, me)
redis.call("SISMEMBER", instance_watches_key, route)
if redis.call("EXISTS", room_key) == 0 then
  return { "missing" }
end
local held = redis.call("GET", owner_key)
local owner, token, url = "", 0, ""
if held then
  owner, token = lease_of(held)
  url = redis.call("HGET", instance_base .. owner, "public_url") or ""
end
local proved = is_proved(room_key)
local is_whole = whole(room_key, sizes(settings_key, guests_key, peers_key, presence_key, cell_key))
redis.call("SADD", watchers_key, me)
redis.call("SADD", instance_watches_key, route)
return { "ok", is_whole and 1 or 0, proved and 1 or 0, now_ms(), owner, token, url,
  load_room(room_key, settings_key, guests_key, peers_key, presence_key, cell_key) }
