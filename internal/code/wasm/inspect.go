package wasm

import "j17/internal/code/wasm/instrument"

// Inspection is what can be said about a binary without running it.
type Inspection struct {
	Exports []Export
	Imports []Import
	// MemoryPages and MaxMemoryPages are the sizes of the memory in pages of 64 KiB, with the limit of the default
	// Options where the module sets no lower one.
	MemoryPages, MaxMemoryPages uint32
	// Entrypoints are the exports that can be called, sorted.
	Entrypoints []string
	// Pooled is whether an instance serves one call after the other. One that changes its tables or drops segments is
	// started again for each call.
	Pooled bool
	// Problems are whole sentences about what keeps the module from being used; none if it can be.
	Problems []string
}

// Export is something that a module offers.
type Export struct {
	Name string
	// Kind is "function", "table", "memory" or "global".
	Kind string
	// Signature is that of a function, as in "(i32, i32) -> i64".
	Signature string
}

// Import is a function that a module needs.
type Import struct {
	Module, Name, Signature string
	// Exists is whether the module gets it.
	Exists bool
}

// Inspect reads a binary. The error is a *sandbox.Fault of kind Start where it cannot be read.
func Inspect(binary []byte) (Inspection, error) {
	m, err := instrument.Parse(binary)
	if err != nil {
		f := invalid(err)
		f.Hint = "Build it again as a core WebAssembly module." // looking at it is what has failed
		return Inspection{}, f
	}
	const pages = DefaultMemory / pageSize
	in := Inspection{MemoryPages: m.Memory.Min, MaxMemoryPages: pages, Entrypoints: entrypoints(m)}
	if m.Memory.HasMax {
		in.MaxMemoryPages = min(m.Memory.Max, pages)
	}

	// What it offers.
	for _, e := range m.Exports {
		x := Export{Name: e.Name}
		switch e.Kind {
		case instrument.KindFunction:
			sig, _ := m.Function(e.Index)
			x.Kind, x.Signature = "function", sig.String()
		case instrument.KindTable:
			x.Kind = "table"
		case instrument.KindMemory:
			x.Kind = "memory"
		default:
			x.Kind = "global"
		}
		in.Exports = append(in.Exports, x)
	}

	// What keeps it from being used.
	if fault := contract(m, pages); fault != nil {
		in.Problems = append(in.Problems, sentence(fault.Detail))
	}
	for _, i := range m.Imports {
		_, err := offered(i)
		if err != nil {
			in.Problems = append(in.Problems, sentence(err.Error()))
		}
		in.Imports = append(in.Imports, Import{i.Module, i.Name, i.Signature.String(), err == nil})
	}
	if len(in.Entrypoints) == 0 {
		in.Problems = append(in.Problems, "The module exports no function with the signature "+entrySignature().String()+" that could be an entry point.")
	}

	// Only instrumenting finds the rest, and whether an instance can be put back.
	if len(in.Problems) == 0 {
		if _, err := m.Instrument(pages); err != nil {
			in.Problems = append(in.Problems, sentence(err.Error()))
		}
	}
	in.Pooled = !m.Disposable
	return in, nil
}

// sentence makes a whole one of the detail of a fault.
func sentence(s string) string {
	if s[0] >= 'a' && s[0] <= 'z' {
		s = string(s[0]-'a'+'A') + s[1:]
	}
	return s + "."
}
