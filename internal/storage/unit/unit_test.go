package unit_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// memory is an engine of maps. What a batch has written is stored when commit is called.
type memory struct {
	heads    map[j17.Key]store.Head
	items    map[store.ItemName]unit.Item
	commands map[store.CommandID]unit.CommandRecord
	events   []unit.Event
	// written is what the batch has written, damaged an item that cannot be read.
	written []string
	damaged store.ItemName
	asked   int
}

var errDamaged = errors.New("damaged")

// tenant is what memory knows of its tenant.
type tenant struct{ state unit.State }

// Now is part of unit.Stateful.
func (t *tenant) Now() *unit.State { return &t.state }

// ReadHead is part of unit.Reader.
func (m *memory) ReadHead(_ *tenant, key j17.Key) (store.Head, error) { return m.heads[key], nil }

// ReadItem is part of unit.Reader.
func (m *memory) ReadItem(_ *tenant, space store.Space, key string) (unit.Item, error) {
	m.asked++
	name := store.ItemName{Space: space, Key: key}
	if name == m.damaged {
		return unit.Item{}, errDamaged
	}
	item := m.items[name]
	if len(item.Value) > unit.MaxValue {
		item.Value = nil
	}
	return item, nil
}

// ReadEntries is part of unit.Reader.
func (m *memory) ReadEntries(_ *tenant, space store.Space, key string) ([]byte, error) {
	return m.items[store.ItemName{Space: space, Key: key}].Value, nil
}

// ReadCommand is part of unit.Reader.
func (m *memory) ReadCommand(_ *tenant, id store.CommandID) (*store.Result, int64, error) {
	c := m.commands[id]
	if c.Result == nil {
		return nil, 0, nil
	}
	kept := *c.Result
	kept.Memo = c.Memo
	return &kept, c.Expires, nil
}

// ReadMatch is part of unit.Reader.
func (m *memory) ReadMatch(_ *tenant, a *store.Absent) (bool, error) {
	return slices.ContainsFunc(m.events, func(e unit.Event) bool {
		lacks := func(tag string) bool { return !slices.Contains(e.Tags, tag) }
		return e.ID.Compare(a.After) > 0 && a.Fits(e.Key.Type, e.Type) && !slices.ContainsFunc(a.Tags, lacks)
	}), nil
}

// WriteEvent is part of unit.Writer.
func (m *memory) WriteEvent(_ *tenant, e *unit.Event) {
	kept := *e
	kept.LeafInput = slices.Clone(e.LeafInput)
	m.events = append(m.events, kept)
	m.written = append(m.written, fmt.Sprintf("%s %d seq %d", e.Key, e.Version, e.ID.Seq))
}

// WriteItem is part of unit.Writer.
func (m *memory) WriteItem(_ *tenant, w *unit.ItemChange) {
	name := store.ItemName{Space: w.Space, Key: w.Key}
	if w.Is.Rev == 0 {
		delete(m.items, name)
		m.written = append(m.written, fmt.Sprintf("-%s/%s", w.Space, w.Key))
		return
	}
	m.items[name] = unit.Item{Meta: w.Is, Value: slices.Clone(w.Value)}
	m.written = append(m.written, fmt.Sprintf("%s/%s=%s", w.Space, w.Key, w.Value))
}

// WriteCommand is part of unit.Writer.
func (m *memory) WriteCommand(_ *tenant, c *unit.CommandRecord) {
	m.commands[c.ID] = *c
	m.written = append(m.written, fmt.Sprintf("command %d", c.ID[0]))
}

// fixture is a batch over memory.
type fixture struct {
	*unit.Batch[*tenant]

	memory *memory
	tenant *tenant
}

func now() time.Time { return time.Unix(1000, 0) }

func newFixture() *fixture {
	f := &fixture{tenant: &tenant{unit.State{Name: "shop/prod", Number: 7}}}
	f.memory = &memory{
		heads: map[j17.Key]store.Head{}, items: map[store.ItemName]unit.Item{},
		commands: map[store.CommandID]unit.CommandRecord{},
	}
	f.Batch = unit.New[*tenant](f.memory, f.memory)
	f.Reset(now(), false)
	return f
}

// commit begins the next batch.
func (f *fixture) commit() {
	for _, h := range f.Changed() {
		f.memory.heads[h.Key] = h.Head
	}
	f.Stored(true)
	f.Reset(now(), true)
	f.memory.written, f.memory.asked = nil, 0
}

