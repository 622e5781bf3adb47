// Package build derives data from the streams of an environment: a build goes through all streams of some types in the
// order of their keys, and its kind returns the writes for each page of streams. These commit together with the
// progress of the build, so that a crash at any point neither loses nor repeats anything. Builds are due items: any
// process with room continues one, and tenants take turns. Data no longer used are removed in the same manner
// (removal.go).
//
// Kinds that build nothing use it too: an Adoption keeps what a kind has for a deployed spec (adoption.go), and data in
// use are compared with events, when somebody asks and at intervals (compare.go).
package build

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// Storage is what builds need of a store.
type Storage interface {
	store.Sides
	store.BulkWrites
	store.Aggregates
	store.Feed
	store.Tenants
	store.Health
}

// Options configures a Service. All fields but Parallel are required.
type Options struct {
	Store  Storage
	Clock  clock.Clock
	Worker *worker.Kit
	Logger *slog.Logger
	// Parallel is how many pages are made at a time, over all builds; 0 means one for each processor. While events are
	// being written it is one.
	Parallel int
}

// Kind is a kind of builds: how pages of streams become writes.
type Kind struct {
	// Name identifies the kind in keys, such as "index". It has no '/'.
	Name string
	// Page returns the writes for some streams. It is called for several pages of a build at once, and again for a page
	// whose writes were not committed, because of a crash or because one of their conditions did not hold. If it
	// returns ErrTooMuch for a page of several streams, it is called for each half.
	Page func(ctx context.Context, p *Page) ([]store.Side, error)
	// Done, if not nil, is called when all pages are committed. Its writes commit with the end of the build; if it
	// returns Later, it is called again.
	Done func(ctx context.Context, j *Job) ([]store.Side, error)
	// PageSize is how many streams a page has at most; 0 means 256.
	PageSize int
	// Sorted declares that the writes of all pages are plain puts (store.Side.Plain), whose result does not depend on
	// how often they are made, and additions without a bound. The writes of many pages are then sorted and commit
	// together. A crash or a cancellation may leave items of pages that do not count as processed.
	Sorted bool
}

// Job is a build.
type Job struct {
	Tenant j17.Tenant
	// Name identifies the build among those of its kind and tenant.
	Name string
	// Types are the aggregate types whose streams it goes through.
	Types []string
	// At is a position chosen by the code that begins the build, for use by its kind.
	At j17.StreamID

	turn store.Fence
}

// Fence returns the condition that the build still runs and that this process has its claim, for writes that a kind
// makes itself.
func (j *Job) Fence() store.Fence { return j.turn }

// Page is some consecutive streams of a type, in the order of their IDs. Pages cover all streams, including those that
// began during the build.
type Page struct {
	*Job
	Type string
	IDs  []string
}

// ErrTooMuch is returned by Page if its writes are too many for one commit.
var ErrTooMuch = errors.New("the writes of a page are too many for one commit")

// Later is returned by Done to be called again after a while.
type Later struct{ For time.Duration }

// Error describes the pause.
func (l Later) Error() string { return "the build ends in " + l.For.String() + " at the earliest" }

// Failure is an error of a kind that no retry can remedy: the build fails. After any other error it is tried again.
type Failure struct{ Err error }

// Error returns the text of the cause.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// State is the state of a build.
type State string

// The states.
const (
	Running State = "running"
	Done    State = "done"
	Failed  State = "failed"
)

// Canceled is the error of a canceled build.
const Canceled = "canceled"

// The statuses of derived data that people see.
const (
	StatusReady    = "ready"
	StatusBuilding = "building"
)

// Status is the progress of a build.
type Status struct {
	State State
	// Done is the number of streams processed, Total their number when they were counted; 0 before that.
	Done, Total uint64
	// Error is why the build has failed, or what it waits for: the error of the last try, or the reason why nothing can
	// be written.
	Error string
}

// Progress is the details of the error for derived data that are not complete yet.
type Progress struct {
	Done  uint64 `json:"done"`
	Total uint64 `json:"total"`
}

// Wire returns the progress as people see it.
func (s *Status) Wire() *wire.Build {
	return &wire.Build{Status: string(s.State), Error: s.Error, Done: s.Done, Total: s.Total}
}

// Stats has the counters of a service since it was made.
type Stats struct {
	// Streams counts the streams processed, Ended and Failed the builds by how they ended, Removed the items removed
	// because they are no longer used.
	Streams, Ended, Failed, Removed uint64
	// Running is the number of builds that this process is working on.
	Running int64
}

// The side spaces of an environment. None of their items holds data of streams.
const (
	// jobSpace has an item for each running build, under "kind/name", which is due; progressSpace has its progress
	// under the same key, also after its end.
	jobSpace      store.Space = "build.jobs"
	progressSpace store.Space = "build.progress"
	// removalSpace has an item for each running removal.
	removalSpace store.Space = "build.removals"
)

