package instrument

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// Budget is how much may run between two ticks, in simple instructions (weight). Machine code cannot be preempted,
	// not even to collect garbage, so this bounds how long a call can hold up the rest of the process: some hundred
	// microseconds.
	Budget = 1 << 18
	// BytesPerCost is how many bytes are copied at the cost of one simple instruction.
	BytesPerCost = 8
	// TickModule is the module of TickName, the function that an instrumented module imports to report that its budget
	// is used up.
	TickModule = "j17"
	// TickName is the name of that function.
	TickName = "tick"

	// costOfSegment is the cost of charging, costOfCheck that of checking whether the budget is used up, and
	// costOfGrowth that of memory.grow.
	costOfSegment = 3
	costOfCheck   = 3
	costOfGrowth  = 1 << 10
)

// Instrumented is a module made ready for the runtime.
type Instrumented struct {
	Binary []byte
	// Globals are the exports by which all mutable globals of the module can be read and set.
	Globals []string
	// Counter is the export of the global that counts down to the next tick.
	Counter string
	// Refused is the export of the global that is 1 when the memory could not grow.
	Refused string
	// Start is the export of the start function, "" where there is none.
	Start string
	// Compiling is how long it takes to compile, roughly.
	Compiling time.Duration
}

// Instrument makes a module interruptible and resettable, with a memory of at most maxPages pages:
//
//   - What runs is charged to a counter, at the beginning of every segment, which is code that runs from its beginning
//     to its end. Every loop and every function begins by looking whether the counter is used up. Then the module calls
//     the host, which stops it, lets it wait or lets it go on. Every endless computation passes such a place.
//   - All mutable globals are exported, so that an instance can be put back into the state it began in.
//   - The start function is no longer called by the instantiation, which could not be interrupted, but exported.
//   - Memory and tables are limited, and a memory that cannot grow leaves a mark, to tell what a trap was caused by.
//
// The functions of a module are numbered after its imports, so the import of the tick moves all of them by one.
func (m *Module) Instrument(maxPages uint32) (*Instrumented, error) {
	w := &rewriter{m: m, imports: uint32(len(m.Imports))}
	w.helpers = w.imports + 1 + uint32(len(m.funcs))
	w.counter = uint32(len(m.globals))
	out := &Instrumented{}
	b := []byte("\x00asm\x01\x00\x00\x00")
	section := func(id byte, body []byte) { b = appendSized(append(b, id), body) }

	// The types of the tick and of the helpers.
	types := uint32(len(m.types))
	_, rest := cutCount(m.sections[secType])
	body := append(appendU32(nil, types+3), rest...)
	body = append(body, 0x60, 0, 0)                                       // tick
	body = append(body, 0x60, 1, typeI32, 1, typeI32)                     // grow
	section(secType, append(body, 0x60, 3, typeI32, typeI32, typeI32, 0)) // copy, fill

	// The tick is imported.
	_, rest = cutCount(m.sections[secImport])
	body = append(appendU32(nil, w.imports+1), rest...)
	body = appendName(appendName(body, TickModule), TickName)
	section(secImport, appendU32(append(body, KindFunction), types))

	// The helpers are defined after the module's own functions.
	_, rest = cutCount(m.sections[secFunction])
	body = append(appendU32(nil, uint32(len(m.funcs))+3), rest...)
	section(secFunction, appendU32(appendU32(appendU32(body, types+1), types+2), types+2))

	// Tables and memory get a limit.
	if len(m.tables) > 0 {
		section(secTable, m.limitTables())
	}
	if m.sections[secMemory] != nil {
		largest := maxPages
		if m.Memory.HasMax {
			largest = min(largest, m.Memory.Max)
		}
		section(secMemory, appendU32(appendU32([]byte{1, 1}, m.Memory.Min), largest))
	}

	// Two more globals.
	n, rest := cutCount(m.sections[secGlobal])
	body = appendU32(nil, n+2)
	body = append(body, w.copyItems(rest, func(r *reader) { r.skip(2); w.expression(r) }, int(n))...)
	body = append(appendS32(append(body, typeI32, 1, 0x41), Budget), 0x0b) // the counter
	section(secGlobal, append(body, typeI32, 1, 0x41, 0, 0x0b))            // the mark

	// What refers to functions gets their new numbers, and the code its charges.
	section(secExport, w.exports(out))
	if body := m.sections[secElement]; body != nil {
		section(secElement, w.elements(body))
	}
	if body := m.sections[secDataCount]; body != nil {
		section(secDataCount, body)
	}

	code, err := w.code(m.sections[secCode])
	if err != nil {
		return nil, err
	}
	section(secCode, code)
	if body := m.sections[secData]; body != nil {
		section(secData, body)
	}
	if names := w.functionNames(m.names); names != nil {
		section(secCustom, append(appendName(nil, "name"), names...))
	}
	out.Binary, out.Compiling = b, time.Duration(w.compiling)*time.Microsecond
	return out, w.err
}

