--[[
purpose   What the name of a media router stands for.
key  1    string   router
returns   {"ok", generation, route} | {"none"}
keeps     I-17
]]
local is = redis.call("GET", KEYS[1])
if not is then
  return { "none" }
end
local generation, route = string.match(is, "^(%d+) (.*)$")
return { "ok", generation, route }
