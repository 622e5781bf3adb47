// Package tick is the language of specs: the operations of handlers, which turn an aggregate's state and an event into
// the next state, and the expressions that handlers share with conditions, templates of events and projections. There
// is one compiled path, one environment (Env) and one table of operators for all of them.
//
// Everything is compiled once, when a spec is deployed: paths are parsed, bindings get numbered slots, and what an
// expression reads is determined, so that replaying an event costs no more than its operations.
// docs/reference/handlers.md and implications.md are the language's manual.
//
// The decisions behind it are in docs/internals/lang.md.
package tick

import (
	"math"
	"sync"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
)

// Limits of a handler.
const (
	// MaxNesting is how deep operations may be nested.
	MaxNesting = 5
	// MaxOperations is how many operations a handler may have, nested ones included.
	MaxOperations = 100
)

// Semantics is the version of what handlers do. It is part of the fingerprint of each aggregate type, so that states
// made by an older version are not taken for those of this one. TestSemantics fails when it has to be raised.
const Semantics = 4

// Event is an event as handlers, predicates and templates see it. It parses its data and metadata when they are
// first needed, so it is for one goroutine.
type Event struct {
	// Key is the event's key, "type:id".
	Key  string
	Type string
	// Timestamp is the event's time in Unix seconds; metadata.timestamp has the same.
	Timestamp int64
	Data      Document
	Metadata  Document
}

// Document is a JSON value that may not have been parsed yet. The zero Document is missing.
type Document struct {
	raw    []byte
	tree   value.Value
	parsed bool
	// older is set where raw is in an older generation, late where it is not made yet.
	older *Older
	late  func() []byte
}

// Raw returns the document of canonical JSON text. The text must not change as long as the document is in use; values
// taken from the document do not keep it.
func Raw(src []byte) Document { return Document{raw: src} }

// Parsed returns the document of a value.
func Parsed(v value.Value) Document { return Document{tree: v, parsed: true} }

// Value returns the whole value, the zero Value if the text is not JSON.
func (d *Document) Value() value.Value {
	if !d.parsed {
		// The error would be one that no older event has.
		d.tree, _ = d.read(work.Counted(work.Replay))
		d.parsed = true
	}
	return d.tree
}

// read returns the value of a document that was not parsed. The error is that of a step to the newest generation.
func (d *Document) read(b *work.Budget) (value.Value, error) {
	if d.older != nil {
		return d.older.upcast(b)
	}
	v, err := value.ParseStored(string(d.text()))
	if err != nil {
		v = value.Value{}
	}
	return v, nil
}

// text returns the document's JSON.
func (d *Document) text() []byte {
	if d.late != nil {
		d.raw, d.late = d.late(), nil
	}
	return d.raw
}

// Fault says why an operation did not change what it was meant to change. Faults do not stop a handler: the operation
// is left out and the next one runs.
type Fault struct {
	// Pointer leads to the operation in the spec.
	Pointer diag.Pointer
	// Message is a sentence.
	Message string
}

// Handler is a compiled handler. It may be used by many goroutines at the same time.
type Handler struct {
	ops   []operation
	slots int
	// rereads reports that some path leads into what operations change as it was before: "$.state", in an upcast
	// "$.data".
	rereads  bool
	data     picks
	metadata picks
	reads    []string
	// light is up to how many bytes of an event the handler is not heavy.
	light int
	envs  sync.Pool
}

// Reads returns the event paths that the handler may read, sorted, without their "?" and ".$entries". What is not
// below one of them cannot influence the result.
func (h *Handler) Reads() []string { return h.reads }

// Apply returns the state after the event. ed makes all changes, so containers of state that ed owns are changed in
// place: state must not be used afterwards unless ed was frozen before. faults, if not nil, is called for each
// operation that did not fit. Apply does not add timestamps: see Stamp.
//
// All work is charged to b. When that ends, Apply ends too and returns its error. The state is then what it was before;
// but a caller that goes on with it must have frozen ed before Apply.
func (h *Handler) Apply(
	ed *value.Editor, state value.Value, ev *Event, b *work.Budget, faults func(Fault),
) (value.Value, error) {
	return h.apply(ed, state, ev, b, faults, nil)
}

// Steps is Apply for callers that want to know what each operation does: step is called with the place of the operation
// in the spec and the state after it. These states do not change. Operations within another one are part of it.
func (h *Handler) Steps(
	ed *value.Editor, state value.Value, ev *Event, b *work.Budget, step func(at diag.Pointer, state value.Value),
) (value.Value, error) {
	return h.apply(ed, state, ev, b, nil, step)
}

func (h *Handler) apply(
	ed *value.Editor, state value.Value, ev *Event, b *work.Budget, faults func(Fault),
	step func(at diag.Pointer, state value.Value),
) (value.Value, error) {
	if len(h.ops) == 0 {
		return state, nil
	}
	e := h.env()
	if h.rereads {
		ed.Freeze()
		e.state = state
	}
	e.event, e.current, e.ed, e.faults = ev, state, ed, faults
	e.work, e.total, e.left = b, state.Weight(), math.MaxInt
	if step == nil {
		e.run(h.ops)
	}
	for i := range h.ops {
		if step == nil || b.Err() != nil {
			break
		}
		ed.Freeze()
		e.run(h.ops[i : i+1])
		step(h.ops[i].origin().at, e.current)
	}
	err := b.Err()
	if err == nil {
		state = e.current
	}
	e.reset()
	h.envs.Put(e)
	return state, err
}