const (
	// lease is how long a pass of a build may take, passTime after how long it gives way to others.
	lease    = 20 * time.Second
	passTime = 5 * time.Second
	// atOnce and each are how many builds run at a time, in all and of one tenant.
	atOnce = 4
	each   = 2
	// defaultPage is the number of streams of a page.
	defaultPage = 256
)

// Service carries out builds. It is safe for concurrent use, and so are several of them over one store.
type Service struct {
	o     Options
	kinds map[string]*Kind
	// work has the queues of builds, of removals and of tags.
	work worker.Queues
	// slots has a token for each page that is being made.
	slots chan struct{}
	// heldSides and partBytes are only changed by tests.
	heldSides, partBytes int
	// since is the number of the last change of a feed that was seen.
	since  atomic.Uint64
	counts struct {
		streams, ended, failed, removed atomic.Uint64
		running                         atomic.Int64
	}

	// moved is closed, and replaced, when a build has advanced. made has the uncommitted progress of builds that run
	// here.
	mu    sync.Mutex
	moved chan struct{}
	made  map[buildKey]progress
}

// buildKey identifies a build of any kind and tenant.
type buildKey struct {
	tenant j17.Tenant
	at     string
}

// New returns a service that does nothing before Run.
func New(o Options) *Service {
	if o.Parallel <= 0 {
		o.Parallel = runtime.GOMAXPROCS(0)
	}
	s := &Service{
		o: o, kinds: map[string]*Kind{}, slots: make(chan struct{}, o.Parallel), heldSides: heldSides,
		partBytes: partBytes,
		moved:     make(chan struct{}), made: map[buildKey]progress{},
	}
	s.work = worker.Queues{
		o.Worker.Queue(worker.Work{
			Name: "builds", Store: o.Store, Space: jobSpace, Do: s.runPass, Lease: lease, AtOnce: atOnce, Each: each,
		}),
		o.Worker.Queue(worker.Work{
			Name: "removals", Store: o.Store, Space: removalSpace, Do: s.remove, Lease: lease, AtOnce: 1, Freeing: true,
		}),
	}
	return s
}

// Handle adds a kind. It must not be called after Run.
func (s *Service) Handle(k Kind) {
	if k.PageSize <= 0 {
		k.PageSize = defaultPage
	}
	s.kinds[k.Name] = &k
}

// Stats returns the counters.
func (s *Service) Stats() Stats {
	c := &s.counts
	return Stats{
		Streams: c.streams.Load(), Ended: c.ended.Load(), Failed: c.failed.Load(), Removed: c.removed.Load(),
		Running: c.running.Load(),
	}
}

// Run carries out builds until the context ends.
func (s *Service) Run(ctx context.Context) error { return s.work.Run(ctx) }

// Settle carries out all that can be done now. Work that waits for something else is left.
func (s *Service) Settle(ctx context.Context) error { return s.work.Settle(ctx) }

// NextDue returns when the next work is due, the zero time for none.
func (s *Service) NextDue(ctx context.Context) (time.Time, error) { return s.work.NextDue(ctx) }

// key returns the key of a build's items.
func key(kind, name string) string { return kind + "/" + name }

// Start returns the writes that begin a build, replacing one of the same kind and name. They commit with what depends
// on the build.
func (s *Service) Start(kind string, j *Job) []store.Side {
	job := jobItem{Types: j.Types, At: store.AppendStamp(nil, j.At)}
	at := key(kind, j.Name)
	return []store.Side{
		{Op: store.Put, Space: jobSpace, Key: at, Value: encode(job), Due: s.o.Clock.Now()},
		{Op: store.Put, Space: progressSpace, Key: at, Value: encode(progress{State: Running})},
	}
}

// Begin begins a build, replacing one of the same kind and name.
func (s *Service) Begin(ctx context.Context, kind string, j *Job) error {
	return s.o.Store.Write(ctx, j.Tenant, s.Start(kind, j))
}

// Cancel ends a running build; store.ErrNotFound if there is none. What it has written stays. If a fence does not hold,
// the build goes on, and the error is a *store.SideConflict.
func (s *Service) Cancel(ctx context.Context, t j17.Tenant, kind, name string, fences ...store.Fence) error {
	at := key(kind, name)
	for {
		p, rev, err := s.progress(ctx, t, at)
		if err != nil {
			return err
		}
		if p.State != Running {
			return store.ErrNotFound
		}
		p.State, p.Error = Failed, Canceled
		err = s.o.Store.Write(ctx, t, []store.Side{
			{Op: store.Delete, Space: jobSpace, Key: at},
			{Op: store.Put, Space: progressSpace, Key: at, Value: encode(p), Cond: store.IfRev, Rev: rev},
		}, fences...)
		if conflict, is := errors.AsType[*store.SideConflict](err); is && conflict.Space == progressSpace {
			continue // it has advanced meanwhile
		}
		s.tell()
		return err
	}
}

