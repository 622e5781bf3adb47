-- Each request reads the state of another of the COUNT aggregates that bench/bulk.sh has imported.
local headers = {["Authorization"] = "Bearer " .. (os.getenv("KEY") or "")}
local count = tonumber(os.getenv("COUNT"))
math.randomseed(os.time())
function request()
  local n = math.random(1, count)
  local scattered = n * 2654435761 % 4294967296
  return wrk.format("GET", string.format("/order/%04x%04x-0000-4000-8000-%012x", math.floor(scattered / 65536), scattered % 65536, n), headers)
end
