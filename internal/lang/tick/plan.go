package tick

import (
	"errors"
	"math"
	"slices"
	"sync"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
)

// Plan is all steps that bring the data of one stored generation to the newest one. It may be used by many goroutines
// at the same time. For handlers that read single members it works out where in the stored data each of them comes
// from: see views.
type Plan struct {
	steps []*Upcast
	views sync.Map // of *views by *picks
	edits func() []edit
}

// NewPlan returns the plan of a step and of all those behind it. Each may be nil, which changes nothing.
func NewPlan(first *Upcast, rest *Plan) *Plan {
	p := &Plan{}
	if first != nil && !first.Empty() {
		p.steps = append(p.steps, first)
	}
	if rest != nil {
		p.steps = append(p.steps, rest.steps...)
	}
	p.edits = sync.OnceValue(func() []edit { return editsOf(p.steps) })
	return p
}

// Older is a stored event in an older generation that every step is known to fit, whose data and metadata are brought
// to the newest generation when something reads them.
type Older struct {
	Plan *Plan
	// Stored is the event as it is stored.
	Stored Event
	// Metadata returns the metadata in the newest generation.
	Metadata func() []byte
}

// Newest sets the documents of ev, which is Stored otherwise. They are valid as long as o does not change.
func (o *Older) Newest(ev *Event) {
	ev.Data, ev.Metadata = Document{raw: o.Stored.Data.raw, older: o}, Document{late: o.Metadata}
}

// upcast returns the whole data in the newest generation. The error is that of b, or tells that a step does not fit,
// although it is known to fit.
func (o *Older) upcast(b *work.Budget) (value.Value, error) {
	if text, ok := o.Plan.AppendText(nil, o.Stored.Data.raw); ok && b.SpendBytes(len(text)) {
		return value.ParseStored(string(text))
	}
	data, err := value.ParseStored(string(o.Stored.Data.raw))
	if err != nil {
		return data, err
	}
	if !b.SpendBytes(len(o.Stored.Data.raw)) {
		return value.Value{}, b.Err()
	}
	ed, ev := value.NewEditor(), o.Stored
	for _, step := range o.Plan.steps {
		ev.Data = Parsed(data)
		if data, err = step.Apply(ed, data, &ev, b); err != nil {
			return value.Value{}, err
		}
	}
	return data, nil
}

// views says, for the paths that a handler reads in the newest generation, how each follows from the stored data.
type views struct {
	// stored finds values in the stored text, finds of them.
	stored *value.Finder
	paths  [][]value.Step
	all    []view
	// of are the indexes of the views of the paths.
	of []int
}

// view is a value in some generation, as it follows from the stored data.
type view struct {
	kind viewKind
	// at is the index of the value in the stored text, lit is that of a literal. node computes it, with slots bindings.
	at    int
	lit   value.Value
	node  node
	slots int
	// always reports that there is a value: nothing in an expression may be absent.
	always bool
	// cheap reports that the value is chosen among some that are at hand, so that it need not be kept.
	cheap bool
	// test, then and other are indexes of views; steps lead from that of test to the value.
	test, then, other int
	steps             []value.Step
}

type viewKind uint8

const (
	// The first three are at hand.
	nothing viewKind = iota
	// storedValue is found in the stored text.
	storedValue
	literalValue
	// computed is what an expression yields, nothing where it yields none.
	computed
	// eitherValue is that of then if that of test is there, and that of other if not.
	eitherValue
	// below is what steps lead to from the value of test.
	below
)

// maxViews bounds the views that one handler needs. With more, or when a path depends on operations that have no place
// known before, the whole data are made.
const maxViews = 64

// errWhole reports that a path cannot be read without the whole data.
var errWhole = errors.New("tick: it takes the whole data")

// viewsOf returns the views for the paths of picks, nil if the whole data are needed.
func (p *Plan) viewsOf(of *picks) *views {
	if known, ok := p.views.Load(of); ok {
		v, _ := known.(*views)
		return v
	}
	v := p.plan(of)
	p.views.Store(of, v)
	return v
}

func (p *Plan) plan(of *picks) *views {
	c := viewCompiler{out: &views{}, known: map[viewKey]int{}}
	for _, u := range p.steps {
		begins := len(c.ops)
		for _, op := range u.steps.ops {
			c.ops = append(c.ops, plannedOp{op, begins})
		}
	}
	for _, steps := range of.steps {
		at, err := c.view(steps, len(c.ops))
		if err != nil || len(c.out.paths) > maxPicks {
			return nil
		}
		c.out.of = append(c.out.of, at)
	}
	c.out.stored = value.NewFinder(c.out.paths)
	return c.out
}

// plannedOp is an operation of a plan. begins is the index of the first operation of its step.
type plannedOp struct {
	operation
	begins int
}

// viewCompiler makes views, from the newest generation back to the stored one.
type viewCompiler struct {
	out   *views
	ops   []plannedOp
	known map[viewKey]int // indexes of views
	depth int
}

// viewKey identifies the view of a path after the first operations.
type viewKey struct {
	after int
	path  string
}

