--[[
include   answer
purpose   The answer that a command got, as it is kept for its repeats.
defines   answer_of(value), keep_answer(answer_key, digest, answer, age_ms)
]]
local ANSWER_LIFE_MS = 24 * 3600 * 1000

local function answer_of(value)
  return string.match(value, "^([^\n]*)\n(.*)$")
end

-- Whether it is kept: one that is too old by now is not.
local function keep_answer(answer_key, digest, answer, age_ms)
  local life = ANSWER_LIFE_MS - math.max(age_ms, 0)
  if life > 0 then
    redis.call("SET", answer_key, digest .. "\n" .. answer, "PX", digits(life))
  end
  return life > 0
end
