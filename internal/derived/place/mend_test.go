package place_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	raw "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/base/geo"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/derived/place"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
	"j17/internal/storage/testopen"
)

// silent is a logger that says nothing.
type silent struct{}

// Infof says nothing.
func (silent) Infof(string, ...any) {}

// Errorf says nothing.
func (silent) Errorf(string, ...any) {}

// Fatalf ends the test.
func (silent) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// hasty is a clock on which whatever is waited for has come at once.
type hasty struct {
	mu  sync.Mutex
	now time.Time
}

// Now returns the time.
func (c *hasty) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Wait makes it later.
func (c *hasty) Wait(ctx context.Context, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.now) {
		c.now = t
	}
	return ctx.Err()
}

// newSpoiled returns a house that can be spoiled, which is on the embedded store: its files are changed.
func newSpoiled(tb testing.TB) *house {
	tb.Helper()
	return newHouseOn(tb, testopen.Embedded(vfs.NewMem()), shops)
}

// spoil changes what is stored behind the back of the store, which it closes and opens again.
func (h *house) spoil(change func(db *raw.DB)) {
	h.tb.Helper()
	if err := h.Store.Close(); err != nil {
		h.tb.Fatal(err)
	}
	db, err := raw.Open("data", &raw.Options{FS: h.Data.Disk(), FormatMajorVersion: raw.FormatNewest, Logger: silent{}})
	if err != nil {
		h.tb.Fatal(err)
	}
	change(db)
	if err := db.Close(); err != nil {
		h.tb.Fatal(err)
	}
	h.begin()
}

// begin opens the store again, with services that know nothing.
func (h *house) begin() {
	h.tb.Helper()
	h.Open(h.tb, engine.Options{})
	fresh := h.over(h.Engine)
	h.builds, h.places = fresh.builds, fresh.places
	h.Use(h.places.Part())
	h.DeploySource(h.tb, shops)
	if err := h.places.Adopt(h.tb.Context(), enginetest.Tenant); err != nil {
		h.tb.Fatal(err)
	}
}

// item finds an item of a space by a part of its key. Of entries it is one of a shop.
func item(tb testing.TB, db *raw.DB, space store.Space, part string) (key, value []byte) {
	tb.Helper()
	slot := ""
	if space == "place.cells" {
		record, _ := item(tb, db, "places", "shop:")
		slot = string(record[bytes.LastIndexByte(record, '/')+1:]) + "/"
	}
	it, err := db.NewIter(nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = it.Close() }()
	for it.First(); it.Valid(); it.Next() {
		if k := string(it.Key()); strings.Contains(k, string(space)+"\x00") && strings.Contains(k, part) &&
			strings.Contains(k, slot) {
			return bytes.Clone(it.Key()), bytes.Clone(it.Value())
		}
	}
	tb.Fatalf("%s has no %s", space, part)
	return nil, nil
}

func set(tb testing.TB, db *raw.DB, key, value []byte) {
	tb.Helper()
	if err := db.Set(key, value, raw.Sync); err != nil {
		tb.Fatal(err)
	}
}

// cut takes away most of an item.
func cut(space store.Space, part string) func(*testing.T, *raw.DB) {
	return func(t *testing.T, db *raw.DB) {
		t.Helper()
		key, value := item(t, db, space, part)
		set(t, db, key, value[:7])
	}
}

// remove removes an item.
func remove(space store.Space, part string) func(*testing.T, *raw.DB) {
	return func(t *testing.T, db *raw.DB) {
		t.Helper()
		key, _ := item(t, db, space, part)
		if err := db.Delete(key, raw.Sync); err != nil {
			t.Fatal(err)
		}
	}
}

// astray puts an item under a key in which one part is another one.
func astray(space store.Space, from, to string) func(*testing.T, *raw.DB) {
	return func(t *testing.T, db *raw.DB) {
		t.Helper()
		key, value := item(t, db, space, from)
		set(t, db, bytes.ReplaceAll(key, []byte(from), []byte(to)), value)
	}
}

