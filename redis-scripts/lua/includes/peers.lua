--[[
include   peers
purpose   One change of a room's peers: who joined, who left, the record's sizes and cell version.
defines   change_peers(keys, now, change)
]]
-- keys   {room, peers, presence}
-- change {added = {peer, json}?, user?, removed = {peer…}, gone = {user…}}
local function change_peers(keys, now, change)
  local room_key, peers_key, presence_key = keys[1], keys[2], keys[3]
  in_chunks(change.removed, function(...)
    redis.call("HDEL", peers_key, ...)
  end)
  in_chunks(change.gone, function(...)
    redis.call("ZREM", presence_key, ...)
  end)
  if change.added then
    redis.call("HSET", peers_key, change.added[1], change.added[2])
    redis.call("ZADD", presence_key, now, change.user)
  end
  local count = redis.call("HLEN", peers_key)
  local version = redis.call("HINCRBY", room_key, "cv", 1)
  redis.call("HSET", room_key, "peers_n", count, "users_n", redis.call("ZCARD", presence_key))
  return version, count
end
