--[[
purpose   Write what the owner of a room decided on one or more commands: all of it, or nothing.
key  1    string   incarnation      newest incarnation of my name
key  2    string   owner
key  3    hash     room             record
key  4    hash     cell
key  5    hash     peers
key  6    zset     presence
key  7    set      watchers
key  8    stream   lane
key  9    stream   inbox
key  10   stream   aside
key  11   zset     due
arg  1    text     me               name/incarnation
arg  2    u64      incarnation
arg  3    u64      token            fencing token held
arg  4    text     route
arg  5    u64      cv               cell version before the commit
arg  6    text     batch            names the commit: sent again, it is done once
arg  7    text     status           empty: as it is
arg  8    text     due              ms: when something falls due next; empty: nothing does
arg  9    text     answer_base      what stands before a route in an answer's key
arg  10   text     reply_base       what stands before name/incarnation in a reply channel
arg  11   text     fanout_base      what stands before name/incarnation in a fanout channel
arg  12   count    lane_limit       refuse events while the lane has so many entries
arg  13.. text     rest             changes as the include cell takes them; commands as the include commands does; messages for watchers
derives   answers' keys, reply channels and watchers' channels from their bases
returns   {"ok", cv, now_ms} | {"again", repeats} | {"lost", owner} | {"full", entries} | {"missing"} | {"behind", cv} | {"ahead", cv} | {"superseded", incarnation}
keeps     I-1, I-3, I-6, I-13, I-14
]]
--%include clock
--%include instance
--%include chunks
--%include fanout
--%include answer
--%include lane
--%include cell
--%include commands
local incarnation_key, owner_key, room_key, cell_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local peers_key, presence_key, watchers_key, lane_key = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local inbox_key, aside_key, due_key = KEYS[9], KEYS[10], KEYS[11]
local me, incarnation, token, route, from = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local batch, status, due, answer_base = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local reply_base, fanout_base, lane_limit = ARGV[10], ARGV[11], ARGV[12]

local newer = newer_than(incarnation_key, incarnation)
if newer then
  return { "superseded", newer }
end
local held = redis.call("GET", owner_key)
if held ~= me .. " " .. token then
  return { "lost", held or "" }
end
local said = redis.call("HMGET", room_key, "cell_n", "peers_n", "users_n", "cv", "batch", "committed_at")
if tonumber(said[1] or -1) ~= redis.call("HLEN", cell_key) or tonumber(said[2] or -1) ~= redis.call("HLEN", peers_key)
  or tonumber(said[3] or -1) ~= redis.call("ZCARD", presence_key) or not said[4] then
  return { "missing" }
end
local change, at = take_changes(ARGV, 13)
local commands, entries, messages_at = take_commands(ARGV, at)
local stands_at = tonumber(said[4])
if said[5] == batch and stands_at == from + entries then
  return { "ok", stands_at, said[6] }
end
if stands_at < from then
  return { "behind", stands_at }
end
if stands_at > from then
  return { "ahead", stands_at }
end

local now = now_ms()
-- For each command that is not to be executed: its position, 1 if it is late, and digest and answer if it was executed.
local repeats = {}
for i, command in ipairs(commands) do
  local answer = command.id ~= ""
    and redis.call("GET", answer_base .. route .. "\0" .. command.caller .. "\0" .. command.id)
  local digest, text = "", ""
  if answer then
    digest, text = answer_of(answer)
  end
  if answer or (command.deadline and now > command.deadline) then
    for _, item in ipairs({ i - 1, answer and 0 or 1, digest, text }) do
      repeats[#repeats + 1] = item
    end
  end
end
if #repeats > 0 then
  return { "again", repeats }
end
if lane_is_full(lane_key, lane_limit) and entries > 0 then
  return { "full", redis.call("XLEN", lane_key) }
end
local due_before = redis.call("ZSCORE", due_key, route)
local watchers = redis.call("SMEMBERS", watchers_key)
look_aside(inbox_key, aside_key, commands)

local version = finish_commands(commands, {
  inbox_key = inbox_key,
  aside_key = aside_key,
  lane_key = lane_key,
  route = route,
  me = me,
  token = token,
  from = from,
  now = now,
  answer_base = answer_base,
  reply_base = reply_base,
})
local cell_n, peers_n, users_n = change_cell({ cell_key, peers_key, presence_key }, said, now, change)
redis.call("HSET", room_key, "cv", digits(version), "batch", batch, "committed_at", digits(now),
  "cell_n", cell_n, "peers_n", peers_n, "users_n", users_n)
if status ~= "" then
  redis.call("HSET", room_key, "status", status)
end
if due ~= "" then
  redis.call("ZADD", due_key, due, route)
elseif due_before then
  redis.call("ZREM", due_key, route)
end
for i = messages_at, #ARGV do
  fanout(watchers, fanout_base, ARGV[i])
end
return { "ok", version, now }
