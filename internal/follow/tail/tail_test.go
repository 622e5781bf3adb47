package tail_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/work"
	"j17/internal/follow/tail"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
	"j17/internal/storage/testopen"
)

const tenant = j17.Tenant("ins_test/prod")

// counted is a store that counts how many events were read from it. While it is frozen nobody reads changes.
type counted struct {
	store.Store
	read   atomic.Int64
	frozen atomic.Bool
}

func (c *counted) ReadFeed(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[*j17.Event, error] {
	return counting(c, c.Store.ReadFeed(ctx, t, after, limit))
}

func (c *counted) ReadTagged(
	ctx context.Context, t j17.Tenant, of store.Tagged, after j17.StreamID, limit int,
	looked func(int, j17.StreamID) bool,
) iter.Seq2[*j17.Event, error] {
	return counting(c, c.Store.ReadTagged(ctx, t, of, after, limit, looked))
}

func (c *counted) ReadChanges(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	return counting(c, func(yield func(store.Entry, error) bool) {
		if c.frozen.Load() {
			<-ctx.Done()
			yield(store.Entry{}, ctx.Err())
			return
		}
		c.Store.ReadChanges(ctx, t, after, limit)(yield)
	})
}

func counting[T any](c *counted, events iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for ev, err := range events {
			c.read.Add(1)
			if !yield(ev, err) {
				return
			}
		}
	}
}

type fixture struct {
	*tail.Tail
	store *counted
}

func newFixture(tb testing.TB) *fixture {
	tb.Helper()
	c := &counted{Store: testopen.Open(tb, clock.System{})}
	return &fixture{tail.New(c, nil), c}
}

func user(n int) j17.Agent { return j17.Agent{Type: "user", ID: fmt.Sprint("u", n)} }

// write commits an event of an aggregate, by one of the users and about one.
func (f *fixture) write(tb testing.TB, key, typ string, actor, target int, data string) {
	tb.Helper()
	k, _ := j17.ParseKey(key)
	metadata := fmt.Sprintf(`{"actor":{"type":"user","id":"u%d"},"target":{"type":"user","id":"u%d"}}`, actor, target)
	f.append(tb, store.NewEvent{
		Key: k, Type: typ, Data: []byte(data), Metadata: []byte(metadata),
		Tags: append(j17.MetadataTags([]byte(metadata)), declared(data)...),
	})
}

// declared are the tags of an event with a number: which one it is of four, and of two, with characters that a list has
// to escape.
func declared(data string) []string {
	var n int
	if _, err := fmt.Sscanf(data, `{"n":%d,`, &n); err != nil {
		return nil
	}
	return []string{fmt.Sprintf("of four:%d,\x00", n%4), fmt.Sprintf("of two:%d", n%2)}
}

func (f *fixture) append(tb testing.TB, events ...store.NewEvent) {
	tb.Helper()
	r, err := f.store.Append(tb.Context(), tenant, []store.Append{{Timestamp: 1_700_000_000, Events: events}})
	if err != nil || r[0].Outcome != store.Committed {
		tb.Fatal(r, err)
	}
}

