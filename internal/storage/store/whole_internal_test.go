package store

import (
	"context"
	"os"
	"testing"

	"j17"
)

// anyTenant is an engine that has every tenant.
type anyTenant struct{ Engine }

func (anyTenant) Extent(context.Context, j17.Tenant) (Extent, error) { return Extent{Life: 1}, nil }

// TestBulkWriteHasNoName looks for files of a bulk write that is in progress: a process that is killed leaves none.
func TestBulkWriteHasNoName(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	s := &spools{of: anyTenant{}, open: map[*spool]bool{}}
	w, err := s.BulkWrite(t.Context(), "a/prod")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Discard()
	if err := w.Put("rows", "a", make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(temp); err != nil || len(list) > 0 {
		t.Errorf("there are %v, %v", list, err)
	}
}