// cutCount splits the number at the head of a section from its items.
func cutCount(section []byte) (uint32, []byte) {
	if section == nil {
		return 0, nil
	}
	r := &reader{b: section}
	n := r.u32()
	return n, section[r.at:]
}

// rewriter copies code and changes it on the way.
type rewriter struct {
	m       *Module
	imports uint32 // how many functions the module imported; the tick takes the next number
	helpers uint32 // the function that stands for memory.grow; those for memory.copy and memory.fill follow
	counter uint32 // the global that counts down; the one that marks refused growth follows
	err     error
	// compiling is what the functions so far will take to compile, in microseconds.
	compiling int

	raw   []byte
	from  int // what comes before has been copied
	out   []byte
	costs []uint32 // of the segments of the function, in order
	seen  int      // how many of them have begun
}

// begin starts copying at the place where the reader is.
func (w *rewriter) begin(r *reader) { w.raw, w.from, w.out = r.b, r.at, nil }

// flush copies what has been skipped up to a place.
func (w *rewriter) flush(to int) { w.out = append(w.out, w.raw[w.from:to]...); w.from = to }

// replace copies up to the beginning of an instruction and skips it.
func (w *rewriter) replace(r *reader, from int, instruction ...byte) {
	if r.err == nil {
		w.flush(from)
		w.out, w.from = append(w.out, instruction...), r.at
	}
}

// expression copies one expression without a loop in it.
func (w *rewriter) expression(r *reader) { walk(r, w) }

// copyItems copies n items that read reads.
func (w *rewriter) copyItems(raw []byte, read func(*reader), n int) []byte {
	r := &reader{b: raw}
	w.begin(r)
	for range n {
		read(r)
	}
	if r.err != nil {
		w.err = r.err
		return nil
	}
	w.flush(r.at)
	return w.out
}

func (w *rewriter) moved(function uint32) uint32 {
	if function >= w.imports {
		return function + 1
	}
	return function
}

// charge returns code that lowers the counter by cost.
func (w *rewriter) charge(cost uint32) []byte {
	b := appendU32([]byte{0x23}, w.counter)
	b = append(appendS32(append(b, 0x41), cost), 0x6b)
	return appendU32(append(b, 0x24), w.counter)
}

// check appends code that ticks when the counter is used up. An overdraft counts against the next budget.
func (w *rewriter) check(b []byte) []byte {
	b = appendU32(append(b, 0x23), w.counter)
	b = append(b, 0x41, 0, 0x48, 0x04, 0x40) // if it is below 0
	b = appendU32(append(b, 0x23), w.counter)
	b = append(appendS32(append(b, 0x41), Budget), 0x6a)
	b = appendU32(append(b, 0x24), w.counter)
	return append(appendU32(append(b, 0x10), w.imports), 0x0b) // call tick
}

// next returns the cost of the segment that begins.
func (w *rewriter) next() uint32 {
	if w.seen >= len(w.costs) {
		return 0 // an expression that is no code
	}
	w.seen++
	return w.costs[w.seen-1]
}

func (w *rewriter) step(byte)    {}
func (w *rewriter) branches(int) {}

func (w *rewriter) segment(r *reader) {
	if cost := w.next(); cost > 0 && r.err == nil {
		w.flush(r.at)
		w.out = append(w.out, w.charge(cost+costOfSegment)...)
	}
}

func (w *rewriter) open(bool, int) {}
func (w *rewriter) end(int)        {}
func (w *rewriter) keeps()         {}

func (w *rewriter) loop(r *reader) {
	if cost := w.next(); r.err == nil {
		w.flush(r.at)
		w.out = w.check(append(w.out, w.charge(cost+costOfSegment+costOfCheck)...))
	}
}

