package pebble

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

const worked store.Space = "work"

// opened returns a store in memory and what it logs.
func opened(t *testing.T, c clock.Clock) (*Store, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	s, err := Open(Options{
		Dir: "data", FS: vfs.NewMem(), Clock: c,
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, &log
}

// harm changes what is stored behind the back of the store.
func harm(t *testing.T, s *Store, do func(b *pebble.Batch) error) {
	t.Helper()
	b := s.db.NewBatch()
	if err := do(b); err != nil {
		t.Fatal(err)
	}
	if err := s.db.Apply(b, pebble.Sync); err != nil {
		t.Fatal(err)
	}
}

// TestADamagedDueItemHoldsUpNobody damages the first item that is due and the only one of a tenant, and has the others
// claimed.
func TestADamagedDueItemHoldsUpNobody(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	first := now.Add(time.Second)
	for name, damage := range map[string]func(b *pebble.Batch, number uint32) error{
		"no item": func(b *pebble.Batch, n uint32) error { return b.Delete(appendItemKey(nil, n, worked, "bad"), nil) },
		"no format": func(b *pebble.Batch, n uint32) error {
			return b.Set(appendItemKey(nil, n, worked, "bad"), []byte("x"), nil)
		},
		"no entry of it": func(b *pebble.Batch, n uint32) error {
			return b.Set(appendDueTime(nil, n, worked, first.UnixNano()), nil, nil)
		},
		"another time": func(b *pebble.Batch, n uint32) error {
			return b.Set(appendDueKey(nil, n, worked, first.Add(-1).UnixNano(), "bad"), nil, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := clock.NewManual(now)
			s, log := opened(t, c)
			write := func(tenant j17.Tenant, key string, due time.Time) {
				t.Helper()
				if err := s.Write(t.Context(), tenant, []store.Side{
					{Op: store.Put, Space: worked, Key: key, Value: []byte("v"), Due: due},
				}); err != nil {
					t.Fatal(err)
				}
			}
			write("a/prod", "bad", first)
			write("a/prod", "good", first.Add(time.Second))
			write("c/prod", "lost", first)
			harm(t, s, func(b *pebble.Batch) error {
				return b.Delete(appendItemKey(nil, s.tenants["c/prod"].number, worked, "lost"), nil)
			})
			harm(t, s, func(b *pebble.Batch) error { return damage(b, s.tenants["a/prod"].number) })
			write("b/prod", "other", first.Add(2*time.Second)) // readers see what was committed

			next, err := s.NextDue(t.Context(), worked)
			whole := name == "no entry of it" || name == "another time" // the item itself is
			if want := first.Add(time.Second); err != nil || !whole && !next.Equal(want) {
				t.Errorf("the next item is due at %s, %v; want %s", next, err, want)
			}
			c.Advance(time.Minute)
			if names, err := s.DueTenants(t.Context(), worked, 9); err != nil || len(names) != 2 {
				t.Errorf("due are %v, %v", names, err)
			}
			claimed := map[string]bool{}
			for _, tenant := range []j17.Tenant{"a/prod", "b/prod"} {
				items, err := s.ClaimDue(t.Context(), tenant, store.Claim{Space: worked, Limit: 9, Lease: time.Hour})
				if err != nil {
					t.Error(err)
				}
				for _, item := range items {
					claimed[item.Key] = true
				}
			}
			if claimed["bad"] != whole || !claimed["good"] || !claimed["other"] {
				t.Errorf("claimed were %v", claimed)
			}
			if items, err := s.ClaimDue(t.Context(), "c/prod", store.Claim{Space: worked, Limit: 9}); !isDamage(err) {
				t.Errorf("of a tenant that has nothing else: %v, %v", items, err)
			}
			// Nobody looks again and again.
			if next, err := s.NextDue(t.Context(), worked); err != nil || !next.After(c.Now()) {
				t.Errorf("afterwards the next item is due at %s, %v", next, err)
			}
			// It is said once of each.
			for range 5 {
				if _, err := s.NextDue(t.Context(), worked); err != nil {
					t.Error(err)
				}
			}
			if n := strings.Count(log.String(), "a due item is damaged"); n > 1 || n < 1 && name != "another time" {
				t.Errorf("it is said %d times: %s", n, log)
			}
		})
	}
}

// TestDamageThatWasToldIsBounded tells of more damage than is remembered.
func TestDamageThatWasToldIsBounded(t *testing.T) {
	t.Parallel()
	var d damages
	for n := range 3 * maxTold {
		err := fmt.Errorf("item %d", n)
		if first, again := d.tell(err), d.tell(err); !first || again || len(d.told) > maxTold {
			t.Fatalf("item %d: %v, %v, and %d are remembered", n, first, again, len(d.told))
		}
	}
}

// TestADamagedTenantIsIndexedLast damages the first of two tenants whose older events are to be indexed by their tags.
func TestADamagedTenantIsIndexedLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, log := opened(t, clock.System{})
		event := store.NewEvent{
			Key: j17.Key{Type: "order", ID: "1"}, Type: "was_made", Data: []byte(`1`), Metadata: []byte(`{}`),
		}
		for _, name := range []j17.Tenant{"a/prod", "b/prod"} {
			if _, err := s.Append(t.Context(), name, []store.Append{{Events: []store.NewEvent{event}}}); err != nil {
				t.Fatal(err)
			}
		}
		record := func(name j17.Tenant) []byte { return appendPrefix(nil, s.tenants[name].number, kindBuild) }
		whole := func(name j17.Tenant) []byte {
			return appendBuildRecord(nil, &build{end: s.tenants[name].last, total: 1})
		}
		harm(t, s, func(b *pebble.Batch) error { return b.Set(record("a/prod"), []byte("no record"), nil) })
		harm(t, s, func(b *pebble.Batch) error { return b.Set(record("b/prod"), whole("b/prod"), nil) })
		names, err := s.findBuilds()
		if err != nil || len(names) != 2 {
			t.Fatalf("to be built are %v, %v", names, err)
		}

		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.buildLoop(names)
		}()
		synctest.Wait()
		if state, err := getBuild(s.db, s.tenants["b/prod"].number); state != nil || err != nil {
			t.Errorf("the tenant behind the damaged one is at %+v, %v", state, err)
		}
		if !strings.Contains(log.String(), "older events could not be indexed") {
			t.Errorf("nothing is said of it: %s", log)
		}
		harm(t, s, func(b *pebble.Batch) error { return b.Set(record("a/prod"), whole("a/prod"), nil) })
		<-ended
		if state, err := getBuild(s.db, s.tenants["a/prod"].number); state != nil || err != nil {
			t.Errorf("the tenant that was damaged is at %+v, %v", state, err)
		}
	})
}
