package instrument

// visitor is called for the instructions that a rewrite changes. from is where the instruction begins.
type visitor interface {
	// step is called for every instruction, before the rest of it is read.
	step(op byte)
	// segment is called at a place that code may fail to reach after it has reached the one before: the beginning of a
	// branch, what follows one, the end of a block. loop is called for a loop when its opening has been read.
	segment(r *reader)
	loop(r *reader)
	// call: a call of a function, or the making of a reference to one.
	call(r *reader, from int, opcode byte, function uint32)
	// grow, copyMemory, fillMemory: memory.grow, memory.copy, memory.fill.
	grow(r *reader, from int)
	copyMemory(r *reader, from int)
	fillMemory(r *reader, from int)
	// bulk: an instruction that may take long, before which cost has to be charged. A data segment's index, or -1.
	bulk(r *reader, from, segment int)
	// branches: how many a table of them has.
	branches(n int)
	// keeps: an instruction that changes something besides memory and globals.
	keeps()
	// end of the loop, block or expression that was opened last.
	open(isLoop bool, at int)
	end(at int)
}

// walk reads one expression, up to and with the end that closes it. The visitor may be nil.
func walk(r *reader, v visitor) {
	for depth := 1; depth > 0 && r.err == nil; {
		from := r.at
		op := r.byte()
		if v != nil {
			v.step(op)
		}
		switch {
		// Blocks and branches, whose segments have their own cost.
		case op == 0x02 || op == 0x03 || op == 0x04: // block, loop, if
			r.leb(5)
			if depth++; depth > maxNesting {
				r.failf("blocks are nested more than %d deep", maxNesting)
			}
			if v != nil {
				v.open(op == 0x03, r.at)
				switch op {
				case 0x03:
					v.loop(r)
				case 0x04:
					v.segment(r)
				}
			}
		case op == 0x0b:
			depth--
			if v != nil {
				v.end(from)
				if depth > 0 {
					v.segment(r)
				}
			}
		case op == 0x05: // else
			if v != nil {
				v.segment(r)
			}
		case op == 0x0d: // br_if
			r.leb(5)
			if v != nil {
				v.segment(r)
			}
		case op == 0x0c || op >= 0x20 && op <= 0x25: // br, local.*, global.*, table.get
			r.leb(5)
		case op == 0x26: // table.set
			r.leb(5)
			if v != nil {
				v.keeps()
			}
		case op == 0x0e: // br_table
			n := r.count("branches", maxBody)
			for range n {
				r.leb(5)
			}
			if v != nil {
				v.branches(n)
			}
			r.leb(5)
		// Calls.
		case op == 0x10 || op == 0xd2: // call, ref.func
			f := r.u32()
			if v != nil {
				v.call(r, from, op, f)
			}
		case op == 0x11: // call_indirect
			r.leb(5)
			r.leb(5)
		case op == 0x1c: // select with types
			r.bytes(r.u32())
		// Memory.
		case op >= 0x28 && op <= 0x3e: // loads and stores
			r.leb(5)
			r.leb(5)
		case op == 0x3f: // memory.size
			r.byte()
		case op == 0x40: // memory.grow
			r.byte()
			if v != nil {
				v.grow(r, from)
			}
		// Constants: of 32 and 64 bits, as integers and as floats.
		case op == 0x41:
			r.leb(5)
		case op == 0x42:
			r.leb(10)
		case op == 0x43:
			r.skip(4)
		case op == 0x44:
			r.skip(8)
		case op == 0xd0: // ref.null
			r.byte()
		// Instructions of more than one byte, and those without operands.
		case op == 0xfc:
			walkMisc(r, v, from)
		case op == 0xfd:
			walkVector(r)
		case op <= 0x01 || op == 0x0f || op == 0x1a || op == 0x1b || op >= 0x45 && op <= 0xc4 || op == 0xd1:
		default:
			r.failf("instruction 0x%02x is not supported: build without experimental features", op)
		}
	}
}

// walkMisc reads the rest of an instruction that begins with 0xfc.
func walkMisc(r *reader, v visitor, from int) {
	op := r.u32()
	segment := -1
	switch {
	case op <= 7: // saturating conversions
		return
	case op == 8: // memory.init
		segment = int(r.u32())
		r.byte()
	case op == 10:
		r.skip(2)
	case op == 11:
		r.skip(1)
	case op == 12 || op == 14: // table.init, table.copy
		r.leb(5)
		r.leb(5)
	case op == 9 || op == 13 || op >= 15 && op <= 17: // data.drop, elem.drop, table.grow, table.size, table.fill
		r.leb(5)
	default:
		r.failf("instruction 0xfc %d is not supported: build without experimental features", op)
		return
	}

	// Instructions whose time grows with an operand are charged by it.
	switch {
	case v == nil || r.err != nil:
	case op == 8:
		v.bulk(r, from, segment)
	case op == 10:
		v.copyMemory(r, from)
	case op == 11:
		v.fillMemory(r, from)
	case op == 16:
	default:
		v.keeps()
		v.bulk(r, from, -1)
	}
}

// walkVector reads the rest of an instruction that begins with 0xfd.
func walkVector(r *reader) {
	switch op := r.u32(); {
	case op <= 11 || op == 92 || op == 93: // loads and stores
		r.leb(5)
		r.leb(5)
	case op == 12 || op == 13: // constants, shuffles
		r.skip(16)
	case op >= 21 && op <= 34: // lanes
		r.byte()
	case op >= 84 && op <= 91: // loads and stores of lanes
		r.leb(5)
		r.leb(5)
		r.byte()
	case op > 255:
		r.failf("instruction 0xfd %d is not supported: build without relaxed SIMD", op)
	}
}
