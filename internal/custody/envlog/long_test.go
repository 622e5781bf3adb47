//go:build !race

package envlog_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"j17"
	"j17/internal/custody/envlog"
	"j17/internal/custody/proof"
	"j17/internal/storage/store"
)

// TestAnotherEnvironmentOfTheSameName removes an environment whose log is known and fills it again, with fewer, as many
// and more events than it had.
func TestAnotherEnvironmentOfTheSameName(t *testing.T) {
	t.Parallel()
	for _, had := range []int{10, 300, 1500} {
		for _, has := range []int{5, 300, 2000} {
			f := newFixture(t)
			f.write(t, had, 100)
			f.head(t)
			if _, err := f.Upkeep(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			if err := f.store.DropTenant(t.Context(), tenant); err != nil {
				t.Fatal(err)
			}
			f.leaves, f.ids = nil, nil
			f.write(t, 1, 1)
			f.write(t, has-1, 100)
			f.head(t)
			f.includes(t, has-1, has)
			if _, err := f.Upkeep(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			f.forget()
			f.head(t)
		}
	}
}

// TestThreeLevels has a log with tiles of three levels.
func TestThreeLevels(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, 70_000, 5000)
	f.head(t)
	f.forget()
	if behind, err := f.Behind(t.Context(), tenant); err != nil || behind > 32_768 {
		t.Errorf("the log that is stored is %d events behind, %v", behind, err) // what is full was stored on the way
	}
	if _, err := f.Upkeep(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	f.forget()
	if behind, err := f.Behind(t.Context(), tenant); err != nil || behind >= 1024 {
		t.Errorf("after upkeep the log is %d events behind, %v", behind, err)
	}
	f.head(t)
	for _, i := range []int{0, 255, 256, 65_535, 65_536, 69_999} {
		f.includes(t, i, len(f.leaves))
	}
	f.extends(t, 65_535, 69_000)
}

// TestProofs proves events at random in trees at random, of a log of which a part is in tiles, a part in full tiles
// that are not stored, and a part in neither.
func TestProofs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, 1500, 100)
	if _, err := f.Upkeep(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	f.write(t, 700, 3)
	f.head(t)
	for range 100 {
		size := 1 + rand.IntN(len(f.leaves))
		f.includes(t, rand.IntN(size), size)
		f.extends(t, 1+rand.IntN(size), size)
	}

	// Heads of the past, also at positions between events.
	for range 100 {
		n := rand.IntN(len(f.ids))
		for _, at := range []j17.StreamID{f.ids[n], {Ms: f.ids[n].Ms, Seq: 1 << 31}} {
			size := n + 1
			for size < len(f.ids) && f.ids[size].Compare(at) <= 0 {
				size++
			}
			head, err := f.HeadAt(t.Context(), tenant, at)
			want := envlog.Head{Size: uint64(size), Root: proof.Root(f.leaves[:size]), Position: f.ids[size-1]}
			if err != nil || head != want {
				t.Fatalf("at %s: %+v, %v; want %+v", at, head, err, want)
			}
		}
	}
	for at, want := range map[j17.StreamID]int{{}: 0, {Ms: 1}: 0, {Ms: 9_999_999_999_999}: len(f.leaves)} {
		if head, err := f.HeadAt(t.Context(), tenant, at); err != nil || head.Size != uint64(want) {
			t.Errorf("at %s: %+v, %v", at, head, err)
		}
	}

	// What is not there.
	size := uint64(len(f.leaves))
	more := size + 1
	for what, err := range map[string]error{
		"an index":  second(f.Include(t.Context(), tenant, size, nil)),
		"a size":    second(f.Include(t.Context(), tenant, 0, &more)),
		"no size":   second(f.Include(t.Context(), tenant, 0, new(uint64))),
		"an event":  second(f.IncludeEvent(t.Context(), tenant, j17.StreamID{Ms: 1}, nil)),
		"a gap":     second(f.IncludeEvent(t.Context(), tenant, j17.StreamID{Ms: f.ids[0].Ms, Seq: 1 << 31}, nil)),
		"no tree":   second(f.Extend(t.Context(), tenant, 0, nil)),
		"a greater": second(f.Extend(t.Context(), tenant, 1, &more)),
	} {
		if !errors.Is(err, envlog.ErrBeyond) {
			t.Errorf("%s that is not there: %v", what, err)
		}
	}
}

// TestErasedEventsKeepTheirLeaves rewrites events, before and after they are in tiles.
func TestErasedEventsKeepTheirLeaves(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} {
		f := newFixture(t)
		f.write(t, 2000, 50)
		if stored {
			f.head(t)
			if _, err := f.Upkeep(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		_, err := f.store.Rewrite(t.Context(), tenant, store.Rewrite{Streams: []store.RewrittenStream{{
			Key: j17.Key{Type: "note", ID: "0"}, Events: []store.Rewritten{
				{Version: 1, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)},
				{Version: 200, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)},
			},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		f.head(t)
		f.forget()
		f.head(t)
		f.includes(t, 0, 2000)
		f.write(t, 300, 9)
		f.head(t)
	}
}

// TestADamagedLogIsNamedAndNotServed changes what is stored of a log, byte by byte.
func TestADamagedLogIsNamedAndNotServed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, 1800, 300)
	if _, err := f.Upkeep(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for _, of := range f.Part().Spaces {
		space := of.Space
		if !of.Derived {
			continue
		}
		items, err := f.store.Scan(t.Context(), tenant, space, store.Range{}, 100)
		if err != nil || len(items) == 0 {
			t.Fatalf("%s has %d items, %v", space, len(items), err)
		}
		for _, item := range items {
			for _, at := range []int{0, len(item.Value) / 2, len(item.Value) - 1, -1} {
				f.put(t, space, item.Key, item.Value, at)
				f.forget()
				if named := f.wrong(t, string(space), item.Key); !named && (item.Key != "current" || at >= 0) {
					// without a head it is rebuilt
					t.Fatalf("%s/%s is damaged at %d: nobody has noticed", space, item.Key, at)
				}
				f.put(t, space, item.Key, item.Value, len(item.Value))
			}
		}
	}
	f.forget()
	f.head(t)
	f.includes(t, 3, 1800)
}

// wrong looks at all that rests on an item, and reports whether damage is met and named: what is served has to be
// right.
func (f *fixture) wrong(tb testing.TB, space, key string) (named bool) {
	tb.Helper()
	note := func(what string, err error) {
		damage, ok := errors.AsType[*store.CorruptionError](err)
		switch {
		case err == nil:
		case !ok || !strings.Contains(damage.Error(), space):
			tb.Fatalf("%s/%s is damaged, %s: %v", space, key, what, err)
		default:
			named = true
		}
	}
	size := uint64(len(f.leaves))
	for i := 0; i < len(f.leaves); i += 100 {
		p, err := f.IncludeEvent(tb.Context(), tenant, f.ids[i], nil)
		if err == nil &&
			(p.Leaf != f.leaves[i] || !proof.CheckInclusion(uint64(i), size, p.Leaf, p.Proof, proof.Root(f.leaves))) {
			tb.Fatalf("%s/%s is damaged: the proof of event %d is %+v", space, key, i, p)
		}
		note("a proof", err)
	}
	return named
}

// put writes an item with one byte changed, none where there is no such byte; or removes it for -1.
func (f *fixture) put(tb testing.TB, space store.Space, key string, value []byte, at int) {
	tb.Helper()
	changed := append([]byte(nil), value...)
	side := store.Side{Op: store.Put, Space: space, Key: key, Value: changed}
	switch {
	case at < 0:
		side.Op = store.Delete
	case at < len(changed):
		changed[at] ^= 1
	}
	if err := f.store.Write(tb.Context(), tenant, []store.Side{side}); err != nil {
		tb.Fatal(err)
	}
}
