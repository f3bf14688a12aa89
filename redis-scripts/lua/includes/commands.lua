--[[
include   commands
purpose   The commands of a commit: taken out of the arguments, and all that is written and published of each.
defines   take_commands(args, at), look_aside(inbox_key, aside_key, commands), finish_commands(commands, commit)
]]
local ASIDE_CAP = 1000
local ASIDE_LIFE_MS = 7 * 24 * 3600 * 1000

-- args   from at: their number, then ten items of each
local function take_commands(args, at)
  local commands, entries = {}, 0
  local first = at + 1
  for i = 1, tonumber(args[at]) do
    commands[i] = {
      entry = args[first],
      answer = args[first + 1],
      caller = args[first + 2],
      id = args[first + 3],
      digest = args[first + 4],
      instance = args[first + 5],
      number = args[first + 6],
      inbox = args[first + 7],
      reason = args[first + 8],
      deadline = tonumber(args[first + 9]),
    }
    if args[first] ~= "" then
      entries = entries + 1
    end
    first = first + 10
  end
  return commands, entries, first
end

-- Reads the entries that are to be set aside, before anything is written.
local function look_aside(inbox_key, aside_key, commands)
  local is_looked_at = false
  for _, command in ipairs(commands) do
    if command.inbox ~= "" and not is_looked_at then
      is_looked_at = true
      redis.call("XLEN", inbox_key)
    end
    if command.inbox ~= "" and command.reason ~= "" then
      redis.call("XLEN", aside_key)
      local found = redis.call("XRANGE", inbox_key, command.inbox, command.inbox)[1]
      command.copy = found and found[2]
    end
  end
end

-- commit {inbox_key, aside_key, lane_key, route, me, token, from = cv before, now, answer_base, reply_base}; returns the cv
-- after. Taking entries out of the inbox goes first: it refuses malformed ids, and then of all of them.
local function finish_commands(commands, commit)
  local acknowledged = {}
  for _, command in ipairs(commands) do
    if command.inbox ~= "" then
      acknowledged[#acknowledged + 1] = command.inbox
    end
  end
  in_chunks(acknowledged, function(...)
    redis.call("XDEL", commit.inbox_key, ...)
  end)
  local version = commit.from
  for _, command in ipairs(commands) do
    if command.copy then
      local fields = { "entry", command.inbox, "reason", command.reason }
      for _, value in ipairs(command.copy) do
        fields[#fields + 1] = value
      end
      redis.call("XADD", commit.aside_key, "MAXLEN", ASIDE_CAP, "*", unpack(fields))
      redis.call("PEXPIRE", commit.aside_key, ASIDE_LIFE_MS)
    end
    if command.entry ~= "" then
      version = version + 1
      append_to_lane(commit.lane_key, {
        route = commit.route,
        kind = "cell",
        cv = version,
        token = commit.token,
        owner = commit.me,
        at = commit.now,
        entry = command.entry,
        caller = command.caller,
        id = command.id,
        digest = command.digest,
        answer = command.answer,
      })
    end
    -- Without a digest it was only compared.
    if command.digest ~= "" then
      keep_answer(commit.answer_base .. commit.route .. "\0" .. command.caller .. "\0" .. command.id,
        command.digest, command.answer, 0)
    end
    if command.number ~= "" then
      local answer = command.answer ~= "" and command.answer or "null"
      redis.call("PUBLISH", commit.reply_base .. command.instance,
        '{"number":"' .. command.number .. '","answer":' .. answer .. "}")
    end
  end
  return version
end
