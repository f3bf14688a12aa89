--[[
purpose   Merge a patch into one user's guest state, from any instance, and tell the room's owner and watchers.
key  1    hash     room             record
key  2    hash     guests
key  3    zset     presence
key  4    string   owner
key  5    set      watchers
arg  1    text     me               name/incarnation of the caller
arg  2    text     if_version       refuse unless sv is this; empty: whatever it is
arg  3    count    max_bytes        of one user's state
arg  4    count    max_guests       users with a state in one room
arg  5    text     user
arg  6    flag     present          1: only while the user is in the room
arg  7    json     patch
arg  8    text     sync_base        what stands before name/incarnation in a router-sync channel
arg  9    text     fanout_base      what stands before name/incarnation in a fanout channel
arg  10   text     route            as a JSON string
arg  11   text     members          of the message: "guests":{…},"by":…
derives   the owner's and the watchers' channels from their bases
returns   {"ok", sv, owner} | {"missing", owner} | {"damaged", owner} | {"closed", status} | {"conflict", sv} | {"too_large", field, bytes} | {"too_many", guests} | {"not_present"}
keeps     I-4, I-5
]]
--%include clock
--%include instance
--%include fanout
--%include merge
local room_key, guests_key, presence_key, owner_key, watchers_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local me, if_version, max_bytes, max_guests = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local user, present, patch = ARGV[5], ARGV[6] == "1", ARGV[7]
local sync_base, fanout_base, route, members = ARGV[8], ARGV[9], ARGV[10], ARGV[11]

local held = redis.call("GET", owner_key)
local owner = held and lease_of(held) or ""
local record = redis.call("HMGET", room_key, "status", "sv", "guests_n")
if not record[1] then
  return { "missing", owner }
end
local guests = redis.call("HLEN", guests_key)
if tonumber(record[3] or -1) ~= guests then
  return { "damaged", owner }
end
if record[1] ~= "active" then
  return { "closed", record[1] }
end
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
local merged = merge(state, patch)
if #merged > max_bytes then
  return { "too_large", user, #merged }
end

redis.call("HSET", guests_key, user, merged)
redis.call("HSET", room_key, "sv", digits(from + 1), "guests_n", redis.call("HLEN", guests_key))
local message = '{"room":' .. route .. ',"of":"settings","from":' .. digits(from) .. ',"to":' .. digits(from + 1)
  .. "," .. members .. "}"
if owner ~= "" and owner ~= me then
  redis.call("PUBLISH", sync_base .. owner, message)
end
fanout(watchers, fanout_base, message)
return { "ok", from + 1, owner }
