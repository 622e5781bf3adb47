package loading_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/custody/loading"
	"j17/internal/storage/store"
)

// exportedLine is what a test looks at of a line.
type exportedLine struct {
	StreamID string `json:"stream_id"`
	Key      string `json:"key"`
	Type     string `json:"type"`
	Chain    string `json:"chain"`
	Leaf     string `json:"leaf"`
	// raw is the canonical bytes.
	raw []byte
}

// linesOf takes an export apart.
func linesOf(tb testing.TB, text string) (all []exportedLine) {
	tb.Helper()
	for l := range strings.Lines(text) {
		var e exportedLine
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			tb.Fatal(err)
		}
		for _, name := range []string{"handle", "public_id", "chain"} {
			if at := strings.LastIndex(l, `,"`+name+`":"`); at >= 0 && e.raw == nil {
				e.raw = []byte(l[:at] + "}")
			}
		}
		all = append(all, e)
	}
	return all
}

// checkChains compares the chain of each line with that over the lines of its aggregate.
func checkChains(tb testing.TB, all []exportedLine) {
	tb.Helper()
	heads := map[string][32]byte{}
	for _, e := range all {
		heads[e.Key] = j17.Link(heads[e.Key], j17.Leaf(e.raw))
		if want := heads[e.Key]; e.Chain != hex.EncodeToString(want[:]) {
			tb.Fatalf("%s of %s has the chain %s, want %x", e.StreamID, e.Key, e.Chain, want)
		}
	}
}

// write puts a note of about a number of bytes on a stream.
func (f *fixture) write(tb testing.TB, id string, size int) j17.StreamID {
	tb.Helper()
	return f.Post(tb, "note/"+id+"/was_written", enginetest.Body(`{"text":"`+strings.Repeat("x", size)+`"}`)).IDs[0]
}

// erasedData are data of markers.
const erasedData = `{"original_hash":"0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a",` +
	`"chain_hash":"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b","original_type":"was_written",` +
	`"tombstone_id":"tmb_4k7vx9tz2nqr8w3","tombstoned_at":"2026-11-21T08:00:00Z"}`

// erase rewrites all events of a note.
func (f *fixture) erase(tb testing.TB, id string) {
	tb.Helper()
	key := j17.Key{Type: "note", ID: id}
	s := store.RewrittenStream{Key: key}
	for e, err := range f.Fixture.Store.ReadStream(tb.Context(), tenant, key, 1, 0) {
		if err != nil {
			tb.Fatal(err)
		}
		s.Events = append(s.Events, store.Rewritten{Version: e.Version, Type: "_was_tombstoned", Data: []byte(erasedData), Metadata: []byte(`{"actor":{"type":"system","id":"system"}}`)})
	}
	if r, err := f.Fixture.Store.Rewrite(tb.Context(), tenant, store.Rewrite{
		Streams: []store.RewrittenStream{s},
	}); err != nil || r.Outcome != store.Committed {
		tb.Fatalf("%+v, %v", r, err)
	}
}

func TestExportsHaveChains(t *testing.T) {
	f := naming(t)
	ids := []string{fresh(), fresh(), fresh()}
	var third j17.StreamID
	for i := range 30 {
		at := f.write(t, ids[i%3], 10)
		if i == 9 {
			third = at
		}
	}
	f.Create(t, "refund/_new/was_made", enginetest.Body(`{}`))
	whole := linesOf(t, f.export(t, tenant, "", j17.StreamID{}))
	if len(whole) != 31 {
		t.Fatalf("%d lines", len(whole))
	}
	checkChains(t, whole)

	// What comes later has the same chains, and so has one type; the head of the store agrees.
	for i, e := range linesOf(t, f.export(t, tenant, "", third)) {
		if want := whole[i+10]; e.Chain != want.Chain || string(e.raw) != string(want.raw) {
			t.Errorf("line %d after %s: %+v, want %+v", i, third, e, want)
		}
	}
	if notes := linesOf(t, f.export(t, tenant, "note", j17.StreamID{})); len(notes) != 30 ||
		notes[29].Chain != whole[29].Chain {
		t.Errorf("%d notes", len(notes))
	}
	heads, err := f.Fixture.Store.Heads(t.Context(), tenant, []j17.Key{{Type: "note", ID: ids[2]}})
	if err != nil || whole[29].Chain != hex.EncodeToString(heads[0].Chain[:]) {
		t.Errorf("the head is %x, %v", heads[0].Chain, err)
	}

	// What was erased has a chain over what it is now, and the leaf that it had.
	f.erase(t, ids[1])
	after := linesOf(t, f.export(t, tenant, "", j17.StreamID{}))
	checkChains(t, after)
	for i, e := range after {
		leaf := j17.Leaf(whole[i].raw)
		if erased := i%3 == 1 && i < 30; erased != (e.Leaf == hex.EncodeToString(leaf[:])) ||
			erased != (e.Type == "_was_tombstoned") {
			t.Errorf("line %d: %+v", i, e)
		}
	}
}

