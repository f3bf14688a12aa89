--[[
include   role
purpose   Whether a command took the role of a host from a user, which outlasts presence.
defines   demoted(cell_key, user)
]]
local function demoted(cell_key, user)
  return redis.call("HGET", cell_key, "role:" .. user) == '"guest"'
end
