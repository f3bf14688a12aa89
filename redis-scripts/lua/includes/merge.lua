--[[
include   merge
purpose   JSON merge patch (RFC 7396) on text: what the patch does not name keeps its bytes, so empty lists and long numbers survive.
defines   merge(target, patch)
]]
-- Both texts are compact JSON from one serializer: no whitespace, keys escaped alike.
local function end_of_string(text, at)
  repeat
    at = string.find(text, '["\\]', at + 1)
    if string.sub(text, at, at) == "\\" then
      at = at + 1
    else
      return at
    end
  until false
end

local function end_of_value(text, at)
  local first = string.sub(text, at, at)
  if first == '"' then
    return end_of_string(text, at)
  end
  if first ~= "{" and first ~= "[" then
    return (string.find(text, "[,}%]]", at) or #text + 1) - 1
  end
  local depth = 1
  while depth > 0 do
    at = string.find(text, '["{}%[%]]', at + 1)
    local found = string.sub(text, at, at)
    if found == '"' then
      at = end_of_string(text, at)
    elseif found == "{" or found == "[" then
      depth = depth + 1
    else
      depth = depth - 1
    end
  end
  return at
end

-- The members of an object: names in order, and the text of each value by name.
local function members(object)
  local names, values = {}, {}
  local at = 2
  while string.sub(object, at, at) == '"' do
    local name_end = end_of_string(object, at)
    local name = string.sub(object, at, name_end)
    local value_end = end_of_value(object, name_end + 2)
    names[#names + 1] = name
    values[name] = string.sub(object, name_end + 2, value_end)
    at = value_end + 2
  end
  return names, values
end

local function merge(target, patch)
  if string.sub(patch, 1, 1) ~= "{" then
    return patch
  end
  local names, values = {}, {}
  if target and string.sub(target, 1, 1) == "{" then
    names, values = members(target)
  end
  local patch_names, patch_values = members(patch)
  for _, name in ipairs(patch_names) do
    if patch_values[name] == "null" then
      values[name] = nil
    else
      if not values[name] then
        names[#names + 1] = name
      end
      values[name] = merge(values[name], patch_values[name])
    end
  end
  local out, seen = {}, {}
  for _, name in ipairs(names) do
    if values[name] and not seen[name] then
      seen[name] = true
      out[#out + 1] = name .. ":" .. values[name]
    end
  end
  return "{" .. table.concat(out, ",") .. "}"
end
