package index_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"j17"
	"j17/internal/index"
	"j17/internal/store"
)

// TestBurstsOfASource: a burst of events of an aggregate on which many rows depend makes them anew once, and not for each batch of the burst; with
// many other aggregates in between, once for each part of it.
func TestBurstsOfASource(t *testing.T) {
	testBurstOfASource(t, 1, 1)
	testBurstOfASource(t, 2600, 2)
}

// testBurstOfASource has new rows come in the burst. It bounds how often a row is made anew.
func testBurstOfASource(t *testing.T, items int, times int64) {
	t.Helper()
	const rows, burst = 1100, 600
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		events := []store.NewEvent{event("shop", "s", `{"name":"first"}`)}
		for i := range rows {
			events = append(events, event("item", fmt.Sprintf("i%05d", i), `{}`))
		}
		h.write(prod, events...)
		s, shop := source{h.disk}, j17.Key{Type: "shop", ID: "s"}
		var computed atomic.Int64
		d := &index.Definition{
			ID: "wide", Type: "item", Types: []string{"shop"},
			Rows: func(ctx context.Context, t j17.Tenant, at j17.StreamID, ids []string) (rows []index.Row, err error) {
				computed.Add(int64(len(ids)))
				of, err := s.state(ctx, t, at, shop)
				for _, id := range ids {
					rows = append(rows, index.Row{ID: id, Entries: []index.Entry{index.NewEntry(0), index.NewEntry(1, of.Get("name"))}, Sources: []j17.Key{shop}})
				}
				return rows, err
			},
		}
		p := h.start(h.disk)
		h.ready(p, prod, d)
		v, err := p.At(t.Context(), prod, "wide", h.end(prod))
		if err != nil {
			t.Fatal(err)
		}
		v.Close()
		computed.Store(0)

		var changes []store.NewEvent
		for i := range burst {
			changes = append(changes, event("shop", "s", fmt.Sprintf(`{"name":"n%04d"}`, i)))
		}
		for i := range items {
			changes = append(changes, event("item", fmt.Sprintf("n%05d", i), `{}`))
		}
		h.write(prod, append(changes, event("shop", "s", `{"name":"last"}`))...)
		v, err = p.At(t.Context(), prod, "wide", h.end(prod))
		if err != nil {
			t.Fatal(err)
		}
		n, err := v.Count(plenty(), index.Query{Lanes: [][]index.Range{{index.All(1, 1).Prefix("last")}}})
		if err != nil || n != uint64(rows+items) {
			t.Errorf("%d rows with the last name, %v, want %d", n, err, rows+items)
		}
		v.Close()
		if got := computed.Load(); got > times*int64(rows+items) {
			t.Errorf("%d rows were computed of %d, each more than %d times", got, rows+items, times)
		}
		h.same(p, prod, "wide")
		p.stop()
	})
}
