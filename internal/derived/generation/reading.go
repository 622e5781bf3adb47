package generation

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/core/decider"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
	"j17/internal/storage/store"
)

// kind is the stored events of one name and generation, of one aggregate type.
type kind struct {
	Name       string `json:"name"`
	Generation int    `json:"generation"`
}

// plan says what a trial looks at.
type plan struct {
	d     *decider.Decider
	types map[string]*typePlan
}

// typePlan is the part of a plan that concerns one aggregate type.
type typePlan struct {
	name     string
	typ      *spec.AggregateType // nil if the spec does not have it
	readings map[kind]*reading
	// gone are the kinds that the deployed spec reads and the new one does not, nil if their numbers do not matter.
	gone []kind
	// counted are the numbers of events, which are needed for gone, or because somebody asks; nil if nobody needs them.
	counted *counted
}

// reading is how a spec reads a kind of stored events.
type reading struct {
	kind

	aggregate   string
	event       *spec.EventType
	fingerprint string
	// plain reports that they are read as they are stored. They are compared with the schema all the same: others were
	// in force when they were stored.
	plain bool

	record
}

// record is what is stored of a reading, and of a counted.
type record struct {
	rev     uint64
	changed bool

	// at is the position up to which all events were looked at; passed is the number of entries of the feed up to
	// there.
	at     j17.StreamID
	passed uint64
	// since is where the feed ended when the record was begun: events that are rewritten later make it void, and so
	// does another life of the environment.
	since j17.StreamID
	life  uint64

	// events and failed count the events that were tried, first are the positions of the first of them.
	events, failed uint64
	first          []j17.StreamID
}

// counted has the numbers of events of an aggregate type.
type counted struct {
	record

	of map[kind]uint64
}

// keyed reports whether an event type has generations, or is retired.
func keyed(e *spec.EventType) bool {
	return e != nil && (len(e.Older) > 0 || e.Generation > 1 || e.Retired)
}

// keyedType reports whether an aggregate type has event types with generations, or retired ones.
func keyedType(typ *spec.AggregateType) bool {
	if typ == nil {
		return false
	}
	for _, e := range typ.Events {
		if keyed(e) {
			return true
		}
	}
	return false
}

// readingOf returns how a spec reads a kind of events, nil if it does not. The fingerprint of one that is read as it is
// stored is that of the schema.
func readingOf(d *spec.Compiled, typ *spec.AggregateType, k kind) *reading {
	if typ == nil {
		return nil
	}
	e := typ.Events[k.Name]
	if e == nil || e.System {
		return nil
	}
	sum, known := e.Reading(k.Generation)
	if !known {
		return nil
	}
	r := &reading{kind: k, aggregate: typ.Name, event: e, plain: sum == [32]byte{}}
	if r.plain {
		sum = schemaSum(d, typ.Name, e)
	}
	r.fingerprint = hex.EncodeToString(sum[:])
	return r
}

// schemaSum is of the newest schema of an event type and the shared definitions that it reaches.
func schemaSum(d *spec.Compiled, typ string, e *spec.EventType) [32]byte {
	b := strconv.AppendInt(value.AppendString(nil, e.Name), int64(e.Generation), 10)
	b = d.Root().Get("aggregate_types").Get(typ).Get("events").Get(e.Name).Get("schema").OrNull().AppendJSON(b)
	for _, name := range e.Schema.Definitions() {
		b = d.Root().Get("$defs").Get(name).OrNull().AppendJSON(value.AppendString(b, name))
	}
	return sha256.Sum256(b)
}

// kinds returns the kinds of events that an aggregate type of a spec reads.
func kinds(typ *spec.AggregateType) (all []kind) {
	if typ == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(typ.Events)) {
		if e := typ.Events[name]; !e.System {
			for _, number := range e.Numbers() {
				all = append(all, kind{name, number})
			}
		}
	}
	return all
}

// changes returns a plan for what a spec reads in another way than the deployed one, which may be nil. It is empty if
// there is nothing.
func changes(before *spec.Compiled, after *decider.Decider) *plan {
	p := &plan{d: after, types: map[string]*typePlan{}}
	was := map[string]*spec.AggregateType{}
	if before != nil {
		was = before.Types
	}
	for name, typ := range after.Types {
		old := was[name]
		if !keyedType(typ) && !keyedType(old) {
			continue
		}
		of := &typePlan{name: name, typ: typ, readings: map[kind]*reading{}}
		for _, k := range kinds(typ) {
			if r := readingOf(after.Compiled, typ, k); r.changes(before, old) {
				of.readings[k] = r
			}
		}
		for _, k := range kinds(old) {
			// A type that is gone and not retired is what the comparison of both specs finds.
			if readingOf(after.Compiled, typ, k) == nil && (typ.Events[k.Name] != nil || old.Events[k.Name].Retired) {
				of.gone = append(of.gone, k)
			}
		}
		if len(of.gone) > 0 {
			of.counted = &counted{}
		}
		if len(of.readings) > 0 || of.counted != nil {
			p.types[name] = of
		}
	}
	return p
}

