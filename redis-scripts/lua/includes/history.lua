--[[
include   history
purpose   Which history of its data this server tells: another one after each start, and after each failover. What the last one acknowledged in its last moments may be lost.
defines   history_now(), is_proved(room_key)
]]
local function history_now()
  return string.sub(string.match(redis.call("INFO", "replication"), "master_replid:(%x+)"), 1, 16)
end

-- Whether the record was written, or proved by whoever knew better, in this history.
local function is_proved(room_key)
  return redis.call("HGET", room_key, "history") == history_now()
end
