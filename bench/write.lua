-- Each request writes the first event of an aggregate of its own; with HOT set, all write to one, with skip_occ unless PLAIN is set; with POOL
-- set, to so many in turn. EVENT names the event: was_placed, was_changed, which has a guard, was_claimed, which is written under the condition
-- that there is none with the tag of its customer, or one that implies three others, was_spread and was_shared. With TOGETHER set, each is a
-- transaction that writes to three aggregates. With POCKETBASE set, the event is sent as a record of PocketBase's collection of events.
local key, hot, event = os.getenv("KEY"), os.getenv("HOT"), os.getenv("EVENT") or "was_placed"
local pocketbase, pool, together = os.getenv("POCKETBASE"), tonumber(os.getenv("POOL")), os.getenv("TOGETHER")
local n = 0
math.randomseed(os.time())
local a, b = math.random(0, 0x7fffffff), math.random(0, 0xffff)
local function uuid(i) return string.format("%08x-%04x-4%03x-8%03x-%012x", (n * 2654435761 + a) % 4294967296, b, n % 4096, i, n) end
local body = '{"data":{"customer_id":"550e8400-e29b-41d4-a716-446655440003","currency":"EUR","lines":[{"sku":"LAMP-2","title":"Desk lamp","unit_price":39.90,"quantity":1},{"sku":"BULB-E27","title":"Bulb, warm white","unit_price":4.35,"quantity":3}]},"metadata":{"actor":{"type":"customer","id":"550e8400-e29b-41d4-a716-446655440003"}' .. (hot and not os.getenv("PLAIN") and ',"skip_occ":true' or '') .. '}}'
local claim = string.sub(body, string.find(body, '","currency"', 1, true), -1)
local headers = {["Authorization"] = "Bearer " .. (key or ""), ["Content-Type"] = "application/json"}
function request()
  n = n + 1
  local id = hot and "global" or uuid(0)
  if pool then
    id = string.format("00000000-0000-4000-8000-%012x", n % pool)
  end
  if pocketbase then
    local record = '{"stream":"order:' .. id .. '","version":1,"type":"was_placed",' .. string.sub(body, 2)
    return wrk.format("POST", "/api/collections/events/records", headers, record)
  end
  if together then
    local data, metadata = string.match(body, '^{"data":(.*),"metadata":(.*)}$')
    local writes = {}
    for i = 0, 2 do
      writes[i + 1] = '{"key":"order:' .. uuid(i) .. '","events":[{"type":"was_placed","data":' .. data .. '}]}'
    end
    return wrk.format("POST", "/_transaction", headers, '{"writes":[' .. table.concat(writes, ",") .. '],"metadata":' .. metadata .. '}')
  end
  if event == "was_claimed" then
    local customer = uuid(4)
    return wrk.format("POST", "/order/" .. id .. "/was_claimed", headers, '{"conditions":[{"fail_if_events_match":{"tags":["customer:' .. customer .. '"]}}],"data":{"customer_id":"' .. customer .. claim)
  end
  if event == "was_placed" or event == "was_changed" then
    return wrk.format("POST", "/order/" .. id .. "/" .. event, headers, body)
  end
  local parts = '{"data":{"parts":["' .. uuid(1) .. '","' .. uuid(2) .. '","' .. uuid(3) .. '"],'
  return wrk.format("POST", "/order/" .. id .. "/" .. event, headers, parts .. string.sub(body, 10))
end
