package place_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/base/geo"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/derived/build"
	"j17/internal/derived/place"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

const shops = `{"agent_types": ["user"], "geo_types": {"zone": {"type": "polygon", "properties": ["name", "fee"]}, "home": {"type": "point", "properties": ["name"]}},
	"aggregate_types": {
		"shop": {"events": {
			"was_opened": {"schema": {}, "handler": [], "geo": {"type": "point", "path": "$.data.at"}},
			"was_named": {"schema": {}, "handler": []}}},
		"area": {"events": {"was_drawn": {"schema": {}, "handler": [], "geo": {"type": "zone", "path": "$.data.area"}}}},
		"person": {"events": {
			"was_seen": {"schema": {}, "handler": [], "geo": {"type": "point", "path": "$.data.at"}},
			"has_moved": {"schema": {}, "handler": [], "geo": {"type": "home", "path": "$.data.at"}}}},
		"depot": {"events": {"was_planned": {"schema": {}, "handler": [], "implications": [
			{"emit": {"aggregate_type": "shop", "id": "$.key", "event_type": "was_opened", "data": {"at": "$.data.at"}}}]}}}}}`

// house is an engine that keeps places.
type house struct {
	*enginetest.Fixture
	tb     testing.TB
	places *place.Service
	builds *build.Service
	// deciding, if not nil, is called when the places of a command were decided and before it is stored.
	deciding func()
}

func newHouse(tb testing.TB, src string) *house {
	tb.Helper()
	return newHouseOn(tb, testopen.NewData(tb), src)
}

func newHouseOn(tb testing.TB, data *testopen.Data, src string) *house {
	tb.Helper()
	h := &house{tb: tb}
	h.Fixture = enginetest.NewOn(tb, data, engine.Options{}, enginetest.Derived(
		func(ctx context.Context, e *part.Entering) ([]store.Side, error) {
			sides, err := h.places.Derive(ctx, e)
			if h.deciding != nil {
				h.deciding()
			}
			return sides, err
		},
	)...)
	log, pauses := slog.New(slog.DiscardHandler), &hasty{now: time.Unix(1_700_000_000, 0)}
	h.builds = build.New(build.Options{Store: h.Store, Clock: h.Clock, Worker: worker.New(h.Clock, log), Logger: log})
	h.places = place.New(place.Options{
		Store: h.Store, Builds: h.builds, Engine: h.Engine, Clock: pauses, Logger: log,
	})
	if src != "" {
		h.DeploySource(tb, src)
	}
	return h
}

