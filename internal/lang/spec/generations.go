package spec

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strconv"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/outline"
	"j17/internal/lang/schema"
	"j17/internal/lang/tick"
)

// Limits of generations.
const (
	// maxOlder is the highest number of an older generation, and so how many there may be.
	maxOlder = 99
	// maxReadAs is how many names may be read as one event type, its own included.
	maxReadAs = 20
)

// Generation is an older shape of an event type's data.
type Generation struct {
	Number  int
	Pointer diag.Pointer
	Schema  *schema.Schema
	// Upcast is the step to the next generation.
	Upcast *tick.Upcast
	// Closed reports that nobody writes the generation any more.
	Closed bool

	// upcast is Upcast as it is written.
	upcast value.Value
	sums   sums
}

// RetiredAs says as what stored events of a retired type are read, once they are in the newest generation of their own
// type.
type RetiredAs struct {
	Pointer diag.Pointer
	// Type is another event type of the same aggregate type, Generation the one in which the events go on there.
	Type       *EventType
	Generation int
	// Upcast is nil where data stay as they are.
	Upcast *tick.Upcast

	name   string
	upcast value.Value
	// newest is what Type is read as.
	newest *EventType
}

// sums tell apart how stored events of one generation are read. They are zero for events that are read as they are
// stored.
type sums struct {
	// steps is of all steps from there on.
	steps [32]byte
	// reading is of the same, and of the schema that the outcome has to fit.
	reading [32]byte
	// plan has the steps, nil without any.
	plan *tick.Plan
}

// Of returns an older generation, nil where there is none of that number.
func (e *EventType) Of(number int) *Generation {
	if len(e.Older) == 0 {
		return nil
	}
	if i := number - e.Older[0].Number; i >= 0 && i < len(e.Older) {
		return e.Older[i]
	}
	return nil
}

// Knows reports whether a number is that of an older generation or of the newest.
func (e *EventType) Knows(number int) bool { return number == e.Generation || e.Of(number) != nil }

// Numbers returns the numbers of all generations, in ascending order.
func (e *EventType) Numbers() []int {
	numbers := make([]int, 0, len(e.Older)+1)
	for _, g := range e.Older {
		numbers = append(numbers, g.Number)
	}
	return append(numbers, e.Generation)
}

// Newest returns the event type that stored events of e are read as, which is e unless it is retired as another one.
func (e *EventType) Newest() *EventType {
	if e.As != nil {
		return e.As.newest
	}
	return e
}

// Reading tells apart how stored events of a generation are read: by which steps, and with which schema the outcome is
// compared. It is zero where they are read as they are stored, and false where there is no such generation.
func (e *EventType) Reading(generation int) (sum [32]byte, known bool) {
	if generation == e.Generation {
		return e.sums.reading, true
	}
	if g := e.Of(generation); g != nil {
		return g.sums.reading, true
	}
	return sum, false
}

// Plan returns the steps that bring stored events of a generation to the newest one, nil where they are read as they
// are stored, and where there is no such generation.
func (e *EventType) Plan(generation int) *tick.Plan {
	if generation == e.Generation {
		return e.sums.plan
	}
	if g := e.Of(generation); g != nil {
		return g.sums.plan
	}
	return nil
}

// SchemaOf returns the schema of the data of one generation of an event type, that of the newest where there is none of
// that number.
func (c *Compiled) SchemaOf(aggregateType, event string, number int) outline.Schema {
	e := c.EventType(aggregateType, event)
	if e == nil || e.Of(number) == nil {
		return c.Schema(aggregateType, event)
	}
	of := c.root.Get("aggregate_types").Get(aggregateType).Get("events").Get(event).Get("generations")
	return outline.Of(of.Get(strconv.Itoa(number)).Get("schema"), c.root.Get("$defs"))
}

// generationKeys are the members of an event type that say how stored events of it are read.
func generationKeys() []string { return []string{"generations", "assume_generation", "retired"} }