// dump is all that is stored of places.
func (h *house) dump() (all []string) {
	h.tb.Helper()
	for _, space := range []store.Space{"places", "place.cells"} {
		items, err := h.Store.Scan(h.tb.Context(), enginetest.Tenant, space, store.Range{}, 10_000)
		if err != nil {
			h.tb.Fatal(err)
		}
		for _, it := range items {
			all = append(all, fmt.Sprintf("%s %q %x", space, it.Key, it.Value))
		}
	}
	return all
}

// everywhere is a question about all shops that there are.
func everywhere() *place.Ask {
	return &place.Ask{
		Type: "shop", Near: &place.Near{Center: geo.Point{Lat: 48}, Radius: math.Inf(1)}, Count: 1000, Bare: true,
	}
}

// questions ask about all places of the house, each in a way of its own.
func questions() map[string]*place.Ask {
	box := geo.Box{South: -89, West: -179, North: 89, East: 179}
	return map[string]*place.Ask{
		"shops around": everywhere(),
		"people around": {
			Type: "person", Near: &place.Near{Center: geo.Point{Lat: 48}, Radius: math.Inf(1)}, Count: 1000, Bare: true,
		},
		"people in": {Type: "person", In: box, AreaText: "box", Count: 1000, Bare: true},
		"areas":     {Type: "area", Having: &geo.Point{Lat: 0.5, Lng: 0.5}, Count: 1000, Bare: true},
	}
}

// refused checks that nothing is found by now, and that it is said that this will pass.
func (h *house) refused(p *place.Service) {
	h.tb.Helper()
	for name, ask := range questions() {
		page, err := p.Page(h.tb.Context(), enginetest.Tenant, ask)
		if j17.CodeOf(err) != j17.CodeIndexNotReady || !strings.Contains(err.Error(), "rebuilt") {
			h.tb.Errorf("%s: %v, %v", name, page, err)
		}
	}
}

// answers is what all questions find.
func (h *house) answers(p *place.Service) map[string][]string {
	h.tb.Helper()
	all := map[string][]string{}
	for name, ask := range questions() {
		page, err := p.Page(h.tb.Context(), enginetest.Tenant, ask)
		if err != nil {
			h.tb.Fatalf("%s: %v", name, err)
		}
		for i := range page.Rows {
			all[name] = append(all[name], page.Rows[i].ID)
		}
	}
	return all
}

// settled fills a house with a few places of each shape.
func settled(t *testing.T) *house {
	t.Helper()
	h := newSpoiled(t)
	for n := range 20 {
		h.put("shop", n, "was_opened", at(geo.Point{Lat: float64(n), Lng: 1}))
		h.put("person", n, "has_moved", fmt.Sprintf(`{"name":"n%d","at":{"lat":%d,"lng":2}}`, n, n))
		h.put("area", n, "was_drawn", `{"name":"a","fee":1,"area":[{"lat":0,"lng":0},{"lat":0,"lng":1},{"lat":1,"lng":1},{"lat":1,"lng":0}]}`)
	}
	h.put("shop", 3, "was_opened", `{"at":null}`)
	h.put("person", 21, "was_seen", `{}`)
	return h
}

