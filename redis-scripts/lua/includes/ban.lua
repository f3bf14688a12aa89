--[[
include   ban
purpose   Whether a room's cell keeps a user out.
defines   banned(cell_key, user, now)
]]
local function banned(cell_key, user, now)
  local ban = redis.call("HGET", cell_key, "ban:" .. user)
  if not ban then
    return false
  end
  local read, found = pcall(cjson.decode, ban)
  local ends = read and type(found) == "table" and found["until"]
  return type(ends) ~= "number" or now < ends
end