func (f *fixture) open(tb testing.TB, filter tail.Filter, after j17.StreamID) *tail.Reader {
	tb.Helper()
	r, err := f.Open(tb.Context(), tenant, filter, after)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// take takes all that there is now, in pieces of a size.
func take(tb testing.TB, r *tail.Reader, most int) (taken []string) {
	tb.Helper()
	var p tail.Piece
	for more := true; more; more = p.More {
		if err := r.Take(tb.Context(), &p, most); err != nil {
			tb.Fatal(err)
		}
		for p.Needs > 0 {
			if err := r.Take(tb.Context(), &p, p.Needs); err != nil {
				tb.Fatal(err)
			}
		}
		for _, ev := range p.Events {
			taken = append(taken, string(ev.Raw))
		}
	}
	return taken
}

// wanted returns what a filter lets through, found in the simplest way.
func (f *fixture) wanted(tb testing.TB, filter tail.Filter) (all []string) {
	tb.Helper()
	for ev, err := range f.store.Store.ReadFeed(tb.Context(), tenant, j17.StreamID{}, 1<<30) {
		if err != nil {
			tb.Fatal(err)
		}
		tags := j17.MetadataTags(ev.Metadata)
		if (filter.Type == "" || filter.Type == ev.Key.Type) && (filter.Event == "" || filter.Event == ev.Type) &&
			(filter.Key == j17.Key{} || filter.Key == ev.Key) &&
			(filter.Actor == "" || slices.Contains(tags, filter.Actor)) &&
			(filter.Target == "" || slices.Contains(tags, filter.Target)) &&
			withSets()[filter].lets(ev, append(tags, declared(string(ev.Data))...)) {
			all = append(all, string(ev.Raw))
		}
	}
	return all
}

// sets is what the types and tags of a filter say. A nil one lets everything through.
type sets struct {
	types []store.TypePattern
	tags  []string
}

func (s *sets) lets(ev *j17.Event, tags []string) bool {
	return s == nil || !slices.ContainsFunc(s.tags, func(tag string) bool { return !slices.Contains(tags, tag) }) &&
		(len(s.types) == 0 || slices.ContainsFunc(s.types, func(p store.TypePattern) bool {
			return (p.Aggregate == "" || p.Aggregate == ev.Key.Type) && (p.Event == "" || p.Event == ev.Type)
		}))
}

// withSets are filters that have sets of types and tags, and what these say.
func withSets() map[tail.Filter]*sets {
	all := map[tail.Filter]*sets{}
	add := func(f tail.Filter, s sets) {
		var patterns []string
		for _, p := range s.types {
			text := p.Aggregate + "." + p.Event
			if p.Event == "" {
				text += "*"
			}
			if p.Aggregate == "" {
				text = "*"
			}
			patterns = append(patterns, text)
		}
		f.Types, f.Tags = tail.NewTypes(patterns), tail.NewTags(s.tags)
		all[f] = &s
	}
	notes, made := store.TypePattern{Aggregate: "note"}, store.TypePattern{Aggregate: "doc", Event: "was_made"}
	add(tail.Filter{}, sets{tags: []string{"of two:1"}})
	add(tail.Filter{}, sets{tags: []string{"of four:3,\x00", "of two:1"}})
	add(tail.Filter{}, sets{tags: []string{"of four:3,\x00", "of two:0"}})
	add(tail.Filter{}, sets{tags: []string{"of two:0", j17.ActorTag(user(1))}, types: []store.TypePattern{notes}})
	add(tail.Filter{Actor: j17.ActorTag(user(1))}, sets{tags: []string{"of four:1,\x00", "of four:1,\x00"}})
	add(tail.Filter{Type: "note"}, sets{tags: []string{"of two:1"}})
	add(tail.Filter{}, sets{types: []store.TypePattern{notes, made}})
	add(tail.Filter{}, sets{types: []store.TypePattern{{Aggregate: "note", Event: "was_read"}, notes, made}})
	add(tail.Filter{}, sets{types: []store.TypePattern{notes, {}}})
	add(tail.Filter{Event: "was_made"}, sets{types: []store.TypePattern{notes, {Aggregate: "ghost"}}})
	add(tail.Filter{Target: j17.TargetTag(user(2))}, sets{types: []store.TypePattern{notes, made}})
	return all
}

func filters() []tail.Filter {
	a, b := j17.ActorTag(user(1)), j17.TargetTag(user(2))
	list := []tail.Filter{
		{},
		{Type: "note"},
		{Event: "was_read"},
		{Type: "note", Event: "was_read"},
		{Actor: a},
		{Target: b},
		{Actor: a, Target: b},
		{Type: "doc", Actor: a},
		{Event: "was_made", Target: b},
		{Key: j17.Key{Type: "note", ID: "n1"}},
		{Key: j17.Key{Type: "note", ID: "n2"}, Event: "was_read"},
		{Type: "ghost"},
		{Actor: j17.ActorTag(user(99))},
	}
	sets := slices.SortedFunc(
		maps.Keys(withSets()),
		func(a, b tail.Filter) int { return strings.Compare(fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b)) },
	)
	return append(list, sets...)
}

