package place_test

import (
	"context"
	"errors"
	"iter"
	"math/big"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	raw "github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/base/geo"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/derived/place"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

const (
	slotSpace  store.Space = "place.slots"
	resetSpace store.Space = "place.resets"
)

// rotten is a store whose slots of places cannot be read any longer until they are removed, as long as harmed says so.
type rotten struct {
	place.Storage

	harmed atomic.Bool
	// all reports that it is so with the number of times that they were thrown away, too.
	all bool
	// reading, if not nil, is called before a stream is read, read when it has been.
	reading, read func(j17.Key)
}

func (r *rotten) ReadStream(
	ctx context.Context, t j17.Tenant, key j17.Key, from, to uint64,
) iter.Seq2[*j17.Event, error] {
	return func(yield func(*j17.Event, error) bool) {
		if r.reading != nil {
			r.reading(key)
		}
		for ev, err := range r.Storage.ReadStream(ctx, t, key, from, to) {
			if !yield(ev, err) {
				return
			}
		}
		if r.read != nil {
			r.read(key)
		}
	}
}

func (r *rotten) damage(space store.Space) error {
	if (space == slotSpace || r.all && space == resetSpace) && r.harmed.Load() {
		return &store.CorruptionError{Where: string(space), Err: errors.New("its checksum is wrong")}
	}
	return nil
}

func (r *rotten) Scan(
	ctx context.Context, t j17.Tenant, space store.Space, keys store.Range, limit int,
) ([]store.Item, error) {
	if err := r.damage(space); err != nil {
		return nil, err
	}
	return r.Storage.Scan(ctx, t, space, keys, limit)
}

func (r *rotten) Get(ctx context.Context, t j17.Tenant, space store.Space, key string) (store.Item, error) {
	if err := r.damage(space); err != nil {
		return store.Item{}, err
	}
	return r.Storage.Get(ctx, t, space, key)
}

func (r *rotten) Empty(
	ctx context.Context, t j17.Tenant, spaces []store.Space, side []store.Side, fences ...store.Fence,
) error {
	err := r.Storage.Empty(ctx, t, spaces, side, fences...)
	if err == nil && slices.Contains(spaces, slotSpace) && (!r.all || slices.Contains(spaces, resetSpace)) {
		r.harmed.Store(false)
	}
	return err
}

func (r *rotten) Moment(ctx context.Context, t j17.Tenant) (store.Moment, error) {
	m, err := r.Storage.Moment(ctx, t)
	return rottenMoment{m, r}, err
}

type rottenMoment struct {
	store.Moment

	of *rotten
}

func (m rottenMoment) Get(space store.Space, key string) (store.Item, error) {
	if err := m.of.damage(space); err != nil {
		return store.Item{}, err
	}
	return m.Moment.Get(space, key)
}

// garble replaces what is stored of a slot.
func (h *house) garble(value string) {
	h.tb.Helper()
	put := store.Side{Op: store.Put, Space: slotSpace, Key: "shop/point", Value: []byte(value)}
	if err := h.Store.Write(h.tb.Context(), enginetest.Tenant, []store.Side{put}); err != nil {
		h.tb.Fatal(err)
	}
}

// TestDamagedSlotsAreMended: what the places of a kind are kept under cannot be read. Whoever comes upon it has all
// places rebuilt from the events, and writes go on.
func TestDamagedSlotsAreMended(t *testing.T) {
	ask := func(h *house) {
		h.tb.Helper()
		if page, err := h.places.Page(
			h.tb.Context(), enginetest.Tenant, everywhere(),
		); j17.CodeOf(err) != j17.CodeIndexNotReady {
			h.tb.Errorf("who meets it: %v, %v", page, err)
		}
	}
	write := func(h *house) { h.put("shop", 7, "was_opened", at(geo.Point{Lat: 7, Lng: 1})) }
	erase := func(h *house) {
		h.tb.Helper()
		if err := h.places.Erase(h.tb.Context(), enginetest.Tenant, part.Erased{
			Keys: []j17.Key{{Type: "shop", ID: id(7)}},
		}); err != nil {
			h.tb.Error(err)
		}
	}
	for name, c := range map[string]struct {
		unreadable bool
		find       func(*house)
	}{
		"asked for":                {false, ask},
		"looked at":                {false, (*house).look},
		"erased":                   {false, erase},
		"asked for and unreadable": {true, ask},
		"looked at and unreadable": {true, (*house).look},
		"erased and unreadable":    {true, erase},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := settled(t)
			st := &rotten{Storage: h.Store}
			h.builds, h.places = h.onto(h.Engine, st)
			want, stored := h.answers(h.places), h.dump()

			// Damage, and who finds it.
			if c.unreadable {
				st.harmed.Store(true)
			} else {
				h.garble(`{"slot":`)
			}
			c.find(h)
			if n := h.places.Stats().Rebuilt; n != 1 {
				t.Fatalf("they were begun anew %d times", n)
			}
			write(h)
			h.put("person", 5, "has_moved", `{"name":"n5","at":{"lat":5,"lng":2}}`)
			h.refused(h.places)

			// All is as it was.
			if again := h.mended(want); !slices.Equal(again, stored) {
				t.Errorf("it is stored\n%s\nand was\n%s", strings.Join(again, "\n"), strings.Join(stored, "\n"))
			}
		})
	}
}

