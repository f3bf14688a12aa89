--[[
purpose   Read the oldest entries of lanes, and how many each has.
arg  1    text     lane_base        what stands before a number in a lane's key
arg  2    count    limit            entries of one lane
arg  3    count    total            entries of all of them
arg  4.. text     lanes
derives   lanes from their base
returns   {"ok", now_ms, lanes}
keeps     I-14
]]
--%include clock
--%include lookup
local lane_base, limit, total = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
-- For each lane: its length, and its entries as Redis has them. One of another type must not stop the rest.
local lanes = {}
for i = 4, #ARGV do
  local lane_key = lane_base .. ARGV[i]
  local length, entries = redis.pcall("XLEN", lane_key), {}
  length = failed(length) and 0 or length
  local wanted = math.min(length, limit, total)
  if wanted > 0 then
    entries = redis.call("XRANGE", lane_key, "-", "+", "COUNT", wanted)
    total = total - #entries
  end
  lanes[#lanes + 1] = length
  lanes[#lanes + 1] = entries
end
return { "ok", now_ms(), lanes }
