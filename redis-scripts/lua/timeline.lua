--[[
purpose   Read what was committed to a room and is not in the ledger yet, newest first.
key  1    stream   lane
arg  1    text     route
arg  2    text     before           stream id to go on from; empty: the newest
arg  3    count    scan             entries of all rooms of the lane to look at
arg  4    count    limit            entries of the room
returns   {"ok", next, entries}
keeps     I-14
]]
local lane_key = KEYS[1]
local route, before, scan, limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local first = before == "" and "+" or "(" .. before
local page = redis.call("XREVRANGE", lane_key, first, "-", "COUNT", scan)
-- The last one looked at, unless there was none after it.
local last = #page == scan and page[#page][1] or ""
local entries = {}
for i, found in ipairs(page) do
  local fields = {}
  for j = 1, #found[2], 2 do
    fields[found[2][j]] = found[2][j + 1]
  end
  if fields.room == route then
    entries[#entries + 1] = found
    if #entries == limit then
      last = (i < #page or #page == scan) and found[1] or ""
      break
    end
  end
end
return { "ok", last, entries }