func (w *rewriter) call(r *reader, from int, opcode byte, function uint32) {
	w.replace(r, from, appendU32([]byte{opcode}, w.moved(function))...)
}

func (w *rewriter) grow(r *reader, from int) {
	w.replace(r, from, appendU32([]byte{0x10}, w.helpers)...)
}

func (w *rewriter) copyMemory(r *reader, from int) {
	w.replace(r, from, appendU32([]byte{0x10}, w.helpers+1)...)
}

func (w *rewriter) fillMemory(r *reader, from int) {
	w.replace(r, from, appendU32([]byte{0x10}, w.helpers+2)...)
}

func (w *rewriter) bulk(r *reader, from, segment int) {
	cost := uint32(Budget / 4)
	if segment >= 0 && segment < len(w.m.data) {
		cost = min(Budget, w.m.data[segment]/BytesPerCost)
	}
	if r.err == nil {
		w.flush(from)
		w.out = w.check(append(w.out, w.charge(cost)...))
	}
}

func (m *Module) limitTables() []byte {
	r := &reader{b: m.sections[secTable]}
	b := appendU32(nil, r.u32())
	for range m.tables {
		b = append(b, r.byte(), 1)
		l := readLimits(r)
		largest := uint32(maxTableLength)
		if l.HasMax {
			largest = min(largest, l.Max)
		}
		b = appendU32(appendU32(b, l.Min), largest)
	}
	return b
}

// exports copies the exports and adds those that the runtime needs, under names that the module does not use.
func (w *rewriter) exports(out *Instrumented) []byte {
	prefix := "j17"
	for taken := true; taken; {
		taken = false
		for _, e := range w.m.Exports {
			taken = taken || strings.HasPrefix(e.Name, prefix)
		}
		if taken {
			prefix += "_"
		}
	}

	// The module's own.
	var b []byte
	n := uint32(0)
	add := func(name string, kind byte, index uint32) {
		b = appendU32(append(appendName(b, name), kind), index)
		n++
	}
	for _, e := range w.m.Exports {
		if e.Kind == KindFunction {
			e.Index = w.moved(e.Index)
		}
		add(e.Name, e.Kind, e.Index)
	}

	// Those that an instance is put back by.
	for i, g := range w.m.globals {
		if g.mutable && g.typ >= typeF64 && g.typ <= typeI32 {
			out.Globals = append(out.Globals, prefix+".global."+strconv.Itoa(i))
			add(out.Globals[len(out.Globals)-1], KindGlobal, uint32(i))
		}
	}

	// Those that the runtime reads.
	out.Counter = prefix + ".counter"
	out.Globals = append(out.Globals, out.Counter)
	add(out.Counter, KindGlobal, w.counter)
	out.Refused = prefix + ".refused"
	out.Globals = append(out.Globals, out.Refused)
	add(out.Refused, KindGlobal, w.counter+1)
	if w.m.hasStart {
		out.Start = prefix + ".start"
		add(out.Start, KindFunction, w.moved(w.m.start))
	}
	return append(appendU32(nil, n), b...)
}

// elements copies the segments that fill tables, with the functions' new numbers.
func (w *rewriter) elements(section []byte) []byte {
	n, rest := cutCount(section)
	functions := func(r *reader) {
		for range r.count("elements of a segment", maxTableLength) {
			from := r.at
			f := r.u32()
			w.replace(r, from, appendU32(nil, w.moved(f))...)
		}
	}

	expressions := func(r *reader) {
		for range r.count("elements of a segment", maxTableLength) {
			w.expression(r)
		}
	}

	// The flags of a segment say what it has.
	return append(appendU32(nil, n), w.copyItems(rest, func(r *reader) {
		flags := r.u32()
		if flags > 7 {
			r.failf("an element segment has an unknown form")
			return
		}
		if flags&1 == 0 { // active: a table and a place in it
			if flags&2 != 0 {
				r.u32()
			}
			w.expression(r)
		}
		if flags&3 != 0 { // a kind or a type
			r.byte()
		}
		if flags&4 == 0 {
			functions(r)
		} else {
			expressions(r)
		}
	}, int(min(n, maxSegments+1)))...)
}

