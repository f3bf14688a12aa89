--[[
purpose   Append work to a room's inbox, from any instance, and tell the room's owner.
key  1    hash     room             record
key  2    string   owner
key  3    stream   inbox
key  4    zset     due
arg  1    text     me               name/incarnation of the caller
arg  2    text     route
arg  3    json     route_json       the route as a JSON string
arg  4    text     owner_bases      what stands before name/incarnation in a router-sync channel and in a key of marks, separated by a line feed
arg  5    text     answer_base      what stands before a route in an answer's key
arg  6    count    cap              entries that may wait
arg  7    json     payload          what is to be done
arg  8    text     caller
arg  9    text     id               of the command; empty: its answer is not kept
arg  10   text     digest           of the command's body
arg  11   text     number           of the caller's question; empty: it does not wait for an answer
arg  12   text     deadline         ms; empty: none
derives   the answer's key and the owner's channel and marks from their bases
returns   {"ok", entry, owner} | {"missing", owner} | {"full", length} | {"answered", digest, answer}
keeps     I-5, I-13
]]
--%include clock
--%include instance
--%include inbox
--%include owner
--%include answer
local room_key, owner_key, inbox_key, due_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local me, route, route_json, owner_bases, answer_base = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local cap, payload, caller, id = tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9]
local digest, number, deadline = ARGV[10], ARGV[11], ARGV[12]

local answer = id ~= "" and redis.call("GET", answer_base .. route .. "\0" .. caller .. "\0" .. id)
if answer then
  local executed, text = answer_of(answer)
  return { "answered", executed, text }
end
local held = redis.call("GET", owner_key)
local owner = held and lease_of(held) or ""
if not redis.call("HGET", room_key, "status") then
  return { "missing", owner }
end
local length = redis.call("XLEN", inbox_key)
redis.call("ZSCORE", due_key, route)
if length >= cap then
  return { "full", length }
end

local now = now_ms()
local fields = { "payload", payload, "at", digits(now) }
local function add(field, value)
  if value ~= "" then
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
end
if id ~= "" then
  add("caller", caller)
  add("id", id)
  add("digest", digest)
end
if number ~= "" then
  add("reply", me)
  add("number", number)
end
add("deadline", deadline)
local entry = redis.call("XADD", inbox_key, "*", unpack(fields))
redis.call("ZADD", due_key, "LT", due_from(now, held, owner_key, room_key, inbox_key), route)
tell_owner(owner_bases, owner, me, route, now, inbox_notice(route_json, entry))
return { "ok", entry, owner }
