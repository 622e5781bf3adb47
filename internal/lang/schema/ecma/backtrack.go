package ecma

import (
	"slices"
	"unicode"

	"j17/internal/base/work"
)

type code uint8

const (
	// codeSet consumes one character of set.
	codeSet code = iota
	// codeRun consumes min to max characters of set, as many as it can, and gives them back one by one.
	codeRun
	// codeSplit goes on at a and, if that fails, at b.
	codeSplit
	// codeJump goes on at a.
	codeJump
	// codeSave keeps the position in slot a.
	codeSave
	// codeLoop starts to count the turns of a repetition in slot a.
	codeLoop
	// codeTurn decides after a turn, and before the first: another one at the next instruction, or on at b.
	codeTurn
	// codeEnter begins a turn: slot a+1 keeps where, if the turn has to get somewhere; groups min to max are reset.
	codeEnter
	// codeNext ends a turn of the repetition whose codeTurn stands at b.
	codeNext
	codeBegin
	codeEnd
	codeBeginLine
	codeEndLine
	// codeWord and codeNotWord test for a border of a word; set has the characters of words.
	codeWord
	codeNotWord
	// codeRef consumes what the one of groups that took part has matched.
	codeRef
	// codeLook goes on at a if the instructions that follow reach codeAccept; codeLookNot if they do not.
	codeLook
	codeLookNot
	codeAccept
)

type instruction struct {
	code     code
	backward bool // codeSet, codeRef: consume what stands before the position
	lazy     bool // codeTurn
	fold     bool // codeRef
	a, b     int
	min, max int
	set      *set
	groups   []int
}

// program is a pattern for the backtracking matcher.
type program struct {
	code []instruction
	// slots is the number of integers that a match works on: two for each group, then two for each repetition.
	slots int
	// anchored is set when a match can start only where the text does.
	anchored bool
}

// assembler turns a tree into a program.
type assembler struct {
	program
	backward bool
}

func assemble(tree *node, groups int) *program {
	a := assembler{program: program{slots: 2 * (groups + 1)}}
	a.emit(tree)
	a.add(instruction{code: codeAccept})
	a.anchored = tree.startsAtBegin()
	return &a.program
}

func (n *node) startsAtBegin() bool {
	switch n.op {
	case opBegin:
		return !n.multiline
	case opCat, opCapture:
		return n.subs[0].startsAtBegin()
	case opAlt:
		return !slices.ContainsFunc(n.subs, func(sub *node) bool { return !sub.startsAtBegin() })
	case opEmpty, opSet, opBackref, opRepeat, opEnd, opWord, opNotWord, opLook:
	}
	return false
}

func (a *assembler) add(i instruction) int {
	a.code = append(a.code, i)
	return len(a.code) - 1
}

func (a *assembler) emit(n *node) {
	switch n.op {
	case opEmpty:
	case opSet:
		a.add(instruction{code: codeSet, set: n.set, backward: a.backward})
	case opCat:
		// What is read backwards has its last part first, and a group its end before its beginning.
		for i := range n.subs {
			if a.backward {
				i = len(n.subs) - 1 - i
			}
			a.emit(n.subs[i])
		}
	case opAlt:
		a.alternatives(n.subs)
	case opCapture:
		first, last := 2*n.group, 2*n.group+1
		if a.backward {
			first, last = last, first
		}
		a.add(instruction{code: codeSave, a: first})
		a.emit(n.subs[0])
		a.add(instruction{code: codeSave, a: last})
	case opBackref:
		a.add(instruction{code: codeRef, groups: n.groups, fold: n.ignoreCase, backward: a.backward})
	case opRepeat:
		a.repeat(n)
	case opBegin, opEnd:
		c := codeBegin
		switch {
		case n.op == opBegin && n.multiline:
			c = codeBeginLine
		case n.op == opEnd && n.multiline:
			c = codeEndLine
		case n.op == opEnd:
			c = codeEnd
		}
		a.add(instruction{code: c, set: lineTerminators()})
	case opWord:
		a.add(instruction{code: codeWord, set: wordChars(n.ignoreCase)})
	case opNotWord:
		a.add(instruction{code: codeNotWord, set: wordChars(n.ignoreCase)})
	case opLook:
		c := codeLook
		if n.negative {
			c = codeLookNot
		}
		// What is looked at is code of its own up to the instruction that accepts; the look leads behind it.
		look := a.add(instruction{code: c})
		outer := a.backward
		a.backward = n.behind
		a.emit(n.subs[0])
		a.backward = outer
		a.add(instruction{code: codeAccept})
		a.code[look].a = len(a.code)
	}
}

