package storetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/storage/store"
)

func testAppend(s *suite) {
	t := s.t
	f := s.fixture(t)
	a, b := order("a"), order("b")
	r := commit(t, f, tenant, store.Append{
		Timestamp: 500, Pre: []store.Pre{{Key: a, Length: 0}},
		Events: []store.NewEvent{event(a, `1`), event(b, `2`), event(a, `3`)},
	})
	ms := epoch().UnixMilli()
	want := store.Result{
		Outcome: store.Committed, Timestamp: 500, Lengths: []uint64{1, 1, 2},
		IDs: []j17.StreamID{{Ms: ms}, {Ms: ms, Seq: 1}, {Ms: ms, Seq: 2}},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Fatalf("result (-want +got):\n%s", diff)
	}
	if got := head(t, f, tenant, a); got.Length != 2 || got.Last != want.IDs[2] || got.FirstTime != 500 ||
		got.LastTime != 500 {
		t.Fatalf("head of a: %+v", got)
	}
	if got := head(t, f, tenant, order("c")); got != (store.Head{}) {
		t.Fatalf("head of a stream without events: %+v", got)
	}
	// An empty call and an empty unit are valid.
	if results, err := f.Append(t.Context(), tenant, nil); err != nil || len(results) != 0 {
		t.Fatalf("append of nothing: %v, %v", results, err)
	}
	commit(t, f, tenant, store.Append{})
	if got := len(readFeed(t, f, tenant, j17.StreamID{}, everything)); got != 3 {
		t.Fatalf("%d events in the feed, want 3", got)
	}
}

// testCanonical checks the bytes and the hashes against the definition, computed here again.
func testCanonical(s *suite) {
	t := s.t
	f := s.fixture(t)
	key := order("a0000000-0000-4000-a000-000000000001")
	commit(t, f, tenant, store.Append{Timestamp: 1_700_000_000, Events: []store.NewEvent{
		{
			Key: key, Type: "was_placed", Data: []byte(`{"n":1.50,"s":"é\u2028"}`),
			Metadata: []byte(`{"actor":{"type":"user","id":"u"}}`),
		},
		{Key: key, Type: "was_paid", Data: []byte(`null`), Metadata: []byte(`{}`)},
	}})
	ms := fmt.Sprintf("%013d", epoch().UnixMilli())
	want := []string{
		`{"stream_id":"` + ms + `-0","key":"order:a0000000-0000-4000-a000-000000000001","type":"was_placed","data":{"n":1.50,"s":"é\u2028"},` +
			`"metadata":{"actor":{"type":"user","id":"u"},"timestamp":1700000000}}`,
		`{"stream_id":"` + ms + `-1","key":"order:a0000000-0000-4000-a000-000000000001","type":"was_paid","data":null,` +
			`"metadata":{"timestamp":1700000000}}`,
	}
	var chain [32]byte
	got := readStream(t, f, tenant, key, 1, 0)
	for i, e := range got {
		if e.Raw != want[i] {
			t.Errorf("event %d:\n got %s\nwant %s", i+1, e.Raw, want[i])
		}
		leaf := sha256.Sum256(append([]byte{0}, want[i]...))
		chain = sha256.Sum256(append(chain[:], leaf[:]...))
	}
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d", len(got), len(want))
	}
	if h := head(t, f, tenant, key); h.Chain != chain {
		t.Errorf("chain %x, want %x", h.Chain, chain)
	}
	if got[0].Type != "was_placed" || got[0].Data != `{"n":1.50,"s":"é\u2028"}` ||
		got[1].Metadata != `{"timestamp":1700000000}` {
		t.Errorf("parts of the events: %+v", got)
	}
}