// view returns the index of the view of a path after the first operations.
func (c *viewCompiler) view(path []value.Step, after int) (int, error) {
	// Operations that have nothing to do with the path are passed over.
	for after > 0 {
		touches, err := concerns(c.ops[after-1].operation, path)
		if err != nil {
			return 0, err
		}
		if touches {
			break
		}
		after--
	}
	key := viewKey{after, jsonpath.StepsText(path)}
	if at, ok := c.known[key]; ok {
		return at, nil
	}
	if len(c.out.all) >= maxViews || c.depth >= maxViews {
		return 0, errWhole
	}
	c.depth++
	made, err := c.make(path, after)
	c.depth--
	if err != nil {
		return 0, err
	}
	at := c.add(made)
	c.known[key] = at
	return at, nil
}

func (c *viewCompiler) add(v view) int {
	c.out.all = append(c.out.all, v)
	return len(c.out.all) - 1
}

// make returns the view of a path that the last operation concerns, or of one in the stored data.
func (c *viewCompiler) make(path []value.Step, after int) (view, error) {
	if after == 0 {
		c.out.paths = append(c.out.paths, path)
		return view{kind: storedValue, at: len(c.out.paths) - 1}, nil
	}
	switch op := c.ops[after-1].operation.(type) {
	case *moveOp:
		if !starts(path, op.to.steps) {
			return view{}, nil // it was taken out
		}
		return c.moved(op.from.steps, path[len(op.to.steps):], path, after-1)
	case *dropOp:
		return view{}, nil
	case *defaultOp:
		set, err := c.value(&op.value, after-1)
		if err != nil {
			return view{}, err
		}
		there, err := c.view(op.target.steps, after-1)
		if err != nil {
			return view{}, err
		}
		before, err := c.view(path, after-1)
		if err != nil {
			return view{}, err
		}
		inside := c.below(set, path[len(op.target.steps):])
		return c.either(there, before, inside), nil
	case *setOp:
		set, err := c.value(&op.value, after-1)
		if err != nil {
			return view{}, err
		}
		inside := c.below(set, path[len(op.target.steps):])
		if c.out.all[set].always {
			return c.out.all[inside], nil
		}
		before, err := c.view(path, after-1)
		return c.either(set, inside, before), err
	default:
		return view{}, errWhole
	}
}

// moved returns the view of what was moved from a place, or of what lies below it. Where nothing was there, it is the
// path that the operation was to move it to.
func (c *viewCompiler) moved(from, rest, path []value.Step, after int) (view, error) {
	there, err := c.view(from, after)
	if err != nil {
		return view{}, err
	}
	brought, err := c.view(slices.Concat(from, rest), after)
	if err != nil {
		return view{}, err
	}
	before, err := c.view(path, after)
	return c.either(there, brought, before), err
}

// either returns the view of then if the view of test has a value, and of other if not.
func (c *viewCompiler) either(test, then, other int) view {
	atHand := func(at int) bool { return c.out.all[at].kind <= literalValue }
	return view{
		kind: eitherValue, test: test, then: then, other: other, cheap: atHand(test) && atHand(then) && atHand(other),
	}
}

// below returns the index of the view of what lies below another one.
func (c *viewCompiler) below(at int, rest []value.Step) int {
	switch of := c.out.all[at]; {
	case len(rest) == 0:
		return at
	case of.kind == literalValue:
		return c.add(literalView(of.lit.At(rest)))
	default:
		return c.add(view{kind: below, test: at, steps: rest})
	}
}

func literalView(v value.Value) view {
	if v.IsMissing() {
		return view{}
	}
	return view{kind: literalValue, lit: v, always: true}
}

// value returns the index of the view of an operand, evaluated after the first operations.
func (c *viewCompiler) value(o *operand, after int) (int, error) {
	if lit, ok := o.node.(*literal); ok {
		return c.add(literalView(lit.v)), nil
	}

	// The expression is compiled once more, with paths that lead to views.
	var l diag.List
	again := &compiler{l: &l, language: handlers, upcast: true}
	n := again.value(o.source, "", false)
	if l.Errors() > 0 {
		return 0, errWhole // it reads a binding that stands outside of it
	}
	always := true
	for _, path := range again.nodes {
		always = always && !path.optional
		at := after
		switch path.from {
		case fromData:
			at = c.ops[after].begins
		case fromCurrent:
		case fromKey, fromType, fromTimestamp, fromMetadata, fromID, fromSlot:
			continue
		case fromEvent, fromState, fromMembers, fromWhole, fromRead, fromView:
			return 0, errWhole
		}
		of, err := c.view(path.steps, at)
		if err != nil {
			return 0, err
		}
		path.from, path.slot, path.steps = fromView, of, nil
	}
	return c.add(view{kind: computed, node: n, slots: len(again.slots), always: always}), nil
}

// starts reports whether a path leads to a place, or below it.
func starts(path, place []value.Step) bool {
	return len(path) >= len(place) && slices.Equal(path[:len(place)], place)
}