// changes reports whether the events have to be tried, given how the deployed spec reads the aggregate type.
func (r *reading) changes(before *spec.Compiled, old *spec.AggregateType) bool {
	was := readingOf(before, old, r.kind)
	if r.plain {
		// Where both specs read them as they are stored, their schemas are compared instead.
		return was != nil && !was.plain || was == nil && old != nil && old.Events[r.Name] != nil
	}
	return was == nil || was.fingerprint != r.fingerprint
}

// whole returns a plan for all that the deployed spec reads otherwise than it is stored, with the numbers of all.
func whole(d *decider.Decider) *plan {
	p := &plan{d: d, types: map[string]*typePlan{}}
	for name, typ := range d.Types {
		if !keyedType(typ) {
			continue
		}
		of := &typePlan{name: name, typ: typ, readings: map[kind]*reading{}, counted: &counted{}}
		for _, k := range kinds(typ) {
			if r := readingOf(d.Compiled, typ, k); !r.plain {
				of.readings[k] = r
			}
		}
		p.types[name] = of
	}
	return p
}

// tell tells readers of the deployed spec what was tried, so that they do not check it again.
func (p *plan) tell() {
	upTo := map[*tick.Plan]j17.StreamID{}
	for _, of := range p.types {
		for _, r := range of.readings {
			if steps := r.event.Plan(r.Generation); steps != nil && r.failed == 0 && !r.at.IsZero() {
				upTo[steps] = r.at
			}
		}
	}
	p.d.Tried.Set(upTo)
}

// empty reports whether there is nothing to look at.
func (p *plan) empty() bool { return len(p.types) == 0 }

// sorted returns the parts of a plan by name.
func (p *plan) sorted() []*typePlan {
	all := make([]*typePlan, 0, len(p.types))
	for _, name := range slices.Sorted(maps.Keys(p.types)) {
		all = append(all, p.types[name])
	}
	return all
}

// sorted returns the readings of a type by name and generation.
func (of *typePlan) sorted() []*reading {
	all := slices.Collect(maps.Values(of.readings))
	slices.SortFunc(all, func(a, b *reading) int { return a.compare(b.kind) })
	return all
}

// records returns the records of a plan.
func (p *plan) records() (all []*record) {
	for _, of := range p.sorted() {
		if of.counted != nil {
			all = append(all, &of.counted.record)
		}
		for _, r := range of.sorted() {
			all = append(all, &r.record)
		}
	}
	return all
}

// trial returns the numbers of events that were tried, and of those that have failed.
func (p *plan) trial() *wire.SpecTrial {
	t := &wire.SpecTrial{}
	for _, of := range p.types {
		for _, r := range of.readings {
			t.Events, t.Failed = t.Events+r.events, t.Failed+r.failed
		}
		for _, k := range of.gone {
			n := of.counted.of[k]
			t.Events, t.Failed = t.Events+n, t.Failed+n
		}
	}
	return t
}

// unread returns an error for each kind of stored events that the spec no longer reads.
func (p *plan) unread() (found []diag.Diagnostic) {
	for _, of := range p.sorted() {
		for _, k := range of.gone {
			n := of.counted.of[k]
			if n == 0 {
				continue
			}
			d := diag.Diagnostic{Severity: diag.Error}
			at := diag.Pointer("/aggregate_types").Key(of.name, "events")
			events := j17.Count(n, "stored event")
			if of.typ.Events[k.Name] == nil {
				d.Pointer = at
				d.Message = fmt.Sprintf("the retired event type '%s' is gone, and %s %s of it", k.Name, events, are(n))
				d.Hint = "keep it as a retired type: nobody can write it, and what is stored can be read"
			} else {
				d.Pointer = at.Key(k.Name)
				d.Message = fmt.Sprintf("%s %s in generation %d of '%s', which the spec does not have", events, are(n), k.Generation, k.Name)
				d.Hint = "keep all generations that are stored; the way back without loss is one more generation in the older shape"
			}
			d.Line, d.Column = p.d.Position(d.Pointer)
			found = append(found, d)
		}
	}
	return found
}

func are(n uint64) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func (k kind) compare(o kind) int {
	switch {
	case k.Name < o.Name || k.Name == o.Name && k.Generation < o.Generation:
		return -1
	case k == o:
		return 0
	default:
		return 1
	}
}

// key is that of the reading's item.
func (r *reading) key() string { return r.aggregate + "/" + r.fingerprint }

// failureKey is the key of the item of an event that has failed.
func (r *reading) failureKey(at j17.StreamID) string { return r.key() + "/" + store.StampedKey(at, "") }
