--[[
purpose   Read the answer that a command got.
key  1    string   answer
returns   {"ok", digest, answer} | {"none"}
keeps     I-13
]]
--%include answer
local answer_key = KEYS[1]
local kept = redis.call("GET", answer_key)
if not kept then
  return { "none" }
end
local digest, answer = answer_of(kept)
return { "ok", digest, answer }
