--[[
purpose   Put back answers to a room's commands that Redis lost, for as long as they would have been kept.
arg  1    text     route
arg  2    text     answer_base      what stands before a route in an answer's key
arg  3.. text     answers          caller, id, digest, answer, when it was committed in ms, …
derives   answers' keys from their base
returns   {"ok", restored}
keeps     I-13
]]
--%include clock
--%include answer
local route, answer_base = ARGV[1], ARGV[2]
local now, restored = now_ms(), 0
for i = 3, #ARGV, 5 do
  local answer_key = answer_base .. route .. "\0" .. ARGV[i] .. "\0" .. ARGV[i + 1]
  if redis.call("EXISTS", answer_key) == 0 and keep_answer(answer_key, ARGV[i + 2], ARGV[i + 3], now - ARGV[i + 4]) then
    restored = restored + 1
  end
end
return { "ok", restored }
