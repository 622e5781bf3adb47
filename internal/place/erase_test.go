package place_test

import (
	"testing"

	"j17"
	"j17/internal/engine/enginetest"
	"j17/internal/erasure"
	"j17/internal/geo"
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
