--[[
purpose   Keep the sessions of users for a while longer; never makes one.
arg  1    ms       life
arg  2    text     sessions_base    what stands before app and user in a key of sessions
arg  3..  text     users            app and user of each
derives   keys of sessions from sessions_base
returns   {"ok"}
keeps     I-17
]]
local life, sessions_base = ARGV[1], ARGV[2]
for i = 3, #ARGV do
  redis.call("PEXPIRE", sessions_base .. ARGV[i], life)
end
return { "ok" }
