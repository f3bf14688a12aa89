--[[
purpose   Pass on how loud people in a room are: from anybody to the room's owner, and from the owner to who watches.
key  1    string   owner
key  2    set      watchers
arg  1    text     from             name/incarnation of the owner, if it is the owner who tells; empty: it is to be told
arg  2    text     sync_base        what stands before name/incarnation in a router-sync channel
arg  3    text     fanout_base      what stands before name/incarnation in a fanout channel
arg  4    json     message
derives   the owner's and the watchers' channels from their bases
returns   {"ok", told} | {"unowned"}
keeps     I-5
]]
--%include instance
--%include fanout
local owner_key, watchers_key = KEYS[1], KEYS[2]
local from, sync_base, fanout_base, message = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local held = redis.call("GET", owner_key)
local watchers = redis.call("SMEMBERS", watchers_key)
local owner = held and lease_of(held) or ""
if owner == "" or (from ~= "" and from ~= owner) then
  return { "unowned" }
end
if from == "" then
  redis.call("PUBLISH", sync_base .. owner, message)
  return { "ok", 1 }
end
fanout(watchers, fanout_base, message)
return { "ok", #watchers }
