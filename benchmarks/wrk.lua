-- The load of the HTTP benchmarks: requests that were written beforehand, as they are, one after the other.
--
--   wrk -s wrk.lua URL -- FILE MAX
--
-- FILE holds requests, each behind a line with its number of bytes. They are sent in turn, over and over. With a MAX
-- above zero no more than so many are sent, and time is taken until then: what can be received or settled is finite.
-- The last line of the output is for benchmarks/wrk.py.

local ffi = require("ffi")
ffi.cdef [[
  typedef struct { long seconds; long microseconds; } wrk_instant;
  int gettimeofday(wrk_instant *now, void *zone);
]]

local instant = ffi.new("wrk_instant")
local function now()
  ffi.C.gettimeofday(instant, nil)
  return tonumber(instant.seconds) * 1e6 + tonumber(instant.microseconds)
end

local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

local requests, most, position, asked = {}, 0, 0, 0
-- Global, as the main thread reads them.
started, ended = 0, 0

function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  for line in file:lines() do
    table.insert(requests, file:read(tonumber(line)))
    file:read(1)
  end
  file:close()
  most = tonumber(arguments[2])
end

function request()
  asked = asked + 1
  -- wrk asks once for a request that it looks at and never sends.
  if asked == 1 then return requests[1] end
  if started == 0 then started = now() end
  if most > 0 and asked - 1 > most then
    if ended == 0 then ended = now() end
    wrk.thread:stop()
    -- What is sent beyond the last one is never answered to anybody, and must change nothing.
    return "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
  end
  position = position % #requests + 1
  return requests[position]
end

function done(summary, latency, _)
  local elapsed = summary.duration
  local from, to = tonumber(threads[1]:get("started")), tonumber(threads[1]:get("ended"))
  if to > 0 then elapsed = to - from end
  local failed = summary.errors
  io.write(string.format(
    "\nmeasured %d %d %d %d %d %d %d\n",
    summary.requests, elapsed, failed.connect + failed.read + failed.write + failed.timeout, failed.status,
    latency:percentile(50), latency:percentile(95), latency:percentile(99)
  ))
end
