--[[
include   chunks
purpose   Hand a long list to a command in pieces: unpack holds some 8,000 values at most.
defines   in_chunks(list, use)
]]
local CHUNK = 2000

local function in_chunks(list, use)
  for first = 1, #list, CHUNK do
    use(unpack(list, first, math.min(first + CHUNK - 1, #list)))
  end
end