// Forget returns the writes that remove the record of a build, and end it if it runs.
func (s *Service) Forget(kind, name string) []store.Side {
	at := key(kind, name)
	return []store.Side{
		{Op: store.Delete, Space: jobSpace, Key: at},
		{Op: store.Delete, Space: progressSpace, Key: at},
	}
}

// ForgetAll is Forget for all builds of a kind.
func (s *Service) ForgetAll(ctx context.Context, t j17.Tenant, kind string) (sides []store.Side, err error) {
	const page = 1000
	for _, space := range []store.Space{jobSpace, progressSpace} {
		for it, err := range store.Items(ctx, s.o.Store, t, space, store.Prefix(kind+"/"), page) {
			if err != nil {
				return nil, err
			}
			sides = append(sides, store.Side{Op: store.Delete, Space: space, Key: it.Key})
		}
	}
	return sides, nil
}

// Status returns the progress of a build, or how it has ended; the zero Status if there was none.
func (s *Service) Status(ctx context.Context, t j17.Tenant, kind, name string) (Status, error) {
	at := key(kind, name)
	p, _, err := s.progress(ctx, t, at)
	if errors.Is(err, store.ErrNotFound) {
		return Status{}, nil
	}
	if err != nil {
		return Status{}, err
	}
	status := Status{State: p.State, Done: p.Done, Total: p.Total, Error: p.Error}
	if p.State != Running {
		return status, nil
	}
	s.mu.Lock()
	made := s.made[buildKey{t, at}]
	status.Done, status.Total = max(status.Done, made.Done), max(status.Total, made.Total)
	s.mu.Unlock()

	// The error of the last tries is in the due item.
	it, err := s.o.Store.Get(ctx, t, jobSpace, at)
	if errors.Is(err, store.ErrNotFound) {
		return status, nil // it has just ended
	}
	if err == nil {
		var attempts worker.Attempts
		attempts, _, err = worker.ReadAttempts(it.Value)
		status.Error = attempts.Error
	}
	if now := s.o.Store.Status(); !now.Writable { // no build is tried now, so no error is recorded
		status.Error = now.Reason
	}
	return status, err
}

// awaitEvery is how often Await checks a build without being woken, because another process may be running it.
const awaitEvery = 100 * time.Millisecond

// Await waits until a build has ended, and returns its status; with the context's error if that ends first.
func (s *Service) Await(ctx context.Context, t j17.Tenant, kind, name string) (Status, error) {
	machine := clock.System{}
	for {
		s.mu.Lock()
		moved := s.moved
		s.mu.Unlock()
		status, err := s.Status(context.WithoutCancel(ctx), t, kind, name)
		if err != nil || status.State != Running || ctx.Err() != nil {
			return status, errors.Join(err, ctx.Err())
		}
		clock.Either(ctx, machine, machine.Now().Add(awaitEvery), moved)
	}
}

// tell wakes those that await the end of a build.
func (s *Service) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.moved)
	s.moved = make(chan struct{})
}

// show sets the uncommitted progress that Status reports for a build; the zero progress clears it.
func (s *Service) show(t j17.Tenant, at string, made progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if made == (progress{}) {
		delete(s.made, buildKey{t, at})
	} else {
		s.made[buildKey{t, at}] = made
	}
}

// jobItem is a build as stored in its item.
type jobItem struct {
	Types []string `json:"types"`
	At    []byte   `json:"at"`
}

// progress is the stored progress of a build.
type progress struct {
	State State `json:"state"`
	// Type is the index of the present type, After the last ID of that type that was processed. Past the last type only
	// the end of the build is left.
	Type  int    `json:"type"`
	After string `json:"after,omitempty"`
	Done  uint64 `json:"done"`
	// Total is valid if Counted is set.
	Total   uint64 `json:"total"`
	Counted bool   `json:"counted,omitempty"`
	Error   string `json:"error,omitempty"`
}

// encode encodes the value of an item.
func encode[T jobItem | progress | removal](v T) []byte {
	b, _ := json.Marshal(v) // texts and numbers: it cannot fail
	return b
}

// progress reads the stored progress of a build.
func (s *Service) progress(ctx context.Context, t j17.Tenant, at string) (p progress, rev uint64, err error) {
	it, err := s.o.Store.Get(ctx, t, progressSpace, at)
	if err != nil {
		return p, 0, err
	}
	return p, it.Rev, json.Unmarshal(it.Value, &p)
}

// put returns the write that stores the progress of a build.
func (p *progress) put(at string) store.Side {
	return store.Side{Op: store.Put, Space: progressSpace, Key: at, Value: encode(*p)}
}
