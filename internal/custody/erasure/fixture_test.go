package erasure_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/custody/erasure"
	"j17/internal/storage/store"
)

const tenant = enginetest.Tenant

const (
	alice = "a11ce000-0000-4000-8000-000000000001"
	bob   = "b0b00000-0000-4000-8000-000000000002"
)

// people is a spec with types that go along with who is named in them, and with types that do not.
const people = `{"agent_types": ["user", "admin"], "target_types": ["user"], "aggregate_types": {
	"user": {"events": {
		"was_created": {"schema": {}, "handler": [{"set": {"target": "", "value": "$.data"}}]},
		"was_renamed": {"schema": {}, "handler": [{"merge": {"target": "", "value": "$.data"}}]}}},
	"profile": {"events": {
		"was_filled": {"schema": {}, "handler": [{"merge": {"target": "", "value": "$.data"}}]},
		"_was_tombstoned": {"handler": [{"set": {"target": "", "value": {"erased": true}}}]}}},
	"comment": {"onTombstone": {"actor": "cascade", "target": "preserve"}, "events": {"was_written": {"schema": {}, "handler": []}}},
	"mention": {"onTombstone": {"actor": "preserve", "target": "cascade"}, "events": {"was_made": {"schema": {}, "handler": []}}},
	"order": {"onTombstone": {"actor": "preserve", "target": "preserve"}, "events": {"was_placed": {"schema": {}, "handler": []}}},
	"plain": {"events": {"was_written": {"schema": {}, "handler": []}}}
}}`

// fixture is a service on an engine.
type fixture struct {
	*enginetest.Fixture
	tombs  *erasure.Service
	worker *worker.Kit
	holder *holder
	acts   []erasure.Act
	logs   *strings.Builder
	source string
	// restoring reports that it is not known yet what the spec says.
	restoring bool
	// waits, if not nil, gets the times that the worker waits for, unless they are far away.
	waits chan time.Time
	// beside, if not nil, is what goes with the events of streams.
	beside func(of []part.Replaced) ([]store.Side, []store.Fence, error)
}

// waited is a clock that tells of waits that are no longer than those between renewals of a lease.
type waited struct {
	*clock.Manual
	waits chan time.Time
}

func (w waited) Wait(ctx context.Context, t time.Time) error {
	if t.Sub(w.Now()) <= erasure.Lease/4 {
		w.waits <- t
	}
	return w.Manual.Wait(ctx, t)
}

// holder keeps nothing and notes what it is told.
type holder struct {
	mu     sync.Mutex
	erased []part.Erased
	fail   error
	// refuse is a tombstone of which nothing is let go.
	refuse string
}

// part is the holder as one of the parts of the program.
func (h *holder) part() part.Part {
	spaces := append((*engine.Engine)(nil).Part().Spaces, part.Space{
		Declared: store.Declared{Space: "whole", Whole: true},
	})
	return part.Part{Spaces: spaces, Erase: part.Erase{Streams: h.erase}}
}

func (h *holder) erase(_ context.Context, _ j17.Tenant, e part.Erased) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.TombstoneID == h.refuse {
		return errors.New("not of this one")
	}
	h.erased = append(h.erased, e)
	return h.fail
}

// newFixture returns a fixture with people.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{
		Fixture: enginetest.New(t, engine.Options{}), holder: &holder{}, logs: &strings.Builder{}, source: people,
	}
	f.open(t, nil)
	return f
}

// open makes a new service on the present store, as a new process does; wrap, if not nil, puts something in front of
// the store.
func (f *fixture) open(t *testing.T, wrap func(store.Store) erasure.Storage) {
	t.Helper()
	f.DeploySource(t, f.source)
	var s erasure.Storage = f.Store
	if wrap != nil {
		s = wrap(f.Store)
	}
	var ticks clock.Clock = f.Clock
	if f.waits != nil {
		ticks = waited{f.Clock, f.waits}
	}
	f.worker = worker.New(ticks, slog.New(slog.DiscardHandler))
	f.tombs = erasure.New(erasure.Options{
		Store: s, Clock: f.Clock, Worker: f.worker, Logger: slog.New(slog.NewTextHandler(f.logs, nil)),
		Resolve: f.Resolve, Spec: f.Spec,
		Root: func(ctx context.Context, t j17.Tenant) (root [32]byte, size uint64, err error) {
			for e, err := range f.Store.ReadFeed(ctx, t, j17.StreamID{}, 1<<30) {
				if err != nil {
					return root, size, err
				}
				root, size = j17.Link(root, e.Leaf()), size+1
			}
			return root, size, nil
		},
		Sign: func(_ context.Context, t j17.Tenant, text string) (string, error) {
			return text + "signed by " + string(t), nil
		},
		By: func(context.Context) string { return "somebody" },
		Record: func(_ context.Context, _ j17.Tenant, a *erasure.Act) error {
			f.acts = append(f.acts, *a)
			return nil
		},
		Restoring: func(j17.Tenant) bool { return f.restoring },
	})
	holding := f.holder.part()
	holding.Erase.Beside = func(
		_ context.Context, _ j17.Tenant, of []part.Replaced,
	) ([]store.Side, []store.Fence, error) {
		if f.beside == nil {
			return nil, nil, nil
		}
		return f.beside(of)
	}
	f.tombs.Use(holding)
}

