--[[
purpose   Read what is fixed for ever in this cluster, after writing what is not there yet.
key  1    hash     facts
arg  1.. text     facts            name, value, …
returns   {"ok", facts}
keeps     I-14
]]
local facts_key = KEYS[1]
for i = 1, #ARGV, 2 do
  redis.call("HSETNX", facts_key, ARGV[i], ARGV[i + 1])
end
return { "ok", redis.call("HGETALL", facts_key) }
