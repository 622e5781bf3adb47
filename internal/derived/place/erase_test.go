package place_test

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"j17"
	"j17/internal/base/geo"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/derived/place"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// TestErasure erases one of two shops at the same place, then one that was opened again, and one while older places are
// read: only what the events have now is found, and no key nor value has a trace of the rest.
func TestErasure(t *testing.T) {
	h := newHouse(t, shops)
	for n := range 3 {
		h.put("shop", n, "was_opened", `{"at":{"lat":48.2,"lng":16.37}}`)
	}
	erase := func(n int, upTo uint64) part.Erased {
		t.Helper()
		key := j17.Key{Type: "shop", ID: id(n)}
		var gone []store.Rewritten
		for v := uint64(1); v <= upTo; v++ {
			gone = append(gone, store.Rewritten{
				Version: v, Type: "_was_tombstoned", Data: []byte(`{}`), Metadata: []byte(`{}`),
			})
		}
		if err := storetest.Erase(t.Context(), h.Store, enginetest.Tenant, key, gone); err != nil {
			t.Fatal(err)
		}
		return part.Erased{Keys: []j17.Key{key}}
	}
	e := erase(0, 1)
	again := erase(1, 1)
	h.put("shop", 1, "was_opened", `{"at":{"lat":48.3,"lng":16.37}}`)
	for _, e := range []part.Erased{e, again, e} {
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

// TestWhatIsErasedIsNotFound: the commit that replaces the events of shops has the places of these go too. A page that
// was begun before and is completed behind it leaves them out.
func TestWhatIsErasedIsNotFound(t *testing.T) {
	h := settled(t)
	erase := func(n int) {
		t.Helper()
		key := j17.Key{Type: "shop", ID: id(n)}
		sides, fences, err := h.places.Leave(t.Context(), enginetest.Tenant, []part.Replaced{
			{Key: key, To: 1, Last: true},
		})
		if err != nil || len(sides) != 1 {
			t.Fatalf("%d writes, %v", len(sides), err)
		}
		gone := []store.RewrittenStream{{Key: key, Events: []store.Rewritten{
			{Version: 1, Type: "_was_tombstoned", Data: []byte(`{}`), Metadata: []byte(`{}`)},
		}}}
		if r, err := h.Store.Rewrite(t.Context(), enginetest.Tenant, store.Rewrite{
			Streams: gone, Fences: fences, Side: sides,
		}); err != nil || r.Outcome != store.Committed {
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
	nowhere := []part.Replaced{
		{Key: j17.Key{Type: "shop", ID: id(6)}, To: 1, Last: true},
		{Key: j17.Key{Type: "shop", ID: id(77)}, Last: true},
	}
	if sides, _, err := h.places.Leave(t.Context(), enginetest.Tenant, nowhere); err != nil || len(sides) > 0 {
		t.Errorf("%d writes, %v", len(sides), err)
	}
}

// replaceUpTo replaces the first events of a shop by markers, as an erasure does: in one commit with where it is then.
func (h *house) replaceUpTo(n int, from, to uint64, last bool) store.Result {
	h.tb.Helper()
	key := j17.Key{Type: "shop", ID: id(n)}
	sides, fences, err := h.places.Leave(h.tb.Context(), enginetest.Tenant, []part.Replaced{
		{Key: key, To: to, Last: last},
	})
	if err != nil {
		h.tb.Fatal(err)
	}
	if h.deciding != nil {
		h.deciding()
	}
	gone := store.RewrittenStream{Key: key}
	for v := from; v <= to; v++ {
		gone.Events = append(gone.Events, store.Rewritten{
			Version: v, Type: "_was_tombstoned", Data: []byte(`{}`), Metadata: []byte(`{}`),
		})
	}
	r, err := h.Store.Rewrite(h.tb.Context(), enginetest.Tenant, store.Rewrite{
		Streams: []store.RewrittenStream{gone}, Fences: fences, Side: sides,
	})
	if err != nil {
		h.tb.Fatal(err)
	}
	return r
}

// reads is a store that counts the events that are read.
type reads struct {
	place.Storage

	events *int
}

// ReadStream is part of place.Storage.
func (r reads) ReadStream(
	ctx context.Context, t j17.Tenant, key j17.Key, from, to uint64,
) iter.Seq2[*j17.Event, error] {
	return func(yield func(*j17.Event, error) bool) {
		for ev, err := range r.Storage.ReadStream(ctx, t, key, from, to) {
			*r.events++
			if !yield(ev, err) {
				return
			}
		}
	}
}

// TestPlacesWhileEventsGoInParts: an aggregate of many events is where the last event says that is left. What is left
// is not read with each part.
func TestPlacesWhileEventsGoInParts(t *testing.T) {
	h := newHouse(t, shops)
	const named = 100
	h.put("shop", 1, "was_opened", at(geo.Point{Lat: 1, Lng: 1}))
	h.put("shop", 1, "was_opened", at(geo.Point{Lat: 2, Lng: 1}))
	for range named {
		h.put("shop", 1, "was_named", `{}`)
	}
	h.put("shop", 1, "was_opened", at(geo.Point{Lat: 3, Lng: 1})) // event 103
	for range named {
		h.put("shop", 1, "was_named", `{}`)
	}
	read, asked := 0, 0
	h.builds, h.places = h.onto(h.Engine, reads{h.Store, &read})
	around := func() []int { return h.near(geo.Point{Lat: 3, Lng: 1}, 1, 10) }
	part := func(from, to uint64, last bool, want ...int) {
		t.Helper()
		read = 0
		if r := h.replaceUpTo(1, from, to, last); r.Outcome != store.Committed {
			t.Fatalf("%+v", r)
		}
		asked += read
		if got := around(); !slices.Equal(got, want) {
			t.Errorf("after event %d: found is %v, want %v", to, got, want)
		}
		if h.compare(h.places); h.places.Stats().Rebuilt != 0 {
			t.Error("it is not where its events say")
		}
	}
	for to := uint64(10); to <= 100; to += 10 {
		part(to-9, to, false, 1)
	}
	part(101, 110, false)
	part(111, 120, false)
	h.put("shop", 1, "was_opened", at(geo.Point{Lat: 3, Lng: 1})) // event 204
	part(121, 130, false, 1)
	part(131, 204, true)
	if r := around(); len(r) != 0 {
		t.Errorf("found is %v", r)
	}
	if asked > 2*204 { // the rest once for each place that is the last one, and one event for each part
		t.Errorf("%d events were read", asked)
	}
}

// TestNothingIsKeptOfAnErasureInParts: what is known of an aggregate whose last part may have had others behind it is
// let go of when it is erased, and not when another one is.
func TestNothingIsKeptOfAnErasureInParts(t *testing.T) {
	h := newHouse(t, shops)
	h.put("shop", 1, "was_opened", at(geo.Point{Lat: 1, Lng: 1}))
	h.put("shop", 1, "was_opened", at(geo.Point{Lat: 2, Lng: 1}))
	erased := func(n int) bool {
		t.Helper()
		if err := h.places.Erase(t.Context(), enginetest.Tenant, part.Erased{
			Keys: []j17.Key{{Type: "shop", ID: id(n)}},
		}); err != nil {
			t.Fatal(err)
		}
		return !h.places.Remembers(enginetest.Tenant)
	}
	for to := uint64(1); to <= 2; to++ {
		if r := h.replaceUpTo(1, to, to, false); r.Outcome != store.Committed {
			t.Fatalf("%+v", r)
		}
	}
	if erased(2) {
		t.Error("it is gone when another aggregate is erased")
	}
	if !erased(1) {
		t.Error("it stays")
	}
}

// TestPartingHoldsOnWhatItWasDecidedBy: what moves a shop, or throws the slots away, between the decision of where it
// is then and its commit lets this be decided again.
func TestPartingHoldsOnWhatItWasDecidedBy(t *testing.T) {
	away := func(h *house) {
		h.tb.Helper()
		other := h.over(h.Engine)
		h.garble(`{"slot":""}`)
		if _, err := other.places.Page(
			h.tb.Context(), enginetest.Tenant, everywhere(),
		); j17.CodeOf(err) != j17.CodeIndexNotReady {
			h.tb.Fatal(err)
		}
		other.settle()
	}
	building := func(t *testing.T) *house {
		t.Helper()
		h := newHouse(t, strings.ReplaceAll(shops, `, "geo": {"type": "point", "path": "$.data.at"}`, ""))
		h.put("shop", 7, "was_opened", at(geo.Point{Lat: 7, Lng: 1}))
		h.DeploySource(t, shops)
		return h
	}
	for name, c := range map[string]struct {
		house     func(*testing.T) *house
		meanwhile func(*house)
	}{
		"moves": {
			settled, func(h *house) { h.put("shop", 7, "was_opened", at(geo.Point{Lat: 70, Lng: 1})) },
		},
		"thrown away":           {settled, away},
		"thrown away, building": {building, away},
	} {
		t.Run(name, func(t *testing.T) {
			h := c.house(t)
			h.put("shop", 7, "was_named", `{}`)
			done := false
			h.deciding = func() {
				if !done {
					done = true
					c.meanwhile(h)
				}
			}
			if r := h.replaceUpTo(7, 1, 1, false); r.Outcome != store.Conflict || len(r.Sides) == 0 {
				t.Fatalf("%+v", r)
			}
			if r := h.replaceUpTo(7, 1, 1, false); r.Outcome != store.Committed {
				t.Fatalf("%+v", r)
			}
			h.settle()
			if h.compare(h.places); h.places.Stats().Rebuilt != 0 {
				t.Error("they are not where their events say")
			}
		})
	}
}

// TestErasureBehindADeployment: a process that has not heard of what is deployed removes nothing of what stands in the
// slots of that.
func TestErasureBehindADeployment(t *testing.T) {
	without := strings.ReplaceAll(shops, `, "geo": {"type": "point", "path": "$.data.at"}`, "")
	h := newHouse(t, "")
	behind := h.over(engine.New(engine.Options{Store: h.Store, Clock: h.Clock, Logger: slog.New(slog.DiscardHandler)}))
	for _, d := range []struct {
		e   *engine.Engine
		src string
	}{{behind.Engine, without}, {h.Engine, shops}} {
		if err := h.Store.Write(t.Context(), enginetest.Tenant, []store.Side{
			{Op: store.Put, Space: "deployed", Key: "spec"},
		}); err != nil {
			t.Fatal(err)
		}
		item, err := h.Store.Get(t.Context(), enginetest.Tenant, "deployed", "spec")
		if err != nil {
			t.Fatal(err)
		}
		d.e.Deploy(enginetest.Tenant, enginetest.Compiled(t, d.src), nil, store.Fence{
			Space: "deployed", Key: "spec", Rev: item.Rev,
		})
	}
	h.put("shop", 1, "was_opened", at(geo.Point{Lat: 1, Lng: 1}))
	if r := h.replaceUpTo(1, 1, 1, true); r.Outcome != store.Committed {
		t.Fatalf("%+v", r)
	}
	h.put("shop", 1, "was_opened", at(geo.Point{Lat: 2, Lng: 1}))
	e := part.Erased{Keys: []j17.Key{{Type: "shop", ID: id(1)}}}
	if err := behind.places.Erase(t.Context(), enginetest.Tenant, e); err == nil {
		t.Error("it is done by what is deployed no more")
	}
	if got := h.near(geo.Point{Lat: 2, Lng: 1}, 1, 10); !slices.Equal(got, []int{1}) {
		t.Errorf("found is %v", got)
	}
}

// TestAPageBesideAPart: a page that is completed behind a part of an erasure has who is still at the same place.
func TestAPageBesideAPart(t *testing.T) {
	h := settled(t)
	h.put("shop", 7, "was_opened", at(geo.Point{Lat: 7.5, Lng: 1}))
	late := false
	_, p := h.onto(h.Engine, outrun{h.Store, func() {
		if late {
			late = false
			if r := h.replaceUpTo(7, 1, 1, false); r.Outcome != store.Committed {
				t.Fatalf("%+v", r)
			}
		}
	}})
	ask := everywhere()
	ask.Bare = false
	if err := p.Adopt(t.Context(), enginetest.Tenant); err != nil {
		t.Fatal(err)
	}
	late = true
	page, err := p.Page(t.Context(), enginetest.Tenant, ask)
	if err != nil || late || !slices.ContainsFunc(page.Rows, func(r place.Row) bool { return r.ID == id(7) }) {
		t.Errorf("%+v, %v, %v", page, err, late)
	}
}
