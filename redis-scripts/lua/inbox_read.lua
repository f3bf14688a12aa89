--[[
purpose   Read a room's inbox in order.
key  1    stream   inbox
arg  1    text     after            stream id to go on from; empty: the first
arg  2    count    limit
returns   {"ok", entries}
keeps     I-13
]]
local inbox_key = KEYS[1]
local after, limit = ARGV[1], ARGV[2]
local first = after == "" and "-" or "(" .. after
return { "ok", redis.call("XRANGE", inbox_key, first, "+", "COUNT", limit) }
