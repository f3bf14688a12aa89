--[[
purpose   Write a room that Redis lost anew from its living owner's memory, with versions leaping forward.
key  1    string   incarnation      newest incarnation of my name
key  2    string   owner
key  3    hash     room             record
key  4    hash     settings
key  5    hash     guests
key  6    hash     peers
key  7    zset     presence
key  8    zset     rooms            index of the app
key  9    hash     cell
key  10   zset     due
key  11   stream   lane
arg  1    text     me               name/incarnation
arg  2    u64      incarnation
arg  3    u64      token            fencing token held
arg  4    text     seen             sv of the record that the caller read; empty: it was not there
arg  5    u64      sv               settings version to go on from
arg  6    u64      cv               cell version to go on from
arg  7    ms       created_at
arg  8    text     room             id in the index
arg  9    text     route
arg  10   text     status
arg  11   text     batch            names the last commit that is in it
arg  12   text     due              ms: when something falls due next; empty: nothing does
arg  13   json     entry            all of it, for the ledger
arg  14   count    settings         number of settings
arg  15   count    guests           number of guest states
arg  16.. text     rest             settings: field, JSON, …; guests: user, JSON, …; the cell, its peers and who is present as the include cell takes changes
returns   {"ok", now_ms} | {"changed", sv} | {"lost", owner} | {"superseded", incarnation}
keeps     I-1, I-3, I-6, I-14
]]
--%include clock
--%include instance
--%include history
--%include chunks
--%include cell
--%include lane
local incarnation_key, owner_key, room_key, settings_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local guests_key, peers_key, presence_key, rooms_key = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local cell_key, due_key, lane_key = KEYS[9], KEYS[10], KEYS[11]
local me, incarnation, token, seen = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local sv, cv, created_at, room_id = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local route, status, batch, due = ARGV[9], ARGV[10], ARGV[11], ARGV[12]
local entry, settings_n, guests_n = ARGV[13], tonumber(ARGV[14]), tonumber(ARGV[15])

local newer = newer_than(incarnation_key, incarnation)
if newer then
  return { "superseded", newer }
end
local held = redis.call("GET", owner_key)
if held ~= me .. " " .. token then
  return { "lost", held or "" }
end
redis.call("ZSCORE", rooms_key, room_id)
redis.call("ZSCORE", due_key, route)
redis.call("XLEN", lane_key)
local stands_at = redis.call("HGET", room_key, "sv") or ""
if stands_at ~= seen then
  return { "changed", stands_at }
end

local now = now_ms()
redis.call("DEL", room_key, settings_key, guests_key, peers_key, presence_key, cell_key)
local at = 16
for _ = 1, settings_n do
  redis.call("HSET", settings_key, ARGV[at], ARGV[at + 1])
  at = at + 2
end
for _ = 1, guests_n do
  redis.call("HSET", guests_key, ARGV[at], ARGV[at + 1])
  at = at + 2
end
local cell_n, peers_n, users_n = change_cell({ cell_key, peers_key, presence_key }, { 0, 0, 0 }, now,
  (take_changes(ARGV, at)))
redis.call("HSET", room_key, "history", history_now(), "status", status, "created_at", created_at, "token", token, "sv", sv, "cv", cv, "batch", batch,
  "committed_at", now, "settings_n", settings_n, "guests_n", guests_n, "cell_n", cell_n, "peers_n", peers_n,
  "users_n", users_n)
append_to_lane(lane_key, {
  route = route,
  kind = "state",
  cv = cv,
  sv = sv,
  token = token,
  owner = me,
  at = now,
  entry = entry,
})
redis.call("ZADD", rooms_key, 0, room_id)
if due ~= "" then
  redis.call("ZADD", due_key, due, route)
else
  redis.call("ZREM", due_key, route)
end
return { "ok", now }
