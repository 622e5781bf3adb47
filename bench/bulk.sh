#!/usr/bin/env bash
# Measures writes before a bulk load, right after it and when the store has settled, and what the memory of the process
# comes to, beside the budgets that docs/operations.md documents. The program is built as it is shipped. EVENTS is how many
# are imported, in files of FILE_EVENTS; SECONDS_EACH is the length of one measurement, ROUNDS their number (right after the
# load there is one); SETTLE is the longest wait for the store, in seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
each=${SECONDS_EACH:-4}
rounds=${ROUNDS:-3}
events=${EVENTS:-1000000}
per_file=${FILE_EVENTS:-250000}
settle=${SETTLE:-120}

need() { # command, Debian package
  command -v "$1" >/dev/null && return
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2"; } >&2
  else
    echo "$1 is missing: install it (Debian: $2)." >&2
    exit 1
  fi
}
need wrk wrk
need curl curl

tmp=$(mktemp -d)
pids=()
cleanup() {
  kill "${pids[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$tmp"
}
trap cleanup EXIT

# Start the server and the yardstick.
CGO_ENABLED=0 go build -trimpath -o "$tmp/j17" ./cmd/j17
CGO_ENABLED=0 go build -trimpath -o "$tmp/empty" ./bench/empty
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])' 2>/dev/null || echo $((20000 + RANDOM)); }
ours=$(port) internal=$(port) empty=$(port)
"$tmp/j17" dev bench/spec.json --data "$tmp/data" --listen "127.0.0.1:$ours" --internal-listen "127.0.0.1:$internal" --json >"$tmp/ready" 2>"$tmp/log" &
server=$!
pids+=("$server")
"$tmp/empty" "127.0.0.1:$empty" 201 '{"ok":true,"stream_id":"1706789012345-0","length":1}' &
pids+=($!)
until [[ -s $tmp/ready ]]; do kill -0 "$server"; done
KEY=$(sed -n 's/.*"prod":{"read":"[^"]*","write":"\([^"]*\)".*/\1/p' "$tmp/ready")
instance=$(sed -n 's/.*"instance":{"id":"\([^"]*\)".*/\1/p' "$tmp/ready")
secret=$(sed -n 's/.*"node_secret":"\([^"]*\)".*/\1/p' "$tmp/ready")
export KEY COUNT=$events

memory() { awk -v line="$1:" '$1 == line {printf "%.0f", $2 / 1024}' "/proc/$server/status"; }
processor() { awk '{sub(/.*\) /, ""); print $12 + $13}' "/proc/$server/stat"; } # hundredths of a second
disk() { curl -sf "http://127.0.0.1:$internal/metrics" | awk '$1 == "j17_store_disk_bytes" {printf "%.0f", $2}'; }
forget_peak() { echo 5 >"/proc/$server/clear_refs"; }

load() { # script, port: prints requests a second, the 99th percentile in ms, and requests
  wrk -t1 -c64 -d"${each}s" --latency -s "bench/$1" "http://127.0.0.1:$2" >"$tmp/wrk"
  if grep -q 'Non-2xx' "$tmp/wrk"; then
    cat "$tmp/wrk" >&2
    exit 1
  fi
  awk '/requests in/ {n = $1} /Requests\/sec/ {rate = $2} $1 == "99%" {p = $2 + 0; if ($2 ~ /us$/) p /= 1000; else if ($2 ~ /ms$/) p += 0; else p *= 1000}
       END {printf "%.0f %.1f %d\n", rate, p, n}' "$tmp/wrk"
}
writes() { # file: one round of writes and one of the empty handler
  local before w p99 n after ew
  before=$(processor)
  read -r w p99 n < <(load write.lua "$ours")
  after=$(processor)
  read -r ew _ _ < <(load write.lua "$empty")
  echo "$w $ew $p99 $(((after - before) * 10000 / n))" >>"$tmp/$1"
}
import() { # first event, last event
  awk -v first="$1" -v last="$2" 'BEGIN {
    for (n = first; n <= last; n++) {
      scattered = n * 2654435761 % 4294967296
      printf "{\"key\":\"order:%04x%04x-0000-4000-8000-%012x\",\"type\":\"was_placed\",\"data\":{\"customer_id\":\"550e8400-e29b-41d4-a716-446655440003\",\"currency\":\"EUR\",\"lines\":[{\"sku\":\"LAMP-2\",\"title\":\"Desk lamp\",\"unit_price\":39.90,\"quantity\":1},{\"sku\":\"BULB-E27\",\"title\":\"Bulb, warm white\",\"unit_price\":4.35,\"quantity\":3}]},\"metadata\":{\"actor\":{\"type\":\"customer\",\"id\":\"550e8400-e29b-41d4-a716-446655440003\"}}}\n", int(scattered / 65536), scattered % 65536, n
    }}' >"$tmp/events.jsonl"
  local from=$EPOCHREALTIME
  if ! curl -sS --max-time 600 --fail-with-body "http://127.0.0.1:$internal/internal/instances/$instance/prod/import" -H "X-Node-Secret: $secret" \
    -H 'Content-Type: application/x-ndjson' --data-binary "@$tmp/events.jsonl" >"$tmp/imported"; then
    cat "$tmp/imported" >&2
    exit 1
  fi
  took=$((took + (${EPOCHREALTIME/./} - ${from/./}) / 1000))
}

