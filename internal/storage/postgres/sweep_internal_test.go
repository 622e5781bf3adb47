package postgres

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// sweptAtOnce is how many rows one statement deletes.
const sweptAtOnce = 5000

// rowsOf counts the rows of a table with the number of a tenant, which may have no name.
func rowsOf(t *testing.T, s *Store, table string, number int32) (n int) {
	t.Helper()
	err := s.pool.QueryRow(t.Context(), `SELECT count(*) FROM `+table+` WHERE t = $1`, number).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// numberOf returns the number of a tenant.
func numberOf(t *testing.T, s *Store, name j17.Tenant) int32 {
	t.Helper()
	extent, err := s.Extent(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return int32(extent.Life)
}

// manyRows gives a tenant n rows of each kind and three more items, by INSERTs of generated rows, and returns its
// number.
func manyRows(t *testing.T, s *Store, name j17.Tenant, n int) (number int32) {
	t.Helper()
	manyItems(t, s, name, n)
	r, err := s.Append(t.Context(), name, []store.Append{{
		Command: &store.Command{ID: store.CommandID{1}},
		Events: []store.NewEvent{{
			Key: j17.Key{Type: "order", ID: "a"}, Type: "was_made", Data: []byte(`1`), Metadata: []byte(`{}`),
			Tags: []string{"tag"},
		}},
		Side: []store.Side{
			{Op: store.Put, Space: "notes", Key: "a"}, {Op: store.Put, Space: "more", Key: "b"},
		},
	}})
	if err != nil || r[0].Outcome != store.Committed {
		t.Fatal(r, err)
	}
	number = numberOf(t, s, name)
	for _, sql := range []string{
		`INSERT INTO events (t, ms, n, kind, stream, version, type, raw)
		SELECT t, ms, g, 0, stream, g + 1, type, raw FROM events, generate_series(1, $2) g WHERE t = $1`,
		`INSERT INTO tags (t, tag, ms, n) SELECT t, tag, ms, g FROM tags, generate_series(1, $2) g WHERE t = $1`,
		`INSERT INTO commands (t, id, result) SELECT t, int4send(g::int), result FROM commands, generate_series(1, $2) g
		WHERE t = $1`,
	} {
		if _, err := s.pool.Exec(t.Context(), sql, number, n); err != nil {
			t.Fatal(err)
		}
	}
	return number
}

// wantRows reports an error unless a tenant has the wanted counts of rows in tables.
func wantRows(t *testing.T, s *Store, what string, number int32, want map[string]int) {
	t.Helper()
	for table, n := range want {
		if got := rowsOf(t, s, table, number); got != n {
			t.Errorf("%s: %s has %d rows, want %d", what, table, got, n)
		}
	}
}

// TestSweepTenant removes a tenant with many rows: the call touches none of them, and they are deleted later, but none
// of other tenants. A moment from before still shows them.
func TestSweepTenant(t *testing.T) {
	t.Parallel()
	s := openOnServer(t)
	const n = 2*sweptAtOnce + 10
	gone, kept := manyRows(t, s, "a/prod", n), manyRows(t, s, "b/prod", 3)
	if err := s.Clear(t.Context(), "a/prod", "more", store.Range{}); err != nil {
		t.Fatal(err)
	}
	m, err := s.Moment(t.Context(), "a/prod")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s.sweeper.turn.Lock()
	if err := s.DropTenant(t.Context(), "a/prod"); err != nil {
		t.Fatal(err)
	}
	wantRows(t, s, "before they are deleted", gone, map[string]int{
		"events": n + 1, "tags": n + 1, "items": n + 2, "commands": n + 1, "tenants": 1, "unnamed": 1,
	})
	s.sweeper.turn.Unlock()
	if err := s.sweeper.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRows(t, s, "after that", gone, map[string]int{
		"events": 0, "tags": 0, "items": 0, "commands": 0, "tenants": 0, "unnamed": 0, "cleared": 0,
	})
	wantRows(t, s, "of another tenant", kept, map[string]int{
		"events": 4, "tags": 4, "items": 6, "commands": 4, "tenants": 1,
	})
	if got, err := m.Count("notes", store.Range{}, 2*n); err != nil || got != n+2 {
		t.Errorf("a moment from before has %d items, %v", got, err)
	}

	// The sweeper deletes rows by itself.
	if err := s.DropTenant(t.Context(), "b/prod"); err != nil {
		t.Fatal(err)
	}
	for rowsOf(t, s, "unnamed", kept) > 0 && t.Context().Err() == nil {
	}
	wantRows(t, s, "after some time", kept, map[string]int{
		"events": 0, "tags": 0, "items": 0, "commands": 0, "tenants": 0,
	})
}

// TestSweepCleared clears ranges: the call touches no item, and they are deleted later, except those written since.
func TestSweepCleared(t *testing.T) {
	t.Parallel()
	s := openOnServer(t)
	const n = sweptAtOnce + 10
	number := manyRows(t, s, "a/prod", n)
	s.sweeper.turn.Lock()
	if err := errors.Join(
		s.Clear(t.Context(), "a/prod", "notes", store.Range{From: "k", To: "k000000500"}),
		s.Clear(t.Context(), "a/prod", "notes", store.Range{From: "k000001000"}),
		s.Empty(t.Context(), "a/prod", []store.Space{"more"}, nil),
	); err != nil {
		t.Fatal(err)
	}
	var again []store.Side
	for _, key := range []string{"k000000001", "k000002000", "k999"} {
		again = append(again, store.Side{Op: store.Put, Space: "notes", Key: key})
	}
	if err := s.Write(t.Context(), "a/prod", again); err != nil {
		t.Fatal(err)
	}
	const left = 2 + 501 + 3 // "0" and "a", 500 to 1000 without the last, and those written again
	wantRows(t, s, "before they are deleted", number, map[string]int{"items": n + 4, "cleared": 3})
	s.sweeper.turn.Unlock()
	for range 2 {
		if err := s.sweeper.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wantRows(t, s, "after that", number, map[string]int{"items": left - 1, "cleared": 0})
	if got, err := s.Count(t.Context(), "a/prod", "notes", store.Range{}, 2*n); err != nil || got != left-1 {
		t.Errorf("there are %d items, %v", got, err)
	}
}

// TestSweepExpired deletes items and commands that have expired, and no others.
func TestSweepExpired(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := clock.NewManual(now)
	s := openOnServer(t, func(o *Options) { o.Clock = c })
	number := manyRows(t, s, "a/prod", 3)
	unit := store.Append{Command: &store.Command{ID: store.CommandID{2}, Expires: now.Add(time.Minute)}}
	const n = 2*sweptAtOnce + 10
	var units []store.Append
	for i := range n {
		side := store.Side{
			Op: store.Put, Space: "soon", Key: fmt.Sprintf("%06d", i), Expires: now.Add(time.Minute),
		}
		if i%sweptAtOnce == 0 {
			side.Expires = now.Add(time.Minute + 1)
		}
		unit.Side = append(unit.Side, side)
	}
	units = append(units, unit)
	if _, err := s.Append(t.Context(), "a/prod", units); err != nil {
		t.Fatal(err)
	}
	c.Advance(time.Minute)
	if err := s.sweeper.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRows(t, s, "after that", number, map[string]int{"items": 6 + 3, "commands": 4})
}

// TestSweepPlans checks the plans by which rows to delete are found.
func TestSweepPlans(t *testing.T) {
	t.Parallel()
	s := openOnServer(t)
	number := manyRows(t, s, "a/prod", 3*sweptAtOnce)
	if _, err := s.pool.Exec(t.Context(), `UPDATE items SET expires = 5 WHERE t = $1 AND key > 'k000010000'`, number); err != nil {
		t.Fatal(err)
	}
	if _, err := s.pool.Exec(t.Context(), `UPDATE commands SET expires = 5`); err != nil {
		t.Fatal(err)
	}
	var space int16 = 1
	for sql, args := range map[string][]any{
		deleteCovered:         {number, space, []byte("k"), []byte("k1"), int64(9), []byte("k000005000")},
		deleteExpiredItems:    {int64(9), int64(0)},
		deleteExpiredCommands: {int64(9), int64(0)},
	} {
		indexed(t, plan(t, s, sql, args...), sweptAtOnce)
	}
	for _, order := range keyOrders() {
		indexed(t, plan(t, s, order.deletePage(), append([]any{number}, order.before...)...), sweptAtOnce)
	}
}
