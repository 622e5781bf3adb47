package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/decider"
)

// A flight is one fold that everybody waits for who wants its state. It begins in the goroutine of who wants it first; what
// takes longer than a moment, or more memory than many readers may take at once, goes on in the background, where the tenants
// take turns, a slice each. Whoever has waited long enough is told how far it is, and finds it done, or further on, when he
// comes again.

// flightKey names what is folded: the first length events of a generation, or for 0 all there are; anew from the first one or not.
type flightKey struct {
	stateKey

	fingerprint [32]byte
	generation  uint64
	length      uint64
	anew        bool
}

// flight is a fold under way. flights.mu guards what is not atomic, but for state, which is its runner's until it has landed.
type flight struct {
	flightKey

	typ *decider.Program
	// target is the length to which it folds, at the one that it has got to.
	target uint64
	at     atomic.Uint64

	ctx    context.Context //nolint:containedctx // it lives as long as somebody wants the flight
	cancel context.CancelFunc
	// waiting is how many want it. A kept flight goes on without anybody.
	waiting int
	kept    bool
	// large tells that the flight has begun and that its state is larger than inlineBytes.
	large bool
	// done is closed when the flight has landed, if somebody waits.
	done   chan struct{}
	landed bool
	state  *decider.State
	err    error
}

// flights has all flights of an engine.
type flights struct {
	mu    sync.Mutex
	byKey map[flightKey]*flight
	// finished are kept flights whose states nobody has fetched yet and which are in no cache, the oldest first.
	finished []*flight
	// kept is how many bytes their states have as JSON.
	kept    int
	queue   map[j17.Tenant][]*flight
	turn    []j17.Tenant
	workers int
	// large is how many flights in the queue or with a worker are large.
	large int
	// pops counts the flights that workers have taken.
	pops uint
	// ending tells that nothing goes on which nobody waits for. idle is closed when the last worker ends.
	ending bool
	idle   chan struct{}
}

const (
	// inlineWork is what a fold may cost, in units of package work, before it goes on in the background; sliceWork is what
	// it may cost there before it is another one's turn.
	inlineWork = 1 << 20
	sliceWork  = 8 << 20
	// inlineBytes is how large, as JSON, a state and the event that is folded into it may be for a reader to fold it himself. A
	// tree takes up to some twenty times as much memory as its text, so what is larger is left to the background.
	inlineBytes = 256 << 10
	// maxLarge is how many flights with larger states are begun before others have to wait for one of them to land.
	maxLarge = 4
	// flightWorkers is how many flights are carried on at once in the background.
	flightWorkers = 2
	// maxBegun is how many flights of one tenant may wait in the background with the state that they have got to; others begin
	// anew when it is their turn. maxFlights bounds all of them.
	maxBegun   = 16
	maxFlights = 1024
	// keptFinished bounds the states that wait for being fetched.
	keptFinished = 16
	// keptBytes bounds their text.
	keptBytes = 64 << 20
)

// errLeft tells that whoever carried a flight on has gone.
var errLeft = errors.New("engine: the fold was given up")

// errRewritten tells that events were rewritten while they were folded: what was made of them may be of both.
var errRewritten = errors.New("engine: events were rewritten")

// notReady is the details of the error of who has waited long enough.
type notReady struct {
	Done  uint64 `json:"done"`
	Total uint64 `json:"total"`
}

// foldTo returns the state that k names, after target events or, where k names the present, after more. keep makes the flight
// go on without the caller, who does not wait for what is not done in a moment.
func (e *Engine) foldTo(ctx context.Context, k flightKey, typ *decider.Program, target uint64, keep bool) (*decider.State, error) {
	past := k.length > 0
	for {
		if !k.anew {
			if f := e.cached(k.stateKey, typ, Version{target, k.generation}, past); f != nil {
				return f, nil
			}
		}
		fl, lead := e.flights.join(k, typ, target)
		if lead {
			e.begin(ctx, fl, keep)
		}
		err := e.await(ctx, fl, keep)
		switch {
		case errors.Is(err, errLeft) && ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, errLeft):
			continue
		case errors.Is(err, errRewritten):
			heads, err := e.store.Heads(ctx, k.tenant, []j17.Key{k.key})
			if err != nil {
				return nil, err
			}
			k.generation = heads[0].Generation
		case err != nil:
			return nil, err
		case fl.state.Length >= target:
			return fl.state.Whole(k.key.String())
		}
	}
}

