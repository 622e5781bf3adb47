// Package scrub looks for damage before somebody needs what is damaged. It reads all that is stored again and again,
// slowly: files against their checksums, events against their own bytes, the chains of their streams, the index of tags
// and the log of their environment, and side items against what their owners know of them. Its findings appear in
// metrics, in the readiness of the server and in notices to operators until a later pass finds the data intact.
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

// Storage is what is read.
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
	// Spaces are those of all parts of the program. A pass removes items that say the same as none: an older version of
	// the program may have left some, and their keys may tell what nobody may know any longer. Of spaces without a
	// check it is only looked whether items can be read.
	Spaces []part.Space
}

// How much of the machine a pass may have, and how often there is one. An event costs as much as eventCost bytes beside
// its own: it is looked up in its stream, in the index of tags and in the log. Where busyEvents were written since the
// round before, the pause is busyPauses times as long: at four MiB a second a pass takes up to a sixth of a processor.
const (
	roundPause = 250 * time.Millisecond
	busyPauses = 8
	busyEvents = 64
	roundBytes = 1 << 20
	eventCost  = 2 << 10
	passPause  = 24 * time.Hour
	// firstPause is how long after its start a server lets others have the machine.
	firstPause = time.Minute
	// savedEvery is after how many rounds it is noted how far a pass is.
	savedEvery = 120
	// maxFindings is how many findings are kept, maxText how long their texts may be.
	maxFindings = 100
	maxText     = 500
)

// space has, in the System tenant, how far the pass is.
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

// Finding is something that is damaged.
type Finding struct {
	// What it is: a table, an event, a stream, an index, the log, or an item. Where says which one, Error what is wrong
	// with it.
	What  string `json:"what"`
	Where string `json:"where"`
	Error string `json:"error"`
	// Tenant is whose it is, "" where that is not known.
	Tenant j17.Tenant `json:"tenant,omitempty"`
	At     time.Time  `json:"at"`
}

// Pass is what a pass over everything has looked at.
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

// state is how far a pass is, as it is stored.
type state struct {
	Pass Pass `json:"pass"`
	// Last is the last pass that has come to its end.
	Last  *Pass  `json:"last,omitempty"`
	Phase string `json:"phase"`
	// Table is the last table that was looked at; Tenant the environment that is, with its life (store.Extent) and the
	// position and number of its last event, or its last item.
	Table    string     `json:"table,omitempty"`
	Tenant   j17.Tenant `json:"tenant,omitempty"`
	Life     uint64     `json:"life,omitempty"`
	Position string     `json:"position,omitempty"`
	Index    uint64     `json:"index,omitempty"`
	// End is where the feed ended when the environment was begun, and Total how many events it had: what was written
	// since is for the next pass, so that a pass ends however much is written.
	End   string         `json:"end,omitempty"`
	Total uint64         `json:"total,omitempty"`
	Item  store.ItemName `json:"item,omitzero"`
	// Stream is the stream that is being looked at, nil for none.
	Stream *stream `json:"stream,omitempty"`
	// Found is what this pass has found, Before what the one before had, which counts until this one has come to its
	// end.
	Found  []Finding `json:"found,omitempty"`
	Before []Finding `json:"before,omitempty"`
	// Next is when the next pass begins, while none is under way.
	Next time.Time `json:"next,omitzero"`
}

// Service looks for damage. It is safe for concurrent use.
type Service struct {
	Options
	// spaces are those of the options, by their names.
	spaces map[store.Space]part.Space
	// wake begins a pass at once.
	wake chan struct{}

	// The rest is the loop's, but for state, which is under mu.
	rounds int
	// committed is how many events were written before the last round.
	committed uint64
	// looked is how many bytes of files the round has looked at.
	looked int64
	tile   tile
	// hopeless reports that the log of the environment that is looked at cannot be repaired in this pass.
	hopeless bool

	mu    sync.Mutex
	state state
	known bool
}

// New returns a service. Run must be called for it to do anything.
func New(o Options) *Service {
	return &Service{Options: o, spaces: part.ByName(o.Spaces), wake: make(chan struct{}, 1)}
}

// Run looks at everything again and again until the context ends.
func (s *Service) Run(ctx context.Context) error {
	s.Worker.Every(ctx, worker.Loop{Name: "scrub", Do: s.Round})
	if err := s.save(context.WithoutCancel(ctx)); err != nil {
		// Nothing is lost but the work of a while: the next start goes on from what was stored before.
		s.Logger.LogAttrs(ctx, slog.LevelWarn, "how far the search for damage was could not be stored", slog.Any("error", err))
	}
	return nil
}

// Status is how far the service is, and what it has found.
type Status struct {
	// Phase is what is looked at, of which environment; idle between two passes.
	Phase  string
	Tenant j17.Tenant
	Pass   Pass
	Last   *Pass
	Next   time.Time
	// Damaged is what was found, the first one first.
	Damaged []Finding
}

// Status returns it.
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

// Begin begins a pass now, if none is under way.
func (s *Service) Begin() {
	s.mu.Lock()
	under := s.known && s.state.Phase != idle
	s.mu.Unlock()
	if under {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default: // it is about to
	}
}

func contains(all []Finding, f *Finding) bool {
	return slices.ContainsFunc(
		all, func(g Finding) bool { return g.What == f.What && g.Where == f.Where && g.Tenant == f.Tenant },
	)
}

// Round looks at a bounded part of what is stored, and then waits until the next one may be looked at.
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
	// A file is looked at in one go, however large it is: what follows waits the longer. And it does where somebody
	// writes.
	pause := roundPause * time.Duration(max(s.looked/roundBytes, 1))
	committed := s.Committed()
	if committed-s.committed >= busyEvents {
		pause *= busyPauses
	}
	s.committed = committed
	return s.Clock.Wait(ctx, s.Clock.Now().Add(pause))
}

// recall reads how far the process before this one was.
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
		if json.Unmarshal(item.Value, &first) != nil { // another version's: it begins again
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

// save notes how far it is.
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

// rest waits for the time of the next pass, or until somebody wants one, and begins it.
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

// found notes that something is damaged, and says so once; but not where it does not fit what was seen of an
// environment that no longer exists.
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

// isDamage tells damage from what only this look has failed for.
func isDamage(err error) bool {
	_, ok := errors.AsType[*store.CorruptionError](err)
	return ok
}
