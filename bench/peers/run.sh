#!/usr/bin/env bash
# Measures the server beside PostgreSQL, Redis and PocketBase behind HTTP, and two yardsticks. ROUNDS is how many times each
# is measured, SECONDS_EACH for how long. It installs what is missing (Debian, as root).
set -euo pipefail
cd "$(dirname "$0")/../.."

need() { # command or file, Debian package
  { command -v "$1" || compgen -G "$1"; } >/dev/null && return
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2"; } >&2
  else
    echo "$1 is missing: install it (Debian: $2)." >&2
    exit 1
  fi
}
need wrk wrk
need redis-server redis-server
need '/usr/lib/postgresql/*/bin/initdb' postgresql

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
CGO_ENABLED=0 go build -trimpath -o "$tmp/j17" ./cmd/j17
CGO_ENABLED=0 go build -trimpath -o "$tmp/empty" ./bench/empty
(cd bench/peers && CGO_ENABLED=0 go build -trimpath -o "$tmp/peers" .)
"$tmp/peers" run -j17 "$tmp/j17" -empty "$tmp/empty" -rounds "${ROUNDS:-5}" -each "${SECONDS_EACH:-4}s"
