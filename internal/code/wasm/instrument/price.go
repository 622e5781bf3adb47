package instrument

import "fmt"

// Limits of what it may take to compile a module, in microseconds of a machine of moderate speed, as estimated before
// the compiler runs. The compiler cannot be stopped inside a function, so a single one must not take long; between
// functions it heeds its context. The largest function of Go's standard library takes a twentieth of what one may take,
// a program in Go that reads and writes JSON as a whole a quarter.
const (
	maxCompilingFunction = 1_500_000
	maxCompiling         = 20_000_000
)

// pricer finds what the segments of a function cost when they run, whether the function changes anything that cannot be
// put back, and what it takes to compile it.
type pricer struct {
	m     *Module
	costs []uint32
	stack []bool // of blocks: whether they are loops
	// loops counts the loops that are open, deepest the most that were.
	loops, deepest int
	// blocks counts blocks and loops as maxLocalsBlocks does. edges are the places where code divides or comes
	// together, weighted by what they cost the compiler, whose time grows with their square; linear is what grows with
	// the length, in tenths of a microsecond.
	blocks, edges, linear int
	compiling             int
}

func newPricer(m *Module) *pricer { return &pricer{m: m, costs: []uint32{0}} }

func (p *pricer) step(op byte) {
	p.costs[len(p.costs)-1] += weight(op)
	// The numbers are measured: see TestCompileLimits.
	switch {
	case op == 0x02: // block
		p.edges += 8
	case op == 0x03: // loop
		p.edges += 64
	case op == 0x04: // if
		p.edges += 24
	case op == 0x0d: // br_if
		p.edges += 32
	case op == 0x0c, op == 0x0f, op == 0x00: // br, return, unreachable
		p.edges += 24
	case op >= 0x28 && op <= 0x3e, op == 0xfd: // memory: each access is checked
		p.edges++
		p.linear += 80
	case op == 0x10, op == 0x11: // calls
		p.edges++
		p.linear += 60
	default:
		p.linear += 15
	}
}

func (p *pricer) branches(n int) { p.edges += 3 * n }

// compiles estimates what it takes to compile the function, and reports whether that is too much.
func (p *pricer) compiles(locals uint64, size int) error {
	if p.deepest > maxLoopNesting {
		return fmt.Errorf("loops are nested more than %d deep", maxLoopNesting)
	}
	if blocks := uint64(p.blocks); locals*blocks > maxLocalsBlocks {
		return fmt.Errorf("a function has %d local variables and %d blocks, too many of both to be compiled in time", locals, p.blocks)
	}
	edges := p.edges / 8
	p.compiling = edges*edges/200 + p.linear/10 + 20
	if p.compiling > maxCompilingFunction {
		return fmt.Errorf("a function of %d bytes has too many blocks, branches and loops, or too much code, to be compiled in time; divide it, or build without inlining", size)
	}
	return nil
}

func (p *pricer) segment(*reader) { p.costs = append(p.costs, 0) }

func (p *pricer) loop(*reader) { p.costs = append(p.costs, 0) }

func (p *pricer) open(isLoop bool, _ int) {
	p.blocks++
	if isLoop {
		p.blocks += 4
		p.loops++
		p.deepest = max(p.deepest, p.loops)
	}
	p.stack = append(p.stack, isLoop)
}

func (p *pricer) end(int) {
	if n := len(p.stack); n > 0 {
		if p.stack[n-1] {
			p.loops--
		}
		p.stack = p.stack[:n-1]
	}
}

func (p *pricer) keeps()                          { p.m.Disposable = true }
func (p *pricer) call(*reader, int, byte, uint32) {}
func (p *pricer) grow(*reader, int)               {}
func (p *pricer) copyMemory(*reader, int)         {}
func (p *pricer) fillMemory(*reader, int)         {}
func (p *pricer) bulk(*reader, int, int)          {}

// weight is what an instruction costs when it runs, where a simple one costs 1.
func weight(op byte) uint32 {
	switch {
	case op == 0x0b, op == 0x05, op == 0x02, op == 0x01: // end, else, block, nop
		return 0
	case op == 0x10: // call
		return 4
	case op == 0x11, op == 0x0e: // call_indirect, br_table
		return 8
	case op >= 0x28 && op <= 0x3e, op == 0x25, op == 0x26: // memory and tables
		return 2
	case op == 0x3f, op == 0x40: // memory.size, memory.grow
		return 8
	case op >= 0x6d && op <= 0x70, op >= 0x7f && op <= 0x82: // div, rem
		return 8
	case op == 0x91, op == 0x95, op == 0x9f, op == 0xa3: // sqrt, div of floats
		return 6
	case op == 0xfc, op == 0xfd:
		return 3
	default:
		return 1
	}
}