func testConflicts(s *suite) {
	t := s.t
	f := s.fixture(t)
	a, b := order("a"), order("b")
	commit(t, f, tenant, store.Append{Events: events(a, `1`, `2`)})
	// Preconditions may name streams that the unit does not write, and all that fail are reported.
	u := store.Append{
		Pre:    []store.Pre{pre(a, 1), pre(b, 4), pre(order("c"), 0)},
		Events: events(order("c"), `1`),
	}
	want := []store.StreamConflict{{Key: a, Expected: 1, Actual: 2}, {Key: b, Expected: 4, Actual: 0}}
	for range 2 {
		r := appendUnit(t, f, tenant, u)
		if r.Outcome != store.Conflict {
			t.Fatalf("outcome %d, want a conflict", r.Outcome)
		}
		if diff := cmp.Diff(want, r.Streams); diff != "" {
			t.Fatalf("conflicts (-want +got):\n%s", diff)
		}
	}
	if h := head(t, f, tenant, order("c")); h.Length != 0 {
		t.Fatalf("a conflict has written %d events", h.Length)
	}
	// They are tested on the state before the unit.
	commit(t, f, tenant, store.Append{
		Pre: []store.Pre{pre(b, 0), pre(b, 0), pre(a, 2)}, Events: append(events(b, `1`, `2`), events(a, `3`)...),
	})
	// A unit that only tests writes nothing.
	commit(t, f, tenant, store.Append{Pre: []store.Pre{pre(b, 2)}})
	// A conflict does not create a tenant.
	if r := appendUnit(t, f, other, u); r.Outcome != store.Conflict {
		t.Fatalf("outcome %d, want a conflict", r.Outcome)
	}
	if names, err := f.Tenants(t.Context()); err != nil || !cmp.Equal(names, []j17.Tenant{tenant}) {
		t.Fatalf("tenants %v, %v", names, err)
	}
}

