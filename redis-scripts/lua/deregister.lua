--[[
purpose   End an incarnation that has released its rooms, so that nobody waits for its time to live.
key  1    zset     instances
key  2    hash     record           of this incarnation
key  3    zset     unheard
arg  1    text     me               name/incarnation
arg  2    ms       gone_life        how long others may still ask whether it is gone
returns   {"ok"}
keeps     I-1
]]
local instances_key, record_key, unheard_key = KEYS[1], KEYS[2], KEYS[3]
local me, gone_life = ARGV[1], ARGV[2]
redis.call("ZSCORE", instances_key, me)
redis.call("HSET", record_key, "gone", "1")
redis.call("PEXPIRE", record_key, gone_life)
redis.call("ZREM", instances_key, me)
redis.call("DEL", unheard_key)
return { "ok" }