// join returns the flight of a key and whether the caller has to begin it.
func (s *flights) join(k flightKey, typ *decider.Program, target uint64) (fl *flight, lead bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fl = s.byKey[k]
	if fl == nil {
		fl = &flight{flightKey: k, typ: typ, target: target}
		s.byKey[k] = fl
		lead = true
	}
	fl.waiting++
	if fl.landed { // and waits for being fetched
		s.forget(fl)
	} else if !lead && fl.done == nil {
		fl.done = make(chan struct{})
	}
	return fl, lead
}

// forget takes a flight that has landed out of the list of those that wait for being fetched. The caller holds mu.
func (s *flights) forget(fl *flight) {
	delete(s.byKey, fl.flightKey)
	for i, f := range s.finished {
		if f == fl {
			s.finished = append(s.finished[:i:i], s.finished[i+1:]...)
			s.kept -= len(fl.state.JSON)
			return
		}
	}
}

// begin folds for a moment, and hands on what is not done then.
func (e *Engine) begin(ctx context.Context, fl *flight, keep bool) {
	over := false
	defer func() {
		if !over {
			e.land(ctx, fl, nil, errLeft) // a panic, which ends the caller alone: whoever waits begins anew
		}
	}()
	base, err := e.base(ctx, fl, inlineBytes)
	var cost int64
	if err == nil && base != nil {
		fl.at.Store(base.Length)
		base, cost, err = e.advance(ctx, fl.tenant, fl.typ, fl.key, base, fl.next(base.Length), portion{inlineWork, inlineBytes})
	}
	if err != nil && ctx.Err() != nil {
		err = errLeft // the caller's own end; the others go on
	}
	if err == nil && (base == nil || base.Length < fl.target) {
		if base != nil {
			fl.at.Store(base.Length)
			fl.state = base
			fl.state.Cost = cost
		}
		fl.ctx, fl.cancel = context.WithCancel(work.WithoutSlot(context.WithoutCancel(ctx)))
		if e.enqueueFlight(fl, keep) {
			over = true
			e.counts.flights.Add(1)
			return
		}
		err = e.notReady(fl)
	}
	over = true
	e.land(ctx, fl, base, err)
}

// base is the state from which a flight starts: the longest that is known and not too long; nil where that has more than
// most bytes.
func (e *Engine) base(ctx context.Context, fl *flight, most int) (*decider.State, error) {
	if fl.anew {
		return fl.first(), nil
	}
	known := e.cached(fl.stateKey, fl.typ, Version{0, fl.generation}, false)
	if known != nil && known.Length <= fl.target {
		own := *known // others read the one in the cache
		return &own, nil
	}
	f, err := e.snapshot(ctx, fl.tenant, fl.typ, fl.key, Version{fl.target, fl.generation}, most)
	if err == nil && f != nil && f.Length == 0 {
		f = fl.first()
	}
	return f, err
}

// first is the state before the first event of the flight's generation.
func (fl *flight) first() *decider.State {
	own := *fl.typ.First()
	own.Generation = fl.generation
	return &own
}

// enqueueFlight hands a flight to the background. It reports false when the tenant has too many there.
func (e *Engine) enqueueFlight(fl *flight, keep bool) bool {
	s := &e.flights
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := len(s.queue[fl.tenant])
	if waiting >= maxFlights || s.ending && keep {
		return false
	}
	if waiting >= maxBegun {
		fl.state = nil
	}
	fl.kept = fl.kept || keep
	if fl.done == nil {
		fl.done = make(chan struct{})
	}
	s.push(fl)
	return true
}

// push puts a flight behind the others of its tenant, and starts another worker if there may be one. The caller holds mu.
func (s *flights) push(fl *flight) {
	waiting := s.queue[fl.tenant]
	if len(waiting) == 0 {
		s.turn = append(s.turn, fl.tenant)
	}
	s.queue[fl.tenant] = append(waiting, fl)
}

