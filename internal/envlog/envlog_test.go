package envlog_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/clock"
	"j17/internal/envlog"
	"j17/internal/proof"
	"j17/internal/store"
	"j17/internal/store/pebble"
	"j17/internal/worker"
)

const tenant = j17.Tenant("ins_test/prod")

// fixture is a service of logs on a store in memory, and what the logs have to have.
type fixture struct {
	*envlog.Service
	store *pebble.Store
	fs    *vfs.MemFS
	clock *clock.Manual
	// leaves are those of the events that were written to tenant, ids their positions.
	leaves [][sha256.Size]byte
	ids    []j17.StreamID
}

func newFixture(tb testing.TB) *fixture {
	tb.Helper()
	f := &fixture{fs: vfs.NewMem(), clock: clock.NewManual(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))}
	f.open(tb)
	tb.Cleanup(func() { _ = f.store.Close() })
	return f
}

// open opens the store, and a service that knows nothing.
func (f *fixture) open(tb testing.TB) {
	tb.Helper()
	var err error
	if f.store, err = pebble.Open(pebble.Options{Dir: "data", FS: f.fs, Clock: f.clock}); err != nil {
		tb.Fatal(err)
	}
	f.forget()
}

// forget has a service that knows nothing take the place of the one there is.
func (f *fixture) forget() {
	f.Service = envlog.New(envlog.Options{
		Store: f.store, Clock: f.clock, Worker: worker.New(f.clock, slog.New(slog.DiscardHandler)),
		Origin: func(t j17.Tenant) (string, error) { return "test.example/" + strings.Split(string(t), "/")[1], nil },
	})
}

// write writes n events in units of some size, of a few streams.
func (f *fixture) write(tb testing.TB, n, unit int) {
	tb.Helper()
	for n > 0 {
		var events []store.NewEvent
		for range min(n, unit) {
			i := len(f.leaves) + len(events)
			events = append(events, store.NewEvent{Key: j17.Key{Type: "note", ID: fmt.Sprint(i % 7)}, Type: "was_written", Data: fmt.Appendf(nil, `{"n":%d}`, i), Metadata: []byte(`{}`)})
		}
		if _, err := f.store.Append(tb.Context(), tenant, []store.Append{{Events: events}}); err != nil {
			tb.Fatal(err)
		}
		n -= len(events)
		var last j17.StreamID
		if len(f.ids) > 0 {
			last = f.ids[len(f.ids)-1]
		}
		for e, err := range f.store.ReadFeed(tb.Context(), tenant, last, len(events)) {
			if err != nil {
				tb.Fatal(err)
			}
			f.leaves, f.ids = append(f.leaves, e.Leaf()), append(f.ids, e.StreamID)
		}
		f.clock.Advance(time.Millisecond)
	}
}

// head compares the head with what it has to be.
func (f *fixture) head(tb testing.TB) envlog.Head {
	tb.Helper()
	want := envlog.Head{Size: uint64(len(f.leaves)), Root: proof.Root(f.leaves)}
	if len(f.ids) > 0 {
		want.Position = f.ids[len(f.ids)-1]
	}
	got, err := f.Head(tb.Context(), tenant)
	if err != nil || got != want {
		tb.Fatalf("the head is %+v, %v; want %+v", got, err, want)
	}
	return got
}

// TestHead has logs of many sizes, at once and bit by bit, and forgets them now and then.
func TestHead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	empty := f.head(t)
	if head, err := f.HeadAt(t.Context(), tenant, j17.StreamID{}); err != nil || head != empty {
		t.Errorf("the head of an empty log at its beginning is %+v, %v", head, err)
	}
	for i, n := range []int{1, 1, 5, 248, 1, 1, 255, 1, 300, 2000, 3} {
		f.write(t, n, 1+i*17)
		f.head(t)
		if i%3 == 2 {
			f.forget()
		}
		if _, err := f.Upkeep(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		f.head(t)
	}
	if err := f.store.Close(); err != nil {
		t.Fatal(err)
	}
	f.open(t)
	f.head(t)
}

// TestAnotherEnvironmentOfTheSameName removes an environment whose log is known and fills it anew, with fewer, as many and more events than it had.
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

func (f *fixture) includes(tb testing.TB, i, size int) {
	tb.Helper()
	root := proof.Root(f.leaves[:size])
	at := uint64(size)
	p, err := f.Include(tb.Context(), tenant, uint64(i), &at)
	if err != nil || p.Leaf != f.leaves[i] || p.Root != root || !proof.CheckInclusion(uint64(i), at, p.Leaf, p.Proof, root) {
		tb.Fatalf("event %d in a tree of %d: %+v, %v", i, size, p, err)
	}
	q, err := f.IncludeEvent(tb.Context(), tenant, f.ids[i], &at)
	if err != nil || !cmp.Equal(p, q) {
		tb.Fatalf("event %s in a tree of %d: %+v, %v; want %+v", f.ids[i], size, q, err, p)
	}
}

