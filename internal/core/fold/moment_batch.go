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
	// maxBatchEvents bounds the events of an aggregate that is folded in a batch with others.
	maxBatchEvents = 64
	// maxGrownEvents is how many events an aggregate may have for folding all of them to cost less than looking up the
	// new ones.
	maxGrownEvents = 8
	// minBatch is the number of such aggregates from which on they are folded in a batch, minParallelBatch that from
	// which on the batch is divided among processors.
	minBatch         = 4
	minParallelBatch = 32
	// maxLongStreams is how many longer streams a batch may meet before the rest is folded one by one.
	maxLongStreams = 4
)

// foldBatch loads uncached aggregates, given by their indexes in keys, that have few events. It reads their streams
// together and without their heads, since reading a head is most of the work for a handful of events. It returns the
// indexes of those that it has not loaded. rewrites is the count of rewrites before.
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

	// Each processor gets neighbouring aggregates.
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

// foldGrown is foldBatch for cached aggregates that have new events, very few events in all, and no rewritten ones.
// tried are the aggregates that foldBatch has just not loaded. parts are the prefixes that belong to the moment.
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
	// name is the aggregate, seen is how many of its events were read, and left is set if it has to be folded by
	// itself.
	name j17.Key
	seen uint64
	left bool
}

// begin begins an aggregate.
func (f *batchFold) begin(ctx context.Context, key j17.Key) {
	typ := f.m.d.Program(key.Type)
	if f.x == nil || f.x.typ != typ {
		f.x = f.m.l.steps(ctx, typ)
	}
	f.x.begin(key, typ.First())
	f.name, f.seen, f.left = key, 0, false
}

// next takes the next event. An aggregate is left to a separate fold if an event takes much work, which is done in
// slices there, or was erased, since the generation is in the head. An event after the moment only shows that the
// stream goes on.
func (f *batchFold) next(ev *j17.Event, most uint64) {
	f.seen++
	et := f.x.typ.Events[ev.Type]
	heavy := et != nil && et.Code != nil || f.x.cost > inlineWork || f.x.f.Data.Size()+len(ev.Data) > InlineBytes
	f.left = f.left || f.seen > most || heavy || ev.Erased() || ev.StreamID.Compare(f.m.at) <= 0 && f.x.apply(ev) != nil
}

// state returns the state of the aggregate, nil if it is left.
func (f *batchFold) state() *decider.State {
	if f.left || f.x.f.Finish(f.x.te.Key) != nil {
		return nil
	}
	state := f.x.f
	return &state
}

// foldTogether folds the aggregates at some indexes, in the order of their keys, and returns the indexes of those that
// it has not folded. These include aggregates without events: only the head shows that there are none.
func (m *Moment) foldTogether(
	ctx context.Context, keys []j17.Key, some []int, rewrites uint64, loaded []Loaded,
) (left []int) {
	most := min(maxBatchEvents, m.l.every-1) // streams that may have a snapshot are folded from it
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

	// After a rewrite meanwhile, states may mix old and new events.
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
			continue // the stream begins after the moment
		}
		m.l.counts.folded.Add(state.Length)
		loaded[i].take(state, p)
		if !p.past && m.present { // past states, and those for a spec that is not deployed, are not cached
			m.l.cache.offer(StateKey{m.tenant, keys[i]}, state)
		}
	}
	return left
}