// env returns an environment for one event.
func (h *Handler) env() *Env {
	if e, ok := h.envs.Get().(*Env); ok {
		return e
	}
	return &Env{
		slots:    make([]value.Value, h.slots),
		data:     picked{plan: &h.data, values: make([]value.Value, h.data.n)},
		metadata: picked{plan: &h.metadata, values: make([]value.Value, h.metadata.n)},
	}
}

// Members that the engine adds to the state of every aggregate.
const (
	createdAt = "created_at"
	updatedAt = "updated_at"
)

// Stamp sets the members "created_at" and "updated_at" of a state that is an object, over whatever handlers put there.
// created is the time of the aggregate's first event, updated that of its latest, both in Unix seconds. It is called
// after the handler of each event.
func Stamp(ed *value.Editor, state value.Value, created, updated int64) value.Value {
	if state.Kind() != value.Object {
		return state
	}
	unbounded := value.Weight{Bytes: math.MaxInt, Values: math.MaxInt}
	stamp := value.Int(created)
	ed.Set(&state, createdAt, &stamp, stamp.Weight(), unbounded)
	stamp = value.Int(updated)
	ed.Set(&state, updatedAt, &stamp, stamp.Weight(), unbounded)
	return state
}

// picks is a plan for reading values out of a document's text without parsing all of it.
type picks struct {
	finder *value.Finder
	steps  [][]value.Step
	n      int
}

// picked is what picks found in one event's document.
type picked struct {
	plan   *picks
	values []value.Value
	done   bool
	// seen finds them in a document of an older generation, nil in others. through are all that were made, by plan, and
	// last is the one that was needed last.
	seen, last *viewed
	through    map[*Plan]*viewed
}

// at returns the value that pick i found in d.
func (p *picked) at(e *Env, d *Document, i int) value.Value {
	if p.seen != nil {
		return p.seen.value(e, p.seen.of.of[i])
	}
	if !p.done {
		p.done = true
		if p.look(e, d) {
			return p.seen.value(e, p.seen.of.of[i])
		}
		found := false
		if !d.parsed && d.older == nil {
			var parsed value.Weight
			parsed, found = p.plan.finder.Find(d.text(), p.values)
			e.spend(len(d.raw)/work.BytesPerUnit + parseWork(parsed))
		}
		if !found {
			tree := e.parse(d)
			for j, steps := range p.plan.steps {
				p.values[j] = tree.At(steps)
			}
		}
	}
	return p.values[i]
}

func (p *picked) reset() {
	if p.done {
		clear(p.values)
		p.done = false
	}
	if p.seen != nil {
		p.seen.reset()
		p.seen = nil
	}
}

// maxPicks is how many values are picked out of a text; with more of them it is cheaper to parse it.
const maxPicks = 16

// planPicks decides how nodes that read the same document get their values.
func planPicks(nodes []*pathNode) picks {
	var p picks
	index := map[string]int{}
	for _, n := range nodes {
		if len(n.steps) == 0 {
			return picks{}
		}
		text := jsonpath.StepsText(n.steps)
		if _, ok := index[text]; !ok {
			index[text] = len(p.steps)
			p.steps = append(p.steps, n.steps)
		}
	}
	if len(p.steps) == 0 || len(p.steps) > maxPicks {
		return picks{}
	}
	for _, n := range nodes {
		n.pick = index[jsonpath.StepsText(n.steps)]
	}
	p.n, p.finder = len(p.steps), value.NewFinder(p.steps)
	return p
}

// CompileHandler compiles a handler that is an array of operations or a single one. at is its place in the spec. It
// adds everything that is wrong to l and returns nil if that includes an error.
func CompileHandler(v value.Value, at diag.Pointer, l *diag.List) *Handler {
	c := &compiler{l: l, language: handlers}
	h := c.handler(v, at)
	if h != nil {
		h.rereads = c.reading(fromState) != nil
		h.light = lightUpTo(h.ops)
	}
	return h
}

// handler compiles the operations of a handler or of an upcast. It returns nil after an error.
func (c *compiler) handler(v value.Value, at diag.Pointer) *Handler {
	before := c.l.Errors()
	what, all, fewer := "a handler", "the handler", "split the event into several types, or use a WebAssembly handler"
	if c.upcast {
		what, all, fewer = "an upcast", "the upcast", "put one more generation between the two"
	}
	ops := operationCompiler{predicateCompiler{c}}.operations(v, at, what)
	if c.count > MaxOperations {
		c.errorf(at, "%s has more than %d operations, nested ones included", all, MaxOperations).Hintf("%s", fewer)
	}
	if c.l.Errors() > before {
		return nil
	}
	return &Handler{
		ops: ops, slots: len(c.slots), reads: c.reads(), data: planPicks(c.reading(fromData)),
		metadata: planPicks(c.reading(fromMetadata)),
	}
}
