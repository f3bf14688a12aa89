--[[
purpose   Tell every instance that holds a session of one of these users, once for each user; forget the sessions of instances that are gone.
key  1    zset     instances
arg  1    text     sessions_base    what stands before app and user in a key of sessions
arg  2    text     instance_base    what stands before name/incarnation in a record's key
arg  3    text     control_base     what stands before name/incarnation in a control channel
arg  4    text     app
arg  5    text     event            its name
arg  6    json     body             of the event
arg  7    text     except           a socket that knows already; empty: none
arg  8..  text     users
derives   keys of sessions, instances' records and control channels from their bases
returns   {"ok", messages}
keeps     I-17
]]
--%include lookup
--%include sessions
local instances_key = KEYS[1]
local sessions_base, instance_base, control_base = ARGV[1], ARGV[2], ARGV[3]
local app, event, body, except = ARGV[4], ARGV[5], ARGV[6], ARGV[7]

redis.call("ZCARD", instances_key)
local lives, is_gone = {}, {}
local messages, forgotten = {}, {}
-- A key of another type costs its user, and no other.
for i = 8, #ARGV do
  local user, told = ARGV[i], {}
  local sessions_key = sessions_base .. app .. "\0" .. user
  local fields = redis.pcall("HKEYS", sessions_key)
  for _, field in ipairs(failed(fields) and {} or fields) do
    local instance = session_of(field) or ""
    if lives[instance] == nil then
      lives[instance], is_gone[instance] = standing_of(instances_key, instance_base .. instance, instance)
    end
    if lives[instance] and not told[instance] then
      told[instance] = true
      messages[#messages + 1] = { instance, user }
    elseif is_gone[instance] then
      forgotten[#forgotten + 1] = { sessions_key, field }
    end
  end
end

for _, session in ipairs(forgotten) do
  redis.call("HDEL", session[1], session[2])
end
for _, message in ipairs(messages) do
  redis.call("PUBLISH", control_base .. message[1], '{"app":' .. cjson.encode(app) .. ',"user":'
    .. cjson.encode(message[2]) .. ',"event":' .. cjson.encode(event) .. ',"body":' .. body
    .. (except ~= "" and ',"except":' .. cjson.encode(except) or "") .. "}")
end
return { "ok", #messages }