func (f *fixture) extends(tb testing.TB, from, to int) {
	tb.Helper()
	at := uint64(to)
	p, err := f.Extend(tb.Context(), tenant, uint64(from), &at)
	if err != nil || p.FromRoot != proof.Root(f.leaves[:from]) || p.ToRoot != proof.Root(f.leaves[:to]) ||
		!proof.CheckConsistency(p.From, p.To, p.Proof, p.FromRoot, p.ToRoot) {
		tb.Fatalf("from %d to %d: %+v, %v", from, to, p, err)
	}
}

// TestProofs proves events at random in trees at random, of a log of which a part is in tiles, a part in full tiles that are not stored, and a part in
// neither.
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

func second[T any](_ T, err error) error { return err }

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
			Key: j17.Key{Type: "note", ID: "0"}, Events: []store.Rewritten{{Version: 1, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)}, {Version: 200, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)}},
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
	for _, space := range envlog.Derived() {
		items, err := f.store.Scan(t.Context(), tenant, space, store.Range{}, 100)
		if err != nil || len(items) == 0 {
			t.Fatalf("%s has %d items, %v", space, len(items), err)
		}
		for _, item := range items {
			for _, at := range []int{0, len(item.Value) / 2, len(item.Value) - 1, -1} {
				f.put(t, space, item.Key, item.Value, at)
				f.forget()
				if named := f.wrong(t, string(space), item.Key); !named && (item.Key != "current" || at >= 0) { // without a head it is made anew
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

// wrong looks at all that rests on an item, and reports whether damage is met and named: what is served has to be right.
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
		if err == nil && (p.Leaf != f.leaves[i] || !proof.CheckInclusion(uint64(i), size, p.Leaf, p.Proof, proof.Root(f.leaves))) {
			tb.Fatalf("%s/%s is damaged: the proof of event %d is %+v", space, key, i, p)
		}
		note("a proof", err)
	}
	return named
}

// TestKeys rotates keys, and takes a private one away.
func TestKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	keys := func() []envlog.Key {
		all, err := f.Keys(t.Context(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	signedBy := func() []string {
		signed, err := f.Checkpoint(t.Context(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		var vkeys []string
		for _, k := range keys() {
			vkeys = append(vkeys, k.VKey)
		}
		text, by, err := proof.Open(signed, vkeys)
		if err != nil {
			t.Fatal(err)
		}
		if head, err := proof.ParseTreeHead(text); err != nil || head != (proof.TreeHead{Origin: "test.example/prod", Size: uint64(len(f.leaves)), Root: proof.Root(f.leaves)}) {
			t.Fatalf("the checkpoint is %q: %+v, %v", text, head, err)
		}
		return by
	}
	first := keys()
	if len(first) != 1 || first[0].Status() != envlog.Active || first[0].Name != "test.example/prod" || !first[0].CreatedAt.Equal(f.clock.Now()) {
		t.Fatalf("the first key: %+v", first)
	}
	f.write(t, 3, 1)
	f.forget()
	if diff := cmp.Diff([]string{first[0].VKey}, signedBy()); diff != "" {
		t.Fatal(diff)
	}

	// Both sign for a day.
	f.clock.Advance(time.Hour)
	rotated, err := f.Rotate(t.Context(), tenant)
	if all := keys(); err != nil || len(all) != 2 || all[0] != rotated || all[1].VKey != first[0].VKey || all[1].Status() != envlog.Retired {
		t.Fatalf("after a rotation: %+v, %v", keys(), err)
	}
	if by := signedBy(); len(by) != 2 || by[0] != rotated.VKey {
		t.Errorf("signed by %v", by)
	}
	f.clock.Advance(24*time.Hour - time.Second)
	if by := signedBy(); len(by) != 2 {
		t.Errorf("a second before the day is over: %v", by)
	}
	f.clock.Advance(time.Second)
	if diff := cmp.Diff([]string{rotated.VKey}, signedBy()); diff != "" {
		t.Error(diff)
	}
	if items, err := f.store.Scan(t.Context(), tenant, envlog.KeySpace, store.Range{}, 10); err != nil || len(items) != 1 {
		t.Errorf("%d private keys are left, %v", len(items), err)
	}

	// Where the private one is not there, as after a restore, a new one takes its place, under the same name.
	if err := f.store.Clear(t.Context(), tenant, envlog.KeySpace, store.Range{}); err != nil {
		t.Fatal(err)
	}
	if by := signedBy(); len(by) != 1 || by[0] == rotated.VKey {
		t.Errorf("without the private key: %v", by)
	}
	if all := keys(); len(all) != 3 || all[1].VKey != rotated.VKey || all[1].Status() != envlog.Retired || all[0].Name != "test.example/prod" {
		t.Errorf("without the private key: %+v", all)
	}

	// Another environment has keys of its own.
	other, err := f.Keys(t.Context(), "ins_test/test")
	if err != nil || len(other) != 1 || other[0].Name != "test.example/test" {
		t.Errorf("another environment: %+v, %v", other, err)
	}
}
