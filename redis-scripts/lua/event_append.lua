--[[
purpose   Append a business event to the stream of its app.
key  1    stream   events
arg  1    count    cap              entries that the stream keeps, about
arg  2    ms       life             of the stream after its newest entry
arg  3    text     id               of the event: it may come more than once
arg  4    text     type             of the event
arg  5    text     room             empty: it is about none
arg  6    json     payload
returns   {"ok", entry}
keeps     I-15, I-17
]]
local events_key = KEYS[1]
local cap, life, id, kind, room, payload = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local entry = redis.call("XADD", events_key, "MAXLEN", "~", cap, "*", "id", id, "type", kind, "room", room,
  "payload", payload)
redis.call("PEXPIRE", events_key, life)
return { "ok", entry }
