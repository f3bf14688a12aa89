--[[
purpose   Clear a chunk of what a dead instance left behind, and when nothing is left note its death for the apps. Its rooms' peers are for their next owner to end.
key  1    string   lease            of the reaper
key  2    zset     instances
key  3    hash     record           of the dead instance
key  4    set      instance_rooms   of the dead instance
key  5    set      instance_watches of the dead instance
key  6    zset     due
key  7    zset     unheard          of the dead instance
arg  1    text     me               name/incarnation of the leader
arg  2    u64      token            of the leader
arg  3    text     dead             name/incarnation
arg  4    ms       score            the heartbeat that the leader saw unchanged
arg  5    count    chunk            at most so many rooms, and so many watches
arg  6    ms       life             of a room that nobody owns
arg  7    text     bases            of owner, watchers, room, settings, guests, peers, presence, cell and inbox keys, separated by line feeds
arg  8    count    cleared          owner keys that earlier chunks cleared
arg  9    text     lane_base        what stands before a number in a lane's key
arg  10.. text     apps             for each: number of a lane, and what stands for a route
derives   every key of a room from its base and the route
returns   {"done", rooms, watches} | {"more", rooms, watches} | {"not_leader", lease} | {"alive", score}
keeps     I-1, I-14, I-18
]]
--%include clock
--%include instance
--%include life
--%include lookup
--%include lane
local lease_key, instances_key, record_key = KEYS[1], KEYS[2], KEYS[3]
local instance_rooms_key, instance_watches_key, due_key, unheard_key = KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local me, token, dead, score, chunk, life = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local bases = {}
for base in string.gmatch(ARGV[7], "[^\n]+") do
  bases[#bases + 1] = base
end
local owner_base, watchers_base = bases[1], bases[2]
local cleared, lane_base = tonumber(ARGV[8]), ARGV[9]

local held = redis.call("GET", lease_key)
if held ~= me .. " " .. token then
  return { "not_leader", held or "" }
end
local seen = redis.call("ZSCORE", instances_key, dead)
if seen and tonumber(seen) ~= tonumber(score) then
  return { "alive", seen }
end
redis.call("HEXISTS", record_key, "gone")
redis.call("ZCARD", due_key)
local routes = redis.call("SRANDMEMBER", instance_rooms_key, chunk)
local watches = redis.call("SRANDMEMBER", instance_watches_key, chunk)

-- A key of another type is nothing that the dead instance left: it is passed over and stops nothing.
local rooms, now = 0, now_ms()
for _, route in ipairs(routes) do
  local owner = redis.pcall("GET", owner_base .. route)
  if owner and not failed(owner) and lease_of(owner) == dead then
    redis.call("DEL", owner_base .. route)
    owner = nil
    rooms = rooms + 1
  end
  if not owner then
    local keys = {}
    for i = 3, #bases do
      keys[#keys + 1] = bases[i] .. route
    end
    end_after(life, keys)
    redis.call("ZADD", due_key, "LT", now, route)
  end
end
if #routes > 0 then
  redis.call("SREM", instance_rooms_key, unpack(routes))
end
for _, route in ipairs(watches) do
  redis.pcall("SREM", watchers_base .. route, dead)
end
if #watches > 0 then
  redis.call("SREM", instance_watches_key, unpack(watches))
end
if redis.call("EXISTS", instance_rooms_key, instance_watches_key) > 0 then
  return { "more", rooms, #watches }
end
redis.call("ZREM", instances_key, dead)
redis.call("DEL", record_key, unheard_key)
-- Once: whoever asks again does not see it any more.
if seen then
  local _, incarnation = name_of(dead)
  for i = 10, #ARGV, 2 do
    append_to_lane(lane_base .. ARGV[i], {
      route = ARGV[i + 1],
      kind = "instance",
      token = digits(incarnation),
      owner = me,
      at = now,
      entry = '{"instance":"' .. dead .. '","rooms":' .. digits(cleared + rooms) .. "}",
    })
  end
end
return { "done", rooms, #watches }
