package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/storage/store"
)

// generationSpec has a type that knows what was erased, and one whose events pass on what its state has.
const generationSpec = `{"agent_types": ["user"], "aggregate_types": {
	"profile": {"events": {
		"was_filled": {"schema": {}, "handler": [{"merge": {"target": "", "value": "$.data"}}]},
		"was_copied": {"schema": {}, "handler": [], "implications": [
			{"emit": {"aggregate_type": "copy", "id": "$.key", "event_type": "was_made", "data": {"word": "$.state.word?"}}}]},
		"_was_tombstoned": {"handler": [{"set": {"target": "", "value": {"erased": true}}}]}}},
	"copy": {"events": {"was_made": {"schema": {}, "handler": []}}}
}}`

// eraseAll replaces all events of a stream by markers.
func eraseAll(tb testing.TB, s store.Store, key j17.Key) {
	tb.Helper()
	stream := store.RewrittenStream{Key: key}
	for e, err := range s.ReadStream(tb.Context(), enginetest.Tenant, key, 1, 0) {
		if err != nil {
			tb.Fatal(err)
		}
		stream.Events = append(stream.Events, store.Rewritten{
			Version: e.Version, Type: "_was_tombstoned", Data: []byte(`{}`), Metadata: []byte(`{}`),
		})
	}
	if _, err := s.Rewrite(tb.Context(), enginetest.Tenant, store.Rewrite{
		Streams: []store.RewrittenStream{stream},
	}); err != nil {
		tb.Fatal(err)
	}
}

// TestRewrittenStates reads states of a stream whose events were rewritten, which is as long as before: none is of what
// was there, be it in memory or kept on disk.
func TestRewrittenStates(t *testing.T) {
	t.Parallel()
	f := enginetest.New(t, engine.Options{SnapshotEvery: 2})
	f.DeploySource(t, generationSpec)
	key := j17.Key{Type: "profile", ID: enginetest.ID}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx) })
	for n := range 6 {
		f.Post(t, "profile/"+key.ID+"/was_filled", enginetest.Body(fmt.Sprintf(`{"n":%d}`, n)))
	}
	old, err := f.Load(t.Context(), enginetest.Tenant, key.Type, key.ID, engine.LoadOptions{})
	if err != nil || !strings.Contains(string(old.JSON), `"n":5`) {
		t.Fatalf("%s, %v", old.JSON, err)
	}
	stop()
	running.Wait()

	look := func(when string) {
		three, at := uint64(3), f.Clock.Now().Unix()
		for name, o := range map[string]engine.LoadOptions{
			"now": {}, "anew": {Replay: true}, "length": {Length: &three}, "at": {Until: &at},
		} {
			s, err := f.Load(t.Context(), enginetest.Tenant, key.Type, key.ID, o)
			if err != nil || !strings.HasPrefix(string(s.JSON), `{"erased":true`) || s.EntityTag == old.EntityTag {
				t.Errorf("%s, %s: %s has the tag %s, before it was %s; %v", when, name, s.JSON, s.EntityTag, old.EntityTag, err)
			}
		}
	}
	eraseAll(t, f.Store, key)
	look("in the same process")
	f.Open(t, engine.Options{SnapshotEvery: 2})
	f.DeploySource(t, generationSpec)
	look("in the next process")

	// Entity tags of before are none of the present state.
	c := enginetest.Command(t, "profile/"+key.ID+"/was_filled", enginetest.Body(`{"n":7}`))
	c.IfMatch = []string{old.EntityTag}
	if _, err := f.Execute(t.Context(), c); j17.CodeOf(err) != j17.CodePreconditionFailed {
		t.Errorf("a write on the tag of what was erased: %v", err)
	}
	f.Post(t, "profile/"+key.ID+"/was_filled", enginetest.Body(`{"n":7}`))
	if got := f.State(t, "profile/"+key.ID, engine.LoadOptions{}); !strings.HasPrefix(got, `{"erased":true`) ||
		!strings.Contains(got, `"n":7`) {
		t.Errorf("after a new event there is %s", got)
	}
}

// rewriting is a store that calls before ahead of the next append, or while the next fold reads.
type rewriting struct {
	store.Store
	before func()
}

func (s *rewriting) Append(ctx context.Context, t j17.Tenant, units []store.Append) ([]store.Result, error) {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	return s.Store.Append(ctx, t, units)
}

// TestDecidedOnErased erases what a write has looked at before it is stored: it is decided anew, on what is there then.
func TestDecidedOnErased(t *testing.T) {
	t.Parallel()
	f := enginetest.New(t, engine.Options{})
	s := &rewriting{Store: f.Store}
	f.Engine = engine.New(engine.Options{Store: s, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
	f.DeploySource(t, generationSpec)
	key := j17.Key{Type: "profile", ID: enginetest.ID}
	f.Post(t, "profile/"+key.ID+"/was_filled", enginetest.Body(`{"word":"secret"}`))
	s.before = func() { eraseAll(t, f.Store, key) }
	f.Post(t, "profile/"+key.ID+"/was_copied", enginetest.Body(`{}`))
	for e, err := range f.Store.ReadFeed(t.Context(), enginetest.Tenant, j17.StreamID{}, 100) {
		if err != nil || strings.Contains(string(e.Raw), "secret") {
			t.Errorf("%s, %v", e.Raw, err)
		}
	}
	if got := f.State(t, "profile/"+key.ID, engine.LoadOptions{}); strings.Contains(got, "secret") ||
		!strings.Contains(got, "erased") {
		t.Errorf("the state is %s", got)
	}
}
