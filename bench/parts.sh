#!/usr/bin/env bash
# Runs the benchmarks of single parts that have a bar and prints them beside it. BENCHTIME is the length of each.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${BENCHTIME:-1s}
out=$(mktemp)
missing=$(mktemp)
program=$(mktemp)
trap 'rm -f "$out" "$missing" "$program"' EXIT

bench() { # package, pattern
  echo "benchmarks of $1: $2" >&2
  go test -run '^$' -bench "$2" -benchmem -benchtime "$time" "$1" >>"$out"
}
bench ./internal/lang/tick '^BenchmarkOperation$'
bench ./internal/core/engine '^Benchmark(Load|LoadObjects|Upcast)$'
time=20000x bench ./internal/core/engine '^BenchmarkDecisions$'
time=40x bench ./internal/core/engine '^BenchmarkConditions$'
time=20000x bench ./internal/derived/unique '^BenchmarkUnique$'
time=1x bench ./internal/derived/unique '^BenchmarkFilling$'
bench ./internal/code/wasm '^BenchmarkCall$'
bench ./internal/lang/schema '^BenchmarkValidate$'
time=500x bench ./internal/derived/projection '^BenchmarkRead$'
bench ./internal/follow/feed '^Benchmark(CatchUp|AppendFollowed)$'
bench ./internal/follow/saga '^BenchmarkSagas$'
time=15000x bench ./internal/edge/httpapi '^BenchmarkStreamLatency$'
time=20000x bench ./internal/follow/listener '^BenchmarkDeliveries$'
bench ./internal/follow/schedule '^Benchmark(Fire|Idle)$'
time=3x bench ./internal/custody/erasure '^BenchmarkTombstone$'
time=5000x bench ./internal/derived/place '^BenchmarkPlaces$'
time=50000x bench ./internal/derived/place '^BenchmarkWrites$'
time=1x bench ./internal/storage/pebble '^Benchmark(Load|ReadAll|Erase)$'

bench ./internal/custody/envlog '^BenchmarkProof$'
time=1000000x bench ./internal/custody/envlog '^BenchmarkWrites$'
bench ./internal/custody/envlog '^BenchmarkMade$'