// concerns reports whether the value at a path follows from an operation. The error says that it cannot be told from
// single members.
func concerns(op operation, path []value.Step) (bool, error) {
	places, single := written(op)
	concerned := false
	for _, p := range places {
		// An index may lead to any element.
		known := p.steps
		indexed := slices.IndexFunc(known, func(s value.Step) bool { return s.IsIndex })
		if indexed >= 0 {
			known = known[:indexed]
		}
		switch {
		case starts(path, known) && single && indexed < 0:
			concerned = true
		case starts(path, known), starts(known, path):
			return false, errWhole
		}
	}
	if places == nil {
		return false, errWhole
	}
	return concerned, nil
}

// written returns the places that an operation changes, nil if they are not known. single reports that what becomes of
// each of them is known too.
func written(op operation) (places []*place, single bool) {
	switch op := op.(type) {
	case *moveOp:
		return []*place{&op.from, &op.to}, true
	case *dropOp:
		return []*place{&op.target}, true
	case *defaultOp:
		return []*place{&op.target}, true
	case *setOp:
		return []*place{&op.target}, true
	case *mergeOp:
		return []*place{&op.target}, false
	case *appendOp:
		return []*place{&op.target}, false
	case *addOp:
		return []*place{&op.target}, false
	case *removeOp:
		return []*place{&op.target}, false
	case *removeValueOp:
		return []*place{&op.target}, false
	case *filterOp:
		return []*place{&op.target}, false
	case *mapOp:
		return []*place{&op.target}, false
	default:
		return nil, false
	}
}

// viewed has the values of views of one event, none where of is nil. It belongs to an Env.
type viewed struct {
	plan  *Plan
	of    *views
	older *Older
	found []value.Value
	got   []value.Value
	have  []bool
	// used reports that got has values.
	used bool
	// envs has what evaluates expressions, for each of those that were.
	envs []*Env
}

// look reports whether the values of picks can be found in a document of an older generation one by one.
func (p *picked) look(e *Env, d *Document) bool {
	if d.older == nil || d.parsed {
		return false
	}
	plan, v := d.older.Plan, p.last
	if v == nil || v.plan != plan {
		v = p.through[plan]
	}
	if v == nil {
		v = newViewed(plan, plan.viewsOf(p.plan))
		if p.through == nil || len(p.through) >= maxThrough {
			p.through = map[*Plan]*viewed{}
		}
		p.through[plan] = v
	}
	p.last = v
	if v.of == nil {
		return false
	}
	parsed, found := v.of.stored.Find(d.raw, v.found)
	e.spend(len(d.raw)/work.BytesPerUnit + parseWork(parsed))
	if !found {
		return false
	}
	v.older, p.seen = d.older, v
	return true
}

func newViewed(plan *Plan, of *views) *viewed {
	if of == nil {
		return &viewed{plan: plan}
	}
	return &viewed{
		plan: plan, of: of, found: make([]value.Value, len(of.paths)), got: make([]value.Value, len(of.all)),
		have: make([]bool, len(of.all)), envs: make([]*Env, len(of.all)),
	}
}

// maxThrough is how many plans an Env remembers.
const maxThrough = 16

// value returns the value of a view. The work is charged to the budget of e.
func (v *viewed) value(e *Env, at int) value.Value {
	w := &v.of.all[at]
	switch w.kind {
	case nothing:
		return value.Value{}
	case storedValue:
		return v.found[w.at]
	case literalValue:
		return w.lit
	case computed, eitherValue, below:
	}
	if w.cheap {
		return v.made(e, at, w)
	}
	v.used = true
	if !v.have[at] && e.spend(1) {
		v.got[at], v.have[at] = v.made(e, at, w), true
	}
	return v.got[at]
}

func (v *viewed) made(e *Env, at int, w *view) value.Value {
	if w.kind == computed {
		return v.computed(e, at, w)
	}
	if w.kind == below {
		return v.value(e, w.test).At(w.steps)
	}
	switch tested := v.value(e, w.test); {
	case tested.IsMissing():
		return v.value(e, w.other)
	case w.then == w.test:
		return tested
	default:
		return v.value(e, w.then)
	}
}

// computed evaluates an expression of a step, in an Env of its own: it may read what another one yields.
func (v *viewed) computed(e *Env, at int, w *view) value.Value {
	in := v.envs[at]
	if in == nil {
		in = &Env{views: v}
		in.begin(w.slots)
		v.envs[at] = in
	}
	in.event, in.work, in.left, in.misfit = &v.older.Stored, e.work, math.MaxInt, nil
	got, ok := w.node.eval(in)
	if in.misfit != nil {
		e.work.End(&Misfit{Pointer: in.misfit.Pointer, Message: in.misfit.Message})
	}
	if !ok {
		return value.Value{}
	}
	return got
}

// reset forgets the values of an event.
func (v *viewed) reset() {
	v.older = nil
	clear(v.found)
	if !v.used {
		return
	}
	v.used = false
	clear(v.got)
	clear(v.have)
	for _, in := range v.envs {
		if in != nil {
			clear(in.slots)
			in.event, in.work, in.misfit = nil, nil, nil
		}
	}
}
