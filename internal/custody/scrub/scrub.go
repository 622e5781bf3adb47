// Package scrub looks for damage before the damaged data is needed. It reads all stored data again and again, slowly:
// files against their checksums, events against their own bytes, the chains of their streams, the index of tags and the
// log of their environment, and side items against the checks of their owners. Its findings appear in metrics, in the
// readiness of the server and in notices to operators until a later pass finds the data intact.
package scrub

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/custody/envlog"
	"j17/internal/storage/store"
)

// Storage is what the service reads.
type Storage interface {
	store.Aggregates
	store.Archives
	store.Feed
	store.Sides
	store.Tenants
	store.Scrubbing
}

// Options configures a Service. All fields are required unless they say otherwise.
type Options struct {
	Store  Storage
	Log    *envlog.Service
	Clock  clock.Clock
	Logger *slog.Logger
	Worker *worker.Kit
	// Committed counts the events that were written since the start.
	Committed func() uint64
	// Spaces are those of all parts of the program. A pass removes items whose value means the same as no item: an
	// older version of the program may have left some, and their keys may disclose erased data. In spaces without a
	// check it only tests whether items can be read.
	Spaces []part.Space
}

// How much of the machine a pass may use, and how often there is one. An event costs as much as eventCost bytes beside
// its own: it is looked up in its stream, in the index of tags and in the log. If busyEvents were written since the
// previous round, the pause is busyPauses times as long: at four MiB a second a pass takes up to a sixth of a
// processor.
const (
	roundPause = 250 * time.Millisecond
	busyPauses = 8
	busyEvents = 64
	roundBytes = 1 << 20
	eventCost  = 2 << 10
	passPause  = 24 * time.Hour
	// firstPause is the pause after the start of a server.
	firstPause = time.Minute
	// savedEvery is the number of rounds between two writes of the progress.
	savedEvery = 120
	// maxFindings is how many findings are kept, maxText the limit of their texts.
	maxFindings = 100
	maxText     = 500
)

// space has the progress of the pass, in the System tenant.
const (
	space store.Space = "scrub"

	stateKey = "state"
)

// The phases of a pass.
const (
	tables = "tables"
	events = "events"
	items  = "items"
	idle   = "idle"
)

// Finding describes damage.
type Finding struct {
	// What is the kind of thing: a table, an event, a stream, an index, the log, or an item. Where identifies it, Error
	// says what is wrong with it.
	What  string `json:"what"`
	Where string `json:"where"`
	Error string `json:"error"`
	// Tenant is its owner, "" if unknown.
	Tenant j17.Tenant `json:"tenant,omitempty"`
	At     time.Time  `json:"at"`
}

// Pass counts what a pass over everything has checked.
type Pass struct {
	Number  uint64    `json:"number"`
	BeganAt time.Time `json:"began_at"`
	EndedAt time.Time `json:"ended_at,omitzero"`
	Tables  uint64    `json:"tables"`
	Events  uint64    `json:"events"`
	Streams uint64    `json:"streams"`
	Items   uint64    `json:"items"`
	Bytes   uint64    `json:"bytes"`
}

// state is the stored progress of a pass.
type state struct {
	Pass Pass `json:"pass"`
	// Last is the last pass that was completed.
	Last  *Pass  `json:"last,omitempty"`
	Phase string `json:"phase"`
	// Table is the last table that was checked; Tenant the environment being checked, with its life (store.Extent) and
	// the position and number of its last event, or its last item.
	Table    string     `json:"table,omitempty"`
	Tenant   j17.Tenant `json:"tenant,omitempty"`
	Life     uint64     `json:"life,omitempty"`
	Position string     `json:"position,omitempty"`
	Index    uint64     `json:"index,omitempty"`
	// End is the end of the feed when the environment was begun, and Total the number of its events: later events are
	// for the next pass, so that a pass ends however much is written.
	End   string         `json:"end,omitempty"`
	Total uint64         `json:"total,omitempty"`
	Item  store.ItemName `json:"item,omitzero"`
	// Stream is the stream being checked, nil for none.
	Stream *stream `json:"stream,omitempty"`
	// Found are the findings of this pass, Before those of the previous one, which are valid until this one is
	// completed.
	Found  []Finding `json:"found,omitempty"`
	Before []Finding `json:"before,omitempty"`
	// Next is when the next pass begins, if none is in progress.
	Next time.Time `json:"next,omitzero"`
}

// Service looks for damage. It is safe for concurrent use.
type Service struct {
	Options
	// spaces are those of the options, by their names.
	spaces map[store.Space]part.Space
	// wake begins a pass at once.
	wake chan struct{}

	// The remaining fields belong to the loop, except for state, which is guarded by mu.
	rounds int
	// committed is how many events were written before the last round.
	committed uint64
	// looked is how many bytes of files the round has read.
	looked int64
	tile   tile
	// hopeless reports that the log of the current environment cannot be repaired in this pass.
	hopeless bool

	mu    sync.Mutex
	state state
	known bool
}

// New returns a service. It does nothing unless Run is called.
func New(o Options) *Service {
	return &Service{Options: o, spaces: part.ByName(o.Spaces), wake: make(chan struct{}, 1)}
}

// Run checks everything again and again until the context ends.
func (s *Service) Run(ctx context.Context) error {
	s.Worker.Every(ctx, worker.Loop{Name: "scrub", Do: s.Round})
	if err := s.save(context.WithoutCancel(ctx)); err != nil {
		// Only some work is lost: the next start continues from what was stored before.
		s.Logger.LogAttrs(ctx, slog.LevelWarn, "how far the search for damage was could not be stored", slog.Any("error", err))
	}
	return nil
}

