--[[
purpose   Read what is kept of a lane after the ledger took it, to feed it again; and how many batches the ledger had taken.
key  1    stream   kept
key  2    hash     checkpoints
arg  1    text     lane
arg  2    text     after            stream id to go on from; empty: the oldest
arg  3    count    limit
returns   {"ok", batches, entries}
keeps     I-14
]]
local kept_key, checkpoints_key = KEYS[1], KEYS[2]
local lane, after, limit = ARGV[1], ARGV[2], ARGV[3]
local first = after == "" and "-" or "(" .. after
return { "ok", redis.call("HGET", checkpoints_key, lane) or "0", redis.call("XRANGE", kept_key, first, "+", "COUNT", limit) }