// TestADamagedCountOfResets: how often slots were thrown away cannot be read by a process that begins. All places are
// rebuilt, and the number goes on from more than it was.
func TestADamagedCountOfResets(t *testing.T) {
	for _, unreadable := range []bool{false, true} {
		h := settled(t)
		want := h.answers(h.places)
		h.garble(`{"slot":`)
		if _, err := h.places.Page(
			t.Context(), enginetest.Tenant, everywhere(),
		); j17.CodeOf(err) != j17.CodeIndexNotReady {
			t.Fatal(err)
		}
		stored := h.mended(want)
		before := h.resets()
		if before.String() != "1" {
			t.Fatalf("slots were thrown away %s times", before)
		}

		st := &rotten{Storage: h.Store, all: true}
		if st.harmed.Store(unreadable); !unreadable {
			put := store.Side{Op: store.Put, Space: resetSpace, Key: "slots", Value: []byte("x")}
			if err := h.Store.Write(t.Context(), enginetest.Tenant, []store.Side{put}); err != nil {
				t.Fatal(err)
			}
		}
		h.builds, h.places = h.onto(h.Engine, st)
		if _, err := h.places.Page(
			t.Context(), enginetest.Tenant, everywhere(),
		); j17.CodeOf(err) != j17.CodeIndexNotReady {
			t.Fatalf("who meets it: %v", err)
		}
		h.put("shop", 7, "was_opened", at(geo.Point{Lat: 7, Lng: 1}))
		if again := h.mended(want); len(again) != len(stored) {
			t.Errorf("it is stored\n%s\nand was\n%s", strings.Join(again, "\n"), strings.Join(stored, "\n"))
		}
		if after := h.resets(); after.Cmp(before) <= 0 {
			t.Errorf("slots were thrown away %s times, before %s", after, before)
		}
	}
}

// resets returns how often slots were thrown away.
func (h *house) resets() *big.Int {
	h.tb.Helper()
	item, err := h.Store.Get(h.tb.Context(), enginetest.Tenant, resetSpace, "slots")
	n, ok := new(big.Int).SetString(string(item.Value), 10)
	if err != nil || !ok {
		h.tb.Fatalf("%q, %v", item.Value, err)
	}
	return n
}

// TestSlotsAreMendedBesideWriters: one server finds the damage, and another one, which does not know of it, goes on to
// write.
func TestSlotsAreMendedBesideWriters(t *testing.T) {
	t.Parallel()
	h := settled(t)
	other := h.over(h.Engine)
	other.answers(other.places)
	h.garble(`{"slot":""}`)
	if _, err := other.places.Page(
		t.Context(), enginetest.Tenant, everywhere(),
	); j17.CodeOf(err) != j17.CodeIndexNotReady {
		t.Fatal(err)
	}
	other.settle()
	h.put("shop", 7, "was_opened", at(geo.Point{Lat: -80, Lng: 1})) // by the engine's own places
	if n := h.places.Stats().Rebuilt; n != 0 {
		t.Fatalf("the writer has found it %d times", n)
	}
	for _, p := range []*place.Service{h.places, other.places} {
		if shops := h.answers(p)["shops around"]; len(shops) != 19 || shops[18] != id(7) {
			t.Errorf("found are %q", shops)
		}
		h.compare(p)
	}
	if a, b := h.places.Stats().Rebuilt, other.places.Stats().Rebuilt; a != 0 || b != 1 {
		t.Errorf("they were begun anew %d and %d times", a, b)
	}
}

// TestSlotsDamagedBeforeTheStart: a process that knows nothing yet finds a slot that cannot be read. No place of before
// is left under names that nobody knows.
func TestSlotsDamagedBeforeTheStart(t *testing.T) {
	t.Parallel()
	h := settled(t)
	want, stored := h.answers(h.places), h.dump()
	h.spoil(func(db *raw.DB) {
		key, _ := item(t, db, slotSpace, "shop/point")
		set(t, db, key, []byte("x"))
	})
	if n := h.places.Stats().Rebuilt; n != 1 {
		t.Fatalf("they were begun anew %d times", n)
	}
	h.put("shop", 7, "was_opened", at(geo.Point{Lat: 7, Lng: 1}))
	h.refused(h.places)
	if again := h.mended(want); len(again) != len(stored) { // under another name
		t.Errorf("it is stored\n%s\nand was\n%s", strings.Join(again, "\n"), strings.Join(stored, "\n"))
	}
}