// generations reads the older generations of an event type, and which one is meant by writes that say none.
func (c *typeCompiler) generations(e *EventType, v value.Value, at diag.Pointer) {
	older := v.Get("generations")
	c.members(older, at.Key("generations"), "generations", maxOlder,
		func(key string, v value.Value, at diag.Pointer) {
			n, err := strconv.Atoi(key)
			if err != nil || n < 1 || n > maxOlder || strconv.Itoa(n) != key {
				c.Report(at, badGeneration, key, maxOlder)
				return
			}
			e.Older = append(e.Older, c.generation(n, v, at))
		})
	slices.SortFunc(e.Older, func(a, b *Generation) int { return a.Number - b.Number })
	for i := 1; i < len(e.Older); i++ {
		if before, g := e.Older[i-1].Number, e.Older[i]; g.Number != before+1 {
			c.Report(g.Pointer, generationGap, before+1, before, g.Number)
			e.Older = e.Older[:i] // the others have no place in the order
		}
	}
	if n := len(e.Older); n > 0 {
		e.Generation = e.Older[n-1].Number + 1
	}

	e.Assumed = e.Generation
	assumed := v.Get("assume_generation")
	if e.Assumes = !assumed.IsMissing(); !e.Assumes {
		return
	}
	n, ok := assumed.Int64()
	at = at.Key("assume_generation")
	switch {
	case assumed.Kind() != value.Number || !ok || !e.Knows(int(n)):
		c.noGeneration(at, e, assumed)
	case e.Of(int(n)) != nil && e.Of(int(n)).Closed:
		c.Report(at, assumedClosed, n)
	default:
		e.Assumed = int(n)
	}
}

func (c *typeCompiler) generation(number int, v value.Value, at diag.Pointer) *Generation {
	g := &Generation{Number: number, Pointer: at, upcast: v.Get("upcast")}
	if !c.object(v, at, shape{
		what: "a generation", required: []string{"schema", "upcast"}, optional: []string{"closed"},
	}) {
		return g
	}
	if s := v.Get("schema"); !s.IsMissing() {
		g.Schema = c.schemas.Compile(s, at.Key("schema"))
	}
	if !g.upcast.IsMissing() {
		g.Upcast = tick.CompileUpcast(g.upcast, at.Key("upcast"), c.List)
	}
	g.Closed = c.flag(v.Get("closed"), at.Key("closed"), "closed")
	return g
}

// noGeneration reports what is no number of a generation of an event type.
func (c decoder) noGeneration(at diag.Pointer, e *EventType, got value.Value) {
	numbers := e.Numbers()
	d := c.Errorf(at, "the event type %s has no generation %s", diag.Quote(e.Name), diag.QuoteValue(got))
	if len(numbers) == 1 {
		d.Hintf("write %d, its only one", numbers[0])
	} else {
		d.Hintf("write a number from %d to %d", numbers[0], numbers[len(numbers)-1])
	}
}

// retired reads what becomes of an event type that is no longer written. What it is retired as is resolved once all
// event types of the aggregate type are read.
func (c *typeCompiler) retired(e *EventType, v value.Value, at diag.Pointer) {
	switch {
	case v.IsMissing():
	case v.Kind() == value.Object:
		e.Retired = true
		e.As = &RetiredAs{Pointer: at, upcast: v.Get("upcast")}
		c.object(v, at, shape{what: "retired", required: []string{"as", "generation"}, optional: []string{"upcast"}})
		e.As.name = c.eventTypeRef(v.Get("as"), at.Key("as"), e.AggregateType)
		if up := e.As.upcast; !up.IsMissing() {
			e.As.Upcast = tick.CompileUpcast(up, at.Key("upcast"), c.List)
		}
	case v.Kind() == value.Bool && v.Truth():
		e.Retired = true
	default:
		c.Report(at, badRetired, diag.QuoteValue(v))
	}
}

// retiredTypes finds out what the retired event types of an aggregate type are read as. events is where they are
// declared.
func (c *typeCompiler) retiredTypes(t *AggregateType, events value.Value) {
	var retired []*EventType
	for _, name := range slices.Sorted(maps.Keys(t.Events)) {
		e := t.Events[name]
		if e.As == nil {
			continue
		}
		if e.As.Type = t.Events[e.As.name]; e.As.Type == nil || e.As.Type.System {
			e.As = nil // it was reported
			continue
		}
		e.As.Generation = e.As.Type.Generation
		number := events.Get(name).Get("retired").Get("generation")
		if n, ok := number.Int64(); ok && number.Kind() == value.Number && e.As.Type.Knows(int(n)) {
			e.As.Generation = int(n)
		} else if !number.IsMissing() {
			c.noGeneration(e.As.Pointer.Key("generation"), e.As.Type, number)
		}
		retired = append(retired, e)
	}

	// Who is read as what in the end.
	c.retiredInCircles(retired)
	for _, e := range retired {
		if e.As != nil {
			newest := e.Newest()
			newest.ReadAs = append(newest.ReadAs, e)
			if len(newest.ReadAs) == maxReadAs {
				c.Report(e.As.Pointer.Key("as"), tooManyRetired, newest.Name, maxReadAs)
			}
		}
	}
	c.sum(t, events)
}

