#!/bin/sh
# Builds the archives of a release into dist/: packaging/dist.sh [OS/ARCHITECTURE ...]
#
# Each holds the program, a unit file for systemd, the licence, and those of what is compiled in. The same commit gives the
# same bytes, whoever builds it with the same version of Go: paths are trimmed, and files have the commit's time, no owner
# and a fixed order. It needs GNU tar, gzip and sha256sum.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

version=$(sed -n 's/^const programVersion = "\(.*\)"$/\1/p' cmd/j17/version.go)
[ -n "$version" ] || { echo 'cmd/j17/version.go does not say the version.' >&2; exit 1; }
tar --version 2>/dev/null | grep -q 'GNU tar' || { echo 'GNU tar is missing. On macOS: brew install gnu-tar, and put it first on the PATH.' >&2; exit 1; }
# Outside of a clone all files get one and the same time.
modified=$(git log -1 --format=%ct 2>/dev/null || echo 946684800)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p dist

# licences OS ARCH: those of all modules that are compiled in, and of Go itself.
licences() {
  {
    printf '%s\n' "$(go env GOROOT)|the Go standard library|$(go env GOVERSION)"
    GOOS=$1 GOARCH=$2 CGO_ENABLED=0 go list -deps -f '{{with .Module}}{{if not .Main}}{{.Dir}}|{{.Path}}|{{.Version}}{{end}}{{end}}' ./cmd/j17 | sort -u
  } | while IFS='|' read -r dir name release; do
    printf '\n=== %s %s\n' "$name" "$release"
    found=
    for file in $(find "$dir" -maxdepth 1 -type f \( -iname 'licen[sc]e*' -o -iname 'copying*' -o -iname 'notice*' \) | LC_ALL=C sort); do
      found=yes
      printf '\n'
      cat "$file"
    done
    [ -n "$found" ] || { echo "$name has no file with its licence in $dir." >&2; exit 1; }
  done
}

for platform in "$@"; do
  os=${platform%/*} arch=${platform#*/}
  name=j17_${version}_${os}_${arch}
  mkdir "$work/$name"
  echo "building $name" >&2
  GOOS=$os GOARCH=$arch CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/$name/j17" ./cmd/j17
  cp LICENSE README.md CHANGELOG.md "$work/$name"
  [ "$os" != linux ] || cp packaging/j17.service "$work/$name"
  licences "$os" "$arch" >"$work/$name/THIRD_PARTY_LICENSES"
  chmod 0755 "$work/$name" "$work/$name/j17"
  (cd "$work/$name" && find . -type f ! -name j17 -exec chmod 0644 {} +)
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$modified" -C "$work" -cf "$work/$name.tar" "$name"
  gzip -n -9 <"$work/$name.tar" >"dist/$name.tar.gz"
  rm -rf "${work:?}/$name" "$work/$name.tar"
done
(cd dist && sha256sum j17_"$version"_*.tar.gz >SHA256SUMS && cat SHA256SUMS)