func testManyUnits(s *suite) {
	t := s.t
	f := s.fixture(t)
	// Units of one call are independent, and a later one sees what an earlier one did.
	key := order("a")
	results, err := f.Append(t.Context(), tenant, []store.Append{
		{Pre: []store.Pre{pre(key, 0)}, Events: events(key, `1`)},
		{Pre: []store.Pre{pre(key, 0)}, Events: events(key, `2`)},
		{
			Pre: []store.Pre{pre(key, 1)}, Events: events(key, `3`),
			Side: []store.Side{{Op: store.Put, Space: space, Key: "k", Cond: store.IfAbsent}},
		},
		{Events: events(key, `4`), Side: []store.Side{{Op: store.Put, Space: space, Key: "k", Cond: store.IfAbsent}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []store.Outcome
	for _, r := range results {
		got = append(got, r.Outcome)
	}
	if want := []store.Outcome{
		store.Committed, store.Conflict, store.Committed, store.Conflict,
	}; !cmp.Equal(got, want) {
		t.Fatalf("outcomes %v, want %v", got, want)
	}
	// A unit that was decided on the events of others is written only if those are.
	behind := order("behind")
	results, err = f.Append(t.Context(), tenant, []store.Append{
		{Events: events(behind, `1`)},
		{After: []int{0}, Pre: []store.Pre{pre(behind, 1)}, Events: events(behind, `2`)},
		{After: []int{1}, Pre: []store.Pre{pre(behind, 9)}, Events: events(behind, `3`)},
		{After: []int{2}, Events: events(behind, `4`)},
		{After: []int{0, 3}, Events: events(behind, `5`)},
		{After: []int{0, 1}, Events: events(behind, `6`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	got = got[:0]
	for _, r := range results {
		got = append(got, r.Outcome)
	}
	if want := []store.Outcome{
		store.Committed, store.Committed, store.Conflict, store.Conflict, store.Conflict, store.Committed,
	}; !cmp.Equal(got, want) {
		t.Fatalf("outcomes %v, want %v", got, want)
	}
	// Write more than a store puts into one batch.
	big := strings.Repeat("x", 100_000)
	units := make([]store.Append, 200)
	for i := range units {
		units[i] = store.Append{Pre: []store.Pre{pre(key, uint64(2+i))}, Events: events(key, `"`+big+`"`)}
	}
	results, err = f.Append(t.Context(), tenant, units)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Outcome != store.Committed || r.Lengths[0] != uint64(3+i) {
			t.Fatalf("unit %d: %+v", i, r)
		}
	}
	f.reopen(t, t)
	if got := len(readStream(t, f, tenant, key, 1, 0)); got != 202 {
		t.Fatalf("%d events, want 202", got)
	}
}

func testDuplicates(s *suite) {
	t := s.t
	f := s.fixture(t)
	id := store.CommandID{1}
	command := func(memo string) *store.Command {
		return &store.Command{ID: id, Memo: []byte(memo), Expires: f.clock.Now().Add(time.Hour)}
	}
	missing := func() {
		t.Helper()
		if r, err := f.Command(t.Context(), tenant, id); r != nil || err != nil {
			t.Fatalf("command %v, %v, want none", r, err)
		}
	}
	missing()
	// A conflict is not remembered.
	if r := appendUnit(t, f, tenant, store.Append{
		Command: command("no"), Pre: []store.Pre{pre(order("a"), 9)},
	}); r.Outcome != store.Conflict {
		t.Fatalf("outcome %d, want a conflict", r.Outcome)
	}
	missing()
	first := commit(t, f, tenant, store.Append{
		Command: command("first"), Timestamp: 7,
		Events: append(events(order("a"), `1`, `2`), events(order("b"), `1`)...),
	})
	want := first
	want.Outcome, want.Memo = store.Duplicate, []byte("first")
	for _, reopen := range []bool{false, true} {
		if reopen {
			f.reopen(t, t)
		}
		// The second unit is entirely different, and would be a conflict.
		r := appendUnit(t, f, tenant, store.Append{
			Command: command("second"), Timestamp: 8, Pre: []store.Pre{pre(order("a"), 9)},
			Events: events(order("z"), `1`),
		})
		if diff := cmp.Diff(want, r); diff != "" {
			t.Fatalf("duplicate (-want +got):\n%s", diff)
		}
		stored, err := f.Command(t.Context(), tenant, id)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, stored); diff != "" {
			t.Fatalf("command (-want +got):\n%s", diff)
		}
	}
	// Two units of one call.
	two := store.CommandID{2}
	u := store.Append{Command: &store.Command{ID: two, Memo: []byte("m")}, Events: events(order("c"), `1`)}
	results, err := f.Append(t.Context(), tenant, []store.Append{u, u})
	if err != nil {
		t.Fatal(err)
	}
	if results[0].Outcome != store.Committed || results[1].Outcome != store.Duplicate ||
		string(results[1].Memo) != "m" ||
		!cmp.Equal(results[0].IDs, results[1].IDs) {
		t.Fatalf("two units with one id: %+v", results)
	}
	// Ids belong to a tenant, and a unit without events can have one.
	commit(t, f, other, store.Append{Command: &store.Command{ID: two}})
	if r := appendUnit(t, f, other, store.Append{
		Command: &store.Command{ID: two}, Events: events(order("d"), `1`),
	}); r.Outcome != store.Duplicate || len(r.IDs) != 0 {
		t.Fatalf("duplicate of an empty unit: %+v", r)
	}
}

func testDuplicatesAtOnce(s *suite) {
	t := s.t
	f := s.fixture(t)
	const clients, commands = 8, 20
	results := make([][commands]store.Result, clients)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for n := range commands {
				u := store.Append{
					Command: &store.Command{ID: store.CommandID{byte(n)}}, Events: events(order("a"), fmt.Sprint(n)),
				}
				got, err := f.Append(t.Context(), tenant, []store.Append{u})
				if err != nil {
					t.Error(err)
					return
				}
				results[c][n] = got[0]
			}
		})
	}
	wg.Wait()
	for n := range commands {
		executed := 0
		for c := range clients {
			if results[c][n].Outcome == store.Committed {
				executed++
			}
			if !cmp.Equal(results[c][n].IDs, results[0][n].IDs) {
				t.Errorf("command %d: clients got %v and %v", n, results[0][n].IDs, results[c][n].IDs)
			}
		}
		if executed != 1 {
			t.Errorf("command %d was executed %d times", n, executed)
		}
	}
	if h := head(t, f, tenant, order("a")); h.Length != commands {
		t.Errorf("%d events, want %d", h.Length, commands)
	}
}

func testCommandExpiry(s *suite) {
	t := s.t
	f := s.fixture(t)
	u := store.Append{
		Command: &store.Command{ID: store.CommandID{9}, Expires: f.clock.Now().Add(time.Hour)},
		Events:  events(order("a"), `1`),
	}
	commit(t, f, tenant, u)
	f.clock.Advance(time.Hour - time.Nanosecond)
	if r := appendUnit(t, f, tenant, u); r.Outcome != store.Duplicate {
		t.Fatalf("outcome %d before the expiry", r.Outcome)
	}
	f.clock.Advance(time.Nanosecond)
	if r, err := f.Command(t.Context(), tenant, u.Command.ID); r != nil || err != nil {
		t.Fatalf("an expired command is found: %v, %v", r, err)
	}
	u.Command.Expires = f.clock.Now().Add(time.Hour)
	commit(t, f, tenant, u)
	// The old expiry no longer counts.
	f.clock.Advance(2 * time.Minute)
	f.reopen(t, t)
	if r := appendUnit(t, f, tenant, u); r.Outcome != store.Duplicate {
		t.Fatalf("outcome %d, want a duplicate", r.Outcome)
	}
}

func testLimits(s *suite) {
	t := s.t
	f := s.fixture(t)
	many := make([]store.NewEvent, store.MaxUnitEvents)
	for i := range many {
		many[i] = event(order("a"), `1`)
	}
	commit(t, f, tenant, store.Append{Events: many})
	long := strings.Repeat("k", store.MaxNameBytes)
	commit(t, f, tenant, store.Append{Events: events(order(long), `1`), Side: []store.Side{put(long, "")}})
	large := make([]byte, store.MaxUnitBytes)
	write(t, f, tenant, store.Side{Op: store.Put, Space: space, Key: "k", Value: large[1:]})
	if item := get(t, f, tenant, space, "k"); len(item.Value) != len(large)-1 {
		t.Fatalf("%d bytes, want %d", len(item.Value), len(large)-1)
	}
	for name, u := range map[string]store.Append{
		"events": {Events: slices.Concat(many, events(order("a"), `1`))},
		"bytes":  {Events: events(order("b"), `"`+strings.Repeat("x", store.MaxUnitBytes)+`"`)},
		"side":   {Side: []store.Side{{Op: store.Put, Space: space, Key: "k", Value: large}}},
		"memo":   {Command: &store.Command{Memo: slices.Concat(large, []byte{1})}},
		"id":     {Events: events(order(long+"k"), `1`)},
		"key":    {Side: []store.Side{put(long+"k", "")}},
	} {
		before := head(t, f, tenant, order("b"))
		_, err := f.Append(t.Context(), tenant, []store.Append{{Events: events(order("b"), `1`)}, u})
		if !errors.Is(err, store.ErrLimit) {
			t.Errorf("%s: error %v, want ErrLimit", name, err)
		}
		if after := head(t, f, tenant, order("b")); after != before {
			t.Errorf("%s: something was written", name)
		}
	}
	if err := f.Write(
		t.Context(), j17.Tenant(strings.Repeat("t", store.MaxTenantBytes+1)), nil,
	); !errors.Is(err, store.ErrLimit) {
		t.Errorf("long tenant: error %v, want ErrLimit", err)
	}
}

func testInvalid(s *suite) {
	t := s.t
	f := s.fixture(t)

	// Invalid units are refused.
	good := event(order("a"), `1`)
	bad := func(change func(*store.NewEvent)) store.Append {
		e := good
		change(&e)
		return store.Append{Events: []store.NewEvent{e}}
	}
	for name, u := range map[string]store.Append{
		"no type":        bad(func(e *store.NewEvent) { e.Type = "" }),
		"quote":          bad(func(e *store.NewEvent) { e.Type = `a"b` }),
		"no data":        bad(func(e *store.NewEvent) { e.Data = nil }),
		"new line":       bad(func(e *store.NewEvent) { e.Data = []byte("[1,\n2]") }),
		"no metadata":    bad(func(e *store.NewEvent) { e.Metadata = nil }),
		"short metadata": bad(func(e *store.NewEvent) { e.Metadata = []byte("{") }),
		"metadata":       bad(func(e *store.NewEvent) { e.Metadata = []byte("[]") }),
		"no id":          bad(func(e *store.NewEvent) { e.Key.ID = "" }),
		"NUL":            bad(func(e *store.NewEvent) { e.Key.ID = "a\x00b" }),
		"colon":          bad(func(e *store.NewEvent) { e.Key.Type = "a:b" }),
		"not UTF-8":      bad(func(e *store.NewEvent) { e.Key.ID = "\xff" }),
		"pre":            {Pre: []store.Pre{{Key: j17.Key{Type: "order"}}}},
		"after itself":   {After: []int{0}},
		"after":          {After: []int{-1}},
		"no op":          {Side: []store.Side{{Space: space, Key: "k"}}},
		"cond":           {Side: []store.Side{{Op: store.Put, Space: space, Key: "k", Cond: 9}}},
		"no space":       {Side: []store.Side{{Op: store.Put, Key: "k"}}},
		"NUL in space":   {Side: []store.Side{{Op: store.Put, Space: "a\x00b", Key: "k"}}},
		"no key":         {Side: []store.Side{{Op: store.Put, Space: space}}},
		"early":          {Side: []store.Side{{Op: store.Put, Space: space, Key: "k", Due: time.Unix(-5, 0)}}},
		"late": {Side: []store.Side{
			{Op: store.Put, Space: space, Key: "k", Expires: time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)},
		}},
		"late command": {Command: &store.Command{Expires: time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)}},
	} {
		if _, err := f.Append(t.Context(), tenant, []store.Append{u}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: error %v, want ErrInvalid", name, err)
		}
	}

	// Invalid names of tenants are refused.
	for _, name := range []j17.Tenant{"", "a\x00b", "\xff"} {
		if _, err := f.Heads(t.Context(), name, nil); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("tenant %q: error %v, want ErrInvalid", name, err)
		}
	}

	// Reading what cannot exist finds nothing.
	odd := j17.Key{Type: "order", ID: "a\x00b"}
	if h := head(t, f, tenant, odd); h != (store.Head{}) || len(readStream(t, f, tenant, odd, 1, 0)) != 0 {
		t.Error("a key with NUL has events")
	}
	if names, err := f.Tenants(t.Context()); err != nil || len(names) != 0 {
		t.Errorf("tenants %v, %v", names, err)
	}
}

