--[[
purpose   Remove peers, and the users who left with their last one, from a room that I own.
key  1    string   incarnation      newest incarnation of my name
key  2    string   owner
key  3    hash     room             record
key  4    hash     peers
key  5    zset     presence
key  6    set      watchers
arg  1    text     me               name/incarnation
arg  2    u64      incarnation
arg  3    u64      token            fencing token held
arg  4    text     fanout_base      what stands before name/incarnation in a fanout channel
arg  5    text     route            as a JSON string
arg  6    text     members          of the fanout message: "joined":[],"left":[…]
arg  7    count    peers            number of peers that follow
arg  8..  text     rest             peers, then the users who are gone
derives   the watchers' channels from fanout_base
returns   {"ok", cv, peer_count, watchers, now_ms} | {"lost", owner} | {"missing"} | {"superseded", incarnation}
keeps     I-1, I-3, I-6
]]
--%include clock
--%include instance
--%include chunks
--%include peers
--%include fanout
local incarnation_key, owner_key, room_key = KEYS[1], KEYS[2], KEYS[3]
local peers_key, presence_key, watchers_key = KEYS[4], KEYS[5], KEYS[6]
local me, incarnation, token = ARGV[1], ARGV[2], ARGV[3]
local fanout_base, route, members, peers_n = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])

local newer = newer_than(incarnation_key, incarnation)
if newer then
  return { "superseded", newer }
end
local held = redis.call("GET", owner_key)
if held ~= me .. " " .. token then
  return { "lost", held or "" }
end
local said = redis.call("HMGET", room_key, "status", "peers_n", "users_n")
if not said[1] or tonumber(said[2]) ~= redis.call("HLEN", peers_key)
  or tonumber(said[3]) ~= redis.call("ZCARD", presence_key) then
  return { "missing" }
end
local watchers = redis.call("SMEMBERS", watchers_key)

local removed, gone = {}, {}
for i = 8, #ARGV do
  local list = i < 8 + peers_n and removed or gone
  list[#list + 1] = ARGV[i]
end
local version, count = change_peers({ room_key, peers_key, presence_key }, 0, { removed = removed, gone = gone })
if #watchers > 0 and members ~= "" then
  fanout(watchers, fanout_base, '{"room":' .. route .. ',"of":"cell","from":' .. digits(version - 1)
    .. ',"to":' .. digits(version) .. "," .. members .. ',"peerCount":' .. digits(count) .. "}")
end
return { "ok", version, count, #watchers, now_ms() }