// putBack puts a flight that is not done behind the others of its tenant, but before them if it is large: what has begun is to
// land, and let go of its memory, before the next one begins. The caller holds mu.
func (s *flights) putBack(fl *flight) {
	if large := fl.state.Data.Size() > inlineBytes; large != fl.large {
		s.settleLarge(fl, large)
	}
	s.push(fl)
	if waiting := s.queue[fl.tenant]; fl.large {
		copy(waiting[1:], waiting)
		waiting[0] = fl
	}
}

// settleLarge keeps count of the flights that are large. The caller holds mu.
func (s *flights) settleLarge(fl *flight, large bool) {
	switch {
	case large && !fl.large:
		s.large++
	case !large && fl.large:
		s.large--
	}
	fl.large = large
}

// pop returns the next flight, of the tenant whose turn it is; where there are enough large ones, of the first that has one of
// them. The caller holds mu.
func (s *flights) pop() *flight {
	if len(s.turn) == 0 {
		return nil
	}
	s.pops++
	at := 0
	if s.large >= maxLarge && s.pops%2 == 0 { // every other time, so that large flights do not keep the others from flying
		at = max(0, slices.IndexFunc(s.turn, func(t j17.Tenant) bool { return s.queue[t][0].large }))
	}
	t := s.turn[at]
	waiting := s.queue[t]
	fl := waiting[0]
	s.turn = slices.Delete(slices.Clone(s.turn), at, at+1)
	if len(waiting) == 1 {
		delete(s.queue, t)
	} else {
		s.queue[t] = waiting[1:]
		s.turn = append(s.turn, t)
	}
	return fl
}

// carryOn starts a worker unless there are enough.
func (e *Engine) carryOn() {
	s := &e.flights
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.workers < flightWorkers && len(s.turn) > 0 {
		s.workers++
		go e.workOn()
	}
}

