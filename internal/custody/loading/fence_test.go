package loading_test

import (
	"context"
	"fmt"
	"testing"

	"j17"
	"j17/internal/core/engine/enginetest"
	"j17/internal/custody/loading"
	"j17/internal/storage/store"
)

// interrupted is a storage in which something happens just before a load is committed.
type interrupted struct {
	loading.Storage
	before func()
}

type interruptedLoad struct {
	store.Load
	before func()
}

func (s interrupted) Load(ctx context.Context, t j17.Tenant) (store.Load, error) {
	l, err := s.Storage.Load(ctx, t)
	return interruptedLoad{l, s.before}, err
}

func (l interruptedLoad) Commit(ctx context.Context, fences ...store.Fence) error {
	l.before()
	return l.Load.Commit(ctx, fences...)
}

// TestADeploymentDuringAColdStart: what was checked against a spec that is no longer deployed is not stored.
func TestADeploymentDuringAColdStart(t *testing.T) {
	f := newFixture(t)
	deploy := func() {
		if err := f.Fixture.Store.Write(t.Context(), elsewhere, []store.Side{
			{Op: store.Put, Space: "test.specs", Key: "head"},
		}); err != nil {
			t.Fatal(err)
		}
		item, err := f.Fixture.Store.Get(t.Context(), elsewhere, "test.specs", "head")
		if err != nil {
			t.Fatal(err)
		}
		f.Deploy(elsewhere, enginetest.Compiled(t, enginetest.NamesSpec), nil, store.Fence{
			Space: "test.specs", Key: "head", Rev: item.Rev,
		})
	}
	deploy()
	f.Loader.Store = interrupted{f.Fixture.Store, deploy}
	text := fmt.Sprintf(`{"key":"note:%s","type":"was_written","data":{"n":1},"metadata":{"actor":{"type":"user","id":"%s"}}}`+"\n", id, user)
	if done, err := f.start(t, text); j17.CodeOf(err) != j17.CodeConflict || done.Stored != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if extent, err := f.Fixture.Store.Extent(t.Context(), elsewhere); extent.Events != 0 || err != nil {
		t.Errorf("there are %v, %v", extent, err)
	}
	f.Loader.Store = f.Fixture.Store
	if done, err := f.start(t, text); done.Stored != 1 || err != nil {
		t.Errorf("again: %+v, %v", done, err)
	}
}
