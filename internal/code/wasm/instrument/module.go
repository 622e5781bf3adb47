// Package instrument makes WebAssembly modules interruptible and resettable: it parses a binary, reports what it
// exports and imports, and writes another binary that counts what it runs. It only turns bytes into bytes, and runs
// nothing.
package instrument

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Limits of what a binary may hold. They bound the time and the memory of its compilation, far above what compilers
// make of sensible programs.
const (
	// MaxBinary is the most bytes that a module may have.
	MaxBinary = 32 << 20

	maxTypes       = 50_000
	maxFunctions   = 100_000
	maxGlobals     = 10_000
	maxExports     = 10_000
	maxImports     = 1_000
	maxSegments    = 100_000
	maxBody        = Budget // bytes of one function, so that the counter never falls behind
	maxLocals      = 20_000 // of one function
	maxNesting     = 10_000 // of blocks in one function
	maxLoopNesting = 500    // of loops in one function
	// maxLocalsBlocks is the most that the local variables of a function times its blocks may be; a loop counts as
	// five.
	maxLocalsBlocks = 2_000_000
	maxTableLength  = 100_000 // entries of all tables together
	maxTables       = 16
)

// The sections of a binary.
const (
	secCustom = iota
	secType
	secImport
	secFunction
	secTable
	secMemory
	secGlobal
	secExport
	secStart
	secElement
	secCode
	secData
	secDataCount
	secEnd
)

// Value types.
const (
	typeI32  = 0x7f
	typeI64  = 0x7e
	typeF32  = 0x7d
	typeF64  = 0x7c
	typeV128 = 0x7b
)

// Kinds of imports and exports.
const (
	KindFunction = iota
	KindTable
	KindMemory
	KindGlobal
)

// Signature is the type of a function: a byte for each value, as in the binary.
type Signature struct{ Params, Results string }

// String returns the signature as in "(i32, i32) -> i64".
func (s Signature) String() string {
	list := func(types string) string {
		names := make([]string, len(types))
		for i := range names {
			names[i] = typeName(types[i])
		}
		return strings.Join(names, ", ")
	}
	out := "(" + list(s.Params) + ")"
	switch len(s.Results) {
	case 0:
		return out
	case 1:
		return out + " -> " + list(s.Results)
	default:
		return out + " -> (" + list(s.Results) + ")"
	}
}

func typeName(t byte) string {
	switch t {
	case typeI32:
		return "i32"
	case typeI64:
		return "i64"
	case typeF32:
		return "f32"
	case typeF64:
		return "f64"
	case typeV128:
		return "v128"
	case 0x70:
		return "funcref"
	default:
		return "externref"
	}
}

// Import is a function that a module needs.
type Import struct {
	Module, Name string
	Signature    Signature
}

// Export is something that a module offers.
type Export struct {
	Name string
	// Kind is one of KindFunction to KindGlobal.
	Kind byte
	// Index counts the things of that kind.
	Index uint32
}

type global struct {
	typ     byte
	mutable bool
}

// Limits are the sizes of a memory in pages of 64 KiB.
type Limits struct {
	Min, Max uint32
	// HasMax is whether the module sets Max.
	HasMax bool
}

// Module is what is known of a binary before it is compiled.
type Module struct {
	Imports []Import
	Exports []Export
	// Memory is that of the module, if HasMemory.
	Memory    Limits
	HasMemory bool
	// Disposable is set where an instance holds state beside its memory and its numeric globals, so that it cannot be
	// put back into the state it began in. It is known once the module was instrumented.
	Disposable bool

	sections [secEnd][]byte // by number, without their heads; nil where there is none
	names    []byte         // the custom section "name"
	types    []Signature
	funcs    []uint32 // the types of the functions that the module defines
	tables   []byte   // their types
	globals  []global
	hasStart bool
	start    uint32
	data     []uint32 // the sizes of the data segments
}

// Parse reads as much of a binary as is needed to check and to instrument it. The rest is validated by the compiler.
// The module refers to the bytes of the binary until it is released.
func Parse(binary []byte) (*Module, error) {
	switch {
	case len(binary) > MaxBinary:
		return nil, fmt.Errorf("the file is larger than %d MiB", MaxBinary>>20)
	case len(binary) < 8 || !bytes.HasPrefix(binary, []byte("\x00asm")):
		return nil, errors.New("the file is not a WebAssembly binary: it does not begin with \\0asm")
	case bytes.Equal(binary[4:8], []byte{0x0d, 0, 1, 0}):
		return nil, errors.New("the file is a WebAssembly component; what is needed is a core module")
	case !bytes.Equal(binary[4:8], []byte{1, 0, 0, 0}):
		return nil, errors.New("the file is no WebAssembly binary of version 1")
	}

	// The sections, each as a whole.
	m := &Module{}
	r := &reader{b: binary, at: 8}
	for !r.done() && r.err == nil {
		id := r.byte()
		body := r.bytes(r.u32())
		switch {
		case r.err != nil:
		case id == secCustom:
			c := reader{b: body}
			if c.name() == "name" && c.err == nil {
				m.names = body[c.at:]
			}
		case id >= secEnd:
			r.failf("section %d is unknown: build without experimental features", id)
		case m.sections[id] != nil:
			r.failf("section %d is there twice", id)
		default:
			m.sections[id] = body
		}
	}
	if r.err != nil {
		return nil, r.err
	}

	// What is in them, as far as it is needed.
	for _, section := range []struct {
		id   int
		read func(*reader)
	}{
		{secType, m.readTypes},
		{secImport, m.readImports},
		{secFunction, m.readFunctions},
		{secTable, m.readTables},
		{secMemory, m.readMemory},
		{secGlobal, m.readGlobals},
		{secExport, m.readExports},
		{secStart, func(r *reader) { m.hasStart, m.start = true, r.u32() }},
		{secData, m.readData},
	} {
		if body := m.sections[section.id]; body != nil {
			r := &reader{b: body}
			section.read(r)
			if r.err == nil && !r.done() {
				r.failf("section %d is longer than what it holds", section.id)
			}
			if r.err != nil {
				return nil, r.err
			}
		}
	}
	m.HasMemory = m.sections[secMemory] != nil
	return m, nil
}

