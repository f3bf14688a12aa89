--[[
purpose   Take a room's lease, make the room if it may be made, and load it.
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
key  11   hash     cell
key  12   set      watchers
key  13   zset     rooms            index of the app
key  14   stream   lane
key  15   stream   inbox
key  16   stream   aside
key  17   zset     due
arg  1    text     me               name/incarnation
arg  2    u64      incarnation
arg  3    ms       owner_ttl
arg  4    u64      floor            the token is larger than this
arg  5    flag     renew            1: keep the token if the lease is mine
arg  6    flag     open_only        1: not a closed room
arg  7    text     room             id in the index
arg  8    text     route
arg  9    text     instance_base    what stands before name/incarnation in a record's key
arg  10   text     answer_base      what stands before a route in an answer's key
arg  11   text     reply_base       what stands before name/incarnation in a reply channel
arg  12   text     deadline         ms: refuse when Redis's clock is past it; empty: whenever it is
arg  13   flag     birth            1: make the room if it is not there, of what follows
arg  14   count    lane_limit       do not make it while its lane has so many entries
arg  15   u64      sv               settings version to begin with
arg  16   u64      cv               cell version before the first command
arg  17   json     entry            the settings it begins with, for the ledger; empty: no entry
arg  18.. text     rest             status; ms when something falls due first, or empty; number of settings; settings: field, JSON, …; changes as the include cell takes them; commands as the include commands does
derives   the owner's record, answers' keys and reply channels from their bases
returns   {"owned", token, previous, made, whole, proved, now_ms, watchers, inbox, room} | {"other", owner, token, url} | {"superseded", incarnation} | {"absent"} | {"closed"} | {"late"} | {"full", entries}
keeps     I-1, I-2, I-6, I-14
]]
--%include clock
--%include instance
--%include history
--%include token
--%include room
--%include life
--%include chunks
--%include answer
--%include lane
--%include cell
--%include commands
local incarnation_key, instances_key, instance_rooms_key = KEYS[1], KEYS[2], KEYS[3]
local owner_key, fence_key, room_key = KEYS[4], KEYS[5], KEYS[6]
local settings_key, guests_key, peers_key, presence_key, cell_key = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local watchers_key, rooms_key, lane_key = KEYS[12], KEYS[13], KEYS[14]
local inbox_key, aside_key, due_key = KEYS[15], KEYS[16], KEYS[17]
local me, incarnation, owner_ttl, floor = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local renew, open_only, room_id, route = ARGV[5] == "1", ARGV[6] == "1", ARGV[7], ARGV[8]
local instance_base, answer_base, reply_base = ARGV[9], ARGV[10], ARGV[11]
local deadline, may_be_born = tonumber(ARGV[12]), ARGV[13] == "1"
local lane_limit, first_sv, first_cv, first_entry = ARGV[14], ARGV[15], ARGV[16], ARGV[17]
local first_status, first_due, settings_n = ARGV[18], ARGV[19], tonumber(ARGV[20])

local now = now_ms()
if deadline and now > deadline then
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
if not exists and not may_be_born then
  return { "absent" }
end
if exists and open_only and redis.call("HGET", room_key, "status") == "closed" then
  return { "closed" }
end
if not exists and lane_is_full(lane_key, lane_limit) then
  return { "full", redis.call("XLEN", lane_key) }
end
local token = next_token(fence_key, math.max(floor, previous), now)
if holder == me and renew then
  token = previous
end
redis.call("SCARD", instance_rooms_key)
redis.call("ZSCORE", rooms_key, room_id)
local watchers = redis.call("SCARD", watchers_key)
local waiting = redis.call("XLEN", inbox_key)
local is_whole = not exists or whole(room_key, sizes(settings_key, guests_key, peers_key, presence_key, cell_key))
local proved = not exists or is_proved(room_key)
local birth, due_before = nil, nil
if not exists then
  due_before = redis.call("ZSCORE", due_key, route)
  local settings = {}
  for i = 21, 20 + 2 * settings_n do
    settings[#settings + 1] = ARGV[i]
  end
  local change, at = take_changes(ARGV, 21 + 2 * settings_n)
  local commands = take_commands(ARGV, at)
  birth = { settings = settings, change = change, commands = commands }
  look_aside(inbox_key, aside_key, commands)
end

redis.call("SET", owner_key, me .. " " .. digits(token), "PX", owner_ttl)
keep_fence(fence_key, token)
redis.call("SADD", instance_rooms_key, route)
redis.call("ZADD", rooms_key, 0, room_id)
-- One that is empty as well: what comes into it next must not end with it.
keep({ inbox_key })
if exists then
  redis.call("HSET", room_key, "token", digits(token))
  keep({ room_key, settings_key, guests_key, peers_key, presence_key, cell_key })
else
  redis.call("DEL", settings_key, guests_key, peers_key, presence_key, cell_key)
  in_chunks(birth.settings, function(...)
    redis.call("HSET", settings_key, ...)
  end)
  if first_entry ~= "" then
    append_to_lane(lane_key, {
      route = route,
      kind = "settings",
      sv = first_sv,
      token = digits(token),
      owner = me,
      at = now,
      entry = first_entry,
    })
  end
  local version = finish_commands(birth.commands, {
    inbox_key = inbox_key,
    aside_key = aside_key,
    lane_key = lane_key,
    route = route,
    me = me,
    token = digits(token),
    from = tonumber(first_cv),
    now = now,
    answer_base = answer_base,
    reply_base = reply_base,
  })
  local cell_n, peers_n, users_n = change_cell({ cell_key, peers_key, presence_key }, { 0, 0, 0 }, now, birth.change)
  redis.call("HSET", room_key, "history", history_now(), "token", digits(token), "status", first_status, "created_at", now, "sv", first_sv, "cv", digits(version), "batch", "",
    "committed_at", now, "settings_n", settings_n, "guests_n", 0, "cell_n", cell_n, "peers_n", peers_n,
    "users_n", users_n)
  if first_due ~= "" then
    redis.call("ZADD", due_key, first_due, route)
  elseif due_before then
    redis.call("ZREM", due_key, route)
  end
end
-- Whoever made it knows what it is made of.
local room = exists and load_room(room_key, settings_key, guests_key, peers_key, presence_key, cell_key) or {}
return { "owned", token, previous, exists and 0 or 1, is_whole and 1 or 0, proved and 1 or 0, now, watchers, waiting, room }
