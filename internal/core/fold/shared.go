package fold

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/panics"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/decider"
)

// A shared fold is one fold for all callers that want its state. It begins in the goroutine of the first caller; a fold
// that takes long, or more memory than many concurrent readers may take, goes on in the background, where tenants take
// turns, a slice each. A caller that has waited long enough gets an error with the progress of the fold, and finds it
// finished, or further on, at its next call.

// sharedKey identifies a fold: of the first length events of a generation, or of all for 0; replay is set for a fold
// from the first event, whatever is cached.
type sharedKey struct {
	StateKey

	fingerprint [32]byte
	generation  uint64
	length      uint64
	replay      bool
}

// sharedFold is a fold under way. sharedFolds.mu guards what is not atomic, except for state, which belongs to the
// goroutine that folds until the fold is finished.
type sharedFold struct {
	sharedKey

	typ *decider.Program
	// target is the length to which it folds, at the length that it has reached.
	target uint64
	at     atomic.Uint64

	ctx    context.Context //nolint:containedctx // it ends with the last caller that wants the fold
	cancel context.CancelFunc
	// waiting counts the waiting callers. A detached fold goes on without any.
	waiting  int
	detached bool
	// large is set once the fold has begun and its state is larger than InlineBytes.
	large bool
	// done, made when a caller waits, is closed when the fold is finished.
	done     chan struct{}
	finished bool
	state    *decider.State
	err      error
}

// sharedFolds has all shared folds of a loader.
type sharedFolds struct {
	mu    sync.Mutex
	byKey map[sharedKey]*sharedFold
	// unfetched are finished detached folds, oldest first, whose states no caller has fetched yet and which are not
	// cached.
	unfetched []*sharedFold
	// unfetchedBytes is the size of their states as JSON.
	unfetchedBytes int
	queue          map[j17.Tenant][]*sharedFold
	turn           []j17.Tenant
	workers        int
	// large is how many folds in the queue or with a worker are large.
	large int
	// taken counts the folds that workers have taken.
	taken uint
	// ending is set when folds without callers have to end. idle is closed when the last worker ends.
	ending bool
	idle   chan struct{}
}

const (
	// inlineWork is the cost of a fold, in units of package work, after which it goes on in the background; sliceWork
	// is the cost of one turn there.
	inlineWork = 1 << 20
	sliceWork  = 8 << 20
	// InlineBytes bounds the size, as JSON, of a state together with the next event that a reader folds itself. A tree
	// takes up to some twenty times as much memory as its text, so larger ones are left to the background.
	InlineBytes = 256 << 10
	// maxLarge is how many folds with larger states may be under way; further ones wait for one of them to finish.
	maxLarge = 4
	// foldWorkers is how many folds run concurrently in the background.
	foldWorkers = 2
	// maxBegun is how many folds of one tenant may wait in the background with the state that they have reached; others
	// begin again at their turn. maxShared bounds all of them.
	maxBegun  = 16
	maxShared = 1024
	// maxUnfetched bounds the states that wait to be fetched.
	maxUnfetched = 16
	// maxUnfetchedBytes bounds their text.
	maxUnfetchedBytes = 64 << 20
)

// errAbandoned is the result of a fold whose first caller has given up, for the others that wait for it.
var errAbandoned = errors.New("engine: the fold was given up")

// errRewritten is the result of a fold of events that were rewritten meanwhile: its state may mix both versions.
var errRewritten = errors.New("engine: events were rewritten")

// notReady is the details of the error of a read that has waited long enough.
type notReady struct {
	Done  uint64 `json:"done"`
	Total uint64 `json:"total"`
}

