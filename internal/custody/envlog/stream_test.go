package envlog_test

import (
	"errors"
	"testing"

	"j17"
	"j17/internal/custody/envlog"
	"j17/internal/custody/proof"
	"j17/internal/storage/store"
)

// TestStream has the tree and the chain of a stream, which are those of what stands there now.
func TestStream(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, 30, 10)
	key := j17.Key{Type: "note", ID: "0"}
	same := func() {
		t.Helper()
		var leaves [][32]byte
		var chain [32]byte
		for e, err := range f.store.ReadStream(t.Context(), tenant, key, 1, 0) {
			if err != nil {
				t.Fatal(err)
			}
			leaves, chain = append(leaves, j17.Leaf(e.Raw)), j17.Link(chain, j17.Leaf(e.Raw))
		}
		of, err := f.Stream(t.Context(), tenant, key)
		if err != nil || of != (envlog.Stream{Length: uint64(len(leaves)), Root: proof.Root(leaves), Head: chain}) {
			t.Errorf("the stream is %+v, %v", of, err)
		}
		for i := range leaves {
			p, err := f.StreamProof(t.Context(), tenant, key, uint64(i))
			if err != nil || p.Leaf != leaves[i] || p.Root != of.Root ||
				!proof.CheckInclusion(p.Index, p.Size, p.Leaf, p.Proof, p.Root) {
				t.Errorf("event %d: %+v, %v", i, p, err)
			}
		}
		if _, err := f.StreamProof(t.Context(), tenant, key, uint64(len(leaves))); !errors.Is(err, envlog.ErrBeyond) {
			t.Error(err)
		}
	}
	same()
	if _, err := f.store.Rewrite(t.Context(), tenant, store.Rewrite{Streams: []store.RewrittenStream{{
		Key:    key,
		Events: []store.Rewritten{{Version: 2, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)}},
	}}}); err != nil {
		t.Fatal(err)
	}
	same()
	if of, err := f.Stream(t.Context(), tenant, j17.Key{
		Type: "note", ID: "none",
	}); err != nil || of.Length != 0 || of.Bad != nil {
		t.Errorf("a stream without events: %+v, %v", of, err)
	}
}
