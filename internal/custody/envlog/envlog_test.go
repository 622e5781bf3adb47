package envlog_test

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/worker"
	"j17/internal/custody/envlog"
	"j17/internal/custody/proof"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

const tenant = j17.Tenant("ins_test/prod")

// fixture is a service of logs, and what the logs have to have.
type fixture struct {
	*envlog.Service
	data  *testopen.Data
	store store.Store
	clock *clock.Manual
	// leaves are those of the events that were written to tenant, ids their positions.
	leaves [][sha256.Size]byte
	ids    []j17.StreamID
}

func newFixture(tb testing.TB) *fixture {
	tb.Helper()
	f := &fixture{data: testopen.NewData(tb), clock: clock.NewManual(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))}
	f.open(tb)
	return f
}

// open opens the store, and a service that knows nothing.
func (f *fixture) open(tb testing.TB) {
	tb.Helper()
	f.store = f.data.Open(tb, f.clock)
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
			events = append(events, store.NewEvent{
				Key: j17.Key{Type: "note", ID: fmt.Sprint(i % 7)}, Type: "was_written",
				Data: fmt.Appendf(nil, `{"n":%d}`, i), Metadata: []byte(`{}`),
			})
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
	f.open(t)
	f.head(t)
}

func (f *fixture) includes(tb testing.TB, i, size int) {
	tb.Helper()
	root := proof.Root(f.leaves[:size])
	at := uint64(size)
	p, err := f.Include(tb.Context(), tenant, uint64(i), &at)
	if err != nil || p.Leaf != f.leaves[i] || p.Root != root ||
		!proof.CheckInclusion(uint64(i), at, p.Leaf, p.Proof, root) {
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

func second[T any](_ T, err error) error { return err }

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
		if head, err := proof.ParseTreeHead(text); err != nil || head != (proof.TreeHead{
			Origin: "test.example/prod", Size: uint64(len(f.leaves)), Root: proof.Root(f.leaves),
		}) {
			t.Fatalf("the checkpoint is %q: %+v, %v", text, head, err)
		}
		return by
	}
	first := keys()
	if len(first) != 1 || first[0].Status() != envlog.Active || first[0].Name != "test.example/prod" ||
		!first[0].CreatedAt.Equal(f.clock.Now()) {
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
	if all := keys(); err != nil || len(all) != 2 || all[0] != rotated || all[1].VKey != first[0].VKey ||
		all[1].Status() != envlog.Retired {
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
	if items, err := f.store.Scan(t.Context(), tenant, envlog.KeySpace, store.Range{}, 10); err != nil ||
		len(items) != 1 {
		t.Errorf("%d private keys are left, %v", len(items), err)
	}

	// Where the private one is not there, as after a restore, a new one takes its place, under the same name.
	if err := f.store.Clear(t.Context(), tenant, envlog.KeySpace, store.Range{}); err != nil {
		t.Fatal(err)
	}
	if by := signedBy(); len(by) != 1 || by[0] == rotated.VKey {
		t.Errorf("without the private key: %v", by)
	}
	if all := keys(); len(all) != 3 || all[1].VKey != rotated.VKey || all[1].Status() != envlog.Retired ||
		all[0].Name != "test.example/prod" {
		t.Errorf("without the private key: %+v", all)
	}

	// Another environment has keys of its own.
	other, err := f.Keys(t.Context(), "ins_test/test")
	if err != nil || len(other) != 1 || other[0].Name != "test.example/test" {
		t.Errorf("another environment: %+v, %v", other, err)
	}
}
