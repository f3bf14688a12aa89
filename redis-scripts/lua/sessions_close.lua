--[[
purpose   Note sessions of users that ended on this instance.
arg  1    text     me               name/incarnation
arg  2    text     sessions_base    what stands before app and user in a key of sessions
arg  3..  text     sessions         for each: app and user, socket
derives   keys of sessions from sessions_base
returns   {"ok"}
keeps     I-17
]]
local me, sessions_base = ARGV[1], ARGV[2]
-- A key of another type costs its user, and no other.
for i = 3, #ARGV, 2 do
  redis.pcall("HDEL", sessions_base .. ARGV[i], me .. "|" .. ARGV[i + 1])
end
return { "ok" }