func (a *assembler) alternatives(subs []*node) {
	var ends []int
	for i, sub := range subs {
		if i == len(subs)-1 {
			a.emit(sub)
			break
		}
		split := a.add(instruction{code: codeSplit})
		a.code[split].a = len(a.code)
		a.emit(sub)
		ends = append(ends, a.add(instruction{code: codeJump}))
		a.code[split].b = len(a.code)
	}
	for _, end := range ends {
		a.code[end].a = len(a.code)
	}
}

func (a *assembler) repeat(n *node) {
	if body := n.subs[0]; body.op == opSet && !n.lazy && !a.backward {
		a.add(instruction{code: codeRun, set: body.set, min: n.min, max: n.max})
		return
	}
	slot := a.slots
	a.slots += 2
	a.add(instruction{code: codeLoop, a: slot})
	turn := a.add(instruction{code: codeTurn, a: slot, min: n.min, max: n.max, lazy: n.lazy})
	a.add(instruction{code: codeEnter, a: slot, b: n.min, min: 2 * n.firstGroup, max: 2 * n.endGroup})
	a.emit(n.subs[0])
	a.add(instruction{code: codeNext, a: slot, b: turn})
	a.code[turn].b = len(a.code)
}

type frameKind uint8

const (
	// frameChoice goes on at instruction a and position b.
	frameChoice frameKind = iota
	// frameRun goes on at instruction a and one character before position b, and stays until that is position c.
	frameRun
	// frameUndo puts b back into slot a.
	frameUndo
)

type frame struct {
	kind    frameKind
	a, b, c int
}

const (
	// maxKeptStack bounds the stack that a machine keeps for its next text.
	maxKeptStack = 4096
	// resetShare is how many slots are set back in the time of one step.
	resetShare = 16
	// maxStack bounds the stack: about 8 MB.
	maxStack = 1 << 18
	// unset is the position of a group that took no part.
	unset = -1
)

// machine runs a program over a text.
type machine struct {
	program *program
	text    string
	slots   []int
	stack   []frame
	// steps is how many steps are left of those taken last: negative when the machine has to take more, or has given
	// up. allowed is how many it may still take.
	steps, taken, allowed int
	budget                *work.Budget
	givenUp               bool
}

// stepsTaken is how many steps a machine makes before it pays for them.
const stepsTaken = 1 << 12

// begin allows a number of steps.
func (m *machine) begin(allowed int, b *work.Budget) {
	m.allowed, m.budget, m.givenUp = allowed, b, false
	m.take()
}

func (m *machine) take() {
	m.taken = min(stepsTaken, m.allowed)
	m.steps = m.taken
	m.allowed -= m.taken
}

// more pays for the steps that were taken, and reports whether the machine may go on.
func (m *machine) more() bool {
	if m.givenUp {
		return false
	}
	m.allowed += m.steps // what it made beyond those taken
	if !m.budget.Spend(m.taken-m.steps) || m.allowed <= 0 {
		m.giveUp()
		return false
	}
	m.take()
	return true
}

func (m *machine) giveUp() { m.givenUp, m.steps = true, -1 }

// end pays for the steps that were made, and reports whether the machine came to a result.
func (m *machine) end() bool { return !m.givenUp && m.budget.Spend(m.taken-m.steps) }

