-- Each request writes the first event of an aggregate of its own; with HOT set, all write to one.
local key, hot = os.getenv("KEY"), os.getenv("HOT")
local n = 0
math.randomseed(os.time())
local a, b = math.random(0, 0x7fffffff), math.random(0, 0xffff)
local body = '{"data":{"customer_id":"550e8400-e29b-41d4-a716-446655440003","currency":"EUR","lines":[{"sku":"LAMP-2","title":"Desk lamp","unit_price":39.90,"quantity":1},{"sku":"BULB-E27","title":"Bulb, warm white","unit_price":4.35,"quantity":3}]},"metadata":{"actor":{"type":"customer","id":"550e8400-e29b-41d4-a716-446655440003"}' .. (hot and ',"skip_occ":true' or '') .. '}}'
local headers = {["Authorization"] = "Bearer " .. (key or ""), ["Content-Type"] = "application/json"}
function request()
  n = n + 1
  local id = hot and "global" or string.format("%08x-%04x-4%03x-8%03x-%012x", (n * 2654435761 + a) % 4294967296, b, n % 4096, (n * 31) % 4096, n)
  return wrk.format("POST", "/order/" .. id .. "/was_placed", headers, body)
end
