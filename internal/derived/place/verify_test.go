package place_test

import (
	"strings"
	"testing"

	"j17"
	"j17/internal/base/geo"
	"j17/internal/base/wire"
	"j17/internal/core/engine/enginetest"
	"j17/internal/derived/build"
	"j17/internal/storage/store"
)

// TestVerify compares places that are as they should be, then some that are not: the first difference is named, nobody
// reads them from then on, and they are rebuilt.
func TestVerify(t *testing.T) {
	t.Parallel()
	const point = "/00000000-0000-4000-8000-000000000007"
	for name, c := range map[string]struct {
		space store.Space
		// of has what is changed, and to says what its key becomes; "" removes it.
		of, from, to string
		want         wire.PlaceDifference
	}{
		"nothing": {want: wire.PlaceDifference{}},
		"a missing place": {
			"places", "shop:" + id(7) + "/", "", "",
			wire.PlaceDifference{Type: "shop", ID: id(7), Geo: "point", What: "its place is missing"},
		},
		"a place too many": {
			"places", "person:" + id(7) + "/", id(7), id(21),
			wire.PlaceDifference{Type: "person", ID: id(7), Geo: "home", What: "its place is missing"},
		},
		"a missing entry": {
			"place.cells", point, "", "", wire.PlaceDifference{What: "an entry of its place is missing"},
		},
		"an entry too many": {
			"place.cells", point, "/" + id(7), "/" + id(77),
			wire.PlaceDifference{What: "an entry of its place is missing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := settled(t)
			want := h.answers(h.places)
			if c.space != "" {
				h.misplace(c.space, c.of, c.from, c.to)
			}
			v, err := h.places.Verify(t.Context(), enginetest.Tenant)
			if err != nil {
				t.Fatal(err)
			}
			if c.space == "" {
				if v.Difference != nil || v.Aggregates != 20+20+21+21 || v.Entries < 60 ||
					v.Position != h.end().PositionText() || h.places.Stats().Rebuilt != 0 {
					t.Errorf("%+v, %+v", v, v.Difference)
				}
				return
			}
			if d := v.Difference; d == nil || d.What != c.want.What || c.want.ID != "" && *d != c.want ||
				d.ID != id(7) {
				t.Fatalf("%+v, want %+v", d, c.want)
			}
			h.refused(h.places)
			if _, err := h.places.Verify(t.Context(), enginetest.Tenant); j17.CodeOf(err) != j17.CodeIndexNotReady {
				t.Errorf("while they are made: %v", err)
			}
			if of, err := h.places.Describe(t.Context(), enginetest.Tenant); err != nil || len(of.Places) != 4 ||
				of.Places[0].Status != build.StatusBuilding || of.Places[0].Build == nil {
				t.Errorf("%+v, %v", of, err)
			}
			h.settle()
			for what, ids := range h.answers(h.places) {
				if strings.Join(ids, " ") != strings.Join(want[what], " ") {
					t.Errorf("%s: %q, want %q", what, ids, want[what])
				}
			}
			if v, err = h.places.Verify(t.Context(), enginetest.Tenant); err != nil || v.Difference != nil {
				t.Errorf("%+v, %v", v.Difference, err)
			}
		})
	}
}

// TestVerifyNothing: where the spec has no places, that is what is said.
func TestVerifyNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t, enginetest.CounterSpec)
	if _, err := h.places.Verify(t.Context(), enginetest.Tenant); j17.CodeOf(err) != j17.CodeNoGeo {
		t.Error(err)
	}
	if of, err := h.places.Describe(t.Context(), enginetest.Tenant); err != nil || len(of.Places) > 0 ||
		of.Verification != nil {
		t.Errorf("%+v, %v", of, err)
	}
}

// TestVerifyEntriesOfNobody: an entry that no place has is one that would be found.
func TestVerifyEntriesOfNobody(t *testing.T) {
	t.Parallel()
	h := settled(t)
	key := h.misplaced("place.cells", "/"+id(7))
	put := store.Side{Op: store.Put, Space: "place.cells", Key: strings.Replace(key, id(7), id(77), 1)}
	if err := h.Store.Write(t.Context(), enginetest.Tenant, []store.Side{put}); err != nil {
		t.Fatal(err)
	}
	v, err := h.places.Verify(t.Context(), enginetest.Tenant)
	if err != nil || v.Difference == nil || v.Difference.ID != id(77) || v.Difference.What != "there is an entry in its name that is none of its place" {
		t.Errorf("%+v, %v", v.Difference, err)
	}
}

// TestVerifyBesideWriters: an aggregate that gets another place whenever its events are read, after it was looked at
// how many there are, is no difference.
func TestVerifyBesideWriters(t *testing.T) {
	t.Parallel()
	h := settled(t)
	moves := 0
	st := &rotten{Storage: h.Store, reading: func(key j17.Key) {
		if key.Type == "shop" {
			moves++
			h.Post(
				h.tb, key.Type+"/"+key.ID+"/was_opened",
				enginetest.Body(at(geo.Point{Lat: float64(moves % 80), Lng: 3})),
			)
		}
	}}
	_, p := h.onto(h.Engine, st)
	v, err := p.Verify(t.Context(), enginetest.Tenant)
	if err != nil || v.Difference != nil || moves < 20 {
		t.Errorf("%+v, %v, after %d moves", v.Difference, err, moves)
	}
	if n := p.Stats().Rebuilt; n != 0 {
		t.Errorf("they were begun anew %d times", n)
	}
}

// misplaced is the key of an item of a space by a part of it.
func (h *house) misplaced(space store.Space, part string) string {
	h.tb.Helper()
	items, err := h.Store.Scan(h.tb.Context(), enginetest.Tenant, space, store.Range{}, 10_000)
	if err != nil {
		h.tb.Fatal(err)
	}
	for _, it := range items {
		if strings.Contains(it.Key, part) {
			return it.Key
		}
	}
	h.tb.Fatalf("%s has no %s", space, part)
	return ""
}

// misplace removes an item without a look at what belongs to it, and puts it under another key where to says so.
func (h *house) misplace(space store.Space, part, from, to string) {
	h.tb.Helper()
	key := h.misplaced(space, part)
	item, err := h.Store.Get(h.tb.Context(), enginetest.Tenant, space, key)
	if err != nil {
		h.tb.Fatal(err)
	}
	sides := []store.Side{{Op: store.Delete, Space: space, Key: key}}
	if to != "" {
		sides = append(sides, store.Side{
			Op: store.Put, Space: space, Key: strings.Replace(key, from, to, 1), Value: item.Value,
		})
	}
	if err := h.Store.Write(h.tb.Context(), enginetest.Tenant, sides); err != nil {
		h.tb.Fatal(err)
	}
}

// end is where the feed ends.
func (h *house) end() j17.StreamID {
	h.tb.Helper()
	m := h.moment()
	defer m.Close()
	return m.Position()
}
