package index_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"j17"
	"j17/internal/derived/index"
	"j17/internal/storage/store"
)

// ahead opens the index with what was read ahead of a query, nil if it has to be opened in the usual way.
func (h *house) ahead(p *process, t j17.Tenant, q index.Query, after string, most int) *index.View {
	h.tb.Helper()
	a := p.Ahead(t, "one", q, after, most)
	if a == nil {
		return nil
	}
	found, err := h.disk.ReadTogether(h.tb.Context(), t, a.Wanted)
	if err != nil {
		h.tb.Fatal(err)
	}
	v, err := a.Open(h.tb.Context(), &found)
	if err != nil {
		h.tb.Fatal(err)
	}
	if v != nil && v.Position() != found.Position {
		h.tb.Errorf("it is as of %s, and was read as of %s", v.Position(), found.Position)
	}
	return v
}

// sameAhead compares what was read ahead with a view of the same position, for each query in both directions. It
// returns how many could not be read ahead as of that position.
func (h *house) sameAhead(p *process, t j17.Tenant, as *index.View) (others int) {
	h.tb.Helper()
	for _, w := range h.queries() {
		for _, w.query.Backward = range []bool{false, true} {
			want := h.scan(as, w.query, 1000)
			for _, limit := range []int{1000, 3} {
				v := h.ahead(p, t, w.query, "", limit)
				switch {
				case v == nil:
					others++
					continue
				case v.Position() != as.Position():
					others++
				default:
					got, err := h.pagesOf(v, w.query, limit)
					if errors.Is(err, index.ErrMoved) {
						others++
					} else if err != nil || !slices.Equal(got, want) {
						h.tb.Errorf("%s, backward %v, %d at a time: %v, %v, want %v", w.name, w.query.Backward, limit, got, err, want)
					}
				}
				v.Close()
			}
		}
	}
	return others
}

// TestAhead reads the first entries of queries together with what tells which slot serves, and goes on behind them.
func TestAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		d := source{h.disk}.definition(nil)
		p := h.start(h.disk)
		defer func() { p.stop() }()
		h.items(200)
		h.write(
			prod, event("item", "red", `{"label":"a","title":"red"}`),
			event("item", "labels", `{"label":["a","ab",1]}`),
		)
		h.ready(p, prod, d)
		everything := index.Query{Lanes: [][]index.Range{{index.All(all, 0)}}}
		if v := h.ahead(p, prod, everything, "", 9); v != nil {
			t.Error("a slot is known to serve before anybody has read the index")
		}
		same := func(v *index.View) {
			t.Helper()
			if n := h.sameAhead(p, prod, v); n > 0 {
				t.Errorf("%d queries are not read ahead", n)
			}
		}
		view := func() *index.View {
			t.Helper()
			v, err := p.At(t.Context(), prod, "one", h.end(prod))
			if err != nil {
				t.Fatal(err)
			}
			return v
		}

		// All queries, from the beginning and from the middle.
		v := view()
		same(v)
		hits, err := v.Scan(plenty(), everything, "", 100)
		if err != nil || len(hits) != 100 {
			t.Fatal(hits, err)
		}
		a := h.ahead(p, prod, everything, hits[49].Cursor, 9)
		next, err := a.Scan(plenty(), everything, hits[49].Cursor, 50)
		if err != nil || !slices.Equal(next, hits[50:]) {
			t.Errorf("after the first 50: %v, %v, want %v", next, err, hits[50:])
		}
		a.Close()
		word := index.WordQuery(titles, "re")
		a = h.ahead(p, prod, word, "", 9)
		red, err := a.SearchWord(plenty(), titles, "re", "", 9).Next("", 9)
		if err != nil || len(red) != 1 || red[0].ID != "red" {
			t.Errorf("the word finds %v, %v", red, err)
		}
		a.Close()
		if _, err := a.Scan(plenty(), everything, "", 100); !errors.Is(err, store.ErrClosed) {
			t.Errorf("a closed view reads on: %v", err)
		}
		v.Close()

		// Events of other types move nothing. What concerns the index does: the entries read ahead are as they were,
		// and there are no others to go with them.
		a = h.ahead(p, prod, everything, "", 9)
		h.write(prod, event("other", "x", `{}`))
		h.pass(time.Second)
		if got := h.scan(a, everything, 1000); len(got) != 202 {
			t.Errorf("%d rows after an event that concerns none", len(got))
		}
		a.Close()
		v = view()
		same(v)
		v.Close()
		a = h.ahead(p, prod, everything, "", 9)
		h.write(prod, event("item", "i00000", `{"label":"b"}`), event("item", "after", `{}`))
		h.pass(time.Second)
		if _, err := a.Scan(plenty(), everything, "", 9); err != nil {
			t.Errorf("what was read ahead is gone: %v", err)
		}
		if _, err := a.Scan(plenty(), everything, "", 100); !errors.Is(err, index.ErrMoved) {
			t.Errorf("what is read on: %v", err)
		}
		a.Close()
		v = view()
		same(v)
		v.Close()

		// While the slot is behind, and where another one serves, the index is opened in the usual way.
		h.write(prod, event("item", "late", `{}`))
		if a := h.ahead(p, prod, everything, "", 9); a != nil {
			t.Error("a slot that is behind was read")
		}
		if err := p.Rebuild(t.Context(), prod, "one"); err != nil {
			t.Fatal(err)
		}
		h.pass(time.Minute)
		if a := h.ahead(p, prod, everything, "", 9); a != nil {
			t.Error("a slot that no longer serves was read")
		}
		v = view()
		same(v)
		v.Close()
		p.Forget(prod)
		if a := h.ahead(p, prod, everything, "", 9); a != nil {
			t.Error("a slot of a forgotten tenant was read")
		}
	})
}