// write writes an event of somebody, about somebody else where target is not "".
func (f *fixture) write(t *testing.T, path, data, actor, target string) {
	t.Helper()
	meta := fmt.Sprintf(`"actor":{"type":"user","id":%q}`, actor)
	if target != "" {
		meta += fmt.Sprintf(`,"target":{"type":"user","id":%q}`, target)
	}
	f.Post(t, path, `{"data":`+data+`,"metadata":{`+meta+`}}`)
}

// ask creates a tombstone of a user, which must work.
func (f *fixture) ask(t *testing.T, id string) wire.Tombstone {
	t.Helper()
	made, err := f.tombs.Create(t.Context(), tenant, "user", id, wire.NewTombstone{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// erase creates a tombstone of alice and carries it out, which must work.
func (f *fixture) erase(t *testing.T) wire.Tombstone {
	t.Helper()
	made := f.ask(t, alice)
	f.force(t, made.ID)
	f.settle(t)
	return f.tombstone(t, made.ID)
}

func (f *fixture) force(t *testing.T, id string) {
	t.Helper()
	if _, err := f.tombs.Execute(t.Context(), tenant, id, true); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) settle(t *testing.T) {
	t.Helper()
	if err := f.tombs.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) tombstone(t *testing.T, id string) wire.Tombstone {
	t.Helper()
	got, err := f.tombs.Get(t.Context(), tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// events returns copies of the events of a stream.
func (f *fixture) events(t *testing.T, typ, id string) (all []*j17.Event) {
	t.Helper()
	for e, err := range f.Store.ReadStream(t.Context(), tenant, j17.Key{Type: typ, ID: id}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Clone())
	}
	return all
}

// types returns the types of the events of a stream.
func (f *fixture) types(t *testing.T, typ, id string) string {
	t.Helper()
	var all []string
	for _, e := range f.events(t, typ, id) {
		all = append(all, e.Type)
	}
	return strings.Join(all, " ")
}

// affected describes the streams of a tombstone.
func affected(all []wire.AffectedStream) string {
	var text []string
	for _, a := range all {
		text = append(text, fmt.Sprintf("%s %d", a.Key, a.EventCount))
	}
	return strings.Join(text, ", ")
}

// wantCode checks the code of an error.
func wantCode(t *testing.T, err error, want j17.Code) {
	t.Helper()
	if j17.CodeOf(err) != want {
		t.Errorf("the error is %v, want the code %s", err, want)
	}
}

// failing is a store whose writes fail: the one with the number at, before or after it has been carried out, and all
// that follow while stopped.
type failing struct {
	store.Store
	mu    sync.Mutex
	n, at int
	after bool
	err   error
	// ended reports that the process is over: nothing is carried out any longer.
	ended bool
	// written is signalled after each write, if it is not nil.
	written chan struct{}
}

var errCrash = errors.New("the process has ended")

// do carries out a write unless it is its turn to fail.
func (s *failing) do(write func() error) error {
	defer func() {
		select {
		case s.written <- struct{}{}:
		default:
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return s.err
	}
	s.n++
	if s.n != s.at {
		return write()
	}
	s.ended = true
	if s.after {
		if err := write(); err != nil {
			return err
		}
	}
	return s.err
}

func (s *failing) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	return s.do(func() error { return s.Store.Write(ctx, t, side, fences...) })
}

func (s *failing) Rewrite(ctx context.Context, t j17.Tenant, r store.Rewrite) (result store.Result, err error) {
	err = s.do(func() error {
		result, err = s.Store.Rewrite(ctx, t, r)
		return err
	})
	return result, err
}

func (s *failing) Purge(
	ctx context.Context, t j17.Tenant, keys []j17.Key, spaces []store.Declared, items []store.ItemName,
) (p store.Purged, err error) {
	err = s.do(func() error {
		p, err = s.Store.Purge(ctx, t, keys, spaces, items)
		return err
	})
	return p, err
}

// later is when a failed try has its next turn.
const later = 2 * time.Minute