// workOn carries flights on, a slice each, until there are none.
func (e *Engine) workOn() {
	s := &e.flights
	for {
		s.mu.Lock()
		fl := s.pop()
		if fl == nil {
			if s.workers--; s.workers == 0 && s.idle != nil {
				close(s.idle)
				s.idle = nil
			}
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if e.slice(fl) {
			s.mu.Lock()
			s.putBack(fl)
			s.mu.Unlock()
		}
	}
}

// slice folds some more events of a flight. It reports whether there are more to fold.
func (e *Engine) slice(fl *flight) (more bool) {
	err := panics.Caught(func() error {
		more = e.foldSome(fl)
		return nil
	})
	if err != nil {
		e.land(fl.ctx, fl, nil, fmt.Errorf("the fold of %s has ended with a %w", fl.key, err))
	}
	return more
}

// foldSome is slice, as long as nothing panics.
func (e *Engine) foldSome(fl *flight) (more bool) {
	if fl.state == nil {
		base, err := e.base(fl.ctx, fl, math.MaxInt)
		if err != nil {
			if fl.ctx.Err() != nil {
				err = errLeft
			}
			e.land(fl.ctx, fl, nil, err)
			return false
		}
		fl.state = base
	}

	if !fl.anew {
		e.checkpoint(fl.ctx, fl.tenant, fl.key, fl.state)
	}

	// A part of the events, so that other flights get their turns.
	f, cost, err := e.advance(fl.ctx, fl.tenant, fl.typ, fl.key, fl.state, fl.next(fl.state.Length), portion{sliceWork, math.MaxInt})
	if err != nil {
		if fl.ctx.Err() != nil {
			err = errLeft
		}
		e.land(fl.ctx, fl, nil, err)
		return false
	}
	f.Cost = fl.state.Cost + cost
	fl.state = f
	fl.at.Store(f.Length)

	if f.Length == fl.target {
		// A state that is too large for the cache would be folded anew for its snapshot, and again after that.
		if fl.length == 0 && !fl.anew && f.Length-f.Snapshot >= e.every && f.Finish(fl.key.String()) == nil {
			if kept, err := e.keepSnapshot(fl.ctx, fl.stateKey, f); err == nil {
				f = kept
			}
		}
		e.land(fl.ctx, fl, f, nil)
		return false
	}

	return true
}

// next is how far a flight folds at once: to where a state may be kept on its way.
func (fl *flight) next(length uint64) uint64 {
	if fl.anew {
		return fl.target
	}
	return min(fl.target, (length/pastEvery+1)*pastEvery)
}

// unchanged reports an error where the events that a flight has folded need not be those that its stream has.
func (e *Engine) unchanged(ctx context.Context, fl *flight) error {
	if e.store.Rewrites() == 0 {
		return nil
	}
	heads, err := e.store.Heads(ctx, fl.tenant, []j17.Key{fl.key})
	if err == nil && heads[0].Generation != fl.generation {
		err = errRewritten
	}
	return err
}

// land tells all who wait what has become of a flight.
func (e *Engine) land(ctx context.Context, fl *flight, f *decider.State, err error) {
	if err == nil {
		err = e.unchanged(ctx, fl)
	}

	// What it has led to is for the cache, and for a snapshot if one is due.
	if err == nil {
		if f.JSON == nil {
			err = f.Finish(fl.key.String())
		}
		if err == nil && fl.length == 0 && !fl.anew {
			e.cache.put(fl.stateKey, f)
			if f.Length-f.Snapshot >= e.every {
				e.enqueue(fl.stateKey)
			}
		}
	}

	if fl.cancel != nil {
		fl.cancel()
	}

	// Whoever waits is told.
	s := &e.flights
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLarge(fl, false)
	fl.landed, fl.state, fl.err = true, f, err
	if fl.done != nil {
		close(fl.done)
	}
	delete(s.byKey, fl.flightKey)
	if err != nil || fl.waiting > 0 || !fl.kept || fl.length == 0 && !fl.anew {
		return
	}
	// Somebody has been told to come again. The text is kept without the tree, which takes many times as much.
	text := *f
	text.Data = value.Value{}
	fl.state = &text
	s.byKey[fl.flightKey] = fl
	s.finished = append(s.finished, fl)
	for s.kept += len(f.JSON); len(s.finished) > keptFinished || s.kept > keptBytes; {
		s.forget(s.finished[0])
	}
}

// await waits until a flight has landed, for so long as a read may wait.
func (e *Engine) await(ctx context.Context, fl *flight, keep bool) error {
	s := &e.flights
	s.mu.Lock()
	landed, done := fl.landed, fl.done
	if landed {
		fl.waiting--
	}
	s.mu.Unlock()
	if landed {
		return fl.err
	}
	e.carryOn()
	if keep {
		e.leaveFlight(fl, true)
		return e.notReady(fl)
	}
	waiting, stop := e.until(ctx, e.clock.Now().Add(e.readWait))
	defer stop()
	select {
	case <-done:
		e.leaveFlight(fl, false)
		return fl.err
	case <-waiting.Done():
	}
	e.leaveFlight(fl, ctx.Err() == nil)
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.notReady(fl)
}

// leaveFlight ends a wait. The flight ends with the last one, unless it was kept or keep asks for it.
func (e *Engine) leaveFlight(fl *flight, keep bool) {
	s := &e.flights
	s.mu.Lock()
	defer s.mu.Unlock()
	fl.waiting--
	fl.kept = fl.kept || keep && !s.ending
	if fl.waiting == 0 && (!fl.kept || s.ending) && fl.cancel != nil {
		fl.cancel()
	}
}

// notReady is the error of who does not wait for a flight any longer.
func (e *Engine) notReady(fl *flight) error {
	e.counts.notReady.Add(1)
	d := notReady{Done: fl.at.Load(), Total: fl.target}
	err := j17.Errorf(j17.CodeStateNotReady, "The state of %s is being computed: %d of %d events are done. Try again in a moment.", fl.key, d.Done, d.Total)
	err.Details = d
	return err
}

// endFlights ends what nobody waits for, and waits for the rest.
func (e *Engine) endFlights() {
	s := &e.flights
	s.mu.Lock()
	s.ending = true
	for _, fl := range s.byKey {
		if fl.waiting == 0 && fl.cancel != nil {
			fl.cancel()
		}
	}
	idle := s.idle
	if s.workers > 0 && idle == nil {
		idle = make(chan struct{})
		s.idle = idle
	}
	s.mu.Unlock()
	if idle != nil {
		<-idle
	}
}
