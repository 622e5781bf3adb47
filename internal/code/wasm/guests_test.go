//go:build !race

package wasm_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/code/sandbox"
	"j17/internal/code/wasm"
)

const examples = "../../../examples/wasm"

// goGuest builds the example in Go, once a test run, and fails where that is not possible.
func goGuest() func(testing.TB) []byte {
	var raw []byte
	var err error
	var once sync.Once
	return func(tb testing.TB) []byte {
		tb.Helper()
		once.Do(func() {
			out := filepath.Join(tb.TempDir(), "guest.wasm")
			cmd := exec.Command("go", "build", "-trimpath", "-buildmode=c-shared", "-ldflags=-s -w", "-o", out, ".")
			cmd.Dir = filepath.Join(examples, "go")
			cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off")
			if _, err = cmd.Output(); err == nil {
				raw, err = os.ReadFile(out)
			}
		})
		if err != nil {
			tb.Fatal(err)
		}
		return raw
	}
}

// builtGo is built once, used by tests and benchmarks.
var builtGo = goGuest()

func exampleGuest(tb testing.TB, language string) []byte {
	tb.Helper()
	if language == "go" {
		return builtGo(tb)
	}
	raw, err := os.ReadFile(filepath.Join(examples, "orderlines-"+language+".wasm"))
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

const penAdded = `{"state":{"lines":[{"sku":"INK","unit_price":1250,"quantity":1,"line_total":1250}],"total":1250},` +
	`"event":{"key":"order:1","type":"had_item_added","data":{"sku":"PEN","unit_price":10,"quantity":3},"metadata":{"actor":{"type":"clerk","id":"global"}}}}`

// TestGuests runs the examples in all languages, which must answer the same.
func TestGuests(t *testing.T) {
	handler := func(data string) string {
		return `{"state":{},"event":{"key":"order:1","type":"had_item_added","data":` + data + `,"metadata":{}}}`
	}
	invalid := func(code, field, message string) string {
		return `{"error":{"type":"validation_failed","message":"` + message + `","code":"` + code + `","context":{"field":"` + field + `"}}}`
	}
	quantity := invalid("INVALID_QUANTITY", "quantity", "The quantity has to be a whole number from 1 to 1000000.")
	price := invalid("INVALID_PRICE", "unit_price", "The unit price has to be a whole number of cents from 0 to 100000000.")
	var many []string
	for range 200 {
		many = append(many, `{"sku":"INK","unit_price":1250,"quantity":1,"line_total":1250}`)
	}
	for _, language := range []string{"go", "rust", "assemblyscript", "c"} {
		t.Run(language, func(t *testing.T) {
			m := compile(t, runtime(t, wasm.Options{}), exampleGuest(t, language))
			if diff := cmp.Diff([]string{"apply_handler", "compute_implications"}, m.Entrypoints()); diff != "" {
				t.Fatal(diff)
			}
			if language == "go" {
				saysWhatFails(t, m)
			}
			for _, test := range []struct{ entrypoint, input, output string }{
				{"apply_handler", penAdded, `{"state":{"lines":[{"sku":"INK","unit_price":1250,"quantity":1,"line_total":1250},{"sku":"PEN","unit_price":10,"quantity":3,"line_total":30}],"total":1280}}`},
				{"apply_handler", handler(`{"sku":"Größe \"L\", {[","unit_price":0,"quantity":1}`), `{"state":{"lines":[{"sku":"Größe \"L\", {[","unit_price":0,"quantity":1,"line_total":0}],"total":0}}`},
				{"apply_handler", handler(`{"sku":"GOLD","unit_price":100000000,"quantity":1000000}`), `{"state":{"lines":[{"sku":"GOLD","unit_price":100000000,"quantity":1000000,"line_total":100000000000000}],"total":100000000000000}}`},
				{"apply_handler", handler(`{"sku":"PEN","unit_price":10,"quantity":-5}`), quantity},
				{"apply_handler", handler(`{"sku":"PEN","unit_price":10,"quantity":1.5}`), quantity},
				{"apply_handler", handler(`{"sku":"PEN","unit_price":10}`), quantity},
				{"apply_handler", handler(`{"sku":"PEN","unit_price":100000001,"quantity":1}`), price},
				{
					"apply_handler",
					`{"state":{"lines":[` + strings.Join(many, ",") + `],"total":250000},"event":{"data":{"sku":"PEN","unit_price":10,"quantity":3}}}`,
					`{"state":{"lines":[` + strings.Join(many, ",") + `,{"sku":"PEN","unit_price":10,"quantity":3,"line_total":30}],"total":250030}}`,
				},
				{"compute_implications", `{"event":{"key":"order:1","type":"was_placed","data":{"items":[{"product_id":"p-1","quantity":2},{"product_id":"p-2","quantity":1}]},"metadata":{},"state":null},"context":{}}`, `{"actions":[{"emit":{"aggregate_type":"inventory","id":"p-1","event_type":"was_reserved","data":{"quantity":2,"order":"order:1"}}},{"emit":{"aggregate_type":"inventory","id":"p-2","event_type":"was_reserved","data":{"quantity":1,"order":"order:1"}}}]}`},
				{"compute_implications", `{"event":{"key":"order:1","data":{}},"context":{}}`, `{"actions":[]}`},
			} {
				for range 3 {
					result, err := m.Run(t.Context(), test.entrypoint, 0, []byte(test.input))
					if err != nil {
						t.Fatalf("%s: %#v", test.input, err)
					}
					if diff := cmp.Diff(tree(t, test.output), tree(t, string(result.Output))); diff != "" {
						t.Error(test.input, diff)
					}
				}
			}
		})
	}
}

func tree(t *testing.T, text string) any {
	t.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err, text)
	}
	return v
}