// foldTo returns the state of k after target events, or after more if k is for all events. keep makes a long fold go on
// without the caller, which then does not wait for it.
func (l *Loader) foldTo(
	ctx context.Context, k sharedKey, typ *decider.Program, target uint64, keep bool,
) (*decider.State, error) {
	past := k.length > 0
	for {
		if !k.replay {
			if f := l.Cached(k.StateKey, typ, Version{target, k.generation}, past); f != nil {
				return f, nil
			}
		}
		fl, lead := l.shared.join(k, typ, target)
		if lead {
			l.begin(ctx, fl, keep)
		}
		err := l.await(ctx, fl, keep)
		switch {
		case errors.Is(err, errAbandoned) && ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, errAbandoned):
			continue
		case errors.Is(err, errRewritten):
			heads, err := l.store.Heads(ctx, k.Tenant, []j17.Key{k.Key})
			if err != nil {
				return nil, err
			}
			k.generation = heads[0].Generation
		case err != nil:
			return nil, err
		case fl.state.Length >= target:
			return fl.state.Whole(k.Key.String())
		}
	}
}

// join returns the shared fold of a key and whether the caller has to begin it.
func (s *sharedFolds) join(k sharedKey, typ *decider.Program, target uint64) (fl *sharedFold, lead bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fl = s.byKey[k]
	if fl == nil {
		fl = &sharedFold{sharedKey: k, typ: typ, target: target}
		s.byKey[k] = fl
		lead = true
	}
	fl.waiting++
	if fl.finished { // and waits to be fetched
		s.forget(fl)
	} else if !lead && fl.done == nil {
		fl.done = make(chan struct{})
	}
	return fl, lead
}

// forget removes a finished fold from those that wait to be fetched. The caller holds mu.
func (s *sharedFolds) forget(fl *sharedFold) {
	delete(s.byKey, fl.sharedKey)
	for i, f := range s.unfetched {
		if f == fl {
			s.unfetched = append(s.unfetched[:i:i], s.unfetched[i+1:]...)
			s.unfetchedBytes -= len(fl.state.JSON)
			return
		}
	}
}

// begin folds up to inlineWork, and hands an unfinished fold to the background.
func (l *Loader) begin(ctx context.Context, fl *sharedFold, keep bool) {
	over := false
	defer func() {
		if !over {
			l.finish(ctx, fl, nil, errAbandoned) // a panic ends only the caller: the others begin again
		}
	}()
	base, err := l.base(ctx, fl, InlineBytes)
	var cost int64
	if err == nil && base != nil {
		fl.at.Store(base.Length)
		base, cost, err = l.advance(ctx, fl.Tenant, fl.typ, fl.Key, base, fl.next(base.Length), bound{
			inlineWork, InlineBytes,
		})
	}
	if err != nil && ctx.Err() != nil {
		err = errAbandoned // the caller's own end; the others go on
	}
	if err == nil && (base == nil || base.Length < fl.target) {
		if base != nil {
			fl.at.Store(base.Length)
			fl.state = base
			fl.state.Cost = cost
		}
		fl.ctx, fl.cancel = context.WithCancel(work.WithoutSlot(context.WithoutCancel(ctx)))
		if l.enqueueFold(fl, keep) {
			over = true
			l.counts.background.Add(1)
			return
		}
		err = l.notReady(fl)
	}
	over = true
	l.finish(ctx, fl, base, err)
}

// base returns the state from which a fold starts: the longest known one that is not too long; nil if that has more
// than most bytes.
func (l *Loader) base(ctx context.Context, fl *sharedFold, most int) (*decider.State, error) {
	if fl.replay {
		return fl.first(), nil
	}
	known := l.Cached(fl.StateKey, fl.typ, Version{0, fl.generation}, false)
	if known != nil && known.Length <= fl.target {
		own := *known // others read the one in the cache
		return &own, nil
	}
	f, err := l.snapshots.load(ctx, fl.Tenant, fl.typ, fl.Key, Version{fl.target, fl.generation}, most)
	if err == nil && f != nil && f.Length == 0 {
		f = fl.first()
	}
	return f, err
}

// first returns the state before the first event of the fold's generation.
func (fl *sharedFold) first() *decider.State {
	own := *fl.typ.First()
	own.Generation = fl.generation
	return &own
}

// enqueueFold hands a fold to the background. It returns false if the tenant has too many there.
func (l *Loader) enqueueFold(fl *sharedFold, keep bool) bool {
	s := &l.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := len(s.queue[fl.Tenant])
	if waiting >= maxShared || s.ending && keep {
		return false
	}
	if waiting >= maxBegun {
		fl.state = nil
	}
	fl.detached = fl.detached || keep
	if fl.done == nil {
		fl.done = make(chan struct{})
	}
	s.push(fl)
	return true
}

