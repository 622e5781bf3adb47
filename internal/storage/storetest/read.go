package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/storage/store"
)

func testReadStream(s *suite) {
	t := s.t
	f := s.fixture(t)

	// Streams whose keys begin alike must not get in.
	for _, key := range []j17.Key{
		order("a"), order("aa"), {Type: "orde", ID: "r"}, {Type: "orders", ID: "a"}, order("a!"),
	} {
		commit(t, f, tenant, store.Append{Events: events(key, `1`, `2`)})
	}

	// Write the stream itself, in commits of one event each.
	key := order("a")
	var ids []j17.StreamID
	for range 300 {
		f.clock.Advance(1)
		ids = append(ids, commit(t, f, tenant, store.Append{Events: events(key, `3`)}).IDs...)
	}

	// Read parts of it, and find versions after positions, before and after the store was opened again.
	const length = 302
	for _, reopen := range []bool{false, true} {
		if reopen {
			f.reopen(t, t)
		}

		for _, c := range []struct{ from, to, first, last uint64 }{
			{1, 0, 1, length},
			{0, 0, 1, length},
			{5, 9, 5, 9},
			{length, 0, length, length},
			{300, 9999, 300, length},
			{1, 1, 1, 1},
			{256, 257, 256, 257},
		} {
			got := readStream(t, f, tenant, key, c.from, c.to)
			if n := c.last - c.first + 1; uint64(len(got)) != n {
				t.Fatalf("from %d to %d: %d events, want %d", c.from, c.to, len(got), n)
			}
			for i, e := range got {
				if e.Version != c.first+uint64(i) || e.Key != key {
					t.Fatalf("from %d to %d: event %d is %+v", c.from, c.to, i, e)
				}
			}
		}

		for _, c := range [][2]uint64{{length + 1, 0}, {9, 5}} {
			if got := readStream(t, f, tenant, key, c[0], c[1]); len(got) != 0 {
				t.Fatalf("from %d to %d: %d events", c[0], c[1], len(got))
			}
		}

		for i, id := range ids {
			for _, c := range []struct {
				after j17.StreamID
				want  int
			}{{id, i + 4}, {j17.StreamID{Ms: id.Ms - 1}, i + 3}} {
				if c.after.Ms < ids[0].Ms || (i > 0 && c.after.Compare(ids[i-1]) < 0) {
					continue
				}
				if got, err := f.VersionAfter(t.Context(), tenant, key, c.after); err != nil || got != uint64(c.want) {
					t.Fatalf("version after %s: %d, %v, want %d", c.after, got, err, c.want)
				}
			}
		}
		if got, err := f.VersionAfter(t.Context(), tenant, key, j17.StreamID{}); err != nil || got != 1 {
			t.Fatalf("version after nothing: %d, %v", got, err)
		}
		if got, err := f.VersionAfter(t.Context(), tenant, order("none"), j17.StreamID{}); err != nil || got != 1 {
			t.Fatalf("version in a stream without events: %d, %v", got, err)
		}
	}

	// An iteration may end early.
	for _, err := range f.ReadStream(t.Context(), tenant, key, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	commit(t, f, tenant, store.Append{Events: events(key, `4`)})

	// A long iteration can be cancelled.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	commit(t, f, tenant, store.Append{Events: slices.Repeat(events(key, `5`), 3000)})
	var last error
	for _, err := range f.ReadStream(ctx, tenant, key, 1, 0) {
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Fatalf("a cancelled iteration ended with %v", last)
	}
}

func testStreams(s *suite) {
	t := s.t
	f := s.fixture(t)

	// Write streams in no order, beside those of a type and of a tenant with similar names.
	var want []string
	for i := range 25 {
		id := fmt.Sprintf("%02d", i*7%25)
		want = append(want, id)
		commit(t, f, tenant, store.Append{Events: events(order(id), `1`)})
		commit(t, f, tenant, store.Append{Events: events(j17.Key{Type: "orders", ID: id}, `1`)})
		commit(t, f, other, store.Append{Events: events(order("x"+id), `1`)})
	}
	slices.Sort(want)

	// They come in order, page by page.
	var got []string
	for after := ""; ; {
		page, err := f.Streams(t.Context(), tenant, "order", after, 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		got = append(got, page...)
		after = page[len(page)-1]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("ids (-want +got):\n%s", diff)
	}

	// Unknown types and a limit of 0 give no streams.
	for _, typ := range []string{"orde", "", "order\x00"} {
		if ids, err := f.Streams(t.Context(), tenant, typ, "", 10); err != nil || len(ids) != 0 {
			t.Fatalf("streams of type %q: %v, %v", typ, ids, err)
		}
	}
	if ids, err := f.Streams(t.Context(), tenant, "order", "", 0); err != nil || len(ids) != 0 {
		t.Fatalf("no streams: %v, %v", ids, err)
	}
}

func testFeed(s *suite) {
	t := s.t
	f := s.fixture(t)

	// Events of several streams, at several times, among those of another tenant.
	var want []record
	for i := range 40 {
		if i%5 == 0 {
			f.clock.Advance(1e6)
		}
		for _, key := range []j17.Key{order(fmt.Sprint(i % 3)), {Type: "user", ID: "u"}} {
			r := commit(t, f, tenant, store.Append{Timestamp: int64(i), Events: events(key, fmt.Sprint(i))})
			want = append(want, readStream(t, f, tenant, key, r.Lengths[0], r.Lengths[0])...)
			commit(t, f, other, store.Append{Events: events(key, `"other"`)})
		}
		if i%8 == 0 { // several at once
			key := order("several")
			r := commit(t, f, tenant, store.Append{Timestamp: int64(i), Events: events(key, `1`, `2`, `3`, `4`, `5`)})
			want = append(want, readStream(t, f, tenant, key, r.Lengths[0], r.Lengths[4])...)
		}
	}

	// All of them, and a few after each, before and after the store was opened again.
	for _, reopen := range []bool{false, true} {
		if reopen {
			f.reopen(t, t)
		}
		if diff := cmp.Diff(want, readFeed(t, f, tenant, j17.StreamID{}, everything)); diff != "" {
			t.Fatalf("feed (-want +got):\n%s", diff)
		}
		sameNames(t, f, tenant)
		for i := range want {
			if diff := cmp.Diff(
				want[i+1:min(i+4, len(want))], readFeed(t, f, tenant, want[i].ID, 3), cmp.Comparer(sameRecords),
			); diff != "" {
				t.Fatalf("feed after %s (-want +got):\n%s", want[i].ID, diff)
			}
		}
	}

	if got := readFeed(t, f, tenant, j17.StreamID{}, 0); len(got) != 0 {
		t.Fatalf("no events of the feed: %v", got)
	}
	if got := readFeed(t, f, "nobody", j17.StreamID{}, 10); len(got) != 0 {
		t.Fatalf("the feed of a tenant that holds nothing: %v", got)
	}
}

// sameNames compares what ReadNames yields, from each position on, with what ReadChanges yields.
func sameNames(t *testing.T, f *fixture, name j17.Tenant) {
	t.Helper()
	read := func(all iter.Seq2[store.Entry, error]) (entries []string, at []j17.StreamID) {
		for e, err := range all {
			switch {
			case err != nil:
				t.Fatal(err)
			case e.Note != nil:
				entries, at = append(entries, fmt.Sprint(*e.Note)), append(at, e.Note.Position)
			default:
				entries, at = append(entries, fmt.Sprint(e.Event.StreamID, e.Event.Key, e.Event.Version)),
					append(at, e.Event.StreamID)
			}
		}
		return entries, at
	}
	want, at := read(f.ReadChanges(t.Context(), name, j17.StreamID{}, everything))
	if len(want) == 0 {
		t.Fatal("there is nothing to compare")
	}
	for i := range len(want) + 1 {
		after := j17.StreamID{}
		if i > 0 {
			after = at[i-1]
		}
		for _, limit := range []int{0, 3, everything} {
			if got, _ := read(
				f.ReadNames(t.Context(), name, after, limit),
			); !slices.Equal(got, want[i:min(i+limit, len(want))]) {
				t.Fatalf("%d names after %s: %q", limit, after, got)
			}
		}
	}
	if got, _ := read(f.ReadNames(t.Context(), "nobody", j17.StreamID{}, everything)); len(got) != 0 {
		t.Fatalf("names of a tenant that holds nothing: %q", got)
	}
}

func sameRecords(a, b []record) bool { return slices.Equal(a, b) }

// testFeedFollowed lets readers follow the feed while writers write. Nothing may come late, and nothing may be missing.
func testFeedFollowed(s *suite) {
	t := s.t
	f := s.fixture(t)
	const writers, readers, rounds = 6, 4, 60
	total := writers * rounds * 2

	// Readers wait for events after those they have, and read them.
	seen := make([][]j17.StreamID, readers)
	var wg sync.WaitGroup
	for r := range readers {
		wg.Go(func() {
			var last j17.StreamID
			for len(seen[r]) < total {
				if err := f.AwaitFeed(t.Context(), tenant, last); err != nil {
					t.Errorf("await the feed after %s: %v", last, err)
					return
				}
				before := len(seen[r])
				for e, err := range f.ReadFeed(t.Context(), tenant, last, 1+r*7) {
					if err != nil {
						t.Errorf("read the feed after %s: %v", last, err)
						return
					}
					if e.StreamID.Compare(last) <= 0 {
						t.Errorf("%s comes after %s", e.StreamID, last)
						return
					}
					last = e.StreamID
					seen[r] = append(seen[r], last)
				}
				if len(seen[r]) == before {
					t.Errorf("the feed after %s was awaited and has no event", last)
					return
				}
			}
		})
	}

	// Writers look for what they have written.
	var mu sync.Mutex
	var written []j17.StreamID
	for w := range writers {
		wg.Go(func() {
			for i := range rounds {
				if i%10 == 0 {
					f.clock.Advance(1e6)
				}
				got, err := f.Append(t.Context(), tenant, []store.Append{
					{Events: events(order(fmt.Sprint(w, i%3)), `1`, `2`)},
				})
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				// What was acknowledged is in the feed.
				for _, id := range got[0].IDs {
					before := j17.StreamID{Ms: id.Ms, Seq: id.Seq - 1}
					if id.Seq == 0 {
						before = j17.StreamID{Ms: id.Ms - 1, Seq: ^uint32(0)}
					}
					for e, err := range f.ReadFeed(t.Context(), tenant, before, 1) {
						if err != nil || e.StreamID != id {
							t.Errorf("event %s is not in the feed: %v", id, err)
						}
					}
				}
				mu.Lock()
				written = append(written, got[0].IDs...)
				mu.Unlock()
			}
		})
	}
	wg.Wait()

	// In the end each reader has seen all, once.
	slices.SortFunc(written, j17.StreamID.Compare)
	for r := range readers {
		if !slices.Equal(seen[r], written) {
			t.Errorf("reader %d has seen %d events, and not those %d that were written", r, len(seen[r]), len(written))
		}
	}
}

func testAwaitFeed(s *suite) {
	t := s.t
	f := s.start(t)

	// Before the tenant holds anything.
	woken := make(chan error, 1)
	go func() { woken <- f.AwaitFeed(t.Context(), tenant, j17.StreamID{}) }()
	write(t, f, tenant, put("k", "v"))
	first := commit(t, f, tenant, store.Append{Events: events(order("a"), `1`)})
	if err := <-woken; err != nil {
		t.Fatal(err)
	}

	// If there is an event already, nobody waits.
	if err := f.AwaitFeed(t.Context(), tenant, j17.StreamID{}); err != nil {
		t.Fatal(err)
	}
	f.reopen(t, t)
	if err := f.AwaitFeed(t.Context(), tenant, j17.StreamID{}); err != nil {
		t.Fatal(err)
	}

	// Events of other tenants end no wait; its context and the end of the store do.
	ctx, cancel := context.WithCancel(t.Context())
	go func() { woken <- f.AwaitFeed(ctx, tenant, first.IDs[0]) }()
	commit(t, f, other, store.Append{Events: events(order("a"), `1`)})
	cancel()
	if err := <-woken; !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled wait ended with %v", err)
	}
	go func() { woken <- f.AwaitFeed(t.Context(), tenant, first.IDs[0]) }()
	f.stop(t)
	if err := <-woken; !errors.Is(err, store.ErrClosed) {
		t.Fatalf("a wait on a closed store ended with %v", err)
	}
}

func testClosed(s *suite) {
	t := s.t
	f := s.start(t)
	commit(t, f, tenant, store.Append{Events: events(order("a"), `1`)})
	if st := f.Status(); !st.Readable || !st.Writable || st.Reason != "" {
		t.Errorf("status %+v", st)
	}
	f.stop(t)
	f.stop(t)

	// Every call returns ErrClosed.
	ctx := t.Context()
	_, appendErr := f.Append(ctx, tenant, []store.Append{{Events: events(order("a"), `1`)}})
	_, commandErr := f.Command(ctx, tenant, store.CommandID{})
	_, headsErr := f.Heads(ctx, tenant, []j17.Key{order("a")})
	_, getErr := f.Get(ctx, tenant, space, "k")
	_, scanErr := f.Scan(ctx, tenant, space, store.Range{}, 1)
	_, countErr := f.Count(ctx, tenant, space, store.Range{}, 1)
	_, momentErr := f.Moment(ctx, tenant)
	_, togetherErr := f.ReadTogether(ctx, tenant, store.Wanted{})
	_, claimErr := f.ClaimDue(ctx, tenant, store.Claim{Space: space, Limit: 1, Lease: 1})
	_, tenantsErr := f.Tenants(ctx)
	_, afterErr := f.VersionAfter(ctx, tenant, order("a"), j17.StreamID{})
	_, streamsErr := f.Streams(ctx, tenant, "order", "", 1)
	_, extentErr := f.Extent(ctx, tenant)
	var streamErr, feedErr error
	for _, err := range f.ReadStream(ctx, tenant, order("a"), 1, 0) {
		streamErr = err
	}
	for _, err := range f.ReadFeed(ctx, tenant, j17.StreamID{}, 1) {
		feedErr = err
	}
	for name, err := range map[string]error{
		"Append": appendErr, "Command": commandErr, "Heads": headsErr, "Get": getErr, "Scan": scanErr,
		"ClaimDue": claimErr,
		"Tenants":  tenantsErr, "VersionAfter": afterErr, "Streams": streamsErr, "ReadStream": streamErr,
		"ReadFeed":   feedErr,
		"Write":      f.Write(ctx, tenant, []store.Side{put("k", "v")}),
		"AwaitFeed":  f.AwaitFeed(ctx, tenant, j17.StreamID{}),
		"DropTenant": f.DropTenant(ctx, tenant), "Extent": extentErr, "Count": countErr, "Moment": momentErr,
		"ReadTogether": togetherErr,
		"Barrier":      f.Barrier(ctx),
	} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s of a closed store: %v", name, err)
		}
	}
	if st := f.Status(); st.Readable || st.Writable || st.Reason == "" {
		t.Errorf("status of a closed store %+v", st)
	}
}

