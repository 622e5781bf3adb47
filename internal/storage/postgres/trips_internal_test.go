package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"

	"j17"
	"j17/internal/storage/postgres/pgtest"
	"j17/internal/storage/store"
)

// tripsTries is how often a call is made to find out how many round trips it takes: the first ones also make
// connections and prepare statements, and the store does something by itself now and then.
const tripsTries = 6

// trips returns how many round trips a call takes at the least, and how many of each kind the store has counted.
func trips(t *testing.T, s *Store, p *pgtest.Proxy, call func(try int) error) (least int, counted store.Trips) {
	t.Helper()
	for try := range tripsTries {
		before, was := p.Count().Trips, s.Figures().Trips
		if err := call(try); err != nil {
			t.Fatal(err)
		}
		n, is := p.Count().Trips-before, s.Figures().Trips
		is.Write, is.Lookup, is.Read = is.Write-was.Write, is.Lookup-was.Lookup, is.Read-was.Read
		if try == 0 {
			least, counted = n, is
		}
		least = min(least, n)
		counted.Write, counted.Lookup = min(counted.Write, is.Write), min(counted.Lookup, is.Lookup)
		counted.Read = min(counted.Read, is.Read)
	}
	counted.Other = 0 // what the store does by itself
	return least, counted
}

func drained[T any](seq iter.Seq2[T, error]) error {
	for _, err := range seq {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestTrips counts the round trips of calls of a store.
func TestTrips(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	for _, reads := range ReadModes() {
		t.Run(string(reads), func(t *testing.T) {
			t.Parallel()
			p := pgtest.NewProxy(t, server)
			s, err := Open(t.Context(), Options{
				Address: server.Address(p.Host()), Schema: server.Schema(t), Connections: LeastConnections,
				AllowSingle: true, Reads: reads,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			countTrips(t, s, p)
		})
	}
}

func countTrips(t *testing.T, s *Store, p *pgtest.Proxy) {
	t.Helper()
	ctx := t.Context()
	const tenant j17.Tenant = "a/prod"
	order := j17.Key{Type: "order", ID: "a"}
	write := func(key j17.Key, length uint64) error {
		results, err := s.Append(ctx, tenant, []store.Append{{
			Pre:    []store.Pre{{Key: key, Length: length}},
			Events: []store.NewEvent{{Key: key, Type: "was_changed", Data: []byte(`{}`), Metadata: []byte(`{}`)}},
			Side:   []store.Side{{Op: store.Put, Space: "notes", Key: key.ID}},
		}})
		if err == nil && results[0].Outcome != store.Committed {
			err = fmt.Errorf("it is not committed: %+v", results[0])
		}
		return err
	}
	confirmed := 0 // further trips of reads that are not look-ups
	if s.o.Reads == ReadQuorum {
		confirmed = 1
	}
	writes := func(n int) store.Trips { return store.Trips{Write: uint64(n)} }
	both := func(n int) store.Trips { return store.Trips{Write: uint64(n - 1), Lookup: 1} }
	lookups := func(n int) store.Trips { return store.Trips{Lookup: uint64(n)} }
	reads := func(n int) store.Trips { return store.Trips{Read: uint64(n - confirmed), Lookup: uint64(confirmed)} }
	for _, c := range []struct {
		what string
		most int
		// kinds returns how the store counts a number of round trips.
		kinds func(n int) store.Trips
		call  func(try int) error
	}{
		{"a write to a stream whose head is known", 1, writes, func(try int) error { return write(order, uint64(try)) }},
		{"a write to another stream", 2, writes, func(try int) error {
			return write(j17.Key{Type: "order", ID: fmt.Sprint(try)}, 0)
		}},
		{"the head of a stream", 1, lookups, func(int) error {
			_, err := s.Heads(ctx, tenant, []j17.Key{order})
			return err
		}},
		{"a write to a stream, and its head", 2, both, func(try int) error {
			err := write(order, uint64(tripsTries+try))
			if err == nil {
				_, err = s.Heads(ctx, tenant, []j17.Key{order})
			}
			return err
		}},
		{"an item", 1, lookups, func(int) error {
			_, err := s.Get(ctx, tenant, "notes", "a")
			return err
		}},
		{"the extent of a tenant", 1, lookups, func(int) error {
			_, err := s.Extent(ctx, tenant)
			return err
		}},
		{"a stream", 1 + confirmed, reads, func(int) error {
			return drained(s.ReadStream(ctx, tenant, order, 1, 0))
		}},
		{"a page of a feed", 1 + confirmed, reads, func(int) error {
			return drained(s.ReadFeed(ctx, tenant, j17.StreamID{}, 5))
		}},
		{"a page of items", 1 + confirmed, reads, func(int) error {
			_, err := s.Scan(ctx, tenant, "notes", store.Range{}, 5)
			return err
		}},
		{"items and heads together", 1, lookups, func(int) error {
			_, err := s.ReadTogether(ctx, tenant, store.Wanted{
				Items: []store.ItemName{{Space: "notes", Key: "a"}, {Space: "notes", Key: "b"}},
				Heads: []j17.Key{order},
			})
			return err
		}},
		{"items and pages together", 1 + confirmed, reads, func(int) error {
			page := store.Page{Space: "notes", Limit: 5}
			_, err := s.ReadTogether(ctx, tenant, store.Wanted{
				Items: []store.ItemName{{Space: "notes", Key: "a"}}, Pages: []store.Page{page, page},
			})
			return err
		}},
		{"a page of items in a moment", 3 + confirmed, reads, func(int) error {
			m, err := s.Moment(ctx, tenant)
			if err != nil {
				return err
			}
			_, err = m.Scan("notes", store.Range{}, 5)
			m.Close()
			for range cap(s.open) { // it has ended
				s.open <- struct{}{}
			}
			for range cap(s.open) {
				<-s.open
			}
			return err
		}},
	} {
		n, counted := trips(t, s, p, c.call)
		if n > c.most {
			t.Errorf("%s takes %d round trips, %d at most", c.what, n, c.most)
		}
		if want := c.kinds(n); counted != want {
			t.Errorf("%s: the round trips are counted as %+v, want %+v", c.what, counted, want)
		}
	}
	if n, _ := trips(t, s, p, func(int) error { return together(ctx, s, p, tenant, order) }); n > lookupCount+1 {
		t.Errorf("look-ups that wait together take %d round trips, %d at most", n, lookupCount+1)
	}
}

// together makes look-ups, all of which but the first ones wait for the same round trip.
func together(ctx context.Context, s *Store, p *pgtest.Proxy, tenant j17.Tenant, key j17.Key) error {
	const most = 20
	l := s.lookups
	p.Pause()
	var asking sync.WaitGroup
	errs := make([]error, most)
	for i := range most {
		asking.Go(func() {
			switch i % 3 {
			case 0:
				_, errs[i] = s.Heads(ctx, tenant, []j17.Key{key})
			case 1:
				_, errs[i] = s.Get(ctx, tenant, "notes", key.ID)
			case 2:
				_, errs[i] = s.ReadTogether(ctx, tenant, store.Wanted{Heads: []j17.Key{key}})
			}
		})

		// The first ones are under way, each in a round trip of its own.
		running, waiting := min(i+1, lookupCount), max(0, i+1-lookupCount)
		for is := -1; is != waiting; {
			_ = wait(ctx, retryAfter/50)
			l.mu.Lock()
			if g := l.waiting; l.running == running && g == nil {
				is = 0
			} else if l.running == running {
				is = g.callers
			}
			l.mu.Unlock()
		}
	}
	p.Resume()
	asking.Wait()
	return errors.Join(errs...)
}
