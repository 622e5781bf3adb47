package place_test

import (
	"context"
	"slices"
	"testing"

	"j17"
	"j17/internal/engine/enginetest"
	"j17/internal/erasure"
	"j17/internal/geo"
	"j17/internal/place"
	"j17/internal/store"
	"j17/internal/store/storetest"
)

// TestErasure erases one of two shops at the same place, then one that was opened again, and one while older places are read: only what
// the events have now is found, and no key nor value has a trace of the rest.
func TestErasure(t *testing.T) {
	h := newHouse(t, shops)
	for n := range 3 {
		h.put("shop", n, "was_opened", `{"at":{"lat":48.2,"lng":16.37}}`)
	}
	erase := func(n int, upTo uint64) erasure.Erased {
		t.Helper()
		key := j17.Key{Type: "shop", ID: id(n)}
		var gone []store.Rewritten
		for v := uint64(1); v <= upTo; v++ {
			gone = append(gone, store.Rewritten{Version: v, Type: "_was_tombstoned", Data: []byte(`{}`), Metadata: []byte(`{}`)})
		}
		if err := storetest.Erase(t.Context(), h.Store, enginetest.Tenant, key, gone); err != nil {
			t.Fatal(err)
		}
		return erasure.Erased{Keys: []j17.Key{key}}
	}
	e := erase(0, 1)
	again := erase(1, 1)
	h.put("shop", 1, "was_opened", `{"at":{"lat":48.3,"lng":16.37}}`)
	for _, e := range []erasure.Erased{e, again, e} {
		if err := h.places.Erase(t.Context(), enginetest.Tenant, e); err != nil {
			t.Fatal(err)
		}
	}
	if got := h.near(geo.Point{Lat: 48.2, Lng: 16.37}, 100_000, 10); len(got) != 2 || got[0] != 2 || got[1] != 1 {
		t.Errorf("%v are near", got)
	}
	cells, err := h.Store.Scan(t.Context(), enginetest.Tenant, "place.cells", store.Range{}, 100)
	if err != nil || len(cells) != 2 {
		t.Errorf("%d entries, %v", len(cells), err)
	}
}

// outrun is a store of which a moment is old when somebody gets it.
type outrun struct {
	place.Storage

	opened func()
}

// Moment is part of place.Storage.
func (o outrun) Moment(ctx context.Context, t j17.Tenant) (store.Moment, error) {
	m, err := o.Storage.Moment(ctx, t)
	o.opened()
	return m, err
}

// TestWhatIsErasedIsNotFound: the commit that replaces the events of shops has the places of these go too. A page that was begun before and is
// completed behind it leaves them out.
func TestWhatIsErasedIsNotFound(t *testing.T) {
	h := settled(t)
	erase := func(n int) {
		t.Helper()
		key := j17.Key{Type: "shop", ID: id(n)}
		sides, err := h.places.Leave(t.Context(), enginetest.Tenant, []j17.Key{key})
		if err != nil || len(sides) != 1 {
			t.Fatalf("%d writes, %v", len(sides), err)
		}
		gone := []store.RewrittenStream{{Key: key, Events: []store.Rewritten{{Version: 1, Type: "_was_tombstoned", Data: []byte(`{}`), Metadata: []byte(`{}`)}}}}
		if r, err := h.Store.Rewrite(t.Context(), enginetest.Tenant, store.Rewrite{Streams: gone, Side: sides}); err != nil || r.Outcome != store.Committed {
			t.Fatal(r, err)
		}
	}
	has := func(p *place.Service, bare bool, n int) bool {
		t.Helper()
		ask := everywhere()
		ask.Bare = bare
		page, err := p.Page(t.Context(), enginetest.Tenant, ask)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(page.Rows, func(r place.Row) bool { return r.ID == id(n) })
	}
	if !has(h.places, true, 5) {
		t.Fatal("it is not there")
	}
	erase(5)
	if has(h.places, true, 5) {
		t.Error("it is found")
	}

	for n, bare := range map[int]bool{6: false, 7: true} {
		late := false
		_, p := h.onto(h.Engine, outrun{h.Store, func() {
			if late {
				late = false
				erase(n)
			}
		}})
		if !has(p, bare, n) {
			t.Fatal("it is not there")
		}
		if late = true; has(p, bare, n) || late {
			t.Errorf("bare %v: it is found", bare)
		}
	}
	if sides, err := h.places.Leave(t.Context(), enginetest.Tenant, []j17.Key{{Type: "shop", ID: id(6)}, {Type: "shop", ID: id(77)}}); err != nil || len(sides) > 0 {
		t.Errorf("%d writes, %v", len(sides), err)
	}
}
