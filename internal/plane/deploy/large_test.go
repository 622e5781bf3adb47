package deploy_test

import (
	"slices"
	"strings"
	"testing"

	"j17"
)

// TestModulesAreLimited: the modules of a spec may take 512 MiB together, when it is deployed and when one is uploaded
// later; no more of them are compiled then.
func TestModulesAreLimited(t *testing.T) {
	f := start(t)
	f.upload(t, "a.wasm", "apply_handler MiB:300")
	f.upload(t, "b.wasm", "apply_handler MiB:200 b")
	f.upload(t, "c.wasm", "apply_handler MiB:100 c")
	f.upload(t, "d.wasm", "apply_handler MiB:100 d")
	two := `{"wasm":"a.wasm"}},"b":{"schema":{},"handler":{"wasm":"b.wasm"}`
	f.deploy(t, simple(two))
	compiled := f.modules.count()
	r := f.request(simple(two + `},"x":{"schema":{},"handler":{"wasm":"c.wasm"}},"y":{"schema":{},"handler":{"wasm":"d.wasm"}`))
	for _, lenient := range []bool{false, true} {
		r.Lenient = lenient
		_, err := f.Deploy(t.Context(), r)
		wantCode(t, "four modules", err, j17.CodeInvalidSpec)
		found := fieldErrors(err)
		if want := `/aggregate_types/note/events/x/handler/wasm: The blob "c.wasm" cannot be loaded: the modules of this spec take more than the 512 MiB of memory`; !slices.ContainsFunc(found, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("lenient %v: %q", lenient, found)
		}
		if n := f.modules.count() - compiled; !lenient && n != 1 {
			t.Errorf("%d modules were compiled, want the one that is too much", n)
		}
	}

	// What is uploaded later stands for one that is deployed.
	_, _, err := f.put(t.Context(), "b.wasm", "\x00asm apply_handler MiB:213")
	wantCode(t, "a larger one", err, j17.CodeInvalidBlob)
	f.upload(t, "b.wasm", "apply_handler MiB:212")

	// What is deployed already, as from before there was a limit, is loaded at the next start.
	f.modules.heavy = true
	f.restart(t)
	if n := len(f.Functions(f.instance, j17.Prod)); n != 2 {
		t.Errorf("%d functions are loaded", n)
	}
}
