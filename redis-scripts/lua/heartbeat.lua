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
arg  6    text     bases            of owner, fence, room, settings, guests, peers, presence, cell, watchers, rooms and inbox keys, separated by line feeds
arg  7    count    fields           number of record fields and values
arg  8    count    owned            number of rooms that follow
arg  9..  text     rest             record: field, value, …; owned rooms: route, token, check (1: compare sizes and history, heal the index); watched rooms: route
derives   every key of a room from its base and the route
returns   {"ok", now_ms, owned, watched} | {"superseded", incarnation}
keeps     I-1, I-6
]]
--%include clock
--%include instance
--%include history
--%include token
--%include lookup
--%include room
--%include chunks
local instances_key, incarnation_key, record_key = KEYS[1], KEYS[2], KEYS[3]
local instance_rooms_key, instance_watches_key = KEYS[4], KEYS[5]
local me, incarnation, owner_ttl, record_life, incarnation_life = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local bases, fields_n, owned_n = {}, tonumber(ARGV[7]), tonumber(ARGV[8])
for base in string.gmatch(ARGV[6], "[^\n]+") do
  bases[#bases + 1] = base
end
local owner_base, fence_base, room_base, settings_base, guests_base = bases[1], bases[2], bases[3], bases[4], bases[5]
local peers_base, presence_base, cell_base, watchers_base = bases[6], bases[7], bases[8], bases[9]
local rooms_base, inbox_base = bases[10], bases[11]

local newer = newer_than(incarnation_key, incarnation)
if newer then
  return { "superseded", newer }
end
redis.call("ZSCORE", instances_key, me)
redis.call("HEXISTS", record_key, "gone")
redis.call("SCARD", instance_rooms_key)
redis.call("SCARD", instance_watches_key)

-- For each owned room: state (0 held, 1 no owner, 2 another's, 3 held but damaged or not proved), sv, cv, entries in its inbox. All of
-- it is read before anything is written, and a key of another type counts as lost: it costs its room, not the others.
local history = history_now()
local owned, held_rooms = {}, {}
local at = 9 + fields_n
for _ = 1, owned_n do
  local route, token, check = ARGV[at], ARGV[at + 1], ARGV[at + 2] == "1"
  at = at + 3
  local held = redis.pcall("GET", owner_base .. route)
  local state, versions, waiting = 0, { "0", "0" }, 0
  if not held then
    state = 1
  elseif held ~= me .. " " .. token then
    state = 2
  else
    local found = redis.pcall("HMGET", room_base .. route, "sv", "cv", "history")
    if failed(found) or not found[1] or not found[2] or (check and found[3] ~= history) then
      state = 3
    else
      versions = found
      if check then
        local read, sizes_now = pcall(sizes, settings_base .. route, guests_base .. route, peers_base .. route,
          presence_base .. route, cell_base .. route)
        if not read or not whole(room_base .. route, sizes_now) then
          state = 3
        end
      end
    end
    local length = redis.pcall("XLEN", inbox_base .. route)
    waiting = failed(length) and 0 or length
    held_rooms[#held_rooms + 1] = { route, token, check and state == 0 }
  end
  owned[#owned + 1] = state
  owned[#owned + 1] = versions[1]
  owned[#owned + 1] = versions[2]
  owned[#owned + 1] = waiting
end
-- For each watched room: sv, cv; zeros where it is not there.
local watched, watched_routes = {}, {}
for i = at, #ARGV do
  local versions = redis.pcall("HMGET", room_base .. ARGV[i], "sv", "cv")
  local there = not failed(versions)
  watched_routes[#watched_routes + 1] = ARGV[i]
  watched[#watched + 1] = there and versions[1] or "0"
  watched[#watched + 1] = there and versions[2] or "0"
end

local now = now_ms()
redis.call("ZADD", instances_key, now, me)
redis.call("SET", incarnation_key, incarnation, "PX", incarnation_life)
if fields_n > 0 then
  redis.call("HSET", record_key, unpack(ARGV, 9, 8 + fields_n))
  redis.call("PEXPIRE", record_key, record_life)
end
local held_routes = {}
for _, room in ipairs(held_rooms) do
  local route, token, heal = room[1], room[2], room[3]
  redis.call("PEXPIRE", owner_base .. route, owner_ttl)
  held_routes[#held_routes + 1] = route
  if heal then
    local app, id = string.match(route, "^(.-)%z(.*)$")
    redis.pcall("ZADD", rooms_base .. app, 0, id)
    keep_fence(fence_base .. route, token)
  end
end
in_chunks(held_routes, function(...)
  redis.call("SADD", instance_rooms_key, ...)
end)
for _, route in ipairs(watched_routes) do
  redis.pcall("SADD", watchers_base .. route, me)
end
in_chunks(watched_routes, function(...)
  redis.call("SADD", instance_watches_key, ...)
end)
return { "ok", now, owned, watched }
