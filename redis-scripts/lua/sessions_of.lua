--[[
purpose   List a user's sessions on instances that live.
key  1    zset     instances
key  2    hash     sessions
returns   {"ok", sessions}
keeps     I-17
]]
--%include sessions
local instances_key, sessions_key = KEYS[1], KEYS[2]
redis.call("ZCARD", instances_key)
-- For each session: instance, socket, session as JSON.
local sessions = {}
local found = redis.call("HGETALL", sessions_key)
for i = 1, #found, 2 do
  local instance, socket = session_of(found[i])
  if instance and redis.call("ZSCORE", instances_key, instance) then
    for _, item in ipairs({ instance, socket, found[i + 1] }) do
      sessions[#sessions + 1] = item
    end
  end
end
return { "ok", sessions }