column() { # benchmark's name, unit: the number that stands before the unit
  local number
  number=$(awk -v name="$1" -v unit="$2" '{n = $1; sub(/-[0-9]+$/, "", n)}
    n == name {for (i = 2; i <= NF; i++) if ($i == unit) {print $(i - 1); exit}}' "$out")
  [ -n "$number" ] || echo "$1 has no $2" >>"$missing"
  echo "$number"
}
ms() { awk -v n="$(column "$1" ns/op)" 'BEGIN {printf "%.3g ms", n / 1e6}'; }
us() { awk -v n="$(column "$1" ns/op)" 'BEGIN {printf "%.3g µs", n / 1e3}'; }
millions() { awk -v n="$(column "$1" ns/op)" 'BEGIN {printf "%.1f million a second", 1e3 / n}'; }
times() { awk -v a="$(column "$1" writes/s)" -v b="$(column "$2" writes/s)" 'BEGIN {printf "%.2f (%.0f to %.0f a second)", a / b, a, b}'; }
faster() { awk -v a="$(column "$1" ns/op)" -v b="$(column "$2" ns/op)" 'BEGIN {printf "%.2f", b / a}'; }
share() { awk -v a="$(column "$1" events/s)" -v b="$(column "$2" events/s)" 'BEGIN {printf "%.0f %%", 100 * (1 - a / b)}'; }
cat <<TABLE
| measured | result | bar |
|---|---|---|
| cold read of 10,000 small events, half of which increment a number and half merge a text | $(ms BenchmarkLoad/replay=true) | 10 ms |
| cold read of 10,000 events of 250 bytes, each of which sets the whole state to an object | $(ms BenchmarkLoadObjects) | |
| cold read of 10,000 events in the newest generation of their type, to the same of a type without generations | $(faster BenchmarkUpcast/newest BenchmarkUpcast/without) | 0.98 |
| the same of older events, one step of five moves, drops and defaults | $(faster BenchmarkUpcast/step BenchmarkUpcast/without) | 0.95 |
| five such steps in a chain | $(faster BenchmarkUpcast/five BenchmarkUpcast/without) | 0.90 |
| one step with three computed members | $(faster BenchmarkUpcast/computed BenchmarkUpcast/without) | 0.75 |
| guarded write, a thousand warm aggregates, to plain write over distinct ones | $(times BenchmarkDecisions/guarded BenchmarkDecisions/plain) | 0.80 |
| guarded write, 16 writers on one aggregate, to the same without a guard | $(times BenchmarkDecisions/hot-guarded BenchmarkDecisions/hot) | 0.50 |
| transaction that writes to three aggregates, to plain write | $(times BenchmarkDecisions/transaction BenchmarkDecisions/plain) | 0.50 |
| a write with a condition on two tags, into a feed of 1,000,000 events of which all have one of them, 64 writers, beside a plain one | $(column BenchmarkConditions ever-times) times | 1.5 |
| the same of what has happened since the feed was read | $(column BenchmarkConditions since-times) times | 1.5 |
| write that takes a unique value, to the same where nothing is unique: aggregates of their own, 64 writers on one | $(faster BenchmarkUnique/to=distinct/of=unique BenchmarkUnique/to=distinct/of=plain), $(faster BenchmarkUnique/to=one/of=unique BenchmarkUnique/to=one/of=plain) | |
| a set of unique values filled from 1,000,000 events | $(awk -v n="$(column BenchmarkFilling events/s)" 'BEGIN {printf "%.0f", n}') events a second | |
| Tick, set of a literal | $(millions BenchmarkOperation/set-literal), $(column BenchmarkOperation/set-literal allocs/op) allocations | 3 million, 0 |
| Tick, increment | $(millions BenchmarkOperation/increment), $(column BenchmarkOperation/increment allocs/op) allocations | 3 million, 0 |
| Tick, a hundred increments in one event | $(awk -v n="$(column BenchmarkOperation/hundred-in-one-event ops/s)" 'BEGIN {printf "%.1f million a second", n / 1e6}') | 3 million |
| projection of ten sources, not kept, their states warm, 4 clients, 99th percentile | $(column BenchmarkRead/warm p99-ms) ms | 3 ms |
| projection of ten sources of 1,000 events each, cold, 99th percentile | $(column BenchmarkRead/cold p99-ms) ms | 20 ms |
| schema check of an order with a line | $(us BenchmarkValidate/order) | |
| feed to a client of server-sent events, 99th percentile at $(awk -v n="$(column BenchmarkStreamLatency events/s)" 'BEGIN {printf "%.0f", n}') events a second | $(column BenchmarkStreamLatency p99-ms) ms | 20 ms at 5,000 |
| deliveries to a listener on this machine, each a try with its rows on disk | $(awk -v n="$(column BenchmarkDeliveries deliveries/s)" 'BEGIN {printf "%.0f", n}') a second | 3,000 |
| scheduled events that are due, written to the disk | $(column BenchmarkFire events/s) a second | 5,000 a second |
| 100,000 pending scheduled events, a look whether one is due | $(us BenchmarkIdle) | |
| an aggregate of 10,000 events erased, with all files, from among 1,000,000 events | $(ms BenchmarkTombstone) | 1 s |
| WebAssembly, a minimal guest | $(us BenchmarkCall/minimal) | 30 µs |
| 1,000 sagas of three steps and an event at the end, of which a hundred run at once | $(awk -v n="$(column BenchmarkSagas ns/op)" 'BEGIN {printf "%.1f s", n / 1e9}') | 10 s |
| WebAssembly, a guest in Go | $(us BenchmarkCall/go) | 500 µs |
| a subscription that reads a feed from disk | $(awk -v n="$(column BenchmarkCatchUp events/s)" 'BEGIN {printf "%d", n}') events a second | 300,000 |
| writes that a subscription follows are slower by | $(share BenchmarkAppendFollowed/followed=true BenchmarkAppendFollowed/followed=false) | 15 % |
| the first 100 of some 900 points within 5 km, of 1,000,000 points over 300 by 300 km, 4 clients, 99th percentile | $(column BenchmarkPlaces/of=nearby-5km-100 p99-ms) ms | 10 ms |
| the nearest 10 of them, however far | $(column BenchmarkPlaces/of=nearest-10 p99-ms) ms | 10 ms |
| which of 100,000 areas of 20 vertices have a point | $(column BenchmarkPlaces/of=containing p99-ms) ms | 5 ms |
| processor time that a place takes of a write in memory | $(awk -v a="$(column BenchmarkWrites/of=placed cpu-µs/op)" -v b="$(column BenchmarkWrites/of=plain cpu-µs/op)" 'BEGIN {printf "%.0f µs", a - b}') | |
| events of 340 bytes that the store takes in at once, sorted, hashed and on disk: 1,000,000 into an empty environment | $(column BenchmarkLoad events/s) a second, $(column BenchmarkLoad cpu-µs/event) µs of processor time each | 400,000 |
| the whole feed of 1,000,000 events with scattered ids, from tables | $(column BenchmarkReadAll/of=feed events/s) a second | 400,000 |
| an archive of them | $(column BenchmarkReadAll/of=archive events/s) a second | 400,000 |
| 10,000 events of one aggregate among 1,000,000 rewritten, and gone from the disk | $(ms BenchmarkErase) | 1000 ms |
| proof that a log of 1,000,000 events has one of them | $(ms BenchmarkProof/inclusion) | 1 ms |
| the signed head of that log | $(ms BenchmarkProof/checkpoint) | |
| writes to the store alone whose log is kept up to date, units of 100 events, are slower by | $(share BenchmarkWrites/kept=true BenchmarkWrites/kept=false) | 10 % |
| processor time that the log takes of each of these events, with the table files that it stands in | $(awk -v a="$(column BenchmarkWrites/kept=true cpu-µs/event)" -v b="$(column BenchmarkWrites/kept=false cpu-µs/event)" 'BEGIN {printf "%.2f of %.2f µs", a - b, a}') | |
| the log of events that are there already | $(awk -v n="$(column BenchmarkMade events/s)" 'BEGIN {printf "%d", n}') events a second | |
TABLE

# Chains and logs, by the profile of the program as it is shipped.
CGO_ENABLED=0 go build -trimpath -o "$program" ./cmd/j17
go run ./bench/upkeep -bin "$program"

# Writes while a backup is made, in the same way.
go run ./bench/beside -bin "$program"

# Files of events, through the program.
bench/loading.sh

# A row without its number is no result.
if [ -s "$missing" ]; then
  cat "$missing" >&2
  exit 1
fi
