--[[
include   cell
purpose   What changes in a room's cell, peers and presence: taken out of the arguments, and written.
defines   take_changes(args, at), change_cell(keys, sizes_before, now, change)
]]
-- args   from at: numbers of fields set, fields removed, peers set, peers removed, users in, users out; then each list
local function take_changes(args, at)
  local first = at + 6
  local function take(values)
    local list = {}
    for i = 1, values do
      list[i] = args[first + i - 1]
    end
    first = first + values
    return list
  end
  local set, removed = take(2 * args[at]), take(tonumber(args[at + 1]))
  local peers_set, peers_removed = take(2 * args[at + 2]), take(tonumber(args[at + 3]))
  local users_in, users_out = take(tonumber(args[at + 4])), take(tonumber(args[at + 5]))
  return {
    set = set,
    removed = removed,
    peers_set = peers_set,
    peers_removed = peers_removed,
    users_in = users_in,
    users_out = users_out,
  }, first
end

-- keys   {cell, peers, presence}; sizes before; returns their sizes
local function change_cell(keys, sizes_before, now, change)
  local cell_key, peers_key, presence_key = keys[1], keys[2], keys[3]
  in_chunks(change.removed, function(...)
    redis.call("HDEL", cell_key, ...)
  end)
  in_chunks(change.set, function(...)
    redis.call("HSET", cell_key, ...)
  end)
  in_chunks(change.peers_removed, function(...)
    redis.call("HDEL", peers_key, ...)
  end)
  in_chunks(change.peers_set, function(...)
    redis.call("HSET", peers_key, ...)
  end)
  in_chunks(change.users_out, function(...)
    redis.call("ZREM", presence_key, ...)
  end)
  local scored = {}
  for _, user in ipairs(change.users_in) do
    scored[#scored + 1] = now
    scored[#scored + 1] = user
  end
  in_chunks(scored, function(...)
    redis.call("ZADD", presence_key, ...)
  end)
  local cell_n, peers_n, users_n = unpack(sizes_before)
  if #change.set + #change.removed > 0 then
    cell_n = redis.call("HLEN", cell_key)
  end
  if #change.peers_set + #change.peers_removed > 0 then
    peers_n = redis.call("HLEN", peers_key)
  end
  if #scored + #change.users_out > 0 then
    users_n = redis.call("ZCARD", presence_key)
  end
  return cell_n, peers_n, users_n
end
