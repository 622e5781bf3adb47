package fold

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/core/decider"
)

const (
	// maxBatchEvents is how many events an aggregate may have to be folded in a batch with others.
	maxBatchEvents = 64
	// maxGrownEvents is how many events an aggregate may have where folding all of them costs less than looking up the
	// new ones.
	maxGrownEvents = 8
	// minBatch is from how many such aggregates on they are folded in a batch, minParallelBatch from how many on the
	// batch is divided among processors.
	minBatch         = 4
	minParallelBatch = 32
	// maxLongStreams is how many longer streams a batch may meet before the rest of it is folded one by one.
	maxLongStreams = 4
)

// foldBatch loads those of some aggregates, given by their places in keys, that are not cached and have few events. It
// reads their streams together and without their heads, since reading a head is most of the work for a handful of
// events. It returns the places of those that it has not loaded. rewrites is how often events had been rewritten
// before.
func (m *Moment) foldBatch(
	ctx context.Context, keys []j17.Key, some []int, rewrites uint64, loaded []Loaded,
) (left []int) {
	if len(some) < minBatch || m.until != nil {
		return some
	}
	slices.SortFunc(some, func(a, b int) int { return keys[a].Compare(keys[b]) })
	if len(some) < minParallelBatch {
		return m.foldTogether(ctx, keys, some, rewrites, loaded)
	}

	// Each processor gets some that stand next to each other.
	var mu sync.Mutex
	var folding panics.Parts
	n := runtime.GOMAXPROCS(0)
	for part := range slices.Chunk(some, (len(some)+n-1)/n) {
		folding.Go(func() {
			others := m.foldTogether(ctx, keys, part, rewrites, loaded)
			mu.Lock()
			defer mu.Unlock()
			left = append(left, others...)
		})
	}
	folding.Wait()
	return left
}

// foldGrown is foldBatch for aggregates that are cached and have new events, where they have very few events and none
// was rewritten. tried are those that foldBatch has not loaded before. parts are the prefixes that belong to the
// moment.
func (m *Moment) foldGrown(
	ctx context.Context, keys []j17.Key, rest, tried []int, parts []prefix, rewrites uint64, loaded []Loaded,
) (left []int) {
	again := make([]bool, len(keys))
	for _, i := range tried {
		again[i] = true
	}
	var gone []int
	for _, i := range rest {
		if parts[i].Length <= maxGrownEvents && parts[i].Generation == 0 && !again[i] {
			gone = append(gone, i)
		} else {
			left = append(left, i)
		}
	}
	return append(left, m.foldBatch(ctx, keys, gone, rewrites, loaded)...)
}

// batchFold folds several aggregates, one after the other.
type batchFold struct {
	m *Moment
	x *steps
	// name is the aggregate, seen is how many of its events were read, and left is set where it has to be folded by
	// itself.
	name j17.Key
	seen uint64
	left bool
}

// begin begins with an aggregate.
func (f *batchFold) begin(ctx context.Context, key j17.Key) {
	typ := f.m.d.Program(key.Type)
	if f.x == nil || f.x.typ != typ {
		f.x = f.m.l.steps(ctx, typ)
	}
	f.x.begin(key, typ.First())
	f.name, f.seen, f.left = key, 0, false
}

// next takes the next event. An aggregate is left to a fold of its own where an event takes much work, which is done in
// slices there, and where an event was erased, because the head has the generation. An event behind the moment only
// says that the stream goes on.
func (f *batchFold) next(ev *j17.Event, most uint64) {
	f.seen++
	et := f.x.typ.Events[ev.Type]
	heavy := et != nil && et.Code != nil || f.x.cost > inlineWork || f.x.f.Data.Size()+len(ev.Data) > InlineBytes
	f.left = f.left || f.seen > most || heavy || ev.Erased() || ev.StreamID.Compare(f.m.at) <= 0 && f.x.apply(ev) != nil
}

// state returns the state of the aggregate, nil where it is left.
func (f *batchFold) state() *decider.State {
	if f.left || f.x.f.Finish(f.x.te.Key) != nil {
		return nil
	}
	state := f.x.f
	return &state
}

// foldTogether folds the aggregates at some places, in the order of their keys, and returns the places of those that it
// has not folded. An aggregate without events is among these: only its head says that it has none.
func (m *Moment) foldTogether(
	ctx context.Context, keys []j17.Key, some []int, rewrites uint64, loaded []Loaded,
) (left []int) {
	most := min(maxBatchEvents, m.l.every-1) // what may have a snapshot is folded from there
	wanted := make([]j17.Key, len(some))
	for n, i := range some {
		wanted[n] = keys[i]
	}
	folded, seen := make([]*decider.State, len(some)), make([]uint64, len(some))
	f, at, long := batchFold{m: m}, -1, 0
	for ev, err := range m.l.store.ReadStreams(ctx, m.tenant, wanted, most+1) {
		if err != nil {
			f.left = true
			break
		}
		if at < 0 || ev.Key != f.name {
			if at >= 0 {
				folded[at], seen[at] = f.state(), f.seen
			}
			for at = max(at, 0); wanted[at] != ev.Key; at++ {
			}
			f.begin(ctx, ev.Key)
		}
		if f.next(ev, most); f.seen > most {
			if long++; long == maxLongStreams {
				break
			}
		}
	}
	if at >= 0 {
		folded[at], seen[at] = f.state(), f.seen
	}

	// Where something was rewritten meanwhile, some may be folded from what was before and what is now.
	if m.l.store.Rewrites() != rewrites {
		return some
	}
	for n, i := range some {
		state := folded[n]
		if state == nil {
			left = append(left, i)
			continue
		}
		p := prefix{Version: Version{Length: state.Length}, past: seen[n] > state.Length}
		if p.Length == 0 {
			continue // it has begun behind the moment
		}
		m.l.counts.folded.Add(state.Length)
		loaded[i].take(state, p)
		if !p.past && m.present { // what is of the past, or not deployed, is not for the cache
			m.l.cache.offer(StateKey{m.tenant, keys[i]}, state)
		}
	}
	return left
}
