package pebble

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// lengthen adds events to a stream, one a unit.
func lengthen(t *testing.T, s *Store, tenant j17.Tenant, key j17.Key, n int) {
	t.Helper()
	for i := range n {
		e := store.NewEvent{Key: key, Type: "was_made", Data: fmt.Append(nil, i), Metadata: []byte(`{}`)}
		if _, err := s.Append(t.Context(), tenant, []store.Append{{Events: []store.NewEvent{e}}}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheCommitterLinksWhatIsNew rewrites a long stream that grows between the look at it and the commit. The
// committer, behind which all writes wait, does not read what was looked at: it would notice that it is gone.
func TestTheCommitterLinksWhatIsNew(t *testing.T) {
	t.Parallel()
	const first, all = 40, 60
	const tenant = j17.Tenant("a/prod")
	key := j17.Key{Type: "order", ID: "7"}
	s, _ := opened(t, clock.System{})
	grow := func(n int) { lengthen(t, s, tenant, key, n) }
	check := func(what string) {
		t.Helper()
		var want [hashBytes]byte
		for e, err := range s.ReadStream(t.Context(), tenant, key, 1, 0) {
			if err != nil {
				t.Fatal(err)
			}
			want = j17.Link(want, j17.Leaf(e.Raw))
		}
		heads, err := s.Heads(t.Context(), tenant, []j17.Key{key})
		if err != nil || heads[0].Now() != want {
			t.Errorf("%s: the head is %+v, %v", what, heads, err)
		}
	}
	of := func(versions ...uint64) *store.Rewrite {
		stream := store.RewrittenStream{Key: key}
		for _, v := range versions {
			stream.Events = append(stream.Events, store.Rewritten{
				Version: v, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`),
			})
		}
		return &store.Rewrite{Streams: []store.RewrittenStream{stream}}
	}

	// An event of those that were looked at is away while the others are committed, one of them rewritten that was not
	// there before.
	grow(first)
	r := of(2, 3, first+5)
	known, err := s.presentChains(t.Context(), tenant, r.Streams)
	if err != nil {
		t.Fatal(err)
	}
	grow(all - first)
	away := appendEventKey(nil, s.tenants[tenant].number, key, 1)
	v, closer, err := s.db.Get(away)
	if err != nil {
		t.Fatal(err)
	}
	kept := append([]byte(nil), v...)
	if err := errors.Join(closer.Close(), s.db.Delete(away, pebble.Sync)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.rewrite(t.Context(), tenant, r, known); err != nil {
		t.Errorf("the committer has read what was looked at: %v", err)
	}
	if err := s.db.Set(away, kept, pebble.Sync); err != nil {
		t.Fatal(err)
	}
	grow(1)
	check("what was looked at, and what is new")

	// What was looked at before another rewrite, and what is of another stream of that name, says nothing.
	for _, wrong := range []unit.PresentChain{
		known[0],
		{Number: known[0].Number + 1, Generation: 2, PresentChain: store.PresentChain{Version: 7}},
		{Number: known[0].Number, Generation: 3, PresentChain: store.PresentChain{Version: all + 2}},
	} {
		if _, err := s.rewrite(t.Context(), tenant, of(5), []unit.PresentChain{wrong}); err != nil {
			t.Error(err)
		}
		check(fmt.Sprintf("%+v", wrong))
	}
	if _, err := s.Rewrite(t.Context(), tenant, *of(1, all)); err != nil {
		t.Error(err)
	}
	check("all of it at once")
}

// TestPartsOfALongStream rewrites a stream in parts, which reads none of its events twice: those before a part are away
// while it is committed. Events that come meanwhile are linked with the last part.
func TestPartsOfALongStream(t *testing.T) {
	t.Parallel()
	const tenant, part, parts = j17.Tenant("a/prod"), 10, 5
	key := j17.Key{Type: "order", ID: "7"}
	s, _ := opened(t, clock.System{})
	grow := func(n int) { lengthen(t, s, tenant, key, n) }
	head := func() store.Head {
		t.Helper()
		heads, err := s.Heads(t.Context(), tenant, []j17.Key{key})
		if err != nil {
			t.Fatal(err)
		}
		return heads[0]
	}
	present := func(upTo uint64) (chain store.PresentChain) {
		t.Helper()
		for e, err := range s.ReadStream(t.Context(), tenant, key, 1, upTo) {
			if err != nil {
				t.Fatal(err)
			}
			chain = store.PresentChain{Version: e.Version, Chain: j17.Link(chain.Chain, j17.Leaf(e.Raw))}
		}
		return chain
	}

	grow(part * parts)
	for n := range uint64(parts) {
		stream := store.RewrittenStream{Key: key, More: n < parts-1}
		if n > 0 {
			stream.From = present(n * part)
		}
		for v := n*part + 1; v <= (n+1)*part; v++ {
			stream.Events = append(stream.Events, store.Rewritten{
				Version: v, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`),
			})
		}

		// What the caller has read is away.
		kept := map[string][]byte{}
		for v := uint64(1); v <= n*part; v++ {
			at := appendEventKey(nil, s.tenants[tenant].number, key, v)
			value, closer, err := s.db.Get(at)
			if err != nil {
				t.Fatal(err)
			}
			kept[string(at)] = append([]byte(nil), value...)
			if err := errors.Join(closer.Close(), s.db.Delete(at, pebble.Sync)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Rewrite(t.Context(), tenant, store.Rewrite{
			Streams: []store.RewrittenStream{stream},
		}); err != nil {
			t.Fatalf("part %d: %v", n, err)
		}
		for at, value := range kept {
			if err := s.db.Set([]byte(at), value, pebble.Sync); err != nil {
				t.Fatal(err)
			}
		}
		if h := head(); h.Rewriting() != stream.More || h.Generation != n+1 {
			t.Errorf("after part %d the head is %+v", n, h)
		}
		grow(1)
	}
	if h, want := head(), present(0); h.Present != want.Chain || h.Length != want.Version {
		t.Errorf("the head is %+v, its events have the chain %x", h, want)
	}

	// A last part that has nothing to replace makes the chain as well.
	first := store.Rewritten{Version: 1, Type: "was_erased", Data: []byte(`1`), Metadata: []byte(`{}`)}
	for _, stream := range []store.RewrittenStream{
		{Key: key, Events: []store.Rewritten{first}, More: true}, {Key: key},
	} {
		if _, err := s.Rewrite(t.Context(), tenant, store.Rewrite{
			Streams: []store.RewrittenStream{stream},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if h, want := head(), present(0); h.Present != want.Chain {
		t.Errorf("the head is %+v, its events have the chain %x", h, want)
	}
}