// TestDamageIsMended: whoever comes upon damage of places, a reader, a writer, an erasure, or the look through all of
// them, has them rebuilt from the events. Nobody is told meanwhile that there is nothing, or what may be wrong, and
// writes go on.
func TestDamageIsMended(t *testing.T) {
	ask := func(name string) func(*house) {
		return func(h *house) {
			h.tb.Helper()
			if _, err := h.places.Page(
				h.tb.Context(), enginetest.Tenant, questions()[name],
			); j17.CodeOf(err) != j17.CodeIndexNotReady {
				h.tb.Errorf("who meets it: %v", err)
			}
		}
	}
	write := func(h *house) { h.put("shop", 7, "was_opened", at(geo.Point{Lat: 7, Lng: 1})) }
	erase := func(h *house) {
		e := part.Erased{Keys: []j17.Key{{Type: "shop", ID: id(7)}}}
		if err := h.places.Erase(h.tb.Context(), enginetest.Tenant, e); err == nil {
			h.tb.Error("an erasure that cannot know is done")
		}
		if err := h.places.Erase(h.tb.Context(), enginetest.Tenant, e); err != nil {
			h.tb.Error(err)
		}
	}
	look := (*house).look
	shop, area := "shop:"+id(7)+"/", "area:"+id(7)+"/"
	other := "shop:" + id(8) + "/"
	for name, c := range map[string]struct {
		spoil func(*testing.T, *raw.DB)
		find  func(*house)
	}{
		"a record that somebody writes":  {cut("places", shop), write},
		"a record that is erased":        {cut("places", shop), erase},
		"a record that is looked at":     {cut("places", shop), look},
		"a record that is asked for":     {cut("places", "person:"+id(7)+"/"), ask("people around")},
		"a record in an area":            {cut("places", "person:"+id(7)+"/"), ask("people in")},
		"an area":                        {cut("places", area), ask("areas")},
		"an entry":                       {cut("place.cells", id(7)), ask("shops around")},
		"an entry that is not one":       {astray("place.cells", "/"+id(7), "x"), ask("shops around")},
		"a record that is missing":       {remove("places", area), ask("areas")},
		"a record of a point is missing": {remove("places", shop), look},
		"an entry that is missing":       {remove("place.cells", id(7)), look},
		"an entry too many":              {astray("place.cells", id(7), id(77)), look},
		"an entry of somebody else's":    {astray("place.cells", id(7), id(8)), look},
		"a record with somebody's place": {func(t *testing.T, db *raw.DB) {
			t.Helper()
			k, _ := item(t, db, "places", shop)
			_, v := item(t, db, "places", other)
			set(t, db, k, v)
		}, look},
		"a record of who had no place": {astray("places", "person:"+id(7), "person:"+id(21)), look},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := settled(t)
			want, stored := h.answers(h.places), h.dump()
			h.spoil(func(db *raw.DB) { c.spoil(t, db) })
			c.find(h)
			if n := h.places.Stats().Rebuilt; n != 1 {
				t.Fatalf("they were begun anew %d times", n)
			}
			h.refused(h.places)
			h.put("person", 5, "has_moved", `{"name":"n5","at":{"lat":5,"lng":2}}`)
			h.refused(h.places)
			if again := h.mended(want); !slices.Equal(again, stored) {
				t.Errorf("it is stored\n%s\nand was\n%s", strings.Join(again, "\n"), strings.Join(stored, "\n"))
			}
		})
	}
}

// look lets the look through all places go on until it has begun them again.
func (h *house) look() {
	h.tb.Helper()
	ctx, stop := context.WithCancel(h.tb.Context())
	done := make(chan error)
	go func() { done <- h.places.Run(ctx) }()
	for h.places.Stats().Rebuilt == 0 {
		runtime.Gosched()
	}
	stop()
	if err := <-done; err != nil {
		h.tb.Error(err)
	}
}

// mended lets places that were begun again be made, and compares the answers with those of before, and the places with
// the events. It returns all that is stored of them.
func (h *house) mended(want map[string][]string) []string {
	h.tb.Helper()
	h.settle()
	for what, ids := range h.answers(h.places) {
		if !slices.Equal(ids, want[what]) {
			h.tb.Errorf("%s: %q, want %q", what, ids, want[what])
		}
	}
	if h.compare(h.places); h.places.Stats().Rebuilt != 1 {
		h.tb.Error("they differ still")
	}
	return h.dump()
}

// compare looks through all places.
func (h *house) compare(p *place.Service) {
	h.tb.Helper()
	if err := p.Compare(h.tb.Context(), enginetest.Tenant); err != nil {
		h.tb.Error(err)
	}
}

// TestRightPlacesAreLeftAlone looks through places that are as they should be, those of old events and of erased ones
// among them.
func TestRightPlacesAreLeftAlone(t *testing.T) {
	h := settled(t)
	stored := h.dump()
	if h.compare(h.places); h.places.Stats().Rebuilt != 0 || !slices.Equal(h.dump(), stored) {
		t.Errorf("%+v", h.places.Stats())
	}
}