# Before the load.
idle=$(memory VmRSS)
for ((round = 1; round <= rounds; round++)); do
  echo "empty store, round $round of $rounds" >&2
  writes before
done
stored=$(curl -sf "http://127.0.0.1:$internal/metrics" | awk '$1 == "j17_events_committed_total" {printf "%.0f", $2}')

# The load, and the writes that follow at once.
took=0
processor_before=$(processor)
forget_peak
for ((n = 0; n < events; n += per_file)); do
  echo "import of events from $n on" >&2
  import $((n + 1)) $((n + per_file < events ? n + per_file : events))
done
import_cost=$((($(processor) - processor_before) * 10000 / events))
import_peak=$(memory VmHWM)
rm -f "$tmp/events.jsonl"
echo 'right after the import' >&2
writes right_after

# The store has settled when its size has been the same for ten seconds.
begin=$SECONDS same=0 last=
while ((same < 10 && SECONDS - begin < settle)); do
  sleep 1
  size=$(disk)
  if [[ $size == "$last" ]]; then same=$((same + 1)); else same=0; fi
  last=$size
done
waited=$((SECONDS - begin))
all=$(curl -sf "http://127.0.0.1:$internal/metrics" | awk '$1 == "j17_events_committed_total" {printf "%.0f", $2}')
((all > events + stored)) || all=$((events + stored)) # imported events are not counted in every version
settled_bytes=$((last / all))
for ((round = 1; round <= rounds; round++)); do
  echo "settled, round $round of $rounds" >&2
  writes settled
done

# Memory under a load that fills the caches: reads of what is not in memory, and writes.
forget_peak
echo 'reads of imported aggregates, and writes' >&2
read -r cold cold99 _ < <(load cold.lua "$ours")
writes busy
busy_peak=$(memory VmHWM)
busy=$(memory VmRSS)

median() { sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
value() { awk "{print $2}" "$tmp/$1" | median; }
row() { # title, file
  echo "| $1 | $(value "$2" '$1') | $(awk '{printf "%.2f\n", $1 / $2}' "$tmp/$2" | median) | $(value "$2" '$3') ms | $(value "$2" '$4') µs |"
}
cat <<TABLE
| writes, 64 connections, distinct aggregates | a second | to empty handler | 99th percentile | processor time a write |
|---|---|---|---|---|
$(row 'store as good as empty' before)
$(row "right after an import of $events events (one round)" right_after)
$(row "settled: the size of the store has not changed for 10 s, or $settle s have passed ($waited s)" settled)

| measured | result | documented |
|---|---|---|
| import, in files of $per_file events | $((took > 0 ? events * 1000 / took : 0)) a second, $import_cost µs processor time an event | |
| read of an aggregate that is not in memory, 64 connections | $cold a second, 99th percentile $cold99 ms | |
| disk, settled | $settled_bytes bytes an event | |
| memory, idle, store empty | $idle MB | 60 MB |
| memory, most during the import | $import_peak MB | |
| memory, most during $each s of reads that are not in memory and $each s of writes | $busy_peak MB | 400 to 500 MB |
| memory after that | $busy MB | 400 to 500 MB |
TABLE
