--[[
purpose   Renew an instance's score and a chunk of its leases; say what was lost and where each room stands.
key  1    zset     instances
key  2    string   incarnation      newest incarnation of my name
key  3    hash     record           of this incarnation
key  4    set      instance_rooms
key  5    set      instance_watches
arg  1    text     me               name/incarnation
arg  2    u64      incarnation
arg  3    ms       owner_ttl
arg  4    ms       record_life
arg  5    ms       incarnation_life
arg  6    text     bases            of owner, fence, room, settings, guests, peers, presence, watchers and rooms keys, separated by line feeds
arg  7    count    fields           number of record fields and values
arg  8    count    owned            number of rooms that follow
arg  9..  text     rest             record: field, value, …; owned rooms: route, token, check (1: compare sizes, heal the index); watched rooms: route
derives   every key of a room from its base and the route
returns   {"ok", now_ms, owned, watched} | {"superseded", incarnation}
keeps     I-1, I-6
]]
--%include clock
--%include instance
--%include token
--%include room
local instances_key, incarnation_key, record_key = KEYS[1], KEYS[2], KEYS[3]
local instance_rooms_key, instance_watches_key = KEYS[4], KEYS[5]
local me, incarnation, owner_ttl, record_life, incarnation_life = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local bases, fields_n, owned_n = {}, tonumber(ARGV[7]), tonumber(ARGV[8])
for base in string.gmatch(ARGV[6], "[^\n]+") do
  bases[#bases + 1] = base
end
local owner_base, fence_base, room_base, settings_base, guests_base = bases[1], bases[2], bases[3], bases[4], bases[5]
local peers_base, presence_base, watchers_base, rooms_base = bases[6], bases[7], bases[8], bases[9]

local newer = newer_than(incarnation_key, incarnation)
if newer then
  return { "superseded", newer }
end
redis.call("ZSCORE", instances_key, me)
redis.call("HEXISTS", record_key, "gone")
redis.call("SCARD", instance_rooms_key)
redis.call("SCARD", instance_watches_key)

local now = now_ms()
redis.call("ZADD", instances_key, now, me)
redis.call("SET", incarnation_key, incarnation, "PX", incarnation_life)
if fields_n > 0 then
  local fields = {}
  for i = 9, 8 + fields_n do
    fields[#fields + 1] = ARGV[i]
  end
  redis.call("HSET", record_key, unpack(fields))
  redis.call("PEXPIRE", record_key, record_life)
end

-- For each owned room: state (0 held, 1 no owner, 2 another's, 3 held but damaged), sv, cv.
local owned, held_routes = {}, {}
local at = 9 + fields_n
for _ = 1, owned_n do
  local route, token, check = ARGV[at], ARGV[at + 1], ARGV[at + 2] == "1"
  at = at + 3
  local held = redis.call("GET", owner_base .. route)
  local state, versions = 0, { "0", "0" }
  if not held then
    state = 1
  elseif held ~= me .. " " .. token then
    state = 2
  else
    redis.call("PEXPIRE", owner_base .. route, owner_ttl)
    held_routes[#held_routes + 1] = route
    versions = redis.call("HMGET", room_base .. route, "sv", "cv")
    if not versions[1] or not versions[2] then
      state, versions = 3, { "0", "0" }
    elseif check then
      local app, room = string.match(route, "^(.-)%z(.*)$")
      redis.call("ZADD", rooms_base .. app, 0, room)
      redis.call("SET", fence_base .. route, token, "PX", FENCE_LIFE_MS)
      local sizes_now = sizes(settings_base .. route, guests_base .. route, peers_base .. route, presence_base .. route)
      if not whole(room_base .. route, sizes_now) then
        state = 3
      end
    end
  end
  owned[#owned + 1] = state
  owned[#owned + 1] = versions[1]
  owned[#owned + 1] = versions[2]
end
if #held_routes > 0 then
  redis.call("SADD", instance_rooms_key, unpack(held_routes))
end

-- For each watched room: sv, cv; zeros where it is not there.
local watched, watched_routes = {}, {}
for i = at, #ARGV do
  local route = ARGV[i]
  redis.call("SADD", watchers_base .. route, me)
  watched_routes[#watched_routes + 1] = route
  local versions = redis.call("HMGET", room_base .. route, "sv", "cv")
  watched[#watched + 1] = versions[1] or "0"
  watched[#watched + 1] = versions[2] or "0"
end
if #watched_routes > 0 then
  redis.call("SADD", instance_watches_key, unpack(watched_routes))
end
return { "ok", now, owned, watched }
