--[[
purpose   Renew an instance's score and a chunk of its leases; say what was lost, and where those rooms stand that are to be looked at.
key  1    zset     instances
key  2    string   incarnation      newest incarnation of my name
key  3    hash     record           of this incarnation
key  4    set      instance_rooms
key  5    set      instance_watches
key  6    zset     unheard          my marks
arg  1    text     me               name/incarnation
arg  2    u64      incarnation
arg  3    ms       owner_ttl
arg  4    ms       record_life
arg  5    ms       incarnation_life
arg  6    text     bases            of owner, fence, room, settings, guests, peers, presence, cell, watchers, rooms and inbox keys, separated by line feeds
arg  7    count    fields           number of record fields and values
arg  8    count    owned            number of owned rooms that follow
arg  9    count    heard            number of marks that were heard
arg  10   count    in_all           number of owned rooms in all chunks of the beat
arg  11   text     history          that the last whole beat was told of; in another one every room is looked at
arg  12.. text     rest             record: field, value, …; owned rooms: route, token, look (0: if it is marked; 1: at its versions; 2: at all of it, healing the index); marks heard: route, mark; watched rooms: route
derives   every key of a room from its base and the route
returns   {"ok", now_ms, history, news, watched} | {"superseded", incarnation}
keeps     I-1, I-6
]]
--%include clock
--%include instance
--%include history
--%include token
--%include lookup
--%include room
--%include chunks
--%include owner
local instances_key, incarnation_key, record_key = KEYS[1], KEYS[2], KEYS[3]
local instance_rooms_key, instance_watches_key, unheard_key = KEYS[4], KEYS[5], KEYS[6]
local me, incarnation, owner_ttl, record_life, incarnation_life = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local bases, fields_n, owned_n, heard_n = {}, tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local in_all, history_before = tonumber(ARGV[10]), ARGV[11]
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
local noted = redis.call("SCARD", instance_rooms_key)
redis.call("SCARD", instance_watches_key)

-- Each command is one for all rooms; only what is looked at has its own. All of it is read before anything is written, and
-- a key of another type counts as lost: it costs its room, not the others.
local now, history = now_ms(), history_now()
local first = 12 + fields_n
local routes, owner_keys, heard = {}, {}, {}
for place = 1, owned_n do
  local route = ARGV[first + 3 * (place - 1)]
  routes[place], owner_keys[place] = route, owner_base .. route
end
local heard_at = first + 3 * owned_n
local watched_at = heard_at + 2 * heard_n
for at = heard_at, watched_at - 1, 2 do
  heard[ARGV[at]] = ARGV[at + 1]
end
local holders, marks = {}, {}
in_chunks(owner_keys, function(...)
  for _, holder in ipairs(redis.call("MGET", ...)) do
    holders[#holders + 1] = holder
  end
end)
in_chunks(routes, function(...)
  local found = redis.pcall("ZMSCORE", unheard_key, ...)
  for i = 1, select("#", ...) do
    -- What cannot be read may be marked.
    marks[#marks + 1] = failed(found) or found[i]
  end
end)

local function look_at(route, is_whole_look)
  local found = redis.pcall("HMGET", room_base .. route, "sv", "cv", "history")
  local length = redis.pcall("XLEN", inbox_base .. route)
  local waiting = failed(length) and 0 or length
  if failed(found) or not found[1] or not found[2] or (is_whole_look and found[3] ~= history) then
    return 3, 0, 0, waiting
  end
  if is_whole_look then
    local read, sizes_now = pcall(sizes, settings_base .. route, guests_base .. route, peers_base .. route,
      presence_base .. route, cell_base .. route)
    if not read or not whole(room_base .. route, sizes_now) then
      return 3, 0, 0, waiting
    end
  end
  return 0, found[1], found[2], waiting
end

-- News of a room: its place, state (0 held, 1 no owner, 2 another's, 3 held but damaged or not proved), sv, cv, entries in
-- its inbox, and its mark, by which it may be said to be heard: one of this very millisecond is not, others may follow it.
local mine = me .. " "
local news, held, healed, unmarked = {}, {}, {}, {}
local function tell(place, state, sv, cv, waiting, mark)
  for _, item in ipairs({ place, state, sv, cv, waiting, mark }) do
    news[#news + 1] = item
  end
end
for place, route in ipairs(routes) do
  local at = first + 3 * (place - 1)
  local token, look, mark = ARGV[at + 1], ARGV[at + 2], marks[place]
  if mark and mark == heard[route] then
    unmarked[#unmarked + 1] = route
    mark = false
  end
  if not holders[place] then
    tell(place, 1, 0, 0, 0, 0)
  elseif holders[place] ~= mine .. token then
    tell(place, 2, 0, 0, 0, 0)
  else
    held[#held + 1] = place
    if mark or look ~= "0" or history ~= history_before then
      local state, sv, cv, waiting = look_at(route, look == "2")
      local is_past = type(mark) == "string" and tonumber(mark) < now
      tell(place, state, sv, cv, waiting, is_past and mark or 0)
      if look == "2" and state == 0 then
        healed[#healed + 1] = { route, token }
      end
    end
  end
end

-- For each watched room: sv, cv; zeros where it is not there.
local watched, watched_routes = {}, {}
for i = watched_at, #ARGV do
  local versions = redis.pcall("HMGET", room_base .. ARGV[i], "sv", "cv")
  local there = not failed(versions)
  watched_routes[#watched_routes + 1] = ARGV[i]
  watched[#watched + 1] = there and versions[1] or "0"
  watched[#watched + 1] = there and versions[2] or "0"
end

redis.call("ZADD", instances_key, now, me)
redis.call("SET", incarnation_key, incarnation, "PX", incarnation_life)
if fields_n > 0 then
  redis.call("HSET", record_key, unpack(ARGV, 12, 11 + fields_n))
  redis.call("PEXPIRE", record_key, record_life)
  drop_old_marks(unheard_key, now)
end
local to_note = {}
for _, place in ipairs(held) do
  redis.call("PEXPIRE", owner_keys[place], owner_ttl)
  if noted < in_all then
    to_note[#to_note + 1] = routes[place]
  end
end
for _, room in ipairs(healed) do
  local app, id = string.match(room[1], "^(.-)%z(.*)$")
  redis.pcall("ZADD", rooms_base .. app, 0, id)
  keep_fence(fence_base .. room[1], room[2])
  to_note[#to_note + 1] = room[1]
end
in_chunks(to_note, function(...)
  redis.call("SADD", instance_rooms_key, ...)
end)
in_chunks(unmarked, function(...)
  redis.pcall("ZREM", unheard_key, ...)
end)
for _, route in ipairs(watched_routes) do
  redis.pcall("SADD", watchers_base .. route, me)
end
in_chunks(watched_routes, function(...)
  redis.call("SADD", instance_watches_key, ...)
end)
return { "ok", now, history, news, watched }