// code rewrites all functions and appends the helpers.
func (w *rewriter) code(section []byte) ([]byte, error) {
	r := &reader{b: section}
	n := 0
	if section != nil {
		n = r.count("functions", maxFunctions)
	}
	if r.err == nil && n != len(w.m.funcs) {
		return nil, fmt.Errorf("the module declares %d functions and has code for %d", len(w.m.funcs), n)
	}

	// Each function, then the helpers.
	b := appendU32(make([]byte, 0, len(section)*5/4), uint32(n)+3)
	for range n {
		size := r.u32()
		if size > maxBody {
			return nil, fmt.Errorf("a function has %d bytes of code, more than the %d that are allowed", size, maxBody)
		}
		body := r.bytes(size)

		if r.err != nil {
			break
		}
		out, err := w.function(body)
		if err != nil {
			return nil, err
		}
		b = appendSized(b, out)
	}
	if r.err != nil {
		return nil, r.err
	}
	if !r.done() && section != nil {
		return nil, fmt.Errorf("section %d is longer than what it holds", secCode)
	}
	return w.appendHelpers(b), nil
}

// appendHelpers appends the functions that stand for memory.grow, memory.copy and memory.fill.
func (w *rewriter) appendHelpers(b []byte) []byte {
	refused := w.counter + 1
	grow := w.check(append([]byte{0}, w.charge(costOfGrowth)...))
	// If it answers -1, the mark is set.
	grow = append(grow, 0x20, 0, 0x40, 0, 0x22, 0, 0x41, 0x7f, 0x46, 0x04, 0x40, 0x41, 1, 0x24)
	grow = appendU32(grow, refused)
	b = appendSized(b, append(grow, 0x0b, 0x20, 0, 0x0b))
	for _, instruction := range []string{"\xfc\x0a\x00\x00", "\xfc\x0b\x00"} {
		body := appendU32([]byte{0, 0x23}, w.counter)
		body = append(body, 0x20, 2, 0x41, 3, 0x76, 0x6b) // the counter less the length by BytesPerCost
		body = appendU32(append(body, 0x24), w.counter)
		body = append(w.check(append(body, 0x03, 0x40)), 0x23) // a loop, until it is not below 0
		body = append(appendU32(body, w.counter), 0x41, 0, 0x48, 0x0d, 0, 0x0b)
		body = append(append(body, 0x20, 0, 0x20, 1, 0x20, 2), instruction...)
		b = appendSized(b, append(body, 0x0b))
	}
	return b
}

func (w *rewriter) function(body []byte) ([]byte, error) {
	r := &reader{b: body}

	locals := uint64(0)
	for range r.count("groups of locals", maxLocals) {
		locals += uint64(r.u32())
		r.byte()
	}
	if locals > maxLocals {
		return nil, fmt.Errorf("a function has %d local variables, more than the %d that are allowed", locals, maxLocals)
	}
	if r.err != nil {
		return nil, r.err
	}

	// First pass: what the segments cost, and what it takes to compile them.
	at := r.at
	price := newPricer(w.m)
	walk(r, price)
	if r.err == nil && !r.done() {
		r.failf("a function is longer than its code")
	}
	if r.err != nil {
		return nil, r.err
	}

	if err := price.compiles(locals, len(body)); err != nil {
		return nil, err
	}
	w.compiling += price.compiling
	if w.compiling > maxCompiling {
		return nil, fmt.Errorf("the module is too large to be compiled in time: it has too much code, or too many blocks, branches and loops in single functions")
	}

	// Second pass: the code with its charges.
	r.at = at
	w.begin(r)
	w.from, w.costs, w.seen = 0, price.costs, 0
	w.flush(at)
	w.out = w.check(append(w.out, w.charge(w.next()+costOfSegment+costOfCheck)...))
	walk(r, w)
	w.flush(r.at)
	w.costs = nil
	return w.out, nil
}

// functionNames renumbers the names of functions, for traces. It returns nil where there are none or they make no
// sense.
func (w *rewriter) functionNames(section []byte) []byte {
	r := &reader{b: section}
	for !r.done() && r.err == nil {
		id := r.byte()
		sub := &reader{b: r.bytes(r.u32())}
		if id != 1 {
			continue
		}
		n := sub.count("names", maxFunctions+maxImports)
		b := appendU32(nil, uint32(n))
		for range n {
			f := sub.u32()
			b = appendName(appendU32(b, w.moved(f)), sub.name())
		}
		if sub.err != nil || r.err != nil {
			return nil
		}
		return appendSized([]byte{1}, b)
	}
	return nil
}
