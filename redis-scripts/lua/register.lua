--[[
purpose   Start an incarnation of an instance, unless another process holds its name.
key  1    zset     instances
key  2    string   incarnation      newest incarnation of the name
arg  1    text     name
arg  2    text     address          where this process listens; another address is another process
arg  3    ms       owner_ttl        a heartbeat younger than this is fresh
arg  4    ms       record_life
arg  5    ms       incarnation_life
arg  6    text     instance_base    what stands before name/incarnation in a record's key
arg  7..  text     fields           record: field, value, …
derives   the record's key from instance_base
returns   {"ok", incarnation, now_ms} | {"held", incarnation, address, age_ms}
keeps     I-1
]]
--%include clock
local instances_key, incarnation_key = KEYS[1], KEYS[2]
local name, address, owner_ttl, record_life = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local incarnation_life, instance_base = ARGV[5], ARGV[6]
local now = now_ms()
local last = tonumber(redis.call("GET", incarnation_key) or 0)
redis.call("ZCARD", instances_key)
if last > 0 then
  local previous = name .. "/" .. digits(last)
  local score = redis.call("ZSCORE", instances_key, previous)
  local record = redis.call("HMGET", instance_base .. previous, "address", "gone")
  if score and now - score < owner_ttl and record[1] and record[1] ~= address and not record[2] then
    return { "held", digits(last), record[1], math.max(now - score, 0) }
  end
end
local incarnation = math.max(last + 1, now)
local me = name .. "/" .. digits(incarnation)
local fields = { "address", address }
for i = 7, #ARGV do
  fields[#fields + 1] = ARGV[i]
end
redis.call("SET", incarnation_key, digits(incarnation), "PX", incarnation_life)
redis.call("HSET", instance_base .. me, unpack(fields))
redis.call("PEXPIRE", instance_base .. me, record_life)
redis.call("ZADD", instances_key, now, me)
return { "ok", incarnation, now }
