--[[
include   lane
purpose   Append a committed change to its lane. Without a ledger the lanes are the only log, and they are bounded.
defines   append_to_lane(lane_key, change)
]]
local LANE_CAP = 100000

-- change {route, kind, version = name, number, token, owner, at, entry}
local function append_to_lane(lane_key, change)
  redis.call("XADD", lane_key, "MAXLEN", "~", LANE_CAP, "*",
    "room", change.route,
    "kind", change.kind,
    change.version, digits(change.number),
    "token", change.token,
    "owner", change.owner,
    "at", digits(change.at),
    "entry", change.entry)
end