// scatter writes events of all sorts.
func (f *fixture) scatter(tb testing.TB, from, to int) {
	tb.Helper()
	for n := from; n < to; n++ {
		f.write(
			tb, fmt.Sprintf("%s:n%d", []string{"note", "doc", "page"}[n%3], n%5), []string{"was_made", "was_read"}[n%2],
			n%4, n%3, fmt.Sprintf(`{"n":%d,"s":"%s"}`, n, strings.Repeat("x", n%300)),
		)
	}
}

// TestReadersGetWhatTheirFiltersLetThrough reads old events and new ones, each once and in order, however large the
// pieces are.
func TestReadersGetWhatTheirFiltersLetThrough(t *testing.T) {
	f := newFixture(t)
	f.scatter(t, 0, 80)
	for _, most := range []int{100, 2000, 1 << 20} {
		var readers []*tail.Reader
		got := make([][]string, len(filters()))
		for _, filter := range filters() {
			readers = append(readers, f.open(t, filter, j17.StreamID{}))
		}
		for round := range 4 {
			for i, r := range readers {
				if (i+round)%3 > 0 {
					got[i] = append(got[i], take(t, r, most)...)
				}
			}
			f.scatter(t, 300+round, 320+round)
		}
		for i, r := range readers {
			f.settle(t, r, func() { got[i] = append(got[i], take(t, r, most)...) })
			if diff := cmp.Diff(f.wanted(t, filters()[i]), got[i]); diff != "" {
				t.Errorf("pieces of %d, %+v:\n%s", most, filters()[i], diff)
			}
			r.Close()
		}
		if s := f.Stats(); s != (tail.Stats{}) {
			t.Errorf("without readers there is %+v", s)
		}
	}
}

// settle takes until the reader has come as far as the feed.
func (f *fixture) settle(tb testing.TB, r *tail.Reader, take func()) {
	tb.Helper()
	head, err := f.Head(tb.Context(), tenant)
	if err != nil {
		tb.Fatal(err)
	}
	for take(); r.Position().Compare(head) < 0; take() {
		select {
		case <-r.Ready():
		case <-tb.Context().Done():
			tb.Fatal("the reader is never ready")
		}
	}
}

