--[[
purpose   Add a peer to a room that I own, in place of the peers that it replaces.
key  1    string   incarnation      newest incarnation of my name
key  2    string   owner
key  3    hash     room             record
key  4    hash     peers
key  5    zset     presence
key  6    set      watchers
arg  1    text     me               name/incarnation
arg  2    u64      incarnation
arg  3    u64      token            fencing token held
arg  4    text     peer
arg  5    text     user
arg  6    json     record           of the peer
arg  7    text     fanout_base      what stands before name/incarnation in a fanout channel
arg  8    text     route            as a JSON string
arg  9    text     members          of the fanout message: "joined":[…],"left":[…]
arg  10.. text     replaced         peers that this one replaces
derives   the watchers' channels from fanout_base
returns   {"ok", cv, peer_count, watchers, now_ms} | {"lost", owner} | {"missing"} | {"closed", status} | {"superseded", incarnation}
keeps     I-1, I-3, I-6
]]
--%include clock
--%include instance
--%include chunks
--%include peers
--%include fanout
local incarnation_key, owner_key, room_key = KEYS[1], KEYS[2], KEYS[3]
local peers_key, presence_key, watchers_key = KEYS[4], KEYS[5], KEYS[6]
local me, incarnation, token, peer, user = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local record, fanout_base, route, members = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

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
if said[1] ~= "active" then
  return { "closed", said[1] }
end
local watchers = redis.call("SMEMBERS", watchers_key)

local now = now_ms()
local removed = {}
for i = 10, #ARGV do
  removed[#removed + 1] = ARGV[i]
end
local version, count = change_peers({ room_key, peers_key, presence_key }, now, {
  added = { peer, record },
  user = user,
  removed = removed,
  gone = {},
})
if #watchers > 0 and members ~= "" then
  fanout(watchers, fanout_base, '{"room":' .. route .. ',"of":"cell","from":' .. digits(version - 1)
    .. ',"to":' .. digits(version) .. "," .. members .. ',"peerCount":' .. digits(count) .. "}")
end
return { "ok", version, count, #watchers, now }
