package projection_test

import (
	"testing"

	"j17"
	"j17/internal/projection"
)

// listOf is a list of notes, with an index.
func listOf(index string) string {
	return `{"name":"posted","for_each":"note","sources":{"n":"$key"},"select":{"color":"$.n.color","size":"$.n.size"},"index":[` + index + `]}`
}

// TestReadsBeginAnew: a read that had begun when another definition took its place, and the index went, begins anew. It does not build the
// index again, which nobody would remove.
func TestReadsBeginAnew(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.run(s.builds.Run)
	s.deploy(t, notes(keep, ""))
	s.write(t, "red", 20)
	s.post(t, listOf(`"color"`), false)
	s.built(t)
	over, err := s.views.ViewAfter(t.Context(), s.tenant, "posted", func() { s.post(t, listOf(`"size","color"`), false) })
	if err != nil || !over || s.known(t) != 1 {
		t.Errorf("%v, %v, %d indexes are there", over, err, s.known(t))
	}

	// One that is in force is built for whoever needs it.
	s.built(t)
	over, err = s.views.ViewAfter(t.Context(), s.tenant, "posted", func() {
		there, err := s.indexes.List(t.Context(), s.tenant)
		if err != nil || len(there) != 1 {
			t.Fatal(there, err)
		}
		if err := s.indexes.Remove(t.Context(), s.tenant, there[0].ID); err != nil {
			t.Fatal(err)
		}
	})
	if err != nil || over {
		t.Error(over, err)
	}
	n, err := s.views.Count(t.Context(), s.tenant, "posted", map[string]string{"color": "red"})
	if err != nil || n != 20 {
		t.Error(n, err)
	}
	if _, err := s.views.List(t.Context(), s.tenant, projection.ListAsk{Name: "posted", Filters: map[string]string{"points": "1"}, Count: 1}); j17.CodeOf(err) != j17.CodeNotIndexed {
		t.Error(err)
	}
}
