#!/bin/sh
# Builds the modules for which this machine has the tools, into this folder, and says which ones it left out.
#
#   build.sh [go] [rust] [assemblyscript] [c]
set -eu
cd "$(dirname "$0")"
out=$PWD

has() { command -v "$1" >/dev/null 2>&1; }
skip() { echo "skipped: $1, $2" >&2; return 1; }

build_go() {
	has go || { skip go 'there is no go'; return 1; }
	(cd go && GOOS=wasip1 GOARCH=wasm go build -trimpath -buildmode=c-shared -ldflags='-s -w' -o "$out/orderlines-go.wasm" .)
}

# With the target installed (rustup target add wasm32-unknown-unknown, or Debian's libstd-rust-dev-wasm32) this is what
# `cargo build --release --target wasm32-unknown-unknown` does. RUSTC picks a compiler.
build_rust() {
	rustc=${RUSTC:-rustc}
	has "$rustc" || { skip rust "there is no $rustc"; return 1; }
	lib=$("$rustc" --target wasm32-unknown-unknown --print target-libdir)
	ls "$lib"/libstd-* >/dev/null 2>&1 || { skip rust 'the target wasm32-unknown-unknown is not installed'; return 1; }
	"$rustc" --edition 2021 --crate-name orderlines --crate-type cdylib --target wasm32-unknown-unknown \
		-C opt-level=s -C lto -C panic=abort -C strip=symbols -o "$out/orderlines-rust.wasm" rust/src/lib.rs
}

build_assemblyscript() {
	has npm || { skip assemblyscript 'there is no npm'; return 1; }
	(cd assemblyscript && npm install --silent --no-package-lock && npm run --silent build)
}

build_c() {
	has clang && has wasm-ld || { skip c 'there is no clang with lld'; return 1; }
	clang --target=wasm32 -O2 -Wall -mbulk-memory -nostdlib -Wl,--no-entry -Wl,--strip-all -Wl,-z,stack-size=16384 \
		-o orderlines-c.wasm c/order.c
}

for language in "${@:-go rust assemblyscript c}"; do
	for one in $language; do
		if "build_$one"; then echo "done: $one"; fi
	done
done
chmod 644 ./*.wasm
ls -l ./*.wasm