// search reports whether the program matches anywhere in the text, which means nothing when it has given up.
func (m *machine) search() bool {
	for start := 0; ; {
		m.steps -= len(m.slots) / resetShare
		for i := range m.slots {
			m.slots[i] = unset
		}
		m.stack = m.stack[:0]
		if m.run(0, start) {
			return true
		}
		if m.givenUp || m.program.anchored || start >= len(m.text) {
			return false
		}
		_, n := runeAt(m.text, start)
		start += n
	}
}

// fail returns to the last choice above base.
func (m *machine) fail(base int) (pc, pos int, ok bool) {
	for len(m.stack) > base {
		top := &m.stack[len(m.stack)-1]
		switch top.kind {
		case frameUndo:
			m.slots[top.a] = top.b
		case frameRun:
			_, n := runeBefore(m.text, top.b)
			if top.b -= n; top.b > top.c {
				return top.a, top.b, true
			}
			fallthrough
		case frameChoice:
			pc, pos = top.a, top.b
			m.stack = m.stack[:len(m.stack)-1]
			return pc, pos, true
		}
		m.stack = m.stack[:len(m.stack)-1]
	}
	return 0, 0, false
}

func (m *machine) push(f frame) {
	if len(m.stack) == maxStack {
		m.giveUp()
		return
	}
	m.stack = append(m.stack, f)
}

func (m *machine) set(slot, v int) {
	if m.slots[slot] != v {
		m.push(frame{kind: frameUndo, a: slot, b: m.slots[slot]})
		m.slots[slot] = v
	}
}

// run executes instructions from pc at pos until codeAccept. On failure everything is as it was; on success the
// stack above its old height has the choices that were not taken.
func (m *machine) run(pc, pos int) bool {
	base := len(m.stack)
	for {
		if m.steps--; m.steps < 0 && !m.more() {
			return false
		}
		i := &m.program.code[pc]
		pc++

		ok := true
		switch i.code {
		// Characters.
		case codeSet:
			pos, ok = m.consume(i, pos)
		case codeRun:
			pos, ok = m.consumeRun(i, pc, pos)
		// Ways: one is taken, and the other one remembered.
		case codeSplit:
			m.push(frame{kind: frameChoice, a: i.b, b: pos})
			pc = i.a
		case codeJump:
			pc = i.a
		case codeSave:
			m.set(i.a, pos)
		// Loops, each with a counter and the position where its turn began: a turn without a character ends it.
		case codeLoop:
			m.set(i.a, 0)
		case codeTurn:
			pc = m.turn(i, pc, pos)
		case codeEnter:
			m.enter(i, pos)
		case codeNext:
			if ok = m.slots[i.a+1] != pos; ok {
				m.set(i.a, m.slots[i.a]+1)
				pc = i.b
			}
		// Places.
		case codeBegin:
			ok = pos == 0
		case codeEnd:
			ok = pos == len(m.text)
		case codeBeginLine:
			ok = pos == 0 || m.before(i.set, pos)
		case codeEndLine:
			ok = pos == len(m.text) || m.after(i.set, pos)
		case codeWord:
			ok = m.before(i.set, pos) != m.after(i.set, pos)
		case codeNotWord:
			ok = m.before(i.set, pos) == m.after(i.set, pos)
		// What was matched before, and what only has to be there.
		case codeRef:
			pos, ok = m.repeatGroup(i, pos)
		case codeLook, codeLookNot:
			ok = m.look(i.code == codeLookNot, pc, pos)
			pc = i.a
		case codeAccept:
			return true
		}

		if !ok {
			if pc, pos, ok = m.fail(base); !ok {
				return false
			}
		}
	}
}

func (m *machine) before(s *set, pos int) bool {
	if pos == 0 {
		return false
	}
	r, _ := runeBefore(m.text, pos)
	return s.contains(r)
}

