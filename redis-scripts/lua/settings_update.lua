--[[
purpose   Merge a patch into a room's settings, from any instance, and tell its owner and watchers.
key  1    hash     room             record
key  2    hash     settings
key  3    string   owner
key  4    set      watchers
key  5    string   fence
key  6    hash     cell
key  7    stream   lane
arg  1    text     me               name/incarnation of the caller
arg  2    text     route
arg  3    text     by               the user who wants it; empty: a back end
arg  4    text     if_version       refuse unless sv is this; empty: whatever it is
arg  5    count    max_bytes        of one setting
arg  6    text     owner_bases      what stands before name/incarnation in a router-sync channel and in a key of marks, separated by a line feed
arg  7    text     fanout_base      what stands before name/incarnation in a fanout channel
arg  8    json     route_json       the route as a JSON string
arg  9    text     members          of the message, and in braces the lane's entry: "settings":{…},"by":…
arg  10   count    lane_limit       refuse while the lane has so many entries
arg  11.. json     patch            field, patch, …
derives   the owner's and the watchers' channels and the owner's marks from their bases
returns   {"ok", sv, owner} | {"missing", owner} | {"damaged", owner} | {"closed", status} | {"conflict", sv} | {"full", entries} | {"too_large", field, bytes} | {"banned"} | {"demoted"}
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
--%include chunks
local room_key, settings_key, owner_key, watchers_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local fence_key, cell_key, lane_key = KEYS[5], KEYS[6], KEYS[7]
local me, route, by, if_version, max_bytes = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local owner_bases, fanout_base, route_json, members = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local lane_limit = ARGV[10]

local held = redis.call("GET", owner_key)
local owner = held and lease_of(held) or ""
local record = redis.call("HMGET", room_key, "status", "sv", "settings_n", "token")
if not record[1] or record[1] == "rebuilding" then
  return { "missing", owner }
end
if tonumber(record[3] or -1) ~= redis.call("HLEN", settings_key) or not is_proved(room_key) then
  return { "damaged", owner }
end
if record[1] ~= "active" then
  return { "closed", record[1] }
end
local now = now_ms()
if by ~= "" and banned(cell_key, by, now) then
  return { "banned" }
end
if by ~= "" and demoted(cell_key, by) then
  return { "demoted" }
end
-- A closed or an idle room has no owner, but the token that it was last held with.
local token = digits(math.max(tonumber(record[4] or 0), tonumber(redis.call("GET", fence_key) or 0)))
local from = tonumber(record[2])
if if_version ~= "" and tonumber(if_version) ~= from then
  return { "conflict", from }
end
local watchers = redis.call("SMEMBERS", watchers_key)
if lane_is_full(lane_key, lane_limit) then
  return { "full", redis.call("XLEN", lane_key) }
end
local merged = {}
for i = 11, #ARGV, 2 do
  local value = merge(redis.call("HGET", settings_key, ARGV[i]), ARGV[i + 1])
  if #value > max_bytes then
    return { "too_large", ARGV[i], #value }
  end
  merged[#merged + 1] = ARGV[i]
  merged[#merged + 1] = value
end

in_chunks(merged, function(...)
  redis.call("HSET", settings_key, ...)
end)
redis.call("HSET", room_key, "sv", digits(from + 1), "settings_n", redis.call("HLEN", settings_key))
append_to_lane(lane_key, {
  route = route,
  kind = "settings",
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
