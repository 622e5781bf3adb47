package projection

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
)

// TestAScanDrivesNothingOut keeps more values than there is room for: the room is never exceeded, and what is asked for
// again and again stays while many others are asked for once.
func TestAScanDrivesNothingOut(t *testing.T) {
	const room = 1 << 20
	k := newKeptValues(room)
	put := func(name string, bytes int) { k.put(subject{of: name}, &Value{Data: make([]byte, bytes)}) }
	get := func(name string) bool { return k.get(subject{of: name}) != nil }
	bounded := func() {
		t.Helper()
		if used := k.once.used + k.often.used; used > room || len(k.all) != k.once.Len()+k.often.Len() {
			t.Fatalf("%d bytes are used of %d, by %d values of which %d and %d are in line", used, room, len(k.all), k.once.Len(), k.often.Len())
		}
	}

	// Some are asked for again, and a hundred times as many once.
	for i := range 100 {
		put(fmt.Sprint("often ", i), 4<<10)
		get(fmt.Sprint("often ", i))
	}
	for i := range 10_000 {
		put(fmt.Sprint("once ", i), 4<<10)
		bounded()
	}
	for i := range 100 {
		if !get(fmt.Sprint("often ", i)) {
			t.Errorf("value %d was driven out", i)
		}
	}
	if !get("once 9999") || get("once 1") {
		t.Error("of those that were asked for once, the latest are to stay")
	}

	// What is asked for again later takes the place of what is no longer; what is too large is never kept.
	for round := range 3 {
		for i := range 300 {
			name := fmt.Sprint("later ", i)
			if !get(name) {
				put(name, 4<<10)
			}
			get(name)
			bounded()
		}
		if k.often.used > room-room/onceShare {
			t.Errorf("round %d: %d bytes are often used", round, k.often.used)
		}
	}
	if get("often 0") {
		t.Error("what is not asked for any more stays for ever")
	}
	put("large", room/onceShare)
	if get("large") {
		t.Error("a value that would drive out many others is kept")
	}

	// A value in the place of another one is charged once.
	for range 100 {
		put("same", 10<<10)
		bounded()
	}
	put("same", room)
	if get("same") {
		t.Error("a value that cannot be kept leaves the one before in its place")
	}
	bounded()
}

// TestWhatIsChargedGrowsWithSources: a value of many sources takes more than its data.
func TestWhatIsChargedGrowsWithSources(t *testing.T) {
	few, many := &Value{}, &Value{Sources: make([]j17.Key, 1000)}
	if many.charge()-few.charge() < 64*1000 {
		t.Errorf("%d and %d bytes", few.charge(), many.charge())
	}
}

// TestMemoryIsBounded reads more states than may be looked at together: of one value that is an error, of several it is
// done in parts. All that was accounted for is given back.
func TestMemoryIsBounded(t *testing.T) {
	f := enginetest.New(t, engine.Options{})
	f.DeploySource(t, `{"agent_types":["user"],"aggregate_types":{"a":{"events":{"was_made":{"schema":{},"handler":[{"set":{"target":"","value":"$.data"}}]}}}},
		"projections":{"own":{"for_each":"a","sources":{"a":"$key"},"select":{"n":"$.a.n"}},
			"many":{"for_each":"a","sources":{"a":"$key","all":{"type":"a","id":"$.a.refs","mode":"array"}},"select":{"n":"$.all[*].n"}}}}`)
	s := New(Options{Store: f.Store, Engine: f.Engine, Clock: f.Clock})
	const states, size = 1 << 20, 14 << 10
	const fits, count = states/size - 2, states/size + 1
	s.values.bound(states)
	var ids, refs []string
	text := strings.Repeat("x", size)
	for i := range count {
		ids = append(ids, fmt.Sprintf("0b6e9d4e-6f0a-4f3c-8c53-%012x", i))
		refs = append(refs, `"`+ids[i]+`"`)
		f.Post(t, "a/"+ids[i]+"/was_made", enginetest.Body(fmt.Sprintf(`{"n":%d,"text":%q}`, i, text)))
	}
	most := int64(0)
	read := func(ask *Ask) error {
		_, err := s.Read(t.Context(), enginetest.Tenant, ask)
		if used := s.values.memory.Used(); used != 0 {
			t.Errorf("%+v has left %d bytes behind", ask, used)
		}
		return err
	}

	// One value.
	const other = "0b6e9d4e-6f0a-4f3c-8c53-ffffffffffff"
	for n, code := range map[int]j17.Code{fits: "", count: j17.CodeProjectionLimit} {
		f.Post(t, "a/"+other+"/was_made", enginetest.Body(`{"refs":[`+strings.Join(refs[:n], ",")+`]}`))
		err := read(&Ask{Name: "many", ID: other})
		if e, ok := errors.AsType[*j17.Error](err); j17.CodeOf(err) != code ||
			ok && e.Details != any(limitDetails{"all", states}) {
			t.Errorf("%d states of %d bytes: %v", n, size, err)
		}
	}

	// Several, some of which had to be computed with fewer others.
	r, err := s.readings.now(t.Context(), enginetest.Tenant)
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.definition("own")
	if err != nil {
		t.Fatal(err)
	}
	err = s.values.each(t.Context(), r, d, work.New(t.Context(), maxWork), ids, d.Stages,
		func(e *evaluation, i int, of *row) {
			most = max(most, s.values.memory.Used())
			if v := e.value(of); v.Err != nil || string(v.Data) != fmt.Sprintf(`{"n":%d}`, i) || v.Key.ID != ids[i] {
				t.Errorf("row %d: %s of %s, %v", i, v.Data, v.Key, v.Err)
			}
		})
	if used := s.values.memory.Used(); err != nil || used != 0 || most == 0 || most > states {
		t.Errorf("%v; %d bytes were accounted for, %d are", err, most, used)
	}
}
