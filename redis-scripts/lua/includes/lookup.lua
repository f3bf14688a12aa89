--[[
include   lookup
purpose   Ask about one of many keys, where one that holds another type must not stop the rest.
defines   failed(reply)
]]
local function failed(reply)
  return type(reply) == "table" and reply.err ~= nil
end
