#!/usr/bin/env bash
# Measures a cold start from a file, exports and full backups of it through the program, and prints them beside their bars. The program is
# built as it is shipped. EVENTS is how many there are, in STREAMS aggregates; ROUNDS is how often they are exported and backed up.
set -euo pipefail
cd "$(dirname "$0")/.."
events=${EVENTS:-1000000}
streams=${STREAMS:-100000}
rounds=${ROUNDS:-3}

tmp=$(mktemp -d)
server=
cleanup() {
  [[ -z $server ]] || kill "$server" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$tmp"
}
trap cleanup EXIT

# A file of events of some 330 bytes.
awk -v events="$events" -v streams="$streams" 'BEGIN {
  for (n = 0; n < events; n++)
    printf "{\"key\":\"order:a0000000-0000-4000-8000-%012x\",\"type\":\"was_placed\",\"data\":{\"customer_id\":\"550e8400-e29b-41d4-a716-446655440003\",\"currency\":\"EUR\",\"lines\":[{\"sku\":\"LAMP-%d\",\"title\":\"Desk lamp\",\"unit_price\":39.90,\"quantity\":1}]},\"metadata\":{\"actor\":{\"type\":\"customer\",\"id\":\"550e8400-e29b-41d4-a716-446655440003\"},\"timestamp\":%d}}\n", n * 7919 % streams, n, 1600000000 + int(n / 100)
}' >"$tmp/events.jsonl"

# A server of its own.
CGO_ENABLED=0 go build -trimpath -o "$tmp/j17" ./cmd/j17
"$tmp/j17" dev bench/spec.json --data "$tmp/data" --listen 127.0.0.1:0 --internal-listen 127.0.0.1:0 --json >"$tmp/ready" 2>"$tmp/log" &
server=$!
until [[ -s $tmp/ready ]]; do
  kill -0 "$server" || { cat "$tmp/log" >&2; exit 1; }
done
read -r instance secret internal < <(sed -n 's/.*"instance":{"id":"\([^"]*\)".*"internal":"\([^"]*\)".*"node_secret":"\([^"]*\)".*/\1 \3 \2/p' "$tmp/ready")
took() { # file that curl reads or "", path, body or nothing: prints seconds
  local data=()
  [[ -z $1 ]] || data=(-X POST -H 'Content-Type: application/x-ndjson' -T "$1")
  [[ -z ${3:-} ]] || data=(-X POST -H 'Content-Type: application/json' -d "$3")
  curl -sS --max-time 600 --fail-with-body "$internal/internal/instances/$instance/$2" -H "X-Node-Secret: $secret" "${data[@]}" -o "$tmp/answer" -w '%{time_total}' ||
    { cat "$tmp/answer" >&2; exit 1; }
}
rate() { awk -v n="$events" -v t="$1" 'BEGIN {printf "%.0f", n / t}'; }

measured() { # as took: what was written before is not written while this is measured
  sync
  took "$@"
}

start=$(measured "$tmp/events.jsonl" prod/cold_start)
peak=$(awk '$1 == "VmHWM:" {printf "%.0f", $2 / 1024}' "/proc/$server/status" 2>/dev/null || echo '?')
took "" prod/export >/dev/null # the log of the environment is made by the first one
mv "$tmp/answer" "$tmp/export.jsonl"
best=$(for ((i = 0; i < rounds; i++)); do measured "" prod/export; echo; done | sort -g | head -n 1)

# Full backups to a folder, in turns with dd, which copies the exported lines and syncs them.
for ((i = 0; i < rounds; i++)); do
  rm -rf "$tmp/data-backups" "$tmp/copy"
  sync
  begun=$(date +%s%N)
  dd if="$tmp/export.jsonl" of="$tmp/copy" bs=1M conv=fsync 2>/dev/null
  copied=$(($(date +%s%N) - begun))
  rm "$tmp/copy"
  sync
  begun=$(date +%s%N)
  took "" prod/backups '{"kind":"full"}' >/dev/null
  id=$(sed -n 's/.*"id":"\([^"]*\)".*/\1/p' "$tmp/answer")
  until took "" "prod/backups/$id" >/dev/null && grep -q '"status":"completed"' "$tmp/answer"; do
    ! grep -q '"status":"failed"' "$tmp/answer" || { cat "$tmp/answer" >&2; exit 1; }
  done
  awk -v b="$(($(date +%s%N) - begun))" -v d="$copied" -v n="$(stat -c %s "$tmp/export.jsonl")" \
    'BEGIN {printf "%.2f %.0f %.0f\n", d / b, n * 1000 / b, n * 1000 / d}' >>"$tmp/backups"
done
backups=$(sort -g "$tmp/backups" | awk '{a[NR] = $0} END {print a[int((NR + 1) / 2)]}')
again=$(measured "$tmp/export.jsonl" staging/cold_start)
[[ $(wc -l <"$tmp/export.jsonl") == $((events + 1)) ]]
cat <<TABLE
| cold start from a file of $events events in $streams aggregates, without positions | $(rate "$start") events/s, at most $peak MB of memory | 150,000 |
| cold start from an export of them, with chains | $(rate "$again") events/s | 150,000 |
| export of them, with chains and checkpoint | $(rate "$best") events/s | 300,000 |
| full backup of them to a folder, to dd of the exported lines with fsync, the median of $rounds rounds | ${backups%% *} ($(cut -d' ' -f2 <<<"$backups") to $(cut -d' ' -f3 <<<"$backups") MB/s) | 0.5 |
TABLE
