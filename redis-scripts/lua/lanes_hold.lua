--[[
purpose   Renew the leases of the lanes that an archiver holds, and take up to its share those that are free, or its own by an answer that was lost.
key  1    zset     instances
arg  1    text     me               name/incarnation
arg  2    ms       ttl
arg  3    ms       owner_ttl        who has not been heard of for so long has no share
arg  4    u64      floor            new tokens are larger than this
arg  5    flag     takes            0: renew only
arg  6    count    lanes            how many there are
arg  7    text     bases            of instances' records, leases and their fences, separated by line feeds
arg  8.. text     held             lane, token, …
derives   records, leases and fences from their bases
returns   {"ok", share, lost, taken}
keeps     I-14, I-18
]]
--%include clock
--%include instance
--%include lookup
--%include token
local instances_key = KEYS[1]
local me, ttl, owner_ttl, floor, takes = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == "1"
local lanes = tonumber(ARGV[6])
local bases = {}
for base in string.gmatch(ARGV[7], "[^\n]+") do
  bases[#bases + 1] = base
end
local instance_base, lease_base, fence_base = bases[1], bases[2], bases[3]

local now = now_ms()
local archivers = {}
for _, instance in ipairs(redis.call("ZRANGEBYSCORE", instances_key, "(" .. digits(now - owner_ttl), "+inf")) do
  local record = redis.pcall("HMGET", instance_base .. instance, "roles", "draining", "gone")
  local roles = not failed(record) and record[1] or ""
  if string.find("," .. roles .. ",", ",archiver,", 1, true) and record[2] ~= "1" and not record[3] then
    archivers[#archivers + 1] = instance
  end
end
-- What divides evenly does; the first ones by name take one of what is left each.
table.sort(archivers)
local share = 0
for i, instance in ipairs(archivers) do
  if instance == me then
    share = math.floor(lanes / #archivers) + (i <= lanes % #archivers and 1 or 0)
  end
end

-- All of it is read before anything is written, and a key of another type costs its lane, not the others.
local lost, held, known = {}, {}, {}
for i = 8, #ARGV, 2 do
  local lease = lease_base .. ARGV[i]
  if redis.pcall("GET", lease) == me .. " " .. ARGV[i + 1] then
    known[ARGV[i]] = true
    held[#held + 1] = lease
  else
    lost[#lost + 1] = ARGV[i]
  end
end
local taken = {}
local lane = 0
while takes and lane < lanes and #held + #taken / 2 < share do
  local name = "lane-" .. lane
  local found = redis.pcall("GET", lease_base .. name)
  local holder, previous = me, 0
  if found then
    holder, previous = lease_of(failed(found) and "" or found)
  end
  if not known[name] and holder == me then
    local read, token = pcall(next_token, fence_base .. name, math.max(floor, previous), now)
    if read then
      taken[#taken + 1] = name
      taken[#taken + 1] = digits(token)
    end
  end
  lane = lane + 1
end

for _, lease in ipairs(held) do
  redis.call("PEXPIRE", lease, ttl)
end
for i = 1, #taken, 2 do
  redis.call("SET", lease_base .. taken[i], me .. " " .. taken[i + 1], "PX", ttl)
  keep_fence(fence_base .. taken[i], taken[i + 1])
end
return { "ok", share, lost, taken }