// id makes an identifier of a number, in its order.
func id(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func at(p geo.Point) string { return fmt.Sprintf(`{"at":{"lat":%v,"lng":%v}}`, p.Lat, p.Lng) }

func (h *house) put(typ string, n int, event, data string) {
	h.tb.Helper()
	h.Post(h.tb, typ+"/"+id(n)+"/"+event, enginetest.Body(data))
}

// kinds are the places of a type that can be looked for.
func (h *house) kinds(typ, shape string) *place.Kinds {
	h.tb.Helper()
	k, err := h.places.Kinds(h.tb.Context(), enginetest.Tenant, typ, shape)
	if err != nil {
		h.tb.Fatal(err)
	}
	return k
}

func (h *house) moment() store.Moment {
	h.tb.Helper()
	m, err := h.Store.Moment(h.tb.Context(), enginetest.Tenant)
	if err != nil {
		h.tb.Fatal(err)
	}
	return m
}

// near returns the numbers of the shops near a point, in pages of so many.
func (h *house) near(center geo.Point, radius float64, size int) []int {
	h.tb.Helper()
	k, m := h.kinds("shop", spec.Point), h.moment()
	defer m.Close()
	return h.pages(size, func(after place.Mark) func(func(place.Found, error) bool) {
		return k.Nearby(h.tb.Context(), m, place.Near{Center: center, Radius: radius, After: after})
	})
}

func (h *house) pages(size int, query func(place.Mark) func(func(place.Found, error) bool)) []int {
	h.tb.Helper()
	var all []int
	for after, more := (place.Mark{}), true; more; {
		n := 0
		more = false
		for found, err := range query(after) {
			if err != nil {
				h.tb.Fatal(err)
			}
			after = found.Mark
			if found.ID != "" {
				var number int
				if _, err := fmt.Sscanf(found.ID[24:], "%d", &number); err != nil {
					h.tb.Fatal(err)
				}
				all = append(all, number)
				n++
			}
			if n == size {
				more = true
				break
			}
		}
	}
	return all
}

// naive is what is within a radius, by distance and then by number.
func naive(points map[int]geo.Point, center geo.Point, radius float64) []int {
	var all []int
	for n, p := range points {
		if center.Distance(p) <= radius {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b int) int {
		return cmp.Or(cmp.Compare(center.Distance(points[a]), center.Distance(points[b])), cmp.Compare(a, b))
	})
	return all
}

// TestManyAtOneSpot pages through more than a step takes in, at one point and within a square of a centimetre.
func TestManyAtOneSpot(t *testing.T) {
	h := newHouse(t, shops)
	points := map[int]geo.Point{}
	spot := geo.Point{Lat: 48.137, Lng: 11.575}
	for n := range 150 {
		p := spot
		if n%3 == 1 {
			p.Lng += 1e-9 * float64(n%7)
		}
		points[n] = p
		h.put("shop", n, "was_opened", at(p))
	}
	for _, size := range []int{9, 64, 1000} {
		for _, center := range []geo.Point{spot, {Lat: 48.138, Lng: 11.575}} {
			if want, got := naive(points, center, 500), h.near(center, 500, size); !slices.Equal(got, want) {
				t.Fatalf("in pages of %d: %v, want %v", size, got, want)
			}
		}
	}
}

// page returns the numbers of the shops on a page, and goes on to the next one. It reports how much was looked at.
func (h *house) page(ask *place.Ask) (numbers []int, looked uint64) {
	h.tb.Helper()
	before := h.places.Stats().Scanned
	page, err := h.places.Page(h.tb.Context(), enginetest.Tenant, ask)
	if err != nil {
		h.tb.Fatal(err)
	}
	for i := range page.Rows {
		var number int
		if _, err := fmt.Sscanf(page.Rows[i].ID[24:], "%d", &number); err != nil {
			h.tb.Fatal(err)
		}
		numbers = append(numbers, number)
	}
	ask.Start = page.Next
	return numbers, h.places.Stats().Scanned - before
}

// TestManyPointsAround has so many points around a place that cells are looked at by their quarters: what was read of a
// cell counts for those of its quarters that are whole in it.
func TestManyPointsAround(t *testing.T) {
	h := newHouse(t, shops)
	const n = 800
	r := rand.New(rand.NewPCG(3, 4))
	points := map[int]geo.Point{}
	for i := range n {
		points[i] = geo.Point{Lat: 48.1 + 0.1*r.Float64(), Lng: 11.5 + 0.15*r.Float64()}
	}
	h.fill("shop", "was_opened", n, func(i int) string { return at(points[i]) })
	for _, center := range []geo.Point{
		{Lat: 48.15, Lng: 11.575}, {Lat: 48.101, Lng: 11.501}, {Lat: 47, Lng: 12}, points[7],
	} {
		for _, radius := range []float64{400, 5000, math.Inf(1)} {
			for _, size := range []int{7, n} {
				if got, want := h.near(center, radius, size), naive(points, center, radius); !slices.Equal(got, want) {
					t.Errorf("%v metres around %v, %d on a page: %d aggregates, want %d, or they are not in order", radius, center, size, len(got), len(want))
				}
			}
		}
	}
}

// TestPlacesFollowTheEvents goes through what an event can say of a place: of one unit the last counts, also of what is
// implied.
func TestPlacesFollowTheEvents(t *testing.T) {
	h := newHouse(t, shops)
	h.put("depot", 1, "was_planned", `{"at":{"lat":1,"lng":1}}`)
	if got := h.near(geo.Point{Lat: 1, Lng: 1}, 1, 5); !slices.Equal(got, []int{1}) {
		t.Errorf("implied: %v", got)
	}
	batch := `{"events":[{"type":"was_opened","data":{"at":{"lat":2,"lng":2}}},{"type":"was_opened","data":{"at":{"lat":3,"lng":3}}},{"type":"was_named","data":{}}],` + enginetest.Meta + `}`
	h.Post(t, "shop/"+id(1), batch)
	for lat, want := range map[float64][]int{1: nil, 2: nil, 3: {1}} {
		if got := h.near(geo.Point{Lat: lat, Lng: lat}, 1, 5); !slices.Equal(got, want) {
			t.Errorf("at %g: %v, want %v", lat, got, want)
		}
	}

	// Kinds of places are apart, and a named one has its properties.
	h.put("person", 1, "was_seen", at(geo.Point{Lat: 10, Lng: 10}))
	h.put("person", 1, "has_moved", `{"at":{"lat":20,"lng":20,"name":"cottage"}}`)
	m := h.moment()
	defer m.Close()
	var got []string
	for found, err := range h.kinds("person", spec.Point).Nearby(t.Context(), m, place.Near{
		Center: geo.Point{Lat: 10, Lng: 10}, Radius: math.Inf(1),
	}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(
			got, fmt.Sprintf("%s %v %s %.0f", found.Geo, *found.Location.Point, found.Properties, found.Distance),
		)
	}
	if want := []string{"point {10 10}  0", `home {20 20} {"name":"cottage"} 1544760`}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// square is an area around a place.
func square(lat, lng, half float64) string {
	return fmt.Sprintf(`[{"lat":%[1]g,"lng":%[3]g},{"lat":%[1]g,"lng":%[4]g},{"lat":%[2]g,"lng":%[4]g},{"lat":%[2]g,"lng":%[3]g}]`, lat-half, lat+half, math.Remainder(lng-half, 360), math.Remainder(lng+half, 360))
}

// TestContaining asks for areas around a point, many of which have it, while others are redrawn.
func TestContaining(t *testing.T) {
	h := newHouse(t, shops)
	var want []int
	for n := range 200 {
		half := 0.001 * float64(n%40)
		if n%40 == 0 {
			half = 1
		}
		h.put("area", n, "was_drawn", `{"area":`+square(50, 179.99, half)+`,"name":"n"}`)
		if half > 0.0105 { // as far as the point below is from the middle
			want = append(want, n)
		}
	}
	k := h.kinds("area", spec.Polygon)
	ask := func(p geo.Point, size int) []int {
		m := h.moment()
		defer m.Close()
		return h.pages(size, func(after place.Mark) func(func(place.Found, error) bool) {
			return k.Containing(h.tb.Context(), m, p, after)
		})
	}
	point := geo.Point{Lat: 50.009, Lng: -179.9995}
	for _, size := range []int{1, 13, 1000} {
		if got := ask(point, size); !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %v, want %v", size, got, want)
		}
	}
	for n := range 200 {
		h.put("area", n, "was_drawn", `{"area":null}`)
	}
	before := h.places.Stats().Scanned
	if got := ask(point, 10); got != nil {
		t.Errorf("without areas: %v", got)
	}
	if looked := h.places.Stats().Scanned - before; looked > 10 { // one look reports that no cell has any
		t.Errorf("without areas %d entries, or what costs as much, were looked at", looked)
	}
	m := h.moment()
	defer m.Close()
	if n, err := m.Count("place.cells", store.Range{}, 10); n != 0 || err != nil {
		t.Errorf("%d entries are left: %v", n, err)
	}
}

// TestOlderEventsCount adds places to a spec that had none, takes them away and adds them again, with writes in
// between: what is found is what the events say, and nothing is left of what is not needed.
func TestOlderEventsCount(t *testing.T) {
	without := strings.ReplaceAll(shops, `, "geo": {"type": "point", "path": "$.data.at"}`, "")
	h := newHouse(t, without)
	for n := range 30 {
		h.put("shop", n, "was_opened", at(geo.Point{Lat: float64(n), Lng: 0}))
	}
	h.put("shop", 3, "was_opened", `{"at":null}`)
	h.put("shop", 4, "was_opened", `{"at":"nonsense"}`)

	for round := range 3 {
		h.DeploySource(t, shops)
		if err := h.places.Adopt(t.Context(), enginetest.Tenant); err != nil {
			t.Fatal(err)
		}
		if _, err := h.places.Kinds(
			t.Context(), enginetest.Tenant, "shop", spec.Point,
		); j17.CodeOf(err) != j17.CodeIndexNotReady {
			t.Fatalf("round %d: before the build: %v", round, err)
		}
		// It is written while older ones are gone through.
		h.put("shop", 5, "was_opened", at(geo.Point{Lat: -50, Lng: float64(round)}))
		h.put("shop", 6, "was_opened", `{"at":null}`)
		h.settle()
		got := h.near(geo.Point{Lat: -90}, math.Inf(1), 7)
		want := []int{5, 0, 1, 2, 4}
		for n := 7; n < 30; n++ {
			want = append(want, n)
		}
		if !slices.Equal(got, want) {
			t.Errorf("round %d: %v, want %v", round, got, want)
		}
		h.DeploySource(t, without)
		h.put("shop", 7, "was_named", `{}`)
		if _, err := h.places.Kinds(
			t.Context(), enginetest.Tenant, "shop", spec.Point,
		); j17.CodeOf(err) != j17.CodeNoGeo {
			t.Errorf("round %d: without places: %v", round, err)
		}
		h.settle()
		m := h.moment()
		for _, space := range []store.Space{"places", "place.cells"} {
			if n, err := m.Count(space, store.Range{}, 100); n != 0 || err != nil {
				t.Errorf("round %d: %d items of %s are left: %v", round, n, space, err)
			}
		}
		m.Close()
	}
}

// TestThePastHasPlaces stores events that happened before.
func TestThePastHasPlaces(t *testing.T) {
	h := newHouse(t, shops)
	past, err := h.Recorder(enginetest.Tenant)
	if err != nil {
		t.Fatal(err)
	}
	u := &engine.Past{ID: store.CommandID{1}}
	for _, lat := range []float64{1, 2} {
		metadata, err := value.ParseString(
			`{"actor":{"type":"user","id":"` + enginetest.User + `"},"timestamp":1600000000}`,
		)
		if err != nil {
			t.Fatal(err)
		}
		data, err := value.ParseString(at(geo.Point{Lat: lat}))
		if err != nil {
			t.Fatal(err)
		}
		e, faults := past.Decider().Examine(t.Context(), &command.FileEvent{
			AggregateType: "shop", ID: id(1), Type: "was_opened", Data: data, Metadata: metadata,
		})
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		u.Events = append(u.Events, engine.PastEvent{Examined: e})
	}
	if _, err := past.Store(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if got := h.near(geo.Point{Lat: 2}, 1, 10); !slices.Equal(got, []int{1}) {
		t.Errorf("%v", got)
	}
}

// TestABuildOutlivesWhoIsBehind lets a process go on with a build that has not heard of the deployment yet.
func TestABuildOutlivesWhoIsBehind(t *testing.T) {
	without := strings.ReplaceAll(shops, `, "geo": {"type": "point", "path": "$.data.at"}`, "")
	h := newHouse(t, without)
	h.put("shop", 1, "was_opened", at(geo.Point{Lat: 1, Lng: 1}))
	behind := h.over(engine.New(engine.Options{Store: h.Store, Clock: h.Clock, Logger: slog.New(slog.DiscardHandler)}))
	fence := func() store.Fence {
		item, err := h.Store.Get(t.Context(), enginetest.Tenant, "deployed", "spec")
		if err != nil {
			t.Fatal(err)
		}
		return store.Fence{Space: "deployed", Key: "spec", Rev: item.Rev}
	}
	deployed := store.Side{Op: store.Put, Space: "deployed", Key: "spec"}
	if err := h.Store.Write(t.Context(), enginetest.Tenant, []store.Side{deployed}); err != nil {
		t.Fatal(err)
	}
	behind.Deploy(enginetest.Tenant, enginetest.Compiled(t, without), nil, fence())
	if err := h.Store.Write(t.Context(), enginetest.Tenant, []store.Side{deployed}); err != nil {
		t.Fatal(err)
	}
	h.Deploy(enginetest.Tenant, enginetest.Compiled(t, shops), nil, fence())
	if err := h.places.Adopt(t.Context(), enginetest.Tenant); err != nil {
		t.Fatal(err)
	}

	behind.settle()
	h.Clock.Advance(10 * time.Minute)
	h.settle()
	if got := h.near(geo.Point{Lat: 1, Lng: 1}, 1, 5); !slices.Equal(got, []int{1}) {
		t.Errorf("%v", got)
	}
}

// over is another process over the store of a house, with an engine.
func (h *house) over(e *engine.Engine) *house {
	other := &house{tb: h.tb, Fixture: &enginetest.Fixture{Engine: e, Store: h.Store, Clock: h.Clock}}
	other.builds, other.places = h.onto(e, h.Store)
	return other
}

// onto makes services for an engine, over what shows the store.
func (h *house) onto(e *engine.Engine, st place.Storage) (*build.Service, *place.Service) {
	log, pauses := slog.New(slog.DiscardHandler), &hasty{now: time.Unix(1_700_000_000, 0)}
	builds := build.New(build.Options{Store: h.Store, Clock: h.Clock, Worker: worker.New(h.Clock, log), Logger: log})
	return builds, place.New(place.Options{
		Store: st, Builds: builds, Engine: e, Clock: pauses, Logger: log,
	})
}

// settle carries out the builds.
func (h *house) settle() {
	h.tb.Helper()
	if err := h.builds.Settle(h.tb.Context()); err != nil {
		h.tb.Fatal(err)
	}
}

// TestManyMoveOne lets writers move the same shop at once: none is refused, and it is in one place in the end.
func TestManyMoveOne(t *testing.T) {
	h := newHouse(t, shops)
	var writers sync.WaitGroup
	for w := range 16 {
		writers.Go(func() {
			for i := range 10 {
				c := enginetest.Command(
					t, "shop/"+id(1)+"/was_opened", enginetest.Body(at(geo.Point{Lat: float64(w), Lng: float64(i)})),
				)
				if _, err := h.Execute(t.Context(), c); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	if got := h.near(geo.Point{}, math.Inf(1), 100); !slices.Equal(got, []int{1}) {
		t.Errorf("it is in %d places", len(got))
	}
}

// TestQueriesAreBounded counts what is looked at: for a few rows of many, and before a mark where nothing fits.
func TestQueriesAreBounded(t *testing.T) {
	h := newHouse(t, shops)
	const n = 800
	h.fill(
		"shop", "was_opened", n,
		func(i int) string { return at(geo.Point{Lat: 40 + float64(i/100)/15, Lng: float64(i%100) / 100}) },
	)
	scanned := func(f func()) uint64 {
		before := h.places.Stats().Scanned
		f()
		return h.places.Stats().Scanned - before
	}
	m := h.moment()
	defer m.Close()
	k := h.kinds("shop", spec.Point)
	first := func(rows int, query func(func(place.Found, error) bool)) {
		for _, err := range query {
			if err != nil {
				t.Fatal(err)
			}
			if rows--; rows == 0 {
				return
			}
		}
	}
	for _, radius := range []float64{1e5, 1e7, math.Inf(1)} {
		q := place.Near{Center: geo.Point{Lat: 40.5, Lng: 0.5}, Radius: radius}
		if got := scanned(func() { first(10, k.Nearby(h.tb.Context(), m, q)) }); got > 1000 {
			t.Errorf("%d entries for the nearest ten of %d within %g m", got, n, radius)
		}
	}
	if got := scanned(func() {
		first(n, k.Within(h.tb.Context(), m, geo.Box{South: -1, North: 1, West: -1, East: 1}, place.Mark{}))
	}); got > 1000 {
		t.Errorf("%d entries for an empty box", got)
	}
}

// TestAreasOfManyPoints pages through an area that has more points than are put in order: the ids are gone through in
// theirs, a page looks at a bounded number of them, and one that has found too little says where to go on.
func TestAreasOfManyPoints(t *testing.T) {
	h := newHouse(t, shops)
	h.places.Bound(300, 1000)
	const n, many = 1200, 500
	inside := func(i int) bool { return i < many || i == n-1 }
	h.fill("shop", "was_opened", n, func(i int) string {
		if inside(i) {
			return at(geo.Point{Lat: 10 + float64(i)/1e5, Lng: 10})
		}
		return at(geo.Point{Lat: -10, Lng: 10})
	})
	ask := &place.Ask{Type: "shop", In: geo.Box{South: 0, North: 90, West: 0, East: 90}, Count: 100, Bare: true}
	var got []string
	pages, short := 0, 0
	for more := true; more; pages++ {
		before := h.places.Stats().Scanned
		page, err := h.places.Page(t.Context(), enginetest.Tenant, ask)
		if err != nil {
			t.Fatal(err)
		}
		if looked := h.places.Stats().Scanned - before; looked > 3000 {
			t.Fatalf("a page has looked at %d entries and records", looked)
		}
		for i := range page.Rows {
			got = append(got, page.Rows[i].ID)
		}
		if len(page.Rows) < ask.Count && page.Next != "" {
			short++
		}
		more, ask.Start = page.Next != "", page.Next
	}
	if len(got) != many+1 || got[0] != id(0) || got[many-1] != id(many-1) || got[many] != id(n-1) ||
		!slices.IsSorted(got) {
		t.Errorf("%d rows from %s to %s", len(got), got[0], got[len(got)-1])
	}
	if pages != 6 || short != 0 {
		t.Errorf("%d pages, %d of them short", pages, short)
	}

	// Where next to nothing fits, pages are short.
	ask = &place.Ask{Type: "shop", In: stripes{}, Count: 1000, Bare: true}
	page, err := h.places.Page(t.Context(), enginetest.Tenant, ask)
	if err != nil || len(page.Rows) != 0 || page.Next == "" || !page.Early {
		t.Fatalf("%d rows, next %q: %v", len(page.Rows), page.Next, err)
	}

	// One that may look for longer goes on.
	longer := *ask
	longer.Longer = 1
	if page, err := h.places.Page(
		t.Context(), enginetest.Tenant, &longer,
	); err != nil || len(page.Rows) != 1 || page.Next != "" || page.Early {
		t.Errorf("longer: %d rows, next %q, early %v: %v", len(page.Rows), page.Next, page.Early, err)
	}
	ask.Start = page.Next
	if page, err = h.places.Page(t.Context(), enginetest.Tenant, ask); err != nil || len(page.Rows) != 1 ||
		page.Rows[0].ID != id(n-1) || page.Next != "" {
		t.Errorf("%d rows, next %q: %v", len(page.Rows), page.Next, err)
	}
}

// stripes is an area that needs all cells, and in which next to nothing is.
type stripes struct{}

func (stripes) Contains(p geo.Point) bool { return p.Lat == 10+1199/1e5 }
func (stripes) Cells() []geo.Cell         { return geo.World() }
func (stripes) Vertices() int             { return 0 }

// TestAreasOfManyVertices pages through an area with which it takes long to compare a point: what a page compares is
// bounded, whether it finds something or not, and no point is left out.
func TestAreasOfManyVertices(t *testing.T) {
	h := newHouse(t, shops)
	const n, vertices = 1000, 100_000
	h.fill("shop", "was_opened", n, func(i int) string { return at(geo.Point{Lat: 10 + float64(i)/1e5, Lng: 10}) })
	for _, some := range []int{0, 1, n} {
		asked := 0
		area := many{vertices, func(p geo.Point) bool {
			asked++
			return p.Lat < 10+(float64(some)-0.5)/1e5
		}}
		rows, pages := 0, 0
		ask := &place.Ask{Type: "shop", In: area, Count: n, Bare: true}
		for more := true; more; pages++ {
			asked = 0
			page, err := h.places.Page(t.Context(), enginetest.Tenant, ask)
			if err != nil {
				t.Fatal(err)
			}
			if asked > work.Turn/2*4/vertices {
				t.Fatalf("a page has compared %d points with %d vertices each", asked, vertices)
			}
			rows += len(page.Rows)
			more, ask.Start = page.Next != "", page.Next
		}
		if rows != some || pages < 5 || pages > 20 {
			t.Errorf("%d rows of %d in %d pages", rows, some, pages)
		}
	}
}

// many is an area that has so many vertices.
type many struct {
	vertices int
	contains func(p geo.Point) bool
}

func (a many) Contains(p geo.Point) bool { return a.contains(p) }
func (many) Cells() []geo.Cell           { return geo.World() }
func (a many) Vertices() int             { return a.vertices }

// TestPlacesAreCountedOnce counts the places of a command that is decided again, since another spec was deployed
// meanwhile, and of one that is only tried.
func TestPlacesAreCountedOnce(t *testing.T) {
	h := newHouse(t, shops)
	decided := 0
	h.deciding = func() {
		if decided++; decided == 1 {
			h.DeploySource(t, strings.Replace(shops, "was_named", "was_renamed", 1))
		}
	}
	h.put("shop", 1, "was_opened", at(geo.Point{Lat: 1}))
	if got := h.places.Stats().Written; got != 1 || decided != 2 {
		t.Errorf("a place that was decided %d times and stored once counts %d times", decided, got)
	}
}
