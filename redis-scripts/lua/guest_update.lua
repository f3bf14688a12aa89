--[[
purpose   Merge a patch into one user's guest state, from any instance, and tell the room's owner and watchers.
key  1    hash     room             record
key  2    hash     guests
key  3    zset     presence
key  4    string   owner
key  5    set      watchers
key  6    string   fence
key  7    hash     cell
key  8    stream   lane
arg  1    text     me               name/incarnation of the caller
arg  2    text     route
arg  3    text     by               the user who wants it; empty: a back end
arg  4    text     if_version       refuse unless sv is this; empty: whatever it is
arg  5    count    max_bytes        of one user's state
arg  6    count    max_guests       users with a state in one room
arg  7    text     user
arg  8    flag     present          1: only while the user is in the room
arg  9    json     patch
arg  10   text     owner_bases      what stands before name/incarnation in a router-sync channel and in a key of marks, separated by a line feed
arg  11   text     fanout_base      what stands before name/incarnation in a fanout channel
arg  12   json     route_json       the route as a JSON string
arg  13   text     members          of the message, and in braces the lane's entry: "guests":{…},"by":…
arg  14   count    lane_limit       refuse while the lane has so many entries
derives   the owner's and the watchers' channels and the owner's marks from their bases
returns   {"ok", sv, owner} | {"missing", owner} | {"damaged", owner} | {"closed", status} | {"conflict", sv} | {"full", entries} | {"too_large", field, bytes} | {"banned"} | {"demoted"} | {"too_many", guests} | {"not_present"}
keeps     I-4, I-5, I-14
]]
--%include clock
--%include instance
--%include history
--%include fanout
--%include owner
--%include merge
--%include ban
--%include role
--%include lane
local room_key, guests_key, presence_key, owner_key, watchers_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local fence_key, cell_key, lane_key = KEYS[6], KEYS[7], KEYS[8]
local me, route, by, if_version = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local max_bytes, max_guests = tonumber(ARGV[5]), tonumber(ARGV[6])
local user, present, patch = ARGV[7], ARGV[8] == "1", ARGV[9]
local owner_bases, fanout_base, route_json, members = ARGV[10], ARGV[11], ARGV[12], ARGV[13]
local lane_limit = ARGV[14]

local held = redis.call("GET", owner_key)
local owner = held and lease_of(held) or ""
local record = redis.call("HMGET", room_key, "status", "sv", "guests_n", "token")
if not record[1] or record[1] == "rebuilding" then
  return { "missing", owner }
end
local guests = redis.call("HLEN", guests_key)
if tonumber(record[3] or -1) ~= guests or not is_proved(room_key) then
  return { "damaged", owner }
end
if record[1] ~= "active" then
  return { "closed", record[1] }
end
local now = now_ms()
if by ~= "" and banned(cell_key, by, now) then
  return { "banned" }
end
if by ~= "" and not present and demoted(cell_key, by) then
  return { "demoted" }
end
-- A closed or an idle room has no owner, but the token that it was last held with.
local token = digits(math.max(tonumber(record[4] or 0), tonumber(redis.call("GET", fence_key) or 0)))
local from = tonumber(record[2])
if if_version ~= "" and tonumber(if_version) ~= from then
  return { "conflict", from }
end
if present and not redis.call("ZSCORE", presence_key, user) then
  return { "not_present" }
end
local state = redis.call("HGET", guests_key, user)
if not state and guests >= max_guests then
  return { "too_many", guests }
end
local watchers = redis.call("SMEMBERS", watchers_key)
if lane_is_full(lane_key, lane_limit) then
  return { "full", redis.call("XLEN", lane_key) }
end
local merged = merge(state, patch)
if #merged > max_bytes then
  return { "too_large", user, #merged }
end

redis.call("HSET", guests_key, user, merged)
redis.call("HSET", room_key, "sv", digits(from + 1), "guests_n", redis.call("HLEN", guests_key))
append_to_lane(lane_key, {
  route = route,
  kind = "guest",
  sv = from + 1,
  token = token,
  owner = owner,
  at = now,
  entry = "{" .. members .. "}",
})
local message = '{"room":' .. route_json .. ',"of":"settings","from":' .. digits(from) .. ',"to":' .. digits(from + 1)
  .. "," .. members .. "}"
tell_owner(owner_bases, owner, me, route, now, message)
fanout(watchers, fanout_base, message)
return { "ok", from + 1, owner }
