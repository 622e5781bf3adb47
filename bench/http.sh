#!/usr/bin/env bash
# Measures the server against an empty net/http handler and against Redis, all on this machine and in turns, and prints
# ratios. SECONDS_EACH is the length of one measurement, ROUNDS their number; the median round counts. PROFILES, if set, is
# a folder for flame graphs of writing and reading, which are drawn in rounds of their own.
set -euo pipefail
cd "$(dirname "$0")/.."
each=${SECONDS_EACH:-5}
rounds=${ROUNDS:-3}

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
need redis-server redis-server
need redis-benchmark redis-tools
need curl curl

[[ -z ${PROFILES:-} ]] || mkdir -p "$PROFILES"
tmp=$(mktemp -d)
pids=()
cleanup() {
  kill "${pids[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$tmp"
}
trap cleanup EXIT

CGO_ENABLED=0 go build -trimpath -o "$tmp/j17" ./cmd/j17
CGO_ENABLED=0 go build -trimpath -o "$tmp/empty" ./bench/empty
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])' 2>/dev/null || echo $((20000 + RANDOM)); }
ours=$(port) internal=$(port) empty_write=$(port) floor=$(port) empty_read=$(port) empty_view=$(port) redis=$(port)

"$tmp/j17" dev bench/spec.json --data "$tmp/data" --listen "127.0.0.1:$ours" --internal-listen "127.0.0.1:$internal" --json >"$tmp/ready" 2>"$tmp/log" &
server=$!
pids+=("$server")
"$tmp/empty" "127.0.0.1:$empty_write" 201 '{"ok":true,"stream_id":"1706789012345-0","length":1}' &
pids+=($!)
"$tmp/empty" "127.0.0.1:$floor" 201 '{"ok":true,"stream_id":"1706789012345-0","length":1}' "$tmp/floor" &
pids+=($!)
redis-server --port "$redis" --dir "$tmp" --appendonly yes --appendfsync always --save '' >/dev/null &
pids+=($!)
until [[ -s $tmp/ready ]]; do kill -0 "$server"; done
KEY=$(sed -n 's/.*"prod":{"read":"[^"]*","write":"\([^"]*\)".*/\1/p' "$tmp/ready")
export KEY
idle=$(awk '/VmRSS/ {printf "%.0f", $2 / 1024}' "/proc/$server/status")
curl -sf "http://127.0.0.1:$ours/order/ABC123XYZ/was_placed" -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \
  -d '{"data":{"customer_id":"550e8400-e29b-41d4-a716-446655440003","currency":"EUR","lines":[{"sku":"LAMP-2","unit_price":39.90,"quantity":1}]},"metadata":{"actor":{"type":"customer","id":"global"}}}' >/dev/null
state=$(curl -sf "http://127.0.0.1:$ours/order/ABC123XYZ" -H "Authorization: Bearer $KEY")
"$tmp/empty" "127.0.0.1:$empty_read" 200 "$state" &
pids+=($!)

# A projection of four sources, one of them an array of ten.
made() { # type/id, data
  curl -sf "http://127.0.0.1:$ours/$1/was_made" -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \
    -d "{\"data\":$2,\"metadata\":{\"actor\":{\"type\":\"customer\",\"id\":\"global\"}}}" >/dev/null
}
item=7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d lines=
for n in 00 01 02 03 04 05 06 07 08 09 10 11; do
  made "item/$item$n" "{\"name\":\"Item $n\",\"price\":12.50}"
  [[ $n > 09 ]] || lines+="${lines:+,}{\"product_id\":\"$item$n\",\"quantity\":1}"
done
made basket/ABC123XYZ "{\"customer_id\":\"${item}10\",\"shop_id\":\"${item}11\",\"lines\":[$lines]}"
view=$(curl -sf "http://127.0.0.1:$ours/_projections/basket/ABC123XYZ" -H "Authorization: Bearer $KEY")
"$tmp/empty" "127.0.0.1:$empty_view" 200 "$view" &
pids+=($!)

load() { # script, port: prints requests a second and the 99th percentile in ms
  wrk -t1 -c"${WRITERS:-64}" -d"${each}s" --latency -s "bench/$1" "http://127.0.0.1:$2" >"$tmp/wrk"
  if grep -q 'Non-2xx' "$tmp/wrk"; then
    cat "$tmp/wrk" >&2
    exit 1
  fi
  awk '/Requests\/sec/ {rate = $2} $1 == "99%" {p = $2 + 0; if ($2 ~ /us$/) p /= 1000; else if ($2 ~ /ms$/) p += 0; else p *= 1000}
       END {printf "%.0f %.1f\n", rate, p}' "$tmp/wrk"
}

