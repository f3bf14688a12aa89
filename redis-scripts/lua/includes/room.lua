--[[
include   room
purpose   A room's record against its other keys, and all of it in one answer.
defines   sizes(settings_key, guests_key, peers_key, presence_key, cell_key), whole(room_key, sizes_now), load_room(room_key, settings_key, guests_key, peers_key, presence_key, cell_key)
]]
local function sizes(settings_key, guests_key, peers_key, presence_key, cell_key)
  return {
    redis.call("HLEN", settings_key),
    redis.call("HLEN", guests_key),
    redis.call("HLEN", peers_key),
    redis.call("ZCARD", presence_key),
    redis.call("HLEN", cell_key),
  }
end

-- Whether the record says of its other keys what they are. Without it something was lost.
local function whole(room_key, sizes_now)
  local said = redis.call("HMGET", room_key, "settings_n", "guests_n", "peers_n", "users_n", "cell_n")
  for i = 1, 5 do
    if tonumber(said[i] or -1) ~= sizes_now[i] then
      return false
    end
  end
  return true
end

local function load_room(room_key, settings_key, guests_key, peers_key, presence_key, cell_key)
  return {
    redis.call("HGETALL", room_key),
    redis.call("HGETALL", settings_key),
    redis.call("HGETALL", guests_key),
    redis.call("HGETALL", peers_key),
    redis.call("ZRANGE", presence_key, 0, -1, "WITHSCORES"),
    redis.call("HGETALL", cell_key),
  }
end
