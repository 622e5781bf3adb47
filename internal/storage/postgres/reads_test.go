package postgres_test

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/storage/postgres"
	"j17/internal/storage/postgres/pgtest"
	"j17/internal/storage/store"
)

// look is a way to read, which reports whether it shows what shownUnit has written.
type look struct {
	name  string
	shows func(ctx context.Context, s *postgres.Store) (bool, error)
}

const shownTenant j17.Tenant = "a/prod"

// shownKey is the stream of the events, shownItem the key of the item that shownUnit writes.
var shownKey = j17.Key{Type: "order", ID: "a"}

const (
	shownSpace = store.Space("notes")
	shownItem  = "a"
)

func shownUnit() []store.Append {
	return []store.Append{{
		Events: []store.NewEvent{{
			Key: shownKey, Type: "was_changed", Data: []byte(`{}`), Metadata: []byte(`{}`), Tags: []string{"color:red"},
		}},
		Side: []store.Side{{Op: store.Put, Space: shownSpace, Key: shownItem}},
	}}
}

// anyOf reports whether a sequence has an element.
func anyOf[T any](seq iter.Seq2[T, error]) (bool, error) {
	for _, err := range seq {
		return err == nil, err
	}
	return false, nil
}

// looks are ways to read, one for each part of the store.
func looks() []look {
	keys := []j17.Key{shownKey}
	inMoment := func(do func(m store.Moment) (bool, error)) func(context.Context, *postgres.Store) (bool, error) {
		return func(ctx context.Context, s *postgres.Store) (bool, error) {
			m, err := s.Moment(ctx, shownTenant)
			if err != nil {
				return false, err
			}
			defer m.Close()
			return do(m)
		}
	}
	found := func(_ store.Item, err error) (bool, error) {
		if errors.Is(err, store.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	return []look{
		{"Heads", func(ctx context.Context, s *postgres.Store) (bool, error) {
			heads, err := s.Heads(ctx, shownTenant, keys)
			return err == nil && heads[0].Length > 0, err
		}},
		{"Extent", func(ctx context.Context, s *postgres.Store) (bool, error) {
			extent, err := s.Extent(ctx, shownTenant)
			return extent.Events > 0, err
		}},
		{"Get", func(ctx context.Context, s *postgres.Store) (bool, error) {
			return found(s.Get(ctx, shownTenant, shownSpace, shownItem))
		}},
		{"Scan", func(ctx context.Context, s *postgres.Store) (bool, error) {
			items, err := s.Scan(ctx, shownTenant, shownSpace, store.Range{}, 2)
			return len(items) > 1, err
		}},
		{"ReadStream", func(ctx context.Context, s *postgres.Store) (bool, error) {
			return anyOf(s.ReadStream(ctx, shownTenant, shownKey, 1, 0))
		}},
		{"ReadStreams", func(ctx context.Context, s *postgres.Store) (bool, error) {
			return anyOf(s.ReadStreams(ctx, shownTenant, keys, 1))
		}},
		{"Streams", func(ctx context.Context, s *postgres.Store) (bool, error) {
			ids, err := s.Streams(ctx, shownTenant, shownKey.Type, "", 1)
			return len(ids) > 0, err
		}},
		{"ReadFeed", func(ctx context.Context, s *postgres.Store) (bool, error) {
			return anyOf(s.ReadFeed(ctx, shownTenant, j17.StreamID{}, 1))
		}},
		{"ReadTagged", func(ctx context.Context, s *postgres.Store) (bool, error) {
			return anyOf(s.ReadTagged(
				ctx, shownTenant, store.Tagged{Tags: []string{"color:red"}}, j17.StreamID{}, 1, nil,
			))
		}},
		{"Moment.Position", inMoment(func(m store.Moment) (bool, error) { return !m.Position().IsZero(), nil })},
		{"Moment.Heads", inMoment(func(m store.Moment) (bool, error) {
			heads, err := m.Heads(keys)
			return err == nil && heads[0].Length > 0, err
		})},
		{"Moment.Get", inMoment(func(m store.Moment) (bool, error) { return found(m.Get(shownSpace, shownItem)) })},
		{"Archive", func(ctx context.Context, s *postgres.Store) (bool, error) {
			a, err := s.Archive(ctx, shownTenant)
			if err != nil {
				return false, err
			}
			defer a.Close()
			return a.Extent().Events > 0, nil
		}},
		{"Append", func(ctx context.Context, s *postgres.Store) (bool, error) {
			// A refusal tells what there is.
			unit := shownUnit()
			unit[0].Pre = []store.Pre{{Key: shownKey}}
			results, err := s.Append(ctx, shownTenant, unit)
			return err == nil && results[0].Outcome != store.Committed, err
		}},
	}
}

// seen calls all looks that a store answers, and reports which of them show the unit.
func seen(t *testing.T, s *postgres.Store, of []look) {
	t.Helper()
	for _, l := range of {
		if shows, err := l.shows(t.Context(), s); err != nil || !shows {
			t.Errorf("%s shows the unit: %v, %v", l.name, shows, err)
		}
	}
}

// asking calls looks, each in a goroutine of its own. answered counts those that have shown the unit, and await waits
// for all of them, which must show it then.
func asking(t *testing.T, s *postgres.Store, of []look) (answered *atomic.Int64, await func()) {
	t.Helper()
	var running sync.WaitGroup
	answered = &atomic.Int64{}
	for _, l := range of {
		running.Go(func() {
			shows, err := l.shows(t.Context(), s)
			for errors.Is(err, store.ErrBusy) { // it has waited for as long as callers do
				shows, err = l.shows(t.Context(), s)
			}
			if shows {
				answered.Add(1)
			}
			if err != nil || !shows {
				t.Errorf("%s shows the unit: %v, %v", l.name, shows, err)
			}
		})
	}
	return answered, running.Wait
}

// TestReads lets an operator cancel a commit that waits for a standby, and then restarts the primary, while both
// standbys are away: what it shows is on no standby. With ReadQuorum no way to read shows it before a standby is back,
// after the restart nor with ReadLease. With ReadPrimary all do.
func TestReads(t *testing.T) {
	t.Parallel()
	all := looks()
	reading := all[:len(all)-1] // without the write
	c := pgtest.StartCluster(t, 3)
	writer := onCluster(t, c)
	defer closeStore(t, writer)
	other := []store.Side{{Op: store.Put, Space: shownSpace, Key: "b"}} // so that the space has a number
	if err := writer.Write(t.Context(), shownTenant, other); err != nil {
		t.Fatal(err)
	}
	stores := map[postgres.Reads]*postgres.Store{}
	for _, reads := range postgres.ReadModes() {
		s := open(t, postgres.Options{Address: c.Address(), Connections: postgres.LeastConnections, Reads: reads})
		defer closeStore(t, s)
		stores[reads] = s

		// It has connections already.
		if err := s.Write(t.Context(), shownTenant, other); err != nil {
			t.Fatal(err)
		}
		var warming sync.WaitGroup
		for _, l := range reading {
			warming.Go(func() {
				if shows, err := l.shows(t.Context(), s); err != nil || shows {
					t.Errorf("%s shows the unit before it is written: %v, %v", l.name, shows, err)
				}
			})
		}
		warming.Wait()
	}

	// What is on no standby is visible.
	c.Servers[1].Kill9(t)
	c.Servers[2].Kill9(t)
	written := make(chan error, 1)
	go func() {
		_, err := writer.Append(t.Context(), shownTenant, shownUnit())
		written <- err
	}()
	for c.Primary().Cancel(t, "wait_event='SyncRep' AND query LIKE '%UPDATE tenants x%'") == 0 {
		pause(t.Context(), 10*time.Millisecond)
	}
	for pgtest.Ask[int](t, c.Primary(), "SELECT count(*)::int FROM j17.events") == 0 {
		pause(t.Context(), 10*time.Millisecond)
	}
	answered, shown := asking(t, stores[postgres.ReadQuorum], all)
	seen(t, stores[postgres.ReadPrimary], reading)
	seen(t, stores[postgres.ReadLease], all) // nobody has warned it
	if n := answered.Load(); n > 0 {
		t.Errorf("with ReadQuorum %d reads show what no standby has", n)
	}

	// The server starts again: with ReadLease nobody reads it either.
	c.Primary().Restart(t)
	leased, shownAgain := asking(t, stores[postgres.ReadLease], all)
	seen(t, stores[postgres.ReadPrimary], reading)
	if n := answered.Load() + leased.Load(); n > 0 {
		t.Errorf("after a restart %d reads show what no standby has", n)
	}
	c.Servers[1].Restart(t)
	shown()
	shownAgain()
	if err := <-written; err != nil && !errors.Is(err, store.ErrUnknown) {
		t.Error(err)
	}
}

// TestStaleReads pauses the primary, promotes a standby that the stores do not reach, and lets the old primary go on.
// With ReadLease a node reads there until its lease is over, with ReadQuorum nobody does. When they reach the new
// primary, all of them read there.
func TestStaleReads(t *testing.T) {
	t.Parallel()
	c := pgtest.StartCluster(t, 3)
	old := c.Primary()
	hosts := []string{old.Host()}
	var hidden []*pgtest.Proxy
	for _, server := range c.Servers[1:] {
		p := pgtest.NewProxy(t, server)
		p.Pause()
		hidden, hosts = append(hidden, p), append(hosts, p.Host())
	}
	o := postgres.Options{Address: old.Address(hosts...), Connections: postgres.LeastConnections}
	node := join(t, o, "node")
	node.await(t)
	leased := node.store(t)
	o.Reads = postgres.ReadQuorum
	safe := open(t, o)
	defer closeStore(t, safe)
	if _, err := leased.Append(t.Context(), shownTenant, shownUnit()); err != nil {
		t.Fatal(err)
	}
	extent := func(s store.Feed) (uint64, error) {
		is, err := s.Extent(t.Context(), shownTenant)
		return is.Events, err
	}
	for _, s := range []store.Feed{leased, safe} {
		if n, err := extent(s); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}

	// The new primary has more.
	old.Stop(t)
	c.Failover(t)
	c.Primary().Exec(t, "UPDATE j17.tenants SET events = events + 1")
	old.Continue(t)
	if n, err := extent(leased); n != 1 || err != nil {
		t.Errorf("the old primary shows %d events, %v: the test shows nothing", n, err)
	}
	node.clock.Advance(3 * time.Second)
	if n, err := extent(leased); !errors.Is(err, store.ErrBusy) {
		t.Errorf("after the lease a read shows %d events, %v", n, err)
	}
	answer := make(chan uint64, 1)
	go func() {
		n, err := extent(safe)
		for errors.Is(err, store.ErrBusy) {
			n, err = extent(safe)
		}
		if err != nil {
			t.Error(err)
		}
		answer <- n
	}()
	waiting := "SELECT count(*)::int FROM pg_stat_activity WHERE wait_event='SyncRep' AND query LIKE '%INTO meta%'"
	for pgtest.Ask[int](t, old, waiting) == 0 && len(answer) == 0 {
		pause(t.Context(), 10*time.Millisecond)
	}

	// The stores reach it.
	for _, p := range hidden {
		p.Resume()
	}
	if n := <-answer; n != 2 {
		t.Errorf("with ReadQuorum a read shows %d events", n)
	}
	node.clock.ready()
	n, err := extent(leased)
	for errors.Is(err, store.ErrBusy) {
		node.clock.pass()
		node.clock.ready()
		n, err = extent(leased)
	}
	if n != 2 || err != nil {
		t.Errorf("with a new lease a read shows %d events, %v", n, err)
	}
}
