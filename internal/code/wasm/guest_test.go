package wasm_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"j17/internal/code/wasm"
)

// guest describes a small module, written in the binary format by hand. Its functions are numbered after its imports:
// malloc, apply_handler, then those of more.
type guest struct {
	malloc, entry string   // code without the end; malloc answers 1024 where it is empty
	locals        string   // of the entry point
	more          []string // functions without parameters and results
	imports       []string // as "module name", each a function without parameters and results
	importTypes   []string // of the imports, instead
	pages         uint64
	start         bool // calls the first of more
	globals       []int64
	data          string // at 2048
	dataAt        int64
	table         uint64
	renamed       string // what apply_handler is exported as
	entryType     uint64 // 0: (i32, i32) -> i64
	noMalloc      bool
	noMemory      bool
	cut           int // how many bytes are missing at the end
}

func uleb(v uint64) string { return string(binary.AppendUvarint(nil, v)) }

func sleb(v int64) string {
	var b []byte
	for {
		low := byte(v & 0x7f)
		v >>= 7
		if v == 0 && low&0x40 == 0 || v == -1 && low&0x40 != 0 {
			return string(append(b, low))
		}
		b = append(b, low|0x80)
	}
}

func vec(items ...string) string { return uleb(uint64(len(items))) + strings.Join(items, "") }

func sized(s string) string { return uleb(uint64(len(s))) + s }

func section(id byte, body string) string { return string(id) + sized(body) }

// Code.
const (
	unreachable = "\x00"
	end         = "\x0b"
	drop        = "\x1a"
	i64add      = "\x7c"
	i64or       = "\x84"
	i64shl      = "\x86"
	extend      = "\xad" // i32 to i64
	load8       = "\x2d\x00\x00"
	store8      = "\x3a\x00\x00"
	load32      = "\x28\x02\x00"
	store32     = "\x36\x02\x00"
	grow        = "\x40\x00"
	endless     = "\x03\x40\x0c\x00\x0b" // loop, br 0
)

func i32(v int64) string            { return "\x41" + sleb(v) }
func i64(v int64) string            { return "\x42" + sleb(v) }
func get(n uint64) string           { return "\x20" + uleb(n) }
func set(n uint64) string           { return "\x21" + uleb(n) }
func gget(n uint64) string          { return "\x23" + uleb(n) }
func gset(n uint64) string          { return "\x24" + uleb(n) }
func call(n uint64) string          { return "\x10" + uleb(n) }
func packed(ptr, size int64) string { return i64(ptr<<32 | size) }

// echo is an entry point that answers its input.
func echo() string { return get(0) + extend + i64(32) + i64shl + get(1) + extend + i64or }

func (g guest) binary() []byte {
	if g.malloc == "" {
		g.malloc = i32(1024)
	}
	if g.pages == 0 {
		g.pages = 1
	}
	if g.renamed == "" {
		g.renamed = "apply_handler"
	}
	types := []string{
		"\x60\x01\x7f\x01\x7f", "\x60\x02\x7f\x7f\x01\x7e", "\x60\x00\x00", "\x60\x01\x7f\x00",
		"\x60\x02\x7f\x7f\x01\x7f",
	}
	entryType := uint64(1)
	if g.entryType != 0 {
		entryType = g.entryType
	}
	var imports []string
	for i, name := range g.imports {
		module, name, _ := strings.Cut(name, " ")
		typ := uleb(2)
		if g.importTypes != nil {
			types = append(types, g.importTypes[i])
			typ = uleb(uint64(len(types) - 1))
		}
		imports = append(imports, sized(module)+sized(name)+"\x00"+typ)
	}
	n := uint64(len(imports))
	functions := []string{uleb(0), uleb(entryType)}
	bodies := []string{sized("\x00" + g.malloc + end), sized(vecLocals(g.locals) + g.entry + end)}
	for _, code := range g.more {
		functions = append(functions, uleb(2))
		bodies = append(bodies, sized("\x00"+code+end))
	}
	exports := []string{sized(g.renamed) + "\x00" + uleb(n+1)}
	if !g.noMalloc {
		exports = append(exports, sized("malloc")+"\x00"+uleb(n))
	}
	if !g.noMemory {
		exports = append(exports, sized("memory")+"\x02\x00")
	}
	var globals []string
	for _, v := range g.globals {
		globals = append(globals, "\x7e\x01"+i64(v)+end)
	}
	out := "\x00asm\x01\x00\x00\x00" + section(1, vec(types...))
	if len(imports) > 0 {
		out += section(2, vec(imports...))
	}
	out += section(3, vec(functions...))
	if g.table > 0 {
		out += section(4, vec("\x70\x00"+uleb(g.table)))
	}
	out += section(5, vec("\x00"+uleb(g.pages)))
	if len(globals) > 0 {
		out += section(6, vec(globals...))
	}
	out += section(7, vec(exports...))
	if g.start {
		out += section(8, uleb(n+2))
	}
	out += section(10, vec(bodies...))
	if g.data != "" {
		at := int64(2048)
		if g.dataAt != 0 {
			at = g.dataAt
		}
		out += section(11, vec("\x00"+i32(at)+end+sized(g.data)))
	}
	return []byte(out[:len(out)-g.cut])
}

func vecLocals(types string) string {
	var groups []string
	for _, t := range types {
		groups = append(groups, uleb(1)+string(t))
	}
	return vec(groups...)
}

func runtime(tb testing.TB, o wasm.Options) *wasm.Runtime {
	tb.Helper()
	rt, err := wasm.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return rt
}

func compile(tb testing.TB, rt *wasm.Runtime, binary []byte) *wasm.Module {
	tb.Helper()
	m, err := rt.Compile(tb.Context(), binary)
	if err != nil {
		tb.Fatalf("%v: %#v", err, err)
	}
	tb.Cleanup(func() {
		if err := m.Close(tb.Context()); err != nil {
			tb.Error(err)
		}
	})
	return m
}

// answer calls apply_handler, which must succeed.
func answer(tb testing.TB, m *wasm.Module, input string) string {
	tb.Helper()
	f, err := m.Function("apply_handler", 5*time.Second)
	if err != nil {
		tb.Fatal(err)
	}
	out, err := f.Call(tb.Context(), []byte(input))
	if err != nil {
		tb.Fatalf("%v: %#v", err, err)
	}
	return string(out)
}
