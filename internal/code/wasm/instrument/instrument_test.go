package instrument_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"j17/internal/code/wasm/instrument"
)

// modules are the compiled examples.
func modules(tb testing.TB) map[string][]byte {
	tb.Helper()
	files, err := filepath.Glob("../../../../examples/wasm/*.wasm")
	if err != nil || len(files) == 0 {
		tb.Fatal(files, err)
	}
	all := map[string][]byte{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		all[filepath.Base(file)] = raw
	}
	return all
}

// TestInstrument checks that the same bytes always become the same bytes, which ask for the tick and export what an
// instance is put back by, and that the binary itself is left as it is.
func TestInstrument(t *testing.T) {
	const pages = 1024
	for name, binary := range modules(t) {
		t.Run(name, func(t *testing.T) {
			before := bytes.Clone(binary)
			var first []byte
			for range 2 {
				m, err := instrument.Parse(binary)
				if err != nil {
					t.Fatal(err)
				}
				out, err := m.Instrument(pages)
				if err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = out.Binary
				}
				if !bytes.Equal(out.Binary, first) {
					t.Fatal("the second time other bytes come out")
				}
				made, err := instrument.Parse(out.Binary)
				if err != nil {
					t.Fatal(err)
				}
				tick := instrument.Import{Module: instrument.TickModule, Name: instrument.TickName}
				if !slices.Contains(made.Imports, tick) || len(made.Imports) != len(m.Imports)+1 {
					t.Errorf("imports %v", made.Imports)
				}
				for _, name := range append(out.Globals, out.Counter, out.Refused) {
					if _, ok := made.Export(name, instrument.KindGlobal); !ok {
						t.Errorf("there is no export %s", name)
					}
				}
				if !made.Memory.HasMax || made.Memory.Max > pages || made.Memory.Min != m.Memory.Min {
					t.Errorf("memory %+v, was %+v", made.Memory, m.Memory)
				}
				m.Release()
				if e, ok := m.Export("malloc", instrument.KindFunction); !ok {
					t.Error("a module that was released has no exports")
				} else if sig, ok := m.Function(e.Index); !ok || sig.String() != "(i32) -> i32" {
					t.Error(sig)
				}
			}
			if !bytes.Equal(binary, before) {
				t.Error("the binary was changed")
			}
		})
	}
}

// FuzzInstrument feeds it what no compiler has made: whatever that is, it is refused or becomes a binary that can be
// read again.
func FuzzInstrument(f *testing.F) {
	f.Add([]byte("\x00asm\x01\x00\x00\x00"))
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x05\x03\x01\x00\x01"))
	for _, binary := range modules(f) {
		if len(binary) < 64<<10 {
			f.Add(binary)
		}
	}
	f.Fuzz(func(t *testing.T, binary []byte) {
		m, err := instrument.Parse(binary)
		if err != nil {
			return
		}
		out, err := m.Instrument(16)
		if err != nil {
			return
		}
		if _, err := instrument.Parse(out.Binary); err != nil {
			t.Errorf("what came out cannot be read: %v", err)
		}
	})
}
