--[[
purpose   Append what a media server reported to a room's inbox, in order and all at once, and tell the room's owner.
key  1    hash     room             record
key  2    string   owner
key  3    stream   inbox
key  4    zset     due
arg  1    text     me               name/incarnation of the caller
arg  2    text     route
arg  3    json     route_json       the route as a JSON string
arg  4    text     owner_bases      what stands before name/incarnation in a router-sync channel and in a key of marks, separated by a line feed
arg  5    text     seen_base        what stands before a route in a callback's key
arg  6    count    cap              entries that may wait
arg  7..  text     reports          id, payload, …
derives   the callbacks' keys and the owner's channel and marks from their bases
returns   {"ok", appended, owner} | {"missing", owner} | {"full", length}
keeps     I-5, I-13
]]
--%include clock
--%include instance
--%include inbox
--%include owner
local room_key, owner_key, inbox_key, due_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local me, route, route_json, owner_bases = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local seen_base, cap = ARGV[5], tonumber(ARGV[6])
local SEEN_LIFE_MS = 600000

local held = redis.call("GET", owner_key)
local owner = held and lease_of(held) or ""
local fresh, among = {}, {}
for i = 7, #ARGV, 2 do
  local seen_key = seen_base .. route .. "\0" .. ARGV[i]
  if not among[seen_key] and not redis.call("GET", seen_key) then
    among[seen_key] = true
    fresh[#fresh + 1] = { seen_key, ARGV[i + 1] }
  end
end
local status = redis.call("HGET", room_key, "status")
local length = redis.call("XLEN", inbox_key)
redis.call("ZSCORE", due_key, route)
if #fresh == 0 then
  return { "ok", 0, owner }
end
if not status then
  return { "missing", owner }
end
if length + #fresh > cap then
  return { "full", length }
end

local now = now_ms()
local at, entry = digits(now), ""
for _, report in ipairs(fresh) do
  entry = redis.call("XADD", inbox_key, "*", "payload", report[2], "at", at)
  redis.call("SET", report[1], "1", "PX", SEEN_LIFE_MS)
end
redis.call("ZADD", due_key, "LT", due_from(now, held, owner_key, room_key, inbox_key), route)
tell_owner(owner_bases, owner, me, route, now, inbox_notice(route_json, entry))
return { "ok", #fresh, owner }
