--[[
purpose   Note that users are still there, in a chunk of the rooms that I own, and that somebody must look after them if I vanish.
key  1    string   incarnation      newest incarnation of my name
key  2    zset     due
arg  1    text     me               name/incarnation
arg  2    u64      incarnation
arg  3    ms       horizon          a room with users falls due after it at the earliest
arg  4    text     owner_base       what stands before a route in an owner key
arg  5    text     presence_base    what stands before a route in a presence key
arg  6..  text     rooms            for each room: route, token, number of users, users
derives   owner and presence keys of the rooms from their bases
returns   {"ok", touched} | {"superseded", incarnation}
keeps     I-1, I-10
]]
--%include clock
--%include instance
--%include chunks
local incarnation_key, due_key = KEYS[1], KEYS[2]
local me, incarnation, horizon, owner_base, presence_base = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local newer = newer_than(incarnation_key, incarnation)
if newer then
  return { "superseded", newer }
end
redis.call("ZCARD", due_key)
local now = now_ms()
local rooms = {}
local at = 6
while at <= #ARGV do
  local route, token, users_n = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  if redis.call("GET", owner_base .. route) == me .. " " .. token then
    redis.call("ZCARD", presence_base .. route)
    rooms[#rooms + 1] = { presence_base .. route, at + 3, users_n, route }
  end
  at = at + 3 + users_n
end
local touched = 0
for _, room in ipairs(rooms) do
  local scored = {}
  for i = room[2], room[2] + room[3] - 1 do
    scored[#scored + 1] = now
    scored[#scored + 1] = ARGV[i]
  end
  in_chunks(scored, function(...)
    redis.call("ZADD", room[1], "XX", ...)
  end)
  if room[3] > 0 then
    redis.call("ZADD", due_key, "GT", now + horizon, room[4])
  end
  touched = touched + room[3]
end
return { "ok", touched }