func (m *machine) after(s *set, pos int) bool {
	if pos == len(m.text) {
		return false
	}
	r, _ := runeAt(m.text, pos)
	return s.contains(r)
}

func (m *machine) consume(i *instruction, pos int) (int, bool) {
	if i.backward {
		if pos == 0 {
			return pos, false
		}
		r, n := runeBefore(m.text, pos)
		return pos - n, i.set.contains(r)
	}
	if pos == len(m.text) {
		return pos, false
	}
	r, n := runeAt(m.text, pos)
	return pos + n, i.set.contains(r)
}

// consumeRun takes as many characters as it may and leaves a frame that gives them back.
func (m *machine) consumeRun(i *instruction, pc, pos int) (int, bool) {
	from, least, count := pos, pos, 0
	for (i.max == unbounded || count < i.max) && pos < len(m.text) {
		r, n := runeAt(m.text, pos)
		if !i.set.contains(r) {
			break
		}
		pos += n
		if count++; count <= i.min {
			least = pos
		}
	}
	m.steps -= count/4 + (pos - from - count) // an ASCII character of a run costs a quarter of a step
	if count < i.min {
		return pos, false
	}
	if pos > least {
		m.push(frame{kind: frameRun, a: pc, b: pos, c: least})
	}
	return pos, true
}

func (m *machine) turn(i *instruction, pc, pos int) int {
	switch done := m.slots[i.a]; {
	case done < i.min:
		return pc
	case i.max != unbounded && done >= i.max:
		return i.b
	case i.lazy:
		m.push(frame{kind: frameChoice, a: pc, b: pos})
		return i.b
	default:
		m.push(frame{kind: frameChoice, a: i.b, b: pos})
		return pc
	}
}

func (m *machine) enter(i *instruction, pos int) {
	if m.slots[i.a] < i.b { // turns that have to be taken may match nothing
		pos = unset
	}
	m.set(i.a+1, pos)
	for slot := i.min; slot < i.max; slot++ {
		m.set(slot, unset)
	}
	m.steps -= (i.max - i.min) / 4
}

// repeatGroup consumes the text of a group. A group that took no part stands for no text.
func (m *machine) repeatGroup(i *instruction, pos int) (int, bool) {
	// What the group has matched last. Of groups of the same name one at most took part.
	want := ""
	for _, g := range i.groups {
		if from, to := m.slots[2*g], m.slots[2*g+1]; from != unset && to != unset {
			want = m.text[from:to]
		}
	}

	m.steps -= len(want) / 4

	// It is compared character by character, in the direction in which the pattern is read.
	for want != "" {
		var r, got rune
		var n, taken int
		if i.backward {
			if pos == 0 {
				return pos, false
			}
			r, n = runeBefore(want, len(want))
			want = want[:len(want)-n]
			got, taken = runeBefore(m.text, pos)
			pos -= taken
		} else {
			if pos == len(m.text) {
				return pos, false
			}
			r, n = runeAt(want, 0)
			want = want[n:]
			got, taken = runeAt(m.text, pos)
			pos += taken
		}

		if r != got && (!i.fold || !sameLetter(r, got)) {
			return pos, false
		}
	}
	return pos, true
}

func sameLetter(a, b rune) bool {
	for f := unicode.SimpleFold(a); f != a; f = unicode.SimpleFold(f) {
		if f == b {
			return true
		}
	}
	return false
}

// look reports whether the assertion whose instructions start at pc holds at pos. What its groups have matched
// stays for the rest of the pattern if it holds; the choices it left open are dropped.
func (m *machine) look(negative bool, pc, pos int) bool {
	base := len(m.stack)
	matched := m.run(pc, pos)
	switch {
	case m.givenUp:
		return false
	case !matched:
		return negative
	}
	kept := m.stack[:base]
	for _, f := range m.stack[base:] {
		if f.kind == frameUndo {
			kept = append(kept, f)
		}
	}
	m.stack = kept
	if negative {
		m.fail(base)
	}
	return !negative
}