// TestAnErasureOvertakesABuild: one server has places rebuilt and has read a stream, which is rewritten then; another
// server, which has known all places to be whole, erases what is kept of it. What was read before does not come back.
func TestAnErasureOvertakesABuild(t *testing.T) {
	t.Parallel()
	h := settled(t)
	h.answers(h.places)
	key := j17.Key{Type: "shop", ID: id(9)}
	building, erased := false, false
	st := &rotten{Storage: h.Store, read: func(of j17.Key) {
		if of != key || erased || !building {
			return
		}
		erased = true
		gone := []store.Rewritten{{Version: 1, Type: "_was_tombstoned", Data: []byte(`{}`), Metadata: []byte(`{}`)}}
		if err := storetest.Erase(t.Context(), h.Store, enginetest.Tenant, key, gone); err != nil {
			t.Error(err)
		}
		if err := h.places.Erase(t.Context(), enginetest.Tenant, part.Erased{Keys: []j17.Key{key}}); err != nil {
			t.Error(err)
		}
	}}
	other := &house{tb: t, Fixture: h.Fixture}
	other.builds, other.places = h.onto(h.Engine, st)
	if err := h.Store.Write(t.Context(), enginetest.Tenant, []store.Side{
		{Op: store.Delete, Space: "places", Key: h.record("area", 7)},
	}); err != nil {
		t.Fatal(err)
	}
	if err := other.places.Compare(t.Context(), enginetest.Tenant); err != nil {
		t.Fatal(err)
	}
	building = true
	other.settle()
	for _, p := range []*place.Service{h.places, other.places} {
		if shops := h.answers(p)["shops around"]; !erased || len(shops) != 18 || slices.Contains(shops, key.ID) {
			t.Errorf("found are %q", shops)
		}
		h.compare(p)
	}
}

// record is the key of the record of a place.
func (h *house) record(typ string, n int) string {
	h.tb.Helper()
	items, err := h.Store.Scan(h.tb.Context(), enginetest.Tenant, "places", store.Prefix(typ+":"+id(n)+"/"), 1)
	if err != nil || len(items) != 1 {
		h.tb.Fatal(items, err)
	}
	return items[0].Key
}

// TestSlotsAreMendedByANewcomer: a server that has just begun finds the damage, and another one, which has known the
// slots before, goes on to write.
func TestSlotsAreMendedByANewcomer(t *testing.T) {
	t.Parallel()
	h := settled(t)
	other := h.over(h.Engine)
	h.garble(`{"slot":""}`)
	if _, err := other.places.Page(
		t.Context(), enginetest.Tenant, everywhere(),
	); j17.CodeOf(err) != j17.CodeIndexNotReady {
		t.Fatal(err)
	}
	other.settle()
	h.put("shop", 7, "was_opened", at(geo.Point{Lat: -80, Lng: 1})) // by the engine's own places
	for _, p := range []*place.Service{h.places, other.places} {
		if shops := h.answers(p)["shops around"]; len(shops) != 19 || shops[18] != id(7) {
			t.Errorf("found are %q", shops)
		}
		h.compare(p)
	}
}

// TestAWriteMeetsADamagedCountOfResets: the store cannot read how often slots were thrown away when a write wants to
// know.
func TestAWriteMeetsADamagedCountOfResets(t *testing.T) {
	t.Parallel()
	h := settled(t)
	want := h.answers(h.places)
	h.garble(`{"slot":`)
	if _, err := h.places.Page(t.Context(), enginetest.Tenant, everywhere()); j17.CodeOf(err) != j17.CodeIndexNotReady {
		t.Fatal(err)
	}
	h.mended(want)
	before, met := h.resets(), store.ItemName{Space: resetSpace, Key: "slots"}
	if !h.places.Mend(t.Context(), enginetest.Tenant, met) || h.resets().Cmp(before) != 0 {
		t.Errorf("a count that somebody else has mended is %s, before %s", h.resets(), before)
	}
	st := &rotten{Storage: h.Store, all: true}
	st.harmed.Store(true)
	h.builds, h.places = h.onto(h.Engine, st)
	if !h.places.Mend(t.Context(), enginetest.Tenant, met) {
		t.Error("the write may not be tried again")
	}
	if after := h.resets(); after.Cmp(before) <= 0 {
		t.Errorf("slots were thrown away %s times, before %s", after, before)
	}
	h.put("shop", 7, "was_opened", at(geo.Point{Lat: 7, Lng: 1}))
	h.mended(want)
}
