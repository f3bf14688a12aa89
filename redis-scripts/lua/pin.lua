--[[
purpose   Take a room's lease, make the room if it may be made, load it, and seat its first joiner.
key  1    string   incarnation      newest incarnation of my name
key  2    zset     instances
key  3    set      instance_rooms   route keys of my rooms
key  4    string   owner
key  5    string   fence
key  6    hash     room             record
key  7    hash     settings
key  8    hash     guests
key  9    hash     peers
key  10   zset     presence
key  11   set      watchers
key  12   zset     rooms            index of the app
arg  1    text     me               name/incarnation
arg  2    u64      incarnation
arg  3    ms       owner_ttl
arg  4    u64      floor            the token is larger than this
arg  5    flag     renew            1: keep the token if the lease is mine
arg  6    flag     create           1: make the room if it is not there
arg  7    text     room             id in the index
arg  8    text     route
arg  9    text     instance_base    what stands before name/incarnation in a record's key
arg  10   ms       deadline         refuse when Redis's clock is past it; 0: whenever it is
arg  11   count    settings         number of defaults that follow
arg  12.. text     rest             defaults: field, JSON, …; then, for a joiner: peer, user, peer as JSON
derives   the owner's record from instance_base
returns   {"owned", token, previous, made, whole, now_ms, watchers, room} | {"other", owner, token, url} | {"superseded", incarnation} | {"absent"} | {"late"}
keeps     I-1, I-2, I-6
]]
--%include clock
--%include instance
--%include token
--%include room
--%include life
--%include chunks
--%include peers
local incarnation_key, instances_key, instance_rooms_key = KEYS[1], KEYS[2], KEYS[3]
local owner_key, fence_key, room_key = KEYS[4], KEYS[5], KEYS[6]
local settings_key, guests_key, peers_key, presence_key = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local watchers_key, rooms_key = KEYS[11], KEYS[12]
local me, incarnation, owner_ttl, floor = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local renew, create, room_id, route = ARGV[5] == "1", ARGV[6] == "1", ARGV[7], ARGV[8]
local instance_base, deadline, defaults_n = ARGV[9], tonumber(ARGV[10]), tonumber(ARGV[11])

local now = now_ms()
if deadline > 0 and now > deadline then
  return { "late" }
end
local newer = newer_than(incarnation_key, incarnation)
if newer then
  return { "superseded", newer }
end

local held = redis.call("GET", owner_key)
local holder, previous = nil, 0
if held then
  holder, previous = lease_of(held)
end

local function out_of_reach(instance)
  local my_name, mine = name_of(me)
  local name, theirs = name_of(instance)
  if name == my_name and theirs < mine then
    return true
  end
  if redis.call("HGET", instance_base .. instance, "gone") then
    return true
  end
  local score = redis.call("ZSCORE", instances_key, instance)
  if score then
    return now - score >= owner_ttl
  end
  return redis.call("PTTL", owner_key) < 0
end

if holder and holder ~= me and not out_of_reach(holder) then
  return { "other", holder, previous, redis.call("HGET", instance_base .. holder, "public_url") or "" }
end

local exists = redis.call("EXISTS", room_key) == 1
if not exists and not create then
  return { "absent" }
end
local token = next_token(fence_key, math.max(floor, previous), now)
if holder == me and renew then
  token = previous
end
redis.call("SCARD", instance_rooms_key)
redis.call("ZSCORE", rooms_key, room_id)
local watchers = redis.call("SCARD", watchers_key)
local sizes_now = sizes(settings_key, guests_key, peers_key, presence_key)
local is_whole = not exists or whole(room_key, sizes_now)
redis.call("HGET", room_key, "cv")

redis.call("SET", owner_key, me .. " " .. digits(token), "PX", owner_ttl)
keep_fence(fence_key, token)
redis.call("SADD", instance_rooms_key, route)
redis.call("ZADD", rooms_key, 0, room_id)
if exists then
  keep({ room_key, settings_key, guests_key, peers_key, presence_key })
else
  redis.call("DEL", settings_key, guests_key, peers_key, presence_key)
  if defaults_n > 0 then
    local defaults = {}
    for i = 12, 11 + 2 * defaults_n do
      defaults[#defaults + 1] = ARGV[i]
    end
    redis.call("HSET", settings_key, unpack(defaults))
  end
  redis.call("HSET", room_key, "status", "active", "created_at", now, "sv", 1, "cv", 1,
    "settings_n", defaults_n, "guests_n", 0, "peers_n", 0, "users_n", 0)
end
local next_arg = 12 + 2 * defaults_n
if is_whole and #ARGV >= next_arg + 2 and redis.call("HLEN", peers_key) == 0 then
  change_peers({ room_key, peers_key, presence_key }, now, {
    added = { ARGV[next_arg], ARGV[next_arg + 2] },
    user = ARGV[next_arg + 1],
    removed = {},
    gone = {},
  })
end
return { "owned", token, previous, exists and 0 or 1, is_whole and 1 or 0, now, watchers,
  load_room(room_key, settings_key, guests_key, peers_key, presence_key) }