func (f *fixture) decide(t *testing.T, u store.Append) store.Result {
	t.Helper()
	if err := u.Validate(); err != nil {
		t.Fatal(err)
	}
	var r store.Result
	if err := f.Decide(f.tenant, &u, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func order(id string) j17.Key { return j17.Key{Type: "order", ID: id} }

func event(id string, tags ...string) store.NewEvent {
	return store.NewEvent{Key: order(id), Type: "was_placed", Data: []byte(`{}`), Metadata: []byte(`{}`), Tags: tags}
}

func events(list ...store.NewEvent) store.Append { return store.Append{Events: list, Timestamp: 1000} }

func side(list ...store.Side) store.Append { return store.Append{Side: list} }

func put(key, value string) store.Side {
	return store.Side{Op: store.Put, Space: "notes", Key: key, Value: []byte(value)}
}

func add(n string, most int64) store.Side {
	return store.Side{Op: store.Add, Space: "notes", Key: "n", Value: []byte(n), Most: most}
}

// TestDecide decides a unit on what units before it have left, in the same batch and in an earlier one: that is the
// same.
func TestDecide(t *testing.T) {
	t.Parallel()
	cond := func(s store.Side, c store.Cond, rev uint64, was string) store.Side {
		s.Cond, s.Rev, s.Was = c, rev, was
		return s
	}
	pre := func(length uint64) store.Append {
		return store.Append{Pre: []store.Pre{{Key: order("a"), Length: length}}, Events: []store.NewEvent{event("a")}}
	}
	fence := func(f store.Fence) store.Append {
		f.Space = "notes"
		return store.Append{Fences: []store.Fence{f}, Events: []store.NewEvent{event("b")}}
	}
	unless := func(after j17.StreamID, types []store.TypePattern, tags ...string) store.Append {
		return store.Append{
			Unless: []store.Absent{{Tags: tags, Types: types, After: after}}, Events: []store.NewEvent{event("b")},
		}
	}
	owner := func(name, value string) store.Append {
		a := store.Assignment{Space: "numbers", Owner: name, Index: "owners", Value: value}
		if value == "" {
			a.Counter = "next"
		}
		return store.Append{Assign: []store.Assignment{a}}
	}
	first := j17.StreamID{Ms: 1_000_000}
	stream := []store.StreamConflict{{Key: order("a"), Expected: 2, Actual: 1}}
	item := func(key string, rev uint64, full bool) []store.SideConflict {
		return []store.SideConflict{{Space: "notes", Key: key, Rev: rev, Full: full}}
	}
	expired := put("x", "old")
	expired.Expires = now()
	for name, test := range map[string]struct {
		before []store.Append
		unit   store.Append
		want   store.Result
		// written is what the unit writes where it is committed.
		written []string
	}{
		"a length that is right": {
			[]store.Append{events(event("a"))},
			pre(1),
			store.Result{Outcome: store.Committed},
			[]string{"order:a 2 seq 1"},
		},
		"a length that is wrong": {
			[]store.Append{events(event("a"))}, pre(2), store.Result{Outcome: store.Conflict, Streams: stream}, nil,
		},
		"a time that has passed": {
			[]store.Append{{Events: []store.NewEvent{event("a")}, Timestamp: 2000}},
			store.Append{Decided: true, Timestamp: 1000, Events: []store.NewEvent{event("b")}},
			store.Result{Outcome: store.TooEarly},
			nil,
		},

		"a fence that holds": {[]store.Append{side(put("x", "1"))}, fence(store.Fence{
			Key: "x", Rev: 1,
		}), store.Result{Outcome: store.Committed}, []string{"order:b 1 seq 0"}},
		"a fence that is passed": {[]store.Append{side(put("x", "1"), put("x", "2"))}, fence(store.Fence{
			Key: "x", Rev: 1,
		}), store.Result{Outcome: store.Conflict, Sides: item("x", 2, false)}, nil},
		"a fence by value": {[]store.Append{side(put("x", "1"))}, fence(store.Fence{
			Key: "x", ByValue: true, Value: "1",
		}), store.Result{Outcome: store.Committed}, []string{"order:b 1 seq 0"}},
		"a fence on what is gone": {[]store.Append{side(expired)}, fence(store.Fence{
			Key: "x", Rev: 1,
		}), store.Result{Outcome: store.Conflict, Sides: item("x", 0, false)}, nil},
		"nothing where it expired": {
			[]store.Append{side(expired)},
			side(cond(put("x", "2"), store.IfAbsent, 0, "")),
			store.Result{Outcome: store.Committed},
			[]string{"notes/x=2"},
		},
		"something already": {
			[]store.Append{side(put("x", "1"))},
			side(cond(put("x", "2"), store.IfAbsent, 0, "")),
			store.Result{Outcome: store.Conflict, Sides: item("x", 1, false)},
			nil,
		},
		"the revision": {
			[]store.Append{side(put("x", "1"))},
			side(cond(put("x", "2"), store.IfRev, 1, "")),
			store.Result{Outcome: store.Committed},
			[]string{"notes/x=2"},
		},
		"the value": {
			[]store.Append{side(put("x", "1"))},
			side(cond(put("x", "2"), store.IfValue, 0, "1")),
			store.Result{Outcome: store.Committed},
			[]string{"notes/x=2"},
		},
		"another value": {
			[]store.Append{side(put("x", "1"))},
			side(cond(put("x", "2"), store.IfValue, 0, "2")),
			store.Result{Outcome: store.Conflict, Sides: item("x", 1, false)},
			nil,
		},

		"a sum within its bound": {
			[]store.Append{side(add("3", 0))},
			side(add("1", 5), add("1", 5)),
			store.Result{Outcome: store.Committed},
			[]string{"notes/n=4", "notes/n=5"},
		},
		"a sum beyond its bound": {
			[]store.Append{side(add("3", 0))},
			side(add("1", 4), add("1", 4)),
			store.Result{Outcome: store.Conflict, Sides: item("n", 1, true)},
			nil,
		},
		"a sum that only falls": {
			[]store.Append{side(add("9", 0))},
			side(add("-1", 5)),
			store.Result{Outcome: store.Committed},
			[]string{"notes/n=8"},
		},
		"a sum that comes to 0": {
			[]store.Append{side(add("3", 0))},
			side(add("-4", 0)),
			store.Result{Outcome: store.Committed},
			[]string{"-notes/n"},
		},

		"an event that must be absent": {
			[]store.Append{events(event("a", "t", "u"))},
			unless(j17.StreamID{}, nil, "t", "u"),
			store.Result{Outcome: store.Conflict, Matched: true},
			nil,
		},
		"one without all tags": {
			[]store.Append{events(event("a", "t"))},
			unless(j17.StreamID{}, nil, "t", "u"),
			store.Result{Outcome: store.Committed},
			[]string{"order:b 1 seq 1"},
		},
		"one of another type": {
			[]store.Append{events(event("a", "t"))}, unless(
				j17.StreamID{}, []store.TypePattern{{Aggregate: "cart"}}, "t",
			), store.Result{Outcome: store.Committed}, []string{"order:b 1 seq 1"},
		},
		"one that was known": {
			[]store.Append{events(event("a", "t"))},
			unless(first, nil, "t"),
			store.Result{Outcome: store.Committed},
			[]string{"order:b 1 seq 1"},
		},

		"a number of its own": {
			[]store.Append{owner("ann", "")}, owner("bob", ""), store.Result{
				Outcome: store.Committed, Assigned: []string{"2"},
			}, []string{"owners/next=2", "numbers/bob=2", "owners/2=bob"},
		},
		"a number that is taken": {
			[]store.Append{owner("ann", "1")}, owner("bob", ""), store.Result{
				Outcome: store.Committed, Assigned: []string{"2"},
			}, []string{"owners/next=2", "numbers/bob=2", "owners/2=bob"},
		},
		"an owner that has one": {
			[]store.Append{owner("ann", "7")},
			owner("ann", "8"),
			store.Result{Outcome: store.Committed, Assigned: []string{"7"}},
			nil,
		},
		"a value of another owner": {
			[]store.Append{owner("ann", "7")}, owner("bob", "7"), store.Result{
				Outcome: store.Conflict, Sides: []store.SideConflict{{Space: "owners", Key: "7", Rev: 2}},
			}, nil,
		},
	} {
		for _, apart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, apart %t", name, apart), func(t *testing.T) {
				t.Parallel()
				f := newFixture()
				for _, u := range test.before {
					if r := f.decide(t, u); r.Outcome != store.Committed {
						t.Fatalf("before: %+v", r)
					}
				}
				if apart {
					f.commit()
				}
				f.memory.written = nil
				got := f.decide(t, test.unit)
				got.IDs, got.Lengths, got.Timestamp = nil, nil, 0
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("the result (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.written, f.memory.written); diff != "" {
					t.Errorf("what is written (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestBytes: the leaf is over the canonical bytes, each stream's chain goes on from its own, and time does not run
// backward in a feed.
func TestBytes(t *testing.T) {
	t.Parallel()
	f := newFixture()
	earlier := int64(500)
	old := event("b")
	old.Timestamp = &earlier
	r := f.decide(t, store.Append{Timestamp: 2000, Events: []store.NewEvent{event("a"), event("a"), old}})
	if !slices.Equal(r.Lengths, []uint64{1, 2, 1}) || r.Timestamp != 2000 {
		t.Errorf("%+v", r)
	}
	chains := map[j17.Key][32]byte{}
	for i, e := range f.memory.events {
		raw, _ := j17.AppendEvent([]byte{0}, r.IDs[i], e.Key, e.Type, e.Data, e.Metadata, e.Timestamp)
		if string(raw) != string(e.LeafInput) || e.Leaf != sha256.Sum256(raw) || e.ID != r.IDs[i] {
			t.Errorf("event %d: %s", i, e.LeafInput)
		}
		chains[e.Key] = j17.Link(chains[e.Key], e.Leaf)
	}
	heads := map[j17.Key]store.Head{}
	for _, h := range f.Changed() {
		heads[h.Key] = h.Head
	}
	want := map[j17.Key]store.Head{
		order("a"): {Length: 2, Chain: chains[order("a")], Last: r.IDs[1], FirstTime: 2000, LastTime: 2000},
		order("b"): {Length: 1, Chain: chains[order("b")], Last: r.IDs[2], FirstTime: 500, LastTime: 500},
	}
	if diff := cmp.Diff(want, heads); diff != "" {
		t.Errorf("heads (-want +got):\n%s", diff)
	}
	if r := f.decide(t, events(event("c"))); r.Timestamp != 2000 {
		t.Errorf("a later unit has the time %d", r.Timestamp)
	}
}

// TestCommands answers a command from its record until that expires, in the same batch and later.
func TestCommands(t *testing.T) {
	t.Parallel()
	f := newFixture()
	u := store.Append{
		Command: &store.Command{ID: store.CommandID{5}, Memo: []byte("m"), Expires: now().Add(time.Minute)},
		Events:  []store.NewEvent{event("a")},
	}
	first := f.decide(t, u)
	want := first
	want.Outcome, want.Memo = store.Duplicate, []byte("m")
	for range 2 {
		if diff := cmp.Diff(want, f.decide(t, u)); diff != "" {
			t.Errorf("the second time (-want +got):\n%s", diff)
		}
		f.commit()
	}
	f.Reset(now().Add(time.Minute), true)
	if again := f.decide(t, u); again.Outcome != store.Committed || again.Lengths[0] != 2 {
		t.Errorf("when it has expired: %+v", again)
	}
}

// TestEntries keeps the entries of an item as its value lists them, also where that is longer than what conditions
// compare.
func TestEntries(t *testing.T) {
	t.Parallel()
	f := newFixture()
	row := func(op store.SideOp, entries ...string) store.Append {
		w := store.Side{Op: op, Space: "rows", Key: "r", Entries: "order"}
		if op == store.Put {
			w.Value = append(store.AppendEntries(nil, entries...), make([]byte, unit.MaxValue+1)...)
		}
		return side(w)
	}
	for i, step := range []struct {
		unit store.Append
		want []string
	}{
		{row(store.Put, "a", "b"), []string{"a", "b"}},
		{row(store.Put, "b", "c"), []string{"b", "c"}},
		{row(store.Delete), nil},
	} {
		f.decide(t, step.unit)
		var got []string
		for _, name := range slices.SortedFunc(
			maps.Keys(f.memory.items), func(a, b store.ItemName) int { return strings.Compare(a.Key, b.Key) },
		) {
			if name.Space == "order" {
				got = append(got, name.Key)
			}
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("step %d: the entries are %q, want %q", i, got, step.want)
		}
		if i == 0 {
			f.commit()
		}
	}
}

// TestErrorsWriteNothing: what cannot be read is found out before the first change.
func TestErrorsWriteNothing(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.memory.damaged = store.ItemName{Space: "notes", Key: "y"}
	u := store.Append{Events: []store.NewEvent{event("a")}, Side: []store.Side{put("x", "1"), put("y", "2")}}
	var r store.Result
	if err := f.Decide(f.tenant, &u, &r); !errors.Is(err, errDamaged) {
		t.Errorf("%v, want what is damaged", err)
	}
	if len(f.memory.written) > 0 || len(f.Tenants()) > 0 || f.tenant.state.Events > 0 {
		t.Errorf("written: %q", f.memory.written)
	}
}

// TestFencesAreKept: items that fences are on are not read for each batch, unless something else than units may have
// changed them.
func TestFencesAreKept(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.decide(t, side(put("x", "1")))
	f.commit()
	fenced := store.Append{
		Fences: []store.Fence{{Space: "notes", Key: "x", Rev: 1}}, Events: []store.NewEvent{event("a")},
	}
	for n, want := range []int{1, 0, 0} {
		f.decide(t, fenced)
		if f.memory.asked != want {
			t.Errorf("batch %d asks for %d items, want %d", n, f.memory.asked, want)
		}
		f.commit()
	}
	f.Reset(now(), false)
	if f.decide(t, fenced); f.memory.asked != 1 {
		t.Errorf("a batch that keeps nothing asks for %d items", f.memory.asked)
	}
}