for ((round = 1; round <= rounds; round++)); do
  echo "round $round of $rounds" >&2
  read -r ew _ < <(load write.lua "$empty_write")
  read -r f _ < <(load write.lua "$floor")
  read -r w p99 < <(load write.lua "$ours")
  read -r hot _ < <(HOT=1 load write.lua "$ours")
  read -r spread _ < <(EVENT=was_spread load write.lua "$ours")
  read -r shared _ < <(EVENT=was_shared load write.lua "$ours")
  read -r guarded _ < <(EVENT=was_changed POOL=1000 load write.lua "$ours")
  read -r few _ < <(HOT=1 PLAIN=1 WRITERS=16 load write.lua "$ours")
  read -r few_guarded _ < <(HOT=1 PLAIN=1 WRITERS=16 EVENT=was_changed load write.lua "$ours")
  read -r together _ < <(TOGETHER=1 load write.lua "$ours")
  read -r claimed _ < <(EVENT=was_claimed load write.lua "$ours")
  read -r er _ < <(load read.lua "$empty_read")
  read -r r _ < <(load read.lua "$ours")
  read -r ev _ < <(load view.lua "$empty_view")
  read -r v _ < <(load view.lua "$ours")
  read -r vw _ < <(WRITES=1 load view.lua "$ours")
  x=$(redis-benchmark -p "$redis" -c 64 -n $((each * 15000)) -r 1000000 -q --csv XADD order:__rand_int__ '*' \
    key order:550e8400-e29b-41d4-a716-446655440003 type was_placed data "$(head -c 300 /dev/zero | tr '\0' x)" | tail -1 | awk -F, '{gsub(/"/, ""); printf "%.0f", $2}')
  echo "$w $ew $hot $er $r $x $p99 $spread $shared $f $ev $v $vw $guarded $few $few_guarded $together $claimed" >>"$tmp/rounds"
done

profile() { # script, file: draws a flame graph of the server under load
  load "$1" "$ours" >/dev/null &
  curl -sf "http://127.0.0.1:$internal/debug/pprof/profile?seconds=$each" -o "$tmp/profile"
  wait $!
  go run ./bench/flame "j17 on $(nproc) processors, 64 connections, $1" <"$tmp/profile" >"$PROFILES/$2"
}
if [[ -n ${PROFILES:-} ]]; then
  profile write.lua write.svg
  profile read.lua read.svg
fi

# A restart shows what aggregates cost that nobody uses.
aggregates=$(curl -sf "http://127.0.0.1:$internal/metrics" | awk '$1 == "j17_events_committed_total" {printf "%.0f", $2}')
kill "$server"
wait "$server" 2>/dev/null || true
"$tmp/j17" dev bench/spec.json --data "$tmp/data" --listen "127.0.0.1:$ours" --internal-listen "127.0.0.1:$internal" --json >"$tmp/ready2" 2>>"$tmp/log" &
server=$!
pids+=("$server")
until [[ -s $tmp/ready2 ]]; do kill -0 "$server"; done
full=$(awk '/VmRSS/ {printf "%.0f", $2 / 1024}' "/proc/$server/status")

median() { sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
ratio() { awk "{printf \"%.2f\n\", $1}" "$tmp/rounds" | median; }
value() { awk "{print $1}" "$tmp/rounds" | median; }
cat <<TABLE
| measured | result | bar |
|---|---|---|
| write, distinct aggregates, to empty handler | $(ratio '$1 / $2') ($(value '$1') to $(value '$2') a second) | 0.45 |
| append and sync alone (net/http, no store), to empty handler | $(ratio '$10 / $2') ($(value '$10') to $(value '$2') a second) | |
| write, distinct aggregates, to append and sync alone | $(ratio '$1 / $10') ($(value '$1') to $(value '$10') a second) | |
| write, distinct aggregates, to Redis XADD with appendfsync always | $(ratio '$1 / $6') ($(value '$1') to $(value '$6') a second) | 0.70 |
| write, one aggregate with skip_occ, to distinct aggregates | $(ratio '$3 / $1') ($(value '$3') to $(value '$1') a second) | 0.60 |
| write that implies three events in aggregates of their own, to plain write | $(ratio '$8 / $1') ($(value '$8') to $(value '$1') a second) | 0.50 |
| write that implies three events in one shared aggregate, to plain write | $(ratio '$9 / $1') ($(value '$9') to $(value '$1') a second) | 0.40 |
| guarded write, a thousand warm aggregates, to plain write over distinct ones | $(ratio '$14 / $1') ($(value '$14') to $(value '$1') a second) | 0.80 |
| guarded write, 16 writers on one aggregate, to the same without a guard | $(ratio '$16 / $15') ($(value '$16') to $(value '$15') a second) | 0.50 |
| transaction that writes to three aggregates, to plain write | $(ratio '$17 / $1') ($(value '$17') to $(value '$1') a second) | 0.50 |
| write under a condition on a tag, to plain write | $(ratio '$18 / $1') ($(value '$18') to $(value '$1') a second) | 0.67 |
| read, cached, to empty handler | $(ratio '$5 / $4') ($(value '$5') to $(value '$4') a second) | 0.60 |
| projection of four sources, one an array of ten, kept, to empty handler | $(ratio '$12 / $11') ($(value '$12') to $(value '$11') a second) | 0.50 |
| the same with a write to a source in a hundred requests | $(ratio '$13 / $11') ($(value '$13') to $(value '$11') a second) | 0.40 |
| write, 64 connections, 99th percentile | $(value '$7') ms | 10 ms |
| memory of the idle server, empty | $idle MB | 60 MB |
| memory of the idle server, after a restart with $aggregates events | $full MB | 60 MB |
TABLE
