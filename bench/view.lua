-- Each request reads a projection of four sources, one of them an array of ten; with WRITES set, every hundredth one writes to a source.
local key, writes = os.getenv("KEY") or "", os.getenv("WRITES")
local n = 0
local headers = {["Authorization"] = "Bearer " .. key, ["Content-Type"] = "application/json"}
local event = '{"data":{"n":1},"metadata":{"actor":{"type":"customer","id":"global"},"skip_occ":true}}'
function request()
  n = n + 1
  if writes and n % 100 == 0 then
    return wrk.format("POST", "/item/7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d00/was_made", headers, event)
  end
  return wrk.format("GET", "/_projections/basket/ABC123XYZ", headers)
end