// push puts a fold behind the others of its tenant, and starts another worker if there may be one. The caller holds mu.
func (s *sharedFolds) push(fl *sharedFold) {
	waiting := s.queue[fl.Tenant]
	if len(waiting) == 0 {
		s.turn = append(s.turn, fl.Tenant)
	}
	s.queue[fl.Tenant] = append(waiting, fl)
}

// requeue puts an unfinished fold behind the others of its tenant, but before them if it is large, so that it finishes
// and releases its memory before the next one begins. The caller holds mu.
func (s *sharedFolds) requeue(fl *sharedFold) {
	if large := fl.state.Data.Size() > InlineBytes; large != fl.large {
		s.setLarge(fl, large)
	}
	s.push(fl)
	if waiting := s.queue[fl.Tenant]; fl.large {
		copy(waiting[1:], waiting)
		waiting[0] = fl
	}
}

// setLarge keeps the count of large folds. The caller holds mu.
func (s *sharedFolds) setLarge(fl *sharedFold, large bool) {
	switch {
	case large && !fl.large:
		s.large++
	case !large && fl.large:
		s.large--
	}
	fl.large = large
}

// pop returns the next fold, of the tenant whose turn it is; if there are maxLarge large ones, every other time that of
// the first tenant with one of them. The caller holds mu.
func (s *sharedFolds) pop() *sharedFold {
	if len(s.turn) == 0 {
		return nil
	}
	s.taken++
	at := 0
	if s.large >= maxLarge && s.taken%2 == 0 { // every other time, so that large folds do not hold the others up
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

// startWorker starts a worker unless there are enough.
func (l *Loader) startWorker() {
	s := &l.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.workers < foldWorkers && len(s.turn) > 0 {
		s.workers++
		go l.runWorker()
	}
}

// runWorker does a slice of each fold in turn until there are none.
func (l *Loader) runWorker() {
	s := &l.shared
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
		if l.foldSlice(fl) {
			s.mu.Lock()
			s.requeue(fl)
			s.mu.Unlock()
		}
	}
}

// foldSlice folds some events of a fold. It reports whether there are more.
func (l *Loader) foldSlice(fl *sharedFold) (more bool) {
	err := panics.Caught(func() error {
		more = l.foldSome(fl)
		return nil
	})
	if err != nil {
		l.finish(fl.ctx, fl, nil, fmt.Errorf("the fold of %s has ended with a %w", fl.Key, err))
	}
	return more
}

// foldSome is foldSlice without the guard against panics.
func (l *Loader) foldSome(fl *sharedFold) (more bool) {
	if fl.state == nil {
		base, err := l.base(fl.ctx, fl, math.MaxInt)
		if err != nil {
			if fl.ctx.Err() != nil {
				err = errAbandoned
			}
			l.finish(fl.ctx, fl, nil, err)
			return false
		}
		fl.state = base
	}

	if !fl.replay {
		l.snapshots.keepPastIfDue(fl.ctx, fl.Tenant, fl.Key, fl.state)
	}

	// Fold a part of the events, so that other folds get their turns.
	f, cost, err := l.advance(fl.ctx, fl.Tenant, fl.typ, fl.Key, fl.state, fl.next(fl.state.Length), bound{
		sliceWork, math.MaxInt,
	})
	if err != nil {
		if fl.ctx.Err() != nil {
			err = errAbandoned
		}
		l.finish(fl.ctx, fl, nil, err)
		return false
	}
	f.Cost = fl.state.Cost + cost
	fl.state = f
	fl.at.Store(f.Length)

	if f.Length == fl.target {
		// A state that is too large for the cache would be folded again for its snapshot, and once more after that.
		if fl.length == 0 && !fl.replay && f.Length-f.Snapshot >= l.every && f.Finish(fl.Key.String()) == nil {
			if kept, err := l.snapshots.keep(fl.ctx, fl.StateKey, f); err == nil {
				f = kept
			}
		}
		l.finish(fl.ctx, fl, f, nil)
		return false
	}

	return true
}

// next returns the length to fold to in one step: the next one at which a past state may be kept.
func (fl *sharedFold) next(length uint64) uint64 {
	if fl.replay {
		return fl.target
	}
	return min(fl.target, (length/pastEvery+1)*pastEvery)
}

// unchanged returns an error if the folded events may no longer be those of the stream.
func (l *Loader) unchanged(ctx context.Context, fl *sharedFold) error {
	if l.store.Rewrites() == 0 {
		return nil
	}
	heads, err := l.store.Heads(ctx, fl.Tenant, []j17.Key{fl.Key})
	if err == nil && heads[0].Generation != fl.generation {
		err = errRewritten
	}
	return err
}

// finish hands the result of a fold to all waiting callers.
func (l *Loader) finish(ctx context.Context, fl *sharedFold, f *decider.State, err error) {
	if err == nil {
		err = l.unchanged(ctx, fl)
	}

	// The state goes into the cache, and is queued for a snapshot if one is due.
	if err == nil {
		if f.JSON == nil {
			err = f.Finish(fl.Key.String())
		}
		if err == nil && fl.length == 0 && !fl.replay {
			l.cache.put(fl.StateKey, f)
			if f.Length-f.Snapshot >= l.every {
				l.Refresh(fl.StateKey)
			}
		}
	}

	if fl.cancel != nil {
		fl.cancel()
	}

	// Wake the waiting callers.
	s := &l.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setLarge(fl, false)
	fl.finished, fl.state, fl.err = true, f, err
	if fl.done != nil {
		close(fl.done)
	}
	delete(s.byKey, fl.sharedKey)
	if err != nil || fl.waiting > 0 || !fl.detached || fl.length == 0 && !fl.replay {
		return
	}
	// A caller has been told to call again, so keep the text, without the tree, which takes many times as much memory.
	text := *f
	text.Data = value.Value{}
	fl.state = &text
	s.byKey[fl.sharedKey] = fl
	s.unfetched = append(s.unfetched, fl)
	for s.unfetchedBytes += len(f.JSON); len(s.unfetched) > maxUnfetched || s.unfetchedBytes > maxUnfetchedBytes; {
		s.forget(s.unfetched[0])
	}
}

// await waits until a fold is finished, but at most as long as a read may wait.
func (l *Loader) await(ctx context.Context, fl *sharedFold, keep bool) error {
	s := &l.shared
	s.mu.Lock()
	landed, done := fl.finished, fl.done
	if landed {
		fl.waiting--
	}
	s.mu.Unlock()
	if landed {
		return fl.err
	}
	l.startWorker()
	if keep {
		l.leave(fl, true)
		return l.notReady(fl)
	}
	waiting, stop := clock.Until(ctx, l.clock, l.clock.Now().Add(l.readWait))
	defer stop()
	select {
	case <-done:
		l.leave(fl, false)
		return fl.err
	case <-waiting.Done():
	}
	l.leave(fl, ctx.Err() == nil)
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.notReady(fl)
}

// leave ends a wait. The fold ends with the last one, unless it is detached or keep detaches it.
func (l *Loader) leave(fl *sharedFold, keep bool) {
	s := &l.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	fl.waiting--
	fl.detached = fl.detached || keep && !s.ending
	if fl.waiting == 0 && (!fl.detached || s.ending) && fl.cancel != nil {
		fl.cancel()
	}
}

// notReady returns the error for a caller that no longer waits for a fold.
func (l *Loader) notReady(fl *sharedFold) error {
	l.counts.notReady.Add(1)
	d := notReady{Done: fl.at.Load(), Total: fl.target}
	err := j17.Errorf(j17.CodeStateNotReady, "The state of %s is being computed: %d of %d events are done. Try again in a moment.", fl.Key, d.Done, d.Total)
	err.Details = d
	return err
}

// endFolds ends the folds without waiting callers, and waits for the others.
func (l *Loader) endFolds() {
	s := &l.shared
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

// drop forgets the states of a stream that wait to be fetched.
func (s *sharedFolds) drop(k StateKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fl := range slices.Clone(s.unfetched) {
		if fl.StateKey == k {
			s.forget(fl)
		}
	}
}
