--[[
purpose   Note sessions of users that began on this instance.
arg  1    text     me               name/incarnation
arg  2    ms       life             of a user's sessions
arg  3    text     sessions_base    what stands before app and user in a key of sessions
arg  4..  text     sessions         for each: app and user, socket, session as JSON
derives   keys of sessions from sessions_base
returns   {"ok"}
keeps     I-17
]]
local me, life, sessions_base = ARGV[1], ARGV[2], ARGV[3]
-- A key of another type costs its user, and no other.
for i = 4, #ARGV, 3 do
  redis.pcall("HSET", sessions_base .. ARGV[i], me .. "|" .. ARGV[i + 1], ARGV[i + 2])
  redis.call("PEXPIRE", sessions_base .. ARGV[i], life)
end
return { "ok" }