// Status is the progress of the service, and its findings.
type Status struct {
	// Phase is what is being checked, of which environment; idle between two passes.
	Phase  string
	Tenant j17.Tenant
	Pass   Pass
	Last   *Pass
	Next   time.Time
	// Damaged are the findings, oldest first.
	Damaged []Finding
}

// Status returns the status.
func (s *Service) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		Phase: s.state.Phase, Tenant: s.state.Tenant, Pass: s.state.Pass, Last: s.state.Last, Next: s.state.Next,
	}
	if st.Phase == "" {
		st.Phase = idle
	}
	for _, f := range s.state.Before {
		if !contains(s.state.Found, &f) {
			st.Damaged = append(st.Damaged, f)
		}
	}
	st.Damaged = append(st.Damaged, s.state.Found...)
	return st
}

// Begin begins a pass now, if none is in progress.
func (s *Service) Begin() {
	s.mu.Lock()
	under := s.known && s.state.Phase != idle
	s.mu.Unlock()
	if under {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default: // already signalled
	}
}

func contains(all []Finding, f *Finding) bool {
	return slices.ContainsFunc(
		all, func(g Finding) bool { return g.What == f.What && g.Where == f.Where && g.Tenant == f.Tenant },
	)
}

// Round checks a bounded part of the stored data, and then waits until the next round may begin.
func (s *Service) Round(ctx context.Context) error {
	if err := s.recall(ctx); err != nil {
		return err
	}
	if s.state.Phase == idle {
		return s.rest(ctx)
	}
	s.looked = 0
	if err := s.step(ctx); err != nil {
		return err
	}
	if s.rounds++; s.rounds%savedEvery == 0 || s.state.Phase == idle {
		if err := s.save(ctx); err != nil {
			return err
		}
	}
	// A file is checked as a whole, however large: the pause is longer after it, and also while events are written.
	pause := roundPause * time.Duration(max(s.looked/roundBytes, 1))
	committed := s.Committed()
	if committed-s.committed >= busyEvents {
		pause *= busyPauses
	}
	s.committed = committed
	return s.Clock.Wait(ctx, s.Clock.Now().Add(pause))
}

// recall reads the progress of the previous process.
func (s *Service) recall(ctx context.Context) error {
	if s.known {
		return nil
	}
	first := state{Phase: idle, Next: s.Clock.Now().Add(firstPause)}
	item, err := s.Store.Get(ctx, j17.System, space, stateKey)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return err
	default:
		if json.Unmarshal(item.Value, &first) != nil { // of another version: begin again
			first = state{Phase: idle, Next: s.Clock.Now().Add(firstPause)}
		}
	}
	s.mu.Lock()
	s.state, s.known = first, true
	s.mu.Unlock()
	if first.Phase != idle {
		return s.Clock.Wait(ctx, s.Clock.Now().Add(firstPause))
	}
	return nil
}

// save stores the progress.
func (s *Service) save(ctx context.Context) error {
	s.mu.Lock()
	raw, err := json.Marshal(s.state)
	known := s.known
	s.mu.Unlock()
	if err != nil || !known {
		return err
	}
	return s.Store.Write(ctx, j17.System, []store.Side{{Op: store.Put, Space: space, Key: stateKey, Value: raw}})
}

// rest waits for the time of the next pass, or until one is requested, and begins it.
func (s *Service) rest(ctx context.Context) error {
	waiting, stop := context.WithCancel(ctx)
	var woken sync.WaitGroup
	woken.Go(func() {
		select {
		case <-s.wake:
			stop()
		case <-waiting.Done():
		}
	})
	err := s.Clock.Wait(waiting, s.state.Next)
	stop()
	woken.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	s.tile, s.hopeless = tile{}, false
	s.change(func(st *state) {
		before := st.Found
		*st = state{
			Phase: tables, Last: st.Last, Before: before,
			Pass: Pass{Number: st.Pass.Number + 1, BeganAt: s.Clock.Now().UTC()},
		}
	})
	return nil
}

// change changes the state.
func (s *Service) change(do func(*state)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(&s.state)
}

// found records damage and logs it once, unless it is about an environment that no longer exists.
func (s *Service) found(ctx context.Context, what, where string, err error) {
	if s.state.Phase != tables && s.replaced(ctx) {
		return
	}
	f := Finding{
		What: what, Where: short(where), Error: short(err.Error()), Tenant: s.state.Tenant, At: s.Clock.Now().UTC(),
	}
	if cause, ok := errors.AsType[*store.CorruptionError](err); ok {
		f.Where, f.Error = short(cause.Where), short(cause.Err.Error())
	}
	fresh := false
	s.change(func(st *state) {
		if contains(st.Found, &f) || len(st.Found) >= maxFindings {
			return
		}
		fresh = !contains(st.Before, &f)
		st.Found = append(st.Found, f)
	})
	if fresh {
		s.Logger.LogAttrs(ctx, slog.LevelError, "stored data are damaged", slog.String("what", what),
			slog.String("tenant", string(f.Tenant)),
			slog.String("where", f.Where), slog.String("error", f.Error))
	}
}

func short(s string) string {
	if len(s) > maxText {
		return s[:maxText]
	}
	return s
}

// isDamage distinguishes damage from errors of this attempt.
func isDamage(err error) bool {
	_, ok := errors.AsType[*store.CorruptionError](err)
	return ok
}
