package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/storage/postgres/pgtest"
	"j17/internal/storage/store"
)

// openOnServer opens a store with its own schema. It is closed at the end of the test.
func openOnServer(t *testing.T, with ...func(o *Options)) *Store {
	t.Helper()
	server := pgtest.Shared(t)
	o := Options{
		Address: server.Address(), Schema: server.Schema(t), Connections: LeastConnections, AllowSingle: true,
	}
	for _, change := range with {
		change(&o)
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestMomentsBounded opens more moments than allowed, and one that is open for too long.
func TestMomentsBounded(t *testing.T) {
	t.Parallel()
	s := openOnServer(t)
	s.patience = 0
	var all []store.Moment
	for range cap(s.open) {
		m, err := s.Moment(t.Context(), "a/prod")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	if _, err := s.Moment(t.Context(), "a/prod"); !errors.Is(err, store.ErrBusy) {
		t.Errorf("one more: %v, want ErrBusy", err)
	}

	if f := s.Figures(); f.Moments != cap(s.open) || f.MomentsRefused != 1 {
		t.Errorf("%d moments are counted, and %d that were refused, want %d and 1", f.Moments, f.MomentsRefused, cap(s.open))
	}

	// After one is closed, another one can be opened.
	s.patience, s.longest = patience, 0
	all[0].Close()
	late, err := s.Moment(t.Context(), "a/prod")
	if err != nil {
		t.Fatal(err)
	}
	<-late.(moment).lasting.Done() //nolint:errcheck,forcetypeassert // it is one
	if _, err := late.Count("notes", store.Range{}, 1); !errors.Is(err, store.ErrEnded) {
		t.Errorf("a moment that was open too long: %v, want ErrEnded", err)
	}

	// The end of the store ends the others.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := all[1].Count("notes", store.Range{}, 1); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a moment of a closed store: %v, want ErrClosed", err)
	}
}

// TestMomentEach iterates over more items than a page has, small and large ones, forward and backward.
func TestMomentEach(t *testing.T) {
	t.Parallel()
	s := openOnServer(t)
	var side []store.Side
	for i := range 3000 {
		value := strings.Repeat("x", i%7)
		if i%500 < 3 {
			value = strings.Repeat("x", 200<<10)
		}
		side = append(side, store.Side{
			Op: store.Put, Space: "notes", Key: fmt.Sprintf("%04d", i), Value: []byte(value),
		})
	}
	if err := s.Write(t.Context(), "a/prod", side); err != nil {
		t.Fatal(err)
	}
	m, err := s.Moment(t.Context(), "a/prod")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, backward := range []bool{false, true} {
		n := 0
		err := m.Each("notes", store.Range{Backward: backward}, func(key, value []byte) bool {
			want := side[n]
			if backward {
				want = side[len(side)-1-n]
			}
			if string(key) != want.Key || string(value) != string(want.Value) {
				t.Fatalf("item %d is %s", n, key)
			}
			n++
			return true
		})
		if err != nil || n != len(side) {
			t.Errorf("%d items, %v", n, err)
		}
	}
}

// plan returns the generic plan by which a connection executes a statement, with the rows that each step has returned.
func plan(t *testing.T, s *Store, sql string, args ...any) string {
	t.Helper()
	conn, err := s.dial(t.Context(), &s.counts.other)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if _, err := conn.Exec(t.Context(), `PREPARE statement AS `+sql); err != nil {
		t.Fatal(err)
	}
	var places []string
	for i := range args {
		places = append(places, fmt.Sprintf("$%d", i+1))
	}
	rows, err := conn.Query(
		t.Context(), `EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE statement(`+
			strings.Join(places, ", ")+`)`, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...,
	)
	if err != nil {
		t.Fatal(err)
	}
	text, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(text, "\n")
}

// indexed reports an error if a plan sorts rows, scans a whole table, or reads more than most rows.
func indexed(t *testing.T, plan string, most int) {
	t.Helper()
	bad := strings.Contains(plan, "Sort (") || strings.Contains(plan, "Seq Scan")
	for _, found := range regexp.MustCompile(`actual rows=(\d+)`).FindAllStringSubmatch(plan, -1) {
		n, err := strconv.Atoi(found[1])
		bad = bad || err != nil || n > most
	}
	if bad {
		t.Errorf("the plan is\n%s", plan)
	}
}

// manyItems gives a tenant n items, by one INSERT of generated rows.
func manyItems(t *testing.T, s *Store, name j17.Tenant, n int) {
	t.Helper()
	side := store.Side{Op: store.Put, Space: "notes", Key: "0", Value: []byte("v")}
	if err := s.Write(t.Context(), name, []store.Side{side}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.pool.Exec(t.Context(), `INSERT INTO items (t, space, key, rev, sealed, sum, value)
		SELECT i.t, i.space, convert_to('k' || to_char(g, 'FM000000000'), 'UTF8'), i.rev, i.sealed, i.sum, i.value
		FROM items i, generate_series(1, $2) g WHERE i.t = (SELECT t FROM names WHERE name = $1)`,
		[]byte(name), n,
	); err != nil {
		t.Fatal(err)
	}
}

// TestItemPlans checks the plans by which pages of many items are read.
func TestItemPlans(t *testing.T) {
	t.Parallel()
	s := openOnServer(t)
	manyItems(t, s, "a/prod", 20_000)
	for _, keys := range []store.Range{{}, {From: "k0000100", To: "k00005"}, {From: "k0000100", Backward: true}} {
		q, ok, err := s.itemQuery(context.WithoutCancel(t.Context()), "a/prod", "notes", keys)
		if err != nil || !ok {
			t.Fatal(err)
		}
		sql := q.page(firstRows)
		got := plan(t, s, sql, q.args...)
		indexed(t, got, firstRows+1)
	}
}
