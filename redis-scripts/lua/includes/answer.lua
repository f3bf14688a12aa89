--[[
include   answer
purpose   The answer that a command got, as it is kept for its repeats.
defines   answer_of(value), keep_answer(answer_key, digest, answer)
]]
local ANSWER_LIFE_MS = 24 * 3600 * 1000

local function answer_of(value)
  return string.match(value, "^([^\n]*)\n(.*)$")
end

local function keep_answer(answer_key, digest, answer)
  redis.call("SET", answer_key, digest .. "\n" .. answer, "PX", ANSWER_LIFE_MS)
end