// Release drops the binary. The module can still be asked what it offers and needs, but not be instrumented again.
func (m *Module) Release() { m.sections, m.names = [secEnd][]byte{}, nil }

func (m *Module) readTypes(r *reader) {
	for range r.count("types", maxTypes) {
		if r.byte() != 0x60 {
			r.failf("a type is no function type: build without experimental features")
		}
		params := r.bytes(r.u32())
		results := r.bytes(r.u32())
		if len(params) > 1000 || len(results) > 1000 {
			r.failf("a function type has more than 1000 values")
		}
		if r.err != nil {
			return
		}
		m.types = append(m.types, Signature{string(params), string(results)})
	}
}

func (m *Module) typeAt(r *reader, index uint32) Signature {
	if int(index) >= len(m.types) {
		r.failf("there is no type %d", index)
		return Signature{}
	}
	return m.types[index]
}

func (m *Module) readImports(r *reader) {
	for range r.count("imports", maxImports) {
		i := Import{Module: r.name(), Name: r.name()}
		kind := r.byte()
		if r.err != nil {
			return
		}
		if kind != KindFunction {
			what := "a global"
			switch kind {
			case KindTable:
				what = "a table"
			case KindMemory:
				what = "its memory"
			}
			r.failf("the module imports %s, %.60q of %.60q; a module has to bring all but the functions of WASI and AssemblyScript's abort", what, i.Name, i.Module)
			return
		}
		i.Signature = m.typeAt(r, r.u32())
		m.Imports = append(m.Imports, i)
	}
}

func (m *Module) readFunctions(r *reader) {
	for range r.count("functions", maxFunctions) {
		t := r.u32()
		m.typeAt(r, t)
		if r.err != nil {
			return
		}
		m.funcs = append(m.funcs, t)
	}
}

func readLimits(r *reader) Limits {
	var l Limits
	switch flags := r.byte(); flags {
	case 0, 1:
		l.Min, l.HasMax = r.u32(), flags == 1
		if l.HasMax {
			l.Max = r.u32()
		}
	default:
		r.failf("shared and 64-bit memories are not supported: build without threads and memory64")
	}
	return l
}

func (m *Module) readTables(r *reader) {
	n := r.count("tables", maxTables)
	total := uint64(0)
	for range n {
		typ := r.byte()
		if typ != 0x70 && typ != 0x6f && r.err == nil {
			r.failf("a table has an unknown type")
		}
		total += uint64(readLimits(r).Min)
		m.tables = append(m.tables, typ)
	}
	if total > maxTableLength {
		r.failf("the module's tables have %d entries, more than the %d that are allowed", total, maxTableLength)
	}
}

func (m *Module) readMemory(r *reader) {
	if n := r.count("memories", 1); n == 1 {
		m.Memory = readLimits(r)
	}
}

func (m *Module) readGlobals(r *reader) {
	for range r.count("globals", maxGlobals) {
		g := global{typ: r.byte(), mutable: r.byte() == 1}
		walk(r, nil)
		if r.err != nil {
			return
		}
		if g.mutable && (g.typ < typeF64 || g.typ > typeI32) {
			m.Disposable = true
		}
		m.globals = append(m.globals, g)
	}
}

func (m *Module) readExports(r *reader) {
	for range r.count("exports", maxExports) {
		e := Export{Name: r.name(), Kind: r.byte(), Index: r.u32()}
		if r.err != nil {
			return
		}
		m.Exports = append(m.Exports, e)
	}
}

func (m *Module) readData(r *reader) {
	for range r.count("data segments", maxSegments) {
		switch r.u32() {
		case 0:
			walk(r, nil)
		case 1:
		case 2:
			r.u32()
			walk(r, nil)
		default:
			r.failf("a data segment has an unknown form")
		}
		n := r.u32()
		r.bytes(n)
		if r.err != nil {
			return
		}
		m.data = append(m.data, n)
	}
}

// Export returns an export of the module.
func (m *Module) Export(name string, kind byte) (Export, bool) {
	i := slices.IndexFunc(m.Exports, func(e Export) bool { return e.Name == name && e.Kind == kind })
	if i < 0 {
		return Export{}, false
	}
	return m.Exports[i], true
}

// Function returns the signature of a function by its index.
func (m *Module) Function(index uint32) (Signature, bool) {
	n := uint32(len(m.Imports))
	if index < n {
		return m.Imports[index].Signature, true
	}
	if index -= n; int(index) < len(m.funcs) {
		return m.types[m.funcs[index]], true
	}
	return Signature{}, false
}
