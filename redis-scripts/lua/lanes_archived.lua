--[[
purpose   Take out of lanes what the ledger has. It is kept for a while, so that a ledger that falls back can be fed again.
key  1    hash     checkpoints
arg  1    text     me               name/incarnation
arg  2    ms       keep_ms
arg  3    count    keep_entries     of each lane; 0: none
arg  4    text     bases            of leases, lanes and what is kept of them, separated by line feeds
arg  5.. text     rest             for each lane: number, token, batches of it that the ledger has, number of entries, their ids
derives   leases, lanes and kept lanes from their bases
returns   {"ok", lost}
keeps     I-14
]]
--%include clock
--%include chunks
--%include lookup
local checkpoints_key = KEYS[1]
local me, keep_ms, keep_entries = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local bases = {}
for base in string.gmatch(ARGV[4], "[^\n]+") do
  bases[#bases + 1] = base
end
local lease_base, lane_base, kept_base = bases[1], bases[2], bases[3]
redis.call("HLEN", checkpoints_key)

-- A key of another type counts as lost: it costs its lane, not the others.
local function is_stream(name)
  return not failed(redis.pcall("XLEN", name))
end

local now, lost, at = now_ms(), {}, 5
while at <= #ARGV do
  local lane, token, batches, count = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  local ids, archived = {}, {}
  for i = 1, count do
    ids[i] = ARGV[at + 3 + i]
    archived[ids[i]] = true
  end
  at = at + 4 + count
  if redis.pcall("GET", lease_base .. "lane-" .. lane) ~= me .. " " .. token then
    lost[#lost + 1] = lane
  else
    local lane_key, kept_key = lane_base .. lane, kept_base .. lane
    if count > 0 and is_stream(lane_key) then
      if keep_entries > 0 and is_stream(kept_key) then
        for _, entry in ipairs(redis.call("XRANGE", lane_key, ids[1], ids[count])) do
          if archived[entry[1]] then
            redis.call("XADD", kept_key, "MAXLEN", "~", keep_entries, "*", unpack(entry[2]))
          end
        end
        redis.call("XTRIM", kept_key, "MINID", "~", digits(now - keep_ms))
        redis.call("PEXPIRE", kept_key, digits(keep_ms))
      end
      in_chunks(ids, function(...)
        redis.call("XDEL", lane_key, ...)
      end)
    end
    redis.call("HSET", checkpoints_key, lane, batches)
  end
end
return { "ok", lost }