// TestMendingIsGoneOnWith ends the process while places are rebuilt, and lets the next one go on.
func TestMendingIsGoneOnWith(t *testing.T) {
	h := newSpoiled(t)
	const n = 2000
	h.fill(
		"shop", "was_opened", n,
		func(i int) string { return at(geo.Point{Lat: float64(i%90) + 0.5, Lng: float64(i / 90)}) },
	)
	want := h.dump()
	h.spoil(func(db *raw.DB) { cut("places", "shop:"+id(7)+"/")(t, db) })
	h.put("shop", 7, "was_opened", at(geo.Point{Lat: 7.5}))

	// As soon as some of them are there it ends.
	ctx, end := context.WithCancel(t.Context())
	building := make(chan error)
	go func() { building <- h.builds.Settle(ctx) }()
	for h.builds.Stats().Streams == 0 {
		runtime.Gosched()
	}
	end()
	_ = <-building // it was ended
	h.begin()
	h.Clock.Advance(time.Hour) // so that nobody has a claim any longer
	h.settle()
	if got := h.dump(); !slices.Equal(got, want) {
		t.Errorf("%d items are stored, want %d", len(got), len(want))
	}
	if h.compare(h.places); h.places.Stats().Rebuilt != 0 {
		t.Error("they differ still")
	}
}

// TestMendingBesideWriters moves aggregates while their places are rebuilt, by two processes over one store: one has
// found the damage, the other one has known all places to be whole.
func TestMendingBesideWriters(t *testing.T) {
	h := newSpoiled(t)
	const n = 600
	h.fill(
		"shop", "was_opened", n,
		func(i int) string { return at(geo.Point{Lat: float64(i%80) + 0.5, Lng: float64(i / 80)}) },
	)
	points := map[int]geo.Point{}
	for i := range n {
		points[i] = geo.Point{Lat: float64(i%80) + 0.5, Lng: float64(i / 80)}
	}
	h.put("area", 1, "was_drawn", `{"name":"a","fee":1,"area":[{"lat":0,"lng":0},{"lat":0,"lng":1},{"lat":1,"lng":1},{"lat":1,"lng":0}]}`)
	h.spoil(func(db *raw.DB) { cut("place.cells", id(7))(t, db) })
	other := h.over(h.Engine)
	if _, err := other.places.Page(t.Context(), enginetest.Tenant, questions()["areas"]); err != nil {
		t.Fatal(err)
	}
	if _, err := h.places.Page(t.Context(), enginetest.Tenant, everywhere()); j17.CodeOf(err) != j17.CodeIndexNotReady {
		t.Fatal(err)
	}
	found := h.places
	h.refused(other.places)

	// What the other one writes and erases is not overtaken by what is read meanwhile.
	h.places = other.places
	key := j17.Key{Type: "shop", ID: id(9)}
	if err := storetest.Erase(t.Context(), h.Store, enginetest.Tenant, key, []store.Rewritten{
		{Version: 1, Type: "_was_tombstoned", Data: []byte(`{}`), Metadata: []byte(`{}`)},
	}); err != nil {
		t.Fatal(err)
	}
	if err := other.places.Erase(t.Context(), enginetest.Tenant, part.Erased{Keys: []j17.Key{key}}); err != nil {
		t.Fatal(err)
	}
	delete(points, 9)
	var writers sync.WaitGroup
	var mu sync.Mutex
	for w := range 4 {
		writers.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			for range 40 {
				i := 10 + w + 4*r.IntN((n-10)/4-1)
				p := geo.Point{Lat: -r.Float64() * 80, Lng: r.Float64()}
				c := enginetest.Command(t, "shop/"+id(i)+"/was_opened", enginetest.Body(at(p)))
				if _, err := h.Execute(t.Context(), c); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				points[i] = p
				mu.Unlock()
			}
		})
	}
	h.settle()
	writers.Wait()
	h.settle()
	for _, p := range []*place.Service{found, other.places} {
		h.places = p
		if want, got := naive(points, geo.Point{Lat: 3}, math.Inf(1)),
			h.near(geo.Point{Lat: 3}, math.Inf(1), n); !slices.Equal(got, want) {
			t.Errorf("%v\nwant %v", got, want)
		}
		h.compare(p)
	}
	if a, b := found.Stats().Rebuilt, other.places.Stats().Rebuilt; a != 1 || b != 0 {
		t.Errorf("they were begun anew %d and %d times", a, b)
	}
	if _, err := h.places.Kinds(t.Context(), enginetest.Tenant, "shop", spec.Point); err != nil {
		t.Error(err)
	}
}
