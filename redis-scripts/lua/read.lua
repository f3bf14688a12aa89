--[[
purpose   Read a room as one consistent whole, from any instance.
key  1    hash     room             record
key  2    hash     settings
key  3    hash     guests
key  4    hash     peers
key  5    zset     presence
key  6    hash     cell
key  7    string   owner
arg  1    text     instance_base    what stands before name/incarnation in a record's key
derives   the owner's record from instance_base
returns   {"ok", whole, proved, now_ms, owner, token, url, room} | {"missing"}
keeps     I-5
]]
--%include clock
--%include instance
--%include history
--%include room
local room_key, settings_key, guests_key, peers_key, presence_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local cell_key, owner_key, instance_base = KEYS[6], KEYS[7], ARGV[1]

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
return { "ok", is_whole and 1 or 0, proved and 1 or 0, now_ms(), owner, token, url,
  load_room(room_key, settings_key, guests_key, peers_key, presence_key, cell_key) }