// TestNothingIsMissedUnderLoad has readers come and go on where they were while others write.
func TestNothingIsMissedUnderLoad(t *testing.T) {
	f := newFixture(t)
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for w := range 3 {
		writers.Go(func() {
			for n := range 60 {
				f.write(t, fmt.Sprintf("note:n%d", w), "was_made", 1, n%3, fmt.Sprintf(`{"w":%d,"n":%d}`, w, n))
			}
		})
	}
	got := make([][]string, 6)
	for i := range got {
		readers.Go(func() {
			filter := filters()[[]int{0, 4, 5}[i%3]]
			var at j17.StreamID
			for last := false; ; {
				r, err := f.Open(t.Context(), tenant, filter, at)
				if err != nil {
					t.Error(err)
					return
				}
				for range 3 {
					got[i] = append(got[i], take(t, r, 700)...)
					if i >= 3 {
						break // it comes and goes
					}
				}
				if last {
					f.settle(t, r, func() { got[i] = append(got[i], take(t, r, 700)...) })
				}
				at = r.Position()
				r.Close()
				if last {
					return
				}
				select {
				case <-done:
					last = true
				default:
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	for i := range got {
		if diff := cmp.Diff(f.wanted(t, filters()[[]int{0, 4, 5}[i%3]]), got[i]); diff != "" {
			t.Errorf("reader %d:\n%s", i, diff)
		}
	}
}

// TestWorkIsShared counts what is read for many readers whose filters let little through: every event once, and for
// none of them anything again.
func TestWorkIsShared(t *testing.T) {
	f := newFixture(t)
	f.scatter(t, 0, 50)
	head, err := f.Head(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	var readers []*tail.Reader
	for i := range 300 {
		filter := tail.Filter{Type: "doc", Event: "was_signed"}
		if i%2 == 1 {
			filter.Type = fmt.Sprint("ghost", i)
		}
		readers = append(readers, f.open(t, filter, head))
	}
	const events = 120
	before := f.store.read.Load()
	f.scatter(t, 0, events)
	f.write(t, "doc:x", "was_signed", 1, 1, `{}`)
	for i, r := range readers {
		if i%2 == 0 {
			<-r.Ready()
			if got := take(t, r, 1<<10); len(got) != 1 {
				t.Errorf("reader %d has %q", i, got)
			}
			continue
		}
		if got := take(t, r, 1<<10); got != nil {
			t.Errorf("reader %d has %q", i, got)
		}
		if len(r.Ready()) > 0 {
			t.Errorf("reader %d was woken for nothing", i)
		}
	}
	if read := f.store.read.Load() - before; read != events+1 {
		t.Errorf("%d events were read for %d", read, events+1)
	}
	for _, r := range readers {
		r.Close()
	}
}

// TestWhoTakesNothingHoldsNothing: what is kept for a reader that never comes is bounded, the others get everything,
// and so does that one when it comes after all.
func TestWhoTakesNothingHoldsNothing(t *testing.T) {
	f := newFixture(t)
	idle, busy := f.open(t, tail.Filter{}, j17.StreamID{}), f.open(t, tail.Filter{Type: "note"}, j17.StreamID{})
	_ = take(t, idle, 1)
	_ = take(t, busy, 1)
	large := strings.Repeat("x", 100<<10)
	const events = 14 // more than are kept
	var got []string
	for n := range events {
		f.write(t, "note:n", "was_made", 1, 1, fmt.Sprintf(`{"n":%d,"s":%q}`, n, large))
		f.settle(t, busy, func() { got = append(got, take(t, busy, 1<<10)...) })
		if kept := f.Stats().KeptBytes; kept > 1<<20 {
			t.Fatalf("%d bytes are kept", kept)
		}
	}
	if want := f.wanted(t, tail.Filter{}); !slices.Equal(got, want) {
		t.Errorf("the busy one has %d events of %d", len(got), len(want))
	}
	got = nil
	f.settle(t, idle, func() { got = append(got, take(t, idle, 1<<10)...) })
	if want := f.wanted(t, tail.Filter{}); !slices.Equal(got, want) {
		t.Errorf("the idle one has %d events of %d", len(got), len(want))
	}
	idle.Close()
	busy.Close()
	if s := f.Stats(); s != (tail.Stats{}) {
		t.Errorf("without readers there is %+v", s)
	}
}

// TestErasedEventsAreNotHandedOut erases an event that is kept for a reader, while whoever keeps it has not heard of
// it.
func TestErasedEventsAreNotHandedOut(t *testing.T) {
	f := newFixture(t)
	r := f.open(t, tail.Filter{}, j17.StreamID{})
	watch := f.open(t, tail.Filter{}, j17.StreamID{})
	_, _ = take(t, r, 1), take(t, watch, 1)
	f.write(t, "note:n", "was_made", 1, 1, `{"secret":1}`)
	f.settle(t, watch, func() { _ = take(t, watch, 1<<10) })
	if f.Stats().KeptBytes == 0 {
		t.Fatal("nothing is kept for the other reader")
	}
	f.store.frozen.Store(true)
	gone := []store.Rewritten{{Version: 1, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)}}
	if err := storetest.Erase(t.Context(), f.store, tenant, j17.Key{Type: "note", ID: "n"}, gone); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(take(t, r, 1<<10), "\n"); strings.Contains(got, "secret") ||
		!strings.Contains(got, "was_erased") {
		t.Errorf("the reader has %s", got)
	}
	r.Close()
	watch.Close()
}

// TestWalkEndsWithItsBudget looks for what is not there, a little at a time.
func TestWalkEndsWithItsBudget(t *testing.T) {
	f := newFixture(t)
	f.scatter(t, 0, 300)
	f.write(t, "doc:x", "was_signed", 1, 1, `{}`)
	w := f.Walk(tenant, tail.Filter{Event: "was_signed"}, j17.StreamID{})
	found, walks := 0, 0
	for ; !w.Ended(); walks++ {
		before := f.store.read.Load()
		for _, err := range w.Events(t.Context(), 1<<30, work.Counted(2000)) {
			if err != nil {
				t.Fatal(err)
			}
			found++
		}
		if read := f.store.read.Load() - before; read > 60 {
			t.Fatalf("%d events were looked at", read)
		}
	}
	if head, err := f.Head(t.Context(), tenant); err != nil || found != 1 || walks < 5 || w.Position() != head {
		t.Errorf("%d found in %d walks up to %s of %s, %v", found, walks, w.Position(), head, err)
	}
}

// TestTagsThatDoNotMeetCostTheBudget looks for events by one and about another, of which each has many and both
// together one: looking for them costs the budget, a walk goes on where it was, and a reader gives its turn back in
// between.
func TestTagsThatDoNotMeetCostTheBudget(t *testing.T) {
	f := newFixture(t)
	var events []store.NewEvent
	for n := range 12_000 {
		metadata := fmt.Appendf(nil, `{"actor":{"type":"user","id":"u%d"},"target":{"type":"user","id":"u%d"}}`, n%2, n%2)
		events = append(events, store.NewEvent{
			Key: j17.Key{Type: "order", ID: "a"}, Type: "was_placed", Data: []byte("{}"), Metadata: metadata,
			Tags: j17.MetadataTags(metadata),
		})
	}
	for some := range slices.Chunk(events, 1000) {
		f.append(t, some...)
	}
	f.write(t, "order:b", "was_placed", 0, 1, "{}")
	w := f.Walk(tenant, tail.Filter{Actor: j17.ActorTag(user(0)), Target: j17.TargetTag(user(1))}, j17.StreamID{})
	walks, found := 0, 0
	for ; !w.Ended(); walks++ {
		before := w.Position()
		b := work.Counted(1000)
		for _, err := range w.Events(t.Context(), 1<<30, b) {
			if err != nil {
				t.Fatal(err)
			}
			found++
		}
		if !w.Ended() && (b.Left() > 0 || w.Position().Compare(before) <= 0) {
			t.Fatalf("%d units are left at %s, after %s", b.Left(), w.Position(), before)
		}
	}
	if head, err := f.Head(t.Context(), tenant); err != nil || found != 1 || walks < 3 || w.Position() != head {
		t.Errorf("%d found in %d walks up to %s of %s, %v", found, walks, w.Position(), head, err)
	}
	if got := take(
		t, f.open(t, tail.Filter{Actor: j17.ActorTag(user(0)), Target: j17.TargetTag(user(1))}, j17.StreamID{}), 1<<20,
	); len(got) != 1 {
		t.Errorf("a reader gets %v", got)
	}
}

// TestReadersEndWithTheStore: nobody waits for a store that was closed.
func TestReadersEndWithTheStore(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newFixture(t)
		r := f.open(t, tail.Filter{}, j17.StreamID{})
		_ = take(t, r, 1)
		if err := f.store.Close(); err != nil {
			t.Fatal(err)
		}
		<-r.Ready()
		if err := r.Take(t.Context(), new(tail.Piece), 1); err == nil {
			t.Error("there is no error")
		}
		r.Close()
	})
}

// gated is a store that says how far a feed goes when it is told to, and not at all to those who have gone.
type gated struct {
	*counted
	gate chan struct{}
}

func (g *gated) Extent(ctx context.Context, t j17.Tenant) (store.Extent, error) {
	<-g.gate
	if err := ctx.Err(); err != nil {
		return store.Extent{}, err
	}
	return g.counted.Extent(ctx, t)
}

// TestTheFirstReaderMayGo lets the reader for which the feed begins to be followed go at once: the others get what they
// came for.
func TestTheFirstReaderMayGo(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newFixture(t)
		g := &gated{counted: f.store, gate: make(chan struct{})}
		f.Tail = tail.New(g, nil)
		ctx, leave := context.WithCancel(t.Context())
		var readers sync.WaitGroup
		open := func(ctx context.Context) {
			readers.Go(func() {
				r, err := f.Open(ctx, tenant, tail.Filter{}, j17.StreamID{})
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				<-r.Ready()
				r.Close()
			})
			synctest.Wait()
		}
		open(ctx)
		open(t.Context())
		leave()
		close(g.gate)
		synctest.Wait()
		f.write(t, "order:a", "was_placed", 1, 1, "{}")
		readers.Wait()
	})
}
