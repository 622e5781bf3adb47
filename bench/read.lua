-- Each request reads the state of one aggregate.
local headers = {["Authorization"] = "Bearer " .. (os.getenv("KEY") or "")}
function request()
  return wrk.format("GET", "/order/ABC123XYZ", headers)
end
