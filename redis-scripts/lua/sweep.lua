--[[
purpose   Walk one page of an app's index: give rooms without an owner an end, drop those that are gone.
key  1    string   lease            of the reaper
key  2    zset     rooms            index of the app
arg  1    text     me               name/incarnation of the leader
arg  2    u64      token            of the leader
arg  3    text     app
arg  4    text     after            room id to go on from; empty: the first
arg  5    count    limit
arg  6    ms       life             of a room that nobody owns
arg  7    text     bases            of owner, room, settings, guests, peers, presence, cell and inbox keys, separated by line feeds
derives   every key of a room from its base, the app and the room
returns   {"ok", next, ended, dropped} | {"not_leader", lease}
keeps     I-17, I-18
]]
--%include life
local lease_key, rooms_key = KEYS[1], KEYS[2]
local me, token, app, after, limit, life = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local bases = {}
for base in string.gmatch(ARGV[7], "[^\n]+") do
  bases[#bases + 1] = base
end

local held = redis.call("GET", lease_key)
if held ~= me .. " " .. token then
  return { "not_leader", held or "" }
end
local first = after == "" and "-" or "(" .. after
local page = redis.call("ZRANGEBYLEX", rooms_key, first, "+", "LIMIT", 0, limit)
local ended, dropped = 0, {}
for _, room in ipairs(page) do
  local route = app .. "\0" .. room
  if redis.call("EXISTS", bases[1] .. route) == 0 then
    local left = redis.call("PTTL", bases[2] .. route)
    if left < 0 then
      local keys = {}
      for i = 2, #bases do
        keys[#keys + 1] = bases[i] .. route
      end
      end_after(life, keys)
    end
    if left == -2 then
      dropped[#dropped + 1] = room
    elseif left == -1 then
      ended = ended + 1
    end
  end
end
if #dropped > 0 then
  redis.call("ZREM", rooms_key, unpack(dropped))
end
return { "ok", #page == limit and page[#page] or "", ended, #dropped }
