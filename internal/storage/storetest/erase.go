package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/storage/store"
)

// Erase rewrites events of one stream and waits until their former content is gone from disk.
func Erase(ctx context.Context, s store.Store, t j17.Tenant, key j17.Key, events []store.Rewritten) error {
	r, err := s.Rewrite(ctx, t, store.Rewrite{Streams: []store.RewrittenStream{{Key: key, Events: events}}})
	if err == nil && r.Outcome != store.Committed {
		err = fmt.Errorf("outcome %d", r.Outcome)
	}
	if err != nil {
		return err
	}
	_, err = s.Purge(ctx, t, []j17.Key{key}, nil, nil)
	return err
}

// testNotes rewrites events of several streams with conditions and side writes, and follows the notes about it.
func testNotes(s *suite) {
	t := s.t
	f := s.fixture(t)
	a, b := order("a"), order("b")
	commit(t, f, tenant, store.Append{
		Events: append(events(a, `1`, `2`), events(b, `1`)...), Side: []store.Side{put("state", "requested")},
	})
	rev := get(t, f, tenant, space, "state").Rev
	gone := func(version uint64) []store.Rewritten {
		return []store.Rewritten{{Version: version, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)}}
	}
	r := store.Rewrite{
		Streams: []store.RewrittenStream{{Key: a, Events: gone(2)}, {Key: b, Events: gone(1)}},
		Pre:     []store.Pre{pre(a, 2)}, Fences: []store.Fence{{Space: space, Key: "state", Rev: rev}},
		Side: []store.Side{put("state", "done")},
	}
	// A conflict changes nothing.
	for name, change := range map[string]func(*store.Rewrite){
		"length": func(r *store.Rewrite) { r.Pre = []store.Pre{pre(a, 1)} },
		"fence":  func(r *store.Rewrite) { r.Fences = []store.Fence{{Space: space, Key: "state", Rev: rev + 1}} },
		"side": func(r *store.Rewrite) {
			r.Side = []store.Side{{Op: store.Delete, Space: space, Key: "state", Cond: store.IfAbsent}}
		},
	} {
		other := r
		change(&other)
		result, err := f.Rewrite(t.Context(), tenant, other)
		if err != nil || result.Outcome != store.Conflict || len(result.Streams)+len(result.Sides) != 1 {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
		if h := head(t, f, tenant, a); h.Generation != 0 ||
			string(get(t, f, tenant, space, "state").Value) != "requested" {
			t.Errorf("%s: a conflict has changed %+v", name, h)
		}
	}
	count := f.Rewrites()
	commit(t, f, tenant, store.Append{Side: []store.Side{put("other", "item")}})
	if f.Rewrites() != count {
		t.Error("a write counts as a rewrite")
	}
	before := head(t, f, tenant, a)
	_, since := changed(t, f, 0, 9)
	result, err := f.Rewrite(t.Context(), tenant, r)
	if err != nil || result.Outcome != store.Committed || len(result.IDs) != 1 {
		t.Fatalf("%+v, %v", result, err)
	}
	if f.Rewrites() != count+1 {
		t.Errorf("%d rewrites are counted, want %d", f.Rewrites(), count+1)
	}
	if names, _ := changed(t, f, since, 9); !slices.Equal(names, []j17.Tenant{tenant}) {
		t.Errorf("a rewrite is no change: %v", names)
	}

	// A unit that was decided on events of an earlier generation is refused.
	looked := store.Append{Pre: []store.Pre{{Key: a, Length: 2, Looked: true}}, Events: events(a, `3`)}
	if r := appendUnit(t, f, tenant, looked); r.Outcome != store.Conflict || len(r.Streams) != 1 ||
		r.Streams[0].Actual != 2 {
		t.Errorf("decided on events that were rewritten: %+v", r)
	}
	looked.Pre[0].Generation = 1
	commit(t, f, tenant, looked)
	if err := Erase(t.Context(), f, tenant, a, gone(1)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []j17.Tenant{tenant, "copy"} {
		if name == "copy" {
			if err := Copy(t.Context(), f, tenant, f, name); err != nil {
				t.Fatal(err)
			}
			f.reopen(t, t)
		}
		// Both chains of the stream, whose generation has grown twice.
		h := head(t, f, name, a)
		var chain, present [32]byte
		for e, err := range f.ReadStream(t.Context(), name, a, 1, 0) {
			if err != nil {
				t.Fatal(err)
			}
			chain, present = j17.Link(chain, e.Leaf()), j17.Link(present, j17.Leaf(e.Raw))
		}
		if h.Generation != 2 || h.Chain != chain || h.Present != present || h.Now() != present || chain == present {
			t.Errorf("%s: head %+v, want the chains %x and %x", name, h, chain, present)
		}
		if string(get(t, f, name, space, "state").Value) != "done" {
			t.Errorf("%s: the side write of the rewrite is missing", name)
		}
		// Notes are in the feed where the rewrites were made.
		var got []string
		var at []j17.StreamID
		for e, err := range f.ReadChanges(t.Context(), name, j17.StreamID{}, everything) {
			switch {
			case err != nil:
				t.Fatal(err)
			case e.Note != nil:
				got = append(got, fmt.Sprint(e.Note.Streams))
				at = append(at, e.Note.Position)
			default:
				got = append(got, e.Event.Key.ID)
			}
		}
		want := []string{"a", "a", "b", fmt.Sprint([]store.Generation{
			{Key: a, Number: 1}, {Key: b, Number: 1},
		}), "a", fmt.Sprint([]store.Generation{{Key: a, Number: 2}})}
		if diff := cmp.Diff(want, got); diff != "" || at[0] != result.IDs[0] || at[0].Compare(before.Last) <= 0 {
			t.Errorf("%s: changes, with notes at %s (-want +got):\n%s", name, at, diff)
		}
		if n := len(readFeed(t, f, name, j17.StreamID{}, everything)); n != 4 {
			t.Errorf("%s: %d events in the feed", name, n)
		}
		sameNames(t, f, name)
		n := 0
		for e, err := range f.ReadChanges(t.Context(), name, at[0], 2) {
			if n++; err != nil || (n == 1) != (e.Event != nil) {
				t.Errorf("%s: %+v, %v", name, e, err)
			}
		}
		if n != 2 {
			t.Errorf("%s: %d of 2 changes", name, n)
		}
	}
	if _, err := f.Rewrite(t.Context(), tenant, store.Rewrite{
		Streams: []store.RewrittenStream{{Key: a, Events: gone(1)}, {Key: a}},
	}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a stream twice: %v", err)
	}
}

// testHeldBy lists the side items that hold data of a stream, in the spaces that are declared so.
func testHeldBy(s *suite) {
	t := s.t
	f := s.fixture(t)
	spaces := []store.Declared{{Space: "states", OfStreams: true}, {Space: space}, {Space: "work", OfStreams: true}}
	for _, sp := range []store.Space{"states", space, "work"} {
		for _, key := range []string{"order:a", "order:a/1", "order:a/2", "order:a1", "order:ab/1", "order:", "a"} {
			write(t, f, tenant, store.Side{Op: store.Put, Space: sp, Key: key})
		}
	}
	held, err := store.HeldBy(t.Context(), f, tenant, spaces, order("a"))
	var want []store.ItemName
	for _, sp := range []store.Space{"states", "work"} {
		want = append(
			want, store.ItemName{Space: sp, Key: "order:a"}, store.ItemName{Space: sp, Key: "order:a/1"},
			store.ItemName{Space: sp, Key: "order:a/2"},
		)
	}
	if err != nil || !slices.Equal(held, want) {
		t.Errorf("held are %v, %v; want %v", held, err, want)
	}
}

// testForgetCommands forgets the commands that have written events of a stream up to a position, and no others: until
// they expire, it is only known that they were carried out.
func testForgetCommands(s *suite) {
	t := s.t
	f := s.fixture(t)
	unit := func(n byte, keys ...string) store.Append {
		u := store.Append{
			Timestamp: 7,
			Command:   &store.Command{ID: store.CommandID{n}, Memo: []byte{n}, Expires: f.clock.Now().Add(time.Hour)},
		}
		for _, name := range keys {
			u.Events = append(u.Events, events(order(name), `1`)...)
		}
		return u
	}
	commit(t, f, tenant, unit(1, "a"))
	commit(t, f, tenant, unit(2, "b", "c"))
	forGood := unit(5, "a")
	forGood.Command.Expires = time.Time{}
	commit(t, f, tenant, forGood)
	upTo := commit(t, f, tenant, unit(3, "c", "c", "a", "d")).IDs[3]
	commit(t, f, tenant, unit(4, "a"))
	for range 2 {
		if err := f.ForgetCommands(t.Context(), tenant, []store.StreamPart{
			{Key: order("a"), UpTo: upTo}, {Key: order("b")}, {Key: order("none"), UpTo: upTo},
		}); err != nil {
			t.Fatal(err)
		}
		for n, events := range map[byte]int{1: 0, 2: 2, 3: 0, 4: 1} {
			r, err := f.Command(t.Context(), tenant, store.CommandID{n})
			if err != nil || r == nil || r.Outcome != store.Duplicate || len(r.IDs) != events ||
				len(r.Lengths) != events || (r.Memo != nil) != (events > 0) || (r.Timestamp != 0) != (events > 0) {
				t.Errorf("command %d: %+v, %v", n, r, err)
			}
		}
		if r, err := f.Command(t.Context(), tenant, store.CommandID{5}); r != nil || err != nil {
			t.Errorf("what never expires would be there for good: %+v, %v", r, err)
		}
	}
	if r := appendUnit(t, f, tenant, unit(1, "a")); r.Outcome != store.Duplicate || len(r.IDs) != 0 {
		t.Errorf("a command that was forgotten: %+v", r)
	}
	f.clock.Advance(2 * time.Hour)
	commit(t, f, tenant, unit(1, "a"))
	if err := f.ForgetCommands(t.Context(), other, []store.StreamPart{{Key: order("a"), UpTo: upTo}}); err != nil {
		t.Error(err)
	}
}