// testClosedUnderReaders closes a store under iterations: they end with ErrClosed at their next step.
func testClosedUnderReaders(s *suite) {
	t := s.t
	f := s.start(t)
	commit(t, f, tenant, store.Append{Events: events(order("a"), `1`, `2`, `3`)})
	reading, proceed := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 2)
	read := func(seq func(func(*j17.Event, error) bool)) {
		n := 0
		for _, err := range seq {
			if err != nil {
				ended <- err
				return
			}
			if n++; n == 1 {
				reading <- struct{}{}
				<-proceed
			}
		}
		ended <- fmt.Errorf("all %d events were read", n)
	}
	go read(f.ReadStream(t.Context(), tenant, order("a"), 1, 0))
	go read(f.ReadFeed(t.Context(), tenant, j17.StreamID{}, everything))
	<-reading
	<-reading
	closed := make(chan struct{})
	go func() {
		f.stop(worker{t})
		close(closed)
	}()
	// The store is closing as soon as it no longer takes calls.
	for f.Status().Readable {
		runtime.Gosched()
	}
	close(proceed)
	for range 2 {
		if err := <-ended; !errors.Is(err, store.ErrClosed) {
			t.Errorf("an iteration under which the store was closed: %v", err)
		}
	}
	<-closed
}

// testExtent compares the extent of a tenant with its feed, and distinguishes its lives.
func testExtent(s *suite) {
	t := s.t
	f := s.start(t)
	check := func(tn j17.Tenant) (life uint64) {
		t.Helper()
		var want store.Extent
		for _, r := range readFeed(t, f, tn, j17.StreamID{}, everything) {
			want.Events, want.Last = want.Events+1, r.ID
		}
		got, err := f.Extent(t.Context(), tn)
		if err != nil || got.Events != want.Events || got.Last != want.Last {
			t.Errorf("extent of %s: %+v, %v, want %+v", tn, got, err, want)
		}
		a, err := f.Archive(t.Context(), tn)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if a.Extent() != got {
			t.Errorf("extent of an archive of %s: %+v, want %+v", tn, a.Extent(), got)
		}
		return got.Life
	}

	// A life begins with the first write, and lasts over events and a restart.
	lives := []uint64{check(tenant)}
	write(t, f, tenant, put("k", "v"))
	first := check(tenant)
	commit(t, f, tenant, store.Append{Events: events(order("a"), `1`, `2`, `3`)})
	commit(t, f, other, store.Append{Events: events(order("a"), `1`)})
	lives = append(lives, check(tenant))
	f.reopen(t, t)
	if now := check(tenant); now != first || now != lives[1] {
		t.Errorf("it has had the lives %d and %v, and has %d", first, lives, now)
	}

	// It ends with the tenant; one that is created again has another life.
	if err := f.DropTenant(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	if now := check(tenant); now != 0 || lives[0] != 0 {
		t.Errorf("with nothing it has the lives %d and %d", lives[0], now)
	}
	check(other)
	write(t, f, tenant, put("k", "v"))
	if now := check(tenant); now == first || now == 0 {
		t.Errorf("made anew it has the life %d, and had %d", now, first)
	}
	if err := f.Barrier(t.Context()); err != nil {
		t.Errorf("barrier: %v", err)
	}
	f.stop(t)
}