// retiredInCircles finds out what retired event types are read as in the end. It reports those that are read as
// themselves, and cuts the circle.
func (c *typeCompiler) retiredInCircles(retired []*EventType) {
	for _, first := range retired {
		var trail []*EventType
		onTrail := map[*EventType]bool{}
		e := first
		for e.As != nil && e.As.newest == nil {
			if next := e.As.Type; next == e || onTrail[next] {
				c.Report(e.As.Pointer.Key("as"), retiredCircle, e.Name, next.Name)
				e.As = nil
				break
			}
			onTrail[e] = true
			trail = append(trail, e)
			e = e.As.Type
		}
		newest := e.Newest()
		for _, e := range trail {
			e.As.newest = newest
		}
	}
}

// sum works out how stored events are read, for event types that have older generations or are retired as another.
func (c *typeCompiler) sum(t *AggregateType, events value.Value) {
	done := map[*EventType]bool{}
	var sum func(e *EventType) // of e and of what it is read as
	sum = func(e *EventType) {
		if done[e] {
			return
		}
		done[e] = true
		var next sums
		if e.As != nil {
			sum(e.As.Type)
			step := e.Name + " as " + e.As.name + " " + strconv.Itoa(e.As.Generation)
			e.sums = e.As.Type.after(e.As.Generation).behind(step, e.As.upcast, e.As.Upcast)
			next = e.sums
		}
		if e.As == nil && (len(e.Older) > 0 || len(e.ReadAs) > 0) {
			next.reading = c.schemaSum(e, events.Get(e.Name))
			e.newestSum = next.reading
		}
		for _, g := range slices.Backward(e.Older) {
			g.sums = next.behind(e.Name+" "+strconv.Itoa(g.Number), g.upcast, g.Upcast)
			next = g.sums
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Events)) {
		sum(t.Events[name])
	}
}

// after returns the sums of events that are in a generation of e already.
func (e *EventType) after(generation int) sums {
	switch g := e.Of(generation); {
	case g != nil:
		return g.sums
	case e.As != nil:
		return e.sums
	default:
		return sums{reading: e.newestSum}
	}
}

// behind returns the sums of events that take one more step before, which may be nil.
func (s sums) behind(step string, upcast value.Value, compiled *tick.Upcast) sums {
	with := func(sum [32]byte) [32]byte {
		b := append([]byte{tick.Semantics}, sum[:]...)
		return sha256.Sum256(upcast.OrNull().AppendJSON(value.AppendString(b, step)))
	}
	return sums{steps: with(s.steps), reading: with(s.reading), plan: tick.NewPlan(compiled, s.plan)}
}

// schemaSum is of the schema of an event type and of the shared definitions that it reaches.
func (c *typeCompiler) schemaSum(e *EventType, v value.Value) [32]byte {
	b := v.Get("schema").OrNull().AppendJSON(nil)
	for _, name := range e.Schema.Definitions() {
		b = c.out.root.Get("$defs").Get(name).OrNull().AppendJSON(value.AppendString(b, name))
	}
	return sha256.Sum256(b)
}

// upcasts is of all steps by which stored events become events of the type: nothing where all are read as they are
// stored. What is made of the data of events, such as tags, is valid as long as it is the same.
func (e *EventType) upcasts() []byte {
	var b []byte
	add := func(of *EventType) {
		first := of.sums.steps
		if len(of.Older) > 0 {
			first = of.Older[0].sums.steps
		}
		if first != [32]byte{} {
			b = append(value.AppendString(b, of.Name), first[:]...)
		}
	}
	add(e)
	for _, of := range e.ReadAs {
		add(of)
	}
	return b
}

// stateMembers returns the members of an event type's definition without those on which states do not depend.
func stateMembers(event value.Value) (value.Value, bool) {
	members, changed := make([]value.Member, 0, event.Len()), false
	for _, m := range event.Members() {
		var left value.Value
		switch {
		case slices.Contains(DecisionKeys(), m.Key), m.Key == "assume_generation",
			m.Key == "retired" && m.Value.Kind() == value.Bool:
		case m.Key == "generations":
			left = upcastsOf(m.Value)
		default:
			members = append(members, m)
			continue
		}
		changed = true
		if !left.IsMissing() {
			members = append(members, value.Member{Key: m.Key, Value: left})
		}
	}
	if !changed {
		return event, false
	}
	return value.ObjectValue(members...), true
}

// upcastsOf returns the steps of all generations without their schemas.
func upcastsOf(generations value.Value) value.Value {
	steps := make([]value.Member, 0, generations.Len())
	for _, g := range generations.Members() {
		steps = append(steps, value.Member{Key: g.Key, Value: g.Value.Get("upcast").OrNull()})
	}
	return value.ObjectValue(steps...)
}
