--[[
purpose   Take a lease that is not a room's, if it is free or mine.
key  1    string   lease
key  2    string   fence
arg  1    text     holder           name/incarnation
arg  2    ms       ttl
returns   {"ok", token, now_ms} | {"held", holder, remaining_ms}
keeps     I-18
]]
--%include clock
--%include instance
--%include token
local lease_key, fence_key = KEYS[1], KEYS[2]
local holder, ttl = ARGV[1], ARGV[2]
local held = redis.call("GET", lease_key)
local previous = 0
if held then
  local other, token = lease_of(held)
  if other ~= holder then
    return { "held", other, math.max(redis.call("PTTL", lease_key), 0) }
  end
  previous = token
end
local now = now_ms()
local token = next_token(fence_key, previous, now)
redis.call("SET", lease_key, holder .. " " .. digits(token), "PX", ttl)
keep_fence(fence_key, token)
return { "ok", token, now }
