--[[
purpose   Find rooms in which something falls due while nobody owns them, and instances that take rooms. Each room is found again after owner_ttl, as long as it is due.
key  1    string   lease            of the reaper
key  2    zset     due
key  3    zset     instances
arg  1    text     me               name/incarnation of the leader
arg  2    u64      token            of the leader
arg  3    ms       owner_ttl
arg  4    count    limit            rooms to look at
arg  5    text     bases            of owner keys, rooms' records and instances' records, separated by line feeds
derives   owner keys and records from their bases
returns   {"ok", routes, instances} | {"not_leader", lease}
keeps     I-18
]]
--%include clock
--%include lookup
local lease_key, due_key, instances_key = KEYS[1], KEYS[2], KEYS[3]
local me, token, owner_ttl, limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local bases = {}
for base in string.gmatch(ARGV[5], "[^\n]+") do
  bases[#bases + 1] = base
end
local owner_base, room_base, instance_base = bases[1], bases[2], bases[3]

local held = redis.call("GET", lease_key)
if held ~= me .. " " .. token then
  return { "not_leader", held or "" }
end
local now = now_ms()
redis.call("ZCARD", due_key)
local fresh = redis.call("ZRANGEBYSCORE", instances_key, "(" .. digits(now - owner_ttl), "+inf")

local unowned = {}
for _, route in ipairs(redis.call("ZRANGEBYSCORE", due_key, "-inf", now, "LIMIT", 0, limit)) do
  if redis.call("EXISTS", room_base .. route) == 0 then
    redis.call("ZREM", due_key, route)
  else
    redis.call("ZADD", due_key, now + owner_ttl, route)
    if redis.call("EXISTS", owner_base .. route) == 0 then
      unowned[#unowned + 1] = route
    end
  end
end
local takers = {}
for _, instance in ipairs(#unowned > 0 and fresh or {}) do
  local record = redis.pcall("HMGET", instance_base .. instance, "roles", "draining", "gone")
  local roles = not failed(record) and record[1] or ""
  if string.find("," .. roles .. ",", ",signaling,", 1, true) and record[2] ~= "1" and not record[3] then
    takers[#takers + 1] = instance
  end
end
return { "ok", unowned, takers }
