package index_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/derived/index"
	"j17/internal/storage/store"
)

// wide defines an index of items that all depend on one shop. computing is told how many are computed.
func (s source) wide(id string, computing func(rows int)) *index.Definition {
	shop := j17.Key{Type: "shop", ID: "s"}
	return &index.Definition{
		ID: id, Type: "item", Types: []string{"shop"},
		Rows: func(ctx context.Context, t j17.Tenant, at j17.StreamID, ids []string) (rows []index.Row, err error) {
			computing(len(ids))
			of, err := s.state(ctx, t, at, shop)
			for _, id := range ids {
				rows = append(rows, index.Row{
					ID: id, Entries: []index.Entry{index.NewEntry(0), index.NewEntry(1, of.Get("name"))},
					Sources: []j17.Key{shop},
				})
			}
			return rows, err
		},
	}
}

// TestBurstsOfASource: a burst of events of an aggregate on which many rows depend makes them again once, and not for
// each batch of the burst, with many other aggregates in between too. Where that are more rows than change in bulk, it
// is once for each part of it.
func TestBurstsOfASource(t *testing.T) {
	testBurstOfASource(t, 1, 1<<20, 1)
	testBurstOfASource(t, 2600, 1<<20, 1)
	testBurstOfASource(t, 2600, 1000, 4)
}

// testBurstOfASource has new rows come in the burst. It bounds how often a row is rebuilt where so many of them change
// in bulk.
func testBurstOfASource(t *testing.T, items, most int, times int64) {
	t.Helper()
	const rows, burst = 1100, 600
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		events := []store.NewEvent{event("shop", "s", `{"name":"first"}`)}
		for i := range rows {
			events = append(events, event("item", fmt.Sprintf("i%05d", i), `{}`))
		}
		h.write(prod, events...)
		var computed atomic.Int64
		d := source{h.disk}.wide("wide", func(rows int) { computed.Add(int64(rows)) })
		p := h.start(h.disk)
		p.Bulk(most, 2048)
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

// TestABurstHoldsUpNobody lets the rows of one index wait in the middle of a burst: another index on the same source,
// and one that the burst does not concern, show what is there meanwhile.
func TestABurstHoldsUpNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		const items = 3000
		h.items(items)
		s, hold, held := source{h.disk}, atomic.Bool{}, make(chan struct{})
		var computed atomic.Int64
		p := h.start(h.disk)
		h.ready(p, prod, s.wide("slow", func(int) {
			if hold.Load() {
				<-held
			}
		}))
		hold.Store(true)
		h.write(prod, event("shop", "s", `{"name":"first"}`))
		h.pass(time.Second)
		h.ready(p, prod, s.wide("wide", func(rows int) { computed.Add(int64(rows)) }))
		h.ready(p, prod, &index.Definition{
			ID: "notes", Type: "note",
			Rows: func(_ context.Context, _ j17.Tenant, _ j17.StreamID, ids []string) (rows []index.Row, err error) {
				for _, id := range ids {
					rows = append(rows, index.Row{ID: id, Entries: []index.Entry{index.NewEntry(0)}})
				}
				return rows, nil
			},
		})
		computed.Store(0)
		h.write(prod, event("note", "n", `{}`), event("item", "i00000", `{}`), event("shop", "s", `{"name":"last"}`))

		for id, want := range map[string]uint64{"wide": items, "notes": 1} {
			v, err := p.At(t.Context(), prod, id, h.end(prod))
			if err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			if n, err := v.Count(plenty(), index.Query{
				Lanes: [][]index.Range{{index.All(0, 0)}},
			}); err != nil || n != want {
				t.Errorf("%s: %d rows, %v, want %d", id, n, err, want)
			}
			v.Close()
		}
		if got := computed.Load(); got > items+1 { // what has changed by itself follows from the shop as well
			t.Errorf("%d rows were computed of %d", got, items)
		}
		status, err := p.Status(t.Context(), prod, "slow")
		if err != nil || status.Lag == 0 {
			t.Errorf("the first one does not wait: %+v, %v", status, err)
		}
		hold.Store(false)
		close(held)
		for _, id := range []string{"slow", "wide"} {
			v, err := p.At(t.Context(), prod, id, h.end(prod))
			if err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			v.Close()
			h.same(p, prod, id)
		}
		p.stop()
	})
}

// items writes items in one unit.
func (h *house) items(n int) {
	h.tb.Helper()
	events := make([]store.NewEvent, n)
	for i := range events {
		events[i] = event("item", fmt.Sprintf("i%05d", i), `{}`)
	}
	h.write(prod, events...)
}

// slowly takes its time to open moments.
type slowly struct {
	store.Store
	wait func()
}

// Moment is part of store.Store.
func (s slowly) Moment(ctx context.Context, t j17.Tenant) (store.Moment, error) {
	s.wait()
	return s.Store.Moment(ctx, t)
}

// TestWhoWaitsForAHotSourceSeesEachState lets a source of many rows change all the time: whoever has waited for a
// change of all of them finds the index as it is behind it, before the next change begins.
func TestWhoWaitsForAHotSourceSeesEachState(t *testing.T) {
	for _, most := range []int{1 << 20, 400} { // in bulk, and too many rows for that
		inBubble(t, func(t *testing.T, h *house) {
			t.Helper()
			const items, slice = 1200, 820
			h.items(items)
			var hot atomic.Bool
			p := h.start(slowly{h.disk, func() { h.wait(10 * time.Millisecond) }})
			p.Bulk(most, slice)
			h.ready(p, prod, source{h.disk}.wide("wide", func(int) {
				if hot.Load() {
					h.wait(time.Millisecond)
					h.write(prod, event("shop", "s", `{}`))
				}
			}))
			h.pass(time.Minute)
			hot.Store(true)
			h.write(prod, event("shop", "s", `{}`))
			h.pass(10 * time.Millisecond)

			// Each of them finds two changes in its way at most.
			for range 5 {
				before := p.Stats().Rows
				v, err := p.At(t.Context(), prod, "wide", h.end(prod))
				if err != nil {
					t.Fatal(err)
				}
				v.Close()
				if rows := p.Stats().Rows - before; rows > 2*items+slice {
					// the first ones of a third change are computed before it is told of
					t.Errorf("%d rows of %d were computed until it was read", rows, items)
				}
			}
			hot.Store(false)
			v, err := p.At(t.Context(), prod, "wide", h.end(prod))
			if err != nil {
				t.Fatal(err)
			}
			v.Close()
			h.same(p, prod, "wide")
			p.stop()
		})
	}
}
