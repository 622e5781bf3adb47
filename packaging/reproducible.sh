#!/bin/sh
# Builds a release from two clones of the last commit and compares the bytes: packaging/reproducible.sh [OS/ARCHITECTURE ...]
#
# The clones have other folders, homes, caches, time zones, languages, file modes and settings of the Go command. It takes minutes, since each of
# them compiles everything.
set -eu
cd "$(dirname "$0")/.."

top=$PWD commit=$(git rev-parse HEAD) modules=$(go env GOMODCACHE)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# release NAME FOLDER UMASK [VARIABLE=VALUE ...] builds one in a clone. Modules come from the cache of the machine, into one of its own.
release() {
  name=$1 folder=$work/$2 mask=$3
  shift 3
  (
    umask "$mask"
    git clone -q --no-hardlinks "$top" "$folder"
    cd "$folder"
    git -c advice.detachedHead=false checkout -q "$commit"
    [ "$name" = first ] || git tag v9.9.9
    env -i PATH="$PATH" HOME="$work/home-$name" GOPROXY="file://$modules/cache/download" GOSUMDB=off "$@" make dist PLATFORMS="$platforms" >/dev/null
    cp -R dist "$work/$name"
  )
}

platforms="$*"
release first a 022 TZ=UTC LC_ALL=C
release second b/deeper/j17 077 TZ=Asia/Kathmandu LC_ALL=C.UTF-8 GOCACHE="$work/cache" GOFLAGS=-tags=anything GOAMD64=v3 GOARM64=v9.0
diff -r "$work/first" "$work/second"
cat "$work/first/SHA256SUMS"
echo "Both clones of $commit give these files."
