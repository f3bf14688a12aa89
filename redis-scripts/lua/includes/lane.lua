--[[
include   lane
purpose   Append a committed change to its lane, from where it goes to the ledger; and how long the lane is.
defines   append_to_lane(lane_key, change), lane_is_full(lane_key, limit)
]]
-- change {route, kind, token, owner, at, entry, cv or sv or both; caller, id, digest, answer if its answer is kept}
local function append_to_lane(lane_key, change)
  local fields = { "room", change.route, "kind", change.kind, "token", change.token, "owner", change.owner,
    "at", digits(change.at), "entry", change.entry }
  for _, name in ipairs({ "cv", "sv" }) do
    if change[name] then
      fields[#fields + 1] = name
      fields[#fields + 1] = digits(change[name])
    end
  end
  if change.digest and change.digest ~= "" then
    for _, name in ipairs({ "caller", "id", "digest", "answer" }) do
      fields[#fields + 1] = name
      fields[#fields + 1] = change[name]
    end
  end
  redis.call("XADD", lane_key, "*", unpack(fields))
end

local function lane_is_full(lane_key, limit)
  return redis.call("XLEN", lane_key) >= tonumber(limit)
end