// saysWhatFails checks that the trap of a guest in Go tells where it happened.
func saysWhatFails(t *testing.T, m *wasm.Module) {
	t.Helper()
	_, err := m.Run(t.Context(), "apply_handler", 0, []byte("no JSON"))
	f := faultOf(t, err)
	if f.Kind != sandbox.Trap || !strings.Contains(f.Log, "main.applyHandler") {
		t.Errorf("%#v", f)
	}
}

func benchmarkCalls(b *testing.B, m *wasm.Module, input string) {
	b.Helper()
	f, err := m.Function("apply_handler", 0)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Call(b.Context(), []byte(input)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCall calls guests from the pool: the smallest there is, and a handler in each language.
func BenchmarkCall(b *testing.B) {
	b.Run("minimal", func(b *testing.B) {
		benchmarkCalls(b, compile(b, runtime(b, wasm.Options{}), guest{entry: echo()}.binary()), penAdded)
	})
	for _, language := range []string{"go", "rust", "assemblyscript", "c"} {
		b.Run(language, func(b *testing.B) {
			benchmarkCalls(b, compile(b, runtime(b, wasm.Options{}), exampleGuest(b, language)), penAdded)
		})
	}
}

// BenchmarkLoop runs a loop of ten million rounds, to see what it costs that loops can be interrupted.
func BenchmarkLoop(b *testing.B) {
	rounds := guest{
		// Tee, eqz, eqz, br_if.
		entry: i64(10_000_000) + set(2) + "\x03\x40" + get(2) + i64(-1) + i64add + "\x22\x02" + "\x50\x45\x0d\x00" +
			end + echo(),
		locals: "\x7e",
	}
	m := compile(b, runtime(b, wasm.Options{}), rounds.binary())
	for b.Loop() {
		if _, err := m.Run(b.Context(), "apply_handler", 1e10, []byte("{}")); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCompile compiles the guest in Go, again and from the disk.
func BenchmarkCompile(b *testing.B) {
	raw := exampleGuest(b, "go")
	for name, dir := range map[string]string{"anew": "", "cached": b.TempDir()} {
		b.Run(name, func(b *testing.B) {
			once := func() {
				m, err := runtime(b, wasm.Options{CacheDir: dir}).Compile(b.Context(), raw)
				if err != nil {
					b.Fatal(err)
				}
				if err := m.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			if dir != "" {
				once() // fills the cache
			}
			for b.Loop() {
				once()
			}
		})
	}
}