// TestAnExportEndsWhereItBegan: what is written while an export is made is not in it.
func TestAnExportEndsWhereItBegan(t *testing.T) {
	f := naming(t)
	last := f.write(t, fresh(), 10)
	x, err := f.Export(t.Context(), tenant, "", j17.StreamID{}, line)
	if err != nil || x.UpTo != last || x.Events != 1 || !x.Whole() {
		t.Fatalf("%+v, %v", x, err)
	}
	f.write(t, fresh(), 10)
	for p, err := range x.Pieces(t.Context()) {
		if err != nil || p.Last != last || len(linesOf(t, string(p.Bytes))) != 1 {
			t.Errorf("%s, %v", p.Bytes, err)
		}
	}
}

// feedReads is the real store, which notes up to how many events are read of a feed at a time.
type feedReads struct {
	loading.Storage
	limits []int
}

// ReadFeed implements store.Feed.
func (r *feedReads) ReadFeed(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[*j17.Event, error] {
	r.limits = append(r.limits, limit)
	return r.Storage.ReadFeed(ctx, t, after, limit)
}

// TestAnExportReadsOn: an export reads the feed in one go, for which the store has large pages, and little beyond the
// end.
func TestAnExportReadsOn(t *testing.T) {
	f := naming(t)
	for range 3 {
		f.write(t, fresh(), 10)
	}
	reads := &feedReads{Storage: f.Fixture.Store}
	f.Loader.Store = reads
	whole := f.export(t, tenant, "", j17.StreamID{})
	if n := strings.Count(whole, "\n"); n != 3 || !slices.Equal(reads.limits, []int{4}) {
		t.Errorf("%d events of 3 were read by up to %v", n, reads.limits)
	}
}

// TestErasureDuringAnExport: what was not handed out yet comes as it is after the erasure, however far ahead it was
// read; where some of it was, the export ends with an error.
func TestErasureDuringAnExport(t *testing.T) {
	const n = 24
	for _, tc := range []struct {
		erased int
		typ    string
		fails  bool
	}{{erased: n - 1}, {erased: 4}, {erased: 0, fails: true}, {erased: 0, typ: "refund"}} {
		t.Run(fmt.Sprintf("erased=%d,type=%s", tc.erased, tc.typ), func(t *testing.T) {
			f := naming(t)
			var ids []string
			for range n {
				ids = append(ids, fresh())
				f.write(t, ids[len(ids)-1], 90_000) // three fill a piece
				f.Create(t, "refund/_new/was_made", enginetest.Body(`{}`))
			}
			x, err := f.Export(t.Context(), tenant, tc.typ, j17.StreamID{}, line)
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			var failed error
			pieces := 0
			for p, err := range x.Pieces(t.Context()) {
				if failed = err; err != nil {
					break
				}
				text.Write(p.Bytes)
				if pieces++; pieces == 1 {
					// Another tenant's erasures change nothing either.
					f.erase(t, ids[tc.erased])
				}
			}
			if (j17.CodeOf(failed) == j17.CodeConflict) != tc.fails || !tc.fails && failed != nil {
				t.Fatal(failed)
			}
			if tc.fails || tc.typ != "" {
				return
			}
			all := linesOf(t, text.String())
			checkChains(t, all)
			if e := all[2*tc.erased]; len(all) != 2*n || e.Type != "_was_tombstoned" || e.Leaf == "" {
				t.Errorf("%d lines, %s is of type %s", len(all), e.Key, e.Type)
			}
		})
	}
}

// TestAnExportThatIsLeft: whoever takes no more pieces leaves nothing behind.
func TestAnExportThatIsLeft(t *testing.T) {
	f := naming(t)
	for range 12 {
		f.write(t, fresh(), 90_000)
	}
	x, err := f.Export(t.Context(), tenant, "", j17.StreamID{}, line)
	if err != nil {
		t.Fatal(err)
	}
	for p, err := range x.Pieces(t.Context()) {
		if err != nil || len(p.Bytes) == 0 {
			t.Errorf("%+v, %v", p, err)
		}
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if x, err = f.Export(ctx, tenant, "", j17.StreamID{}, line); err != nil {
		t.Fatal(err)
	}
	var failed error
	for _, err := range x.Pieces(ctx) {
		failed = err
		cancel()
	}
	if failed == nil {
		t.Error("an export that was cancelled is whole")
	}

	// Nothing is wrong with what is stored, whenever that is.
	for range 20 {
		for _, failed = range x.Pieces(ctx) {
		}
		if !errors.Is(failed, context.Canceled) {
			t.Fatalf("an export that was cancelled says %v", failed)
		}
	}
}

// forgetful is the real store, which says that it has stored more events than it shows.
type forgetful struct{ store.Store }

// Extent implements store.Store.
func (f forgetful) Extent(ctx context.Context, t j17.Tenant) (store.Extent, error) {
	extent, err := f.Store.Extent(ctx, t)
	extent.Events++
	return extent, err
}

// TestAnExportIsComplete: an export from the start that lacks an event ends with an error.
func TestAnExportIsComplete(t *testing.T) {
	f := naming(t)
	whole := f.export(t, tenant, "", j17.StreamID{})
	e := engine.New(engine.Options{
		Store: forgetful{f.Fixture.Store}, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler),
	})
	lacking := on(e, forgetful{f.Fixture.Store})
	lacking.DeploySource(t, enginetest.NamesSpec)
	for _, after := range []j17.StreamID{{}, {Ms: 1}} {
		x, err := lacking.Export(t.Context(), tenant, "", after, line)
		if err != nil {
			t.Fatal(err)
		}
		var last error
		n := 0
		for p, err := range x.Pieces(t.Context()) {
			if last = err; err == nil {
				n += strings.Count(string(p.Bytes), "\n")
			}
		}
		if want := strings.Count(whole, "\n"); n != want {
			t.Errorf("%d events after %s, want %d", n, after, want)
		}
		// What comes after a position is not counted.
		if fromStart := after == (j17.StreamID{}); (j17.CodeOf(last) == j17.CodeCorruption) != fromStart {
			t.Errorf("after %s: %v", after, last)
		}
	}
}

// faulty is the real store, whose feed panics behind some events.
type faulty struct {
	loading.Storage
	good int
}

// ReadFeed implements store.Feed.
func (f faulty) ReadFeed(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[*j17.Event, error] {
	return func(yield func(*j17.Event, error) bool) {
		n := 0
		for ev, err := range f.Storage.ReadFeed(ctx, t, after, limit) {
			if n++; n > f.good {
				panic("a fault")
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// TestAPanicEndsAnExport lets the reading and the making of pieces panic, on goroutines of their own: whoever takes the
// pieces panics, and does not take what there is for all, also where nothing tells how many events there should be.
func TestAPanicEndsAnExport(t *testing.T) {
	f := naming(t)
	for range 12 {
		f.write(t, fresh(), 90_000)
	}
	export := func(write func([]byte, *loading.Exported) []byte) (thrown any) {
		defer func() { thrown = recover() }()
		x, err := f.Export(t.Context(), tenant, "", j17.StreamID{Ms: 1}, write)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range x.Pieces(t.Context()) {
			if err != nil {
				t.Errorf("the export ends with %v", err)
			}
		}
		return nil
	}
	making := export(func([]byte, *loading.Exported) []byte { panic("a fault") })
	f.Loader.Store = faulty{f.Fixture.Store, 7}
	reading := export(line)
	for what, thrown := range map[string]any{"making": making, "reading": reading} {
		if err, _ := thrown.(error); err == nil ||
			!strings.Contains(err.Error(), "a fault, in loading/export_test.go") {
			t.Errorf("%s: whoever takes the pieces has %v", what, thrown)
		}
	}
}