func testCancelled(s *suite) {
	t := s.t
	f := s.fixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Append(ctx, tenant, []store.Append{
		{Events: events(order("a"), `1`)},
	}); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want that of the context", err)
	}
	if h := head(t, f, tenant, order("a")); h.Length != 0 {
		t.Fatal("a cancelled append has written")
	}
	// Cancel while others write: a unit is stored if Append returned no error, and may be after ErrUnknown.
	const clients, rounds = 8, 30
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			key := order(fmt.Sprint(c))
			var least, most uint64
			for range rounds {
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				_, err := f.Append(ctx, tenant, []store.Append{{Events: events(key, `1`)}})
				cancel()
				switch {
				case err == nil:
					least, most = least+1, most+1
				case errors.Is(err, store.ErrUnknown):
					most++
				case !errors.Is(err, context.Canceled):
					t.Errorf("error %v", err)
				}
			}
			if n := head(worker{t}, f, tenant, key).Length; n < least || n > most {
				t.Errorf("%d events, want %d to %d", n, least, most)
			}
		})
	}
	wg.Wait()
}

func testTimestamps(s *suite) {
	t := s.t
	f := s.fixture(t)
	key := order("a")
	const units = math.MinInt64 // the time of the unit
	stamp := func(unit int64, own ...int64) []int64 {
		t.Helper()
		list := events(key, make([]string, len(own))...)
		for i := range list {
			list[i].Data = []byte(`1`)
			if own[i] != units {
				list[i].Timestamp = &own[i]
			}
		}
		r := commit(t, f, tenant, store.Append{Timestamp: unit, Events: list})
		got := []int64{r.Timestamp}
		for _, e := range readStream(t, f, tenant, key, r.Lengths[0], r.Lengths[len(r.Lengths)-1]) {
			got = append(got, e.Timestamp)
		}
		return got
	}
	for _, c := range []struct {
		unit int64
		own  []int64
		want []int64
	}{
		{-5, []int64{units}, []int64{-5, -5}},
		{100, []int64{units, units}, []int64{100, 100, 100}},
		// Time does not run backward, except for events with their own timestamps.
		{90, []int64{units}, []int64{100, 100}},
		{110, []int64{50, units}, []int64{110, 50, 110}},
		{120, []int64{60}, []int64{120, 60}},
		{120, []int64{0}, []int64{120, 0}},
		{105, []int64{units}, []int64{110, 110}},
		{1, []int64{300}, []int64{110, 300}},
		{200, []int64{units}, []int64{300, 300}},
	} {
		if got := stamp(c.unit, c.own...); !cmp.Equal(got, c.want) {
			t.Errorf("unit at %d with events at %v: got %v, want %v", c.unit, c.own, got, c.want)
		}
	}
	f.reopen(t, t)
	if got, want := stamp(1, units), []int64{300, 300}; !cmp.Equal(got, want) {
		t.Errorf("after reopening: got %v, want %v", got, want)
	}
	if h := head(t, f, tenant, key); h.FirstTime != -5 || h.LastTime != 300 {
		t.Errorf("times of the head: %d, %d", h.FirstTime, h.LastTime)
	}
	// What was decided at a time is not written with another one.
	for _, c := range []struct {
		at   int64
		want store.Outcome
		time int64
	}{
		{299, store.TooEarly, 300},
		{300, store.Committed, 300},
		{310, store.Committed, 310},
		{309, store.TooEarly, 310},
	} {
		r := appendUnit(t, f, tenant, store.Append{Timestamp: c.at, Decided: true, Events: events(key, `1`)})
		if r.Outcome != c.want || r.Timestamp != c.time || len(r.IDs) != 0 && r.Outcome != store.Committed {
			t.Errorf("decided at %d: %+v, want outcome %d at %d", c.at, r, c.want, c.time)
		}
	}
	if r := appendUnit(t, f, tenant, store.Append{
		Timestamp: 1, Decided: true, Pre: []store.Pre{pre(key, 1)}, Events: events(key, `1`),
	}); r.Outcome != store.Conflict {
		t.Errorf("too early, and overtaken: %+v", r)
	}
	// Another tenant has its own time.
	if r := commit(t, f, other, store.Append{Timestamp: 3, Events: events(key, `1`)}); r.Timestamp != 3 {
		t.Errorf("timestamp %d in another tenant, want 3", r.Timestamp)
	}
}

func testPositions(s *suite) {
	t := s.t
	f := s.fixture(t)
	var last j17.StreamID
	for step, move := range []time.Duration{0, 0, time.Millisecond, -time.Hour, 0, 2 * time.Hour, -time.Second, 0} {
		f.clock.Advance(move)
		if step%3 == 2 {
			f.reopen(t, t)
		}
		r := commit(t, f, tenant, store.Append{Events: events(order(fmt.Sprint(step%2)), `1`, `2`)})
		if r.IDs[0].Compare(last) <= 0 || r.IDs[1] != r.IDs[0].Next() {
			t.Fatalf("step %d: positions %v after %s", step, r.IDs, last)
		}
		if ms := f.clock.Now().UnixMilli(); r.IDs[0].Ms != max(ms, last.Ms) {
			t.Fatalf("step %d: position %s at %d after %s", step, r.IDs[0], ms, last)
		}
		last = r.IDs[1]
	}
}
