package engine

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
	// shortStream is how many events an aggregate has at most that is folded together with others.
	shortStream = 64
	// veryShort is how many it has at most where folding it anew costs less than a look for those that it has since.
	veryShort = 8
	// fewShort is how many such aggregates are folded one by one, manyShort from how many on they are divided among processors.
	fewShort  = 4
	manyShort = 32
	// mostLong is how many longer streams are come upon before the rest is not read like that.
	mostLong = 4
)

// foldShort loads aggregates of which nothing is known, at some places, as long as they have few events: these are read together and
// without their heads, which is most of the work where each has a handful. It returns the places of those that are left, for
// whatever reason. rewrites is how often events had been rewritten before.
func (m *Moment) foldShort(ctx context.Context, keys []j17.Key, some []int, rewrites uint64, loaded []Loaded) (left []int) {
	if len(some) < fewShort || m.until != nil {
		return some
	}
	slices.SortFunc(some, func(a, b int) int { return keys[a].Compare(keys[b]) })
	if len(some) < manyShort {
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

// foldGone is foldShort for those of the rest that are known, but have gone on since, where they have very few events and none was rewritten. tried
// are those that foldShort has left before. parts are what belongs to the moment.
func (m *Moment) foldGone(ctx context.Context, keys []j17.Key, rest, tried []int, parts []prefix, rewrites uint64, loaded []Loaded) (left []int) {
	again := make([]bool, len(keys))
	for _, i := range tried {
		again[i] = true
	}
	var gone []int
	for _, i := range rest {
		if parts[i].Length <= veryShort && parts[i].Generation == 0 && !again[i] {
			gone = append(gone, i)
		} else {
			left = append(left, i)
		}
	}
	return append(left, m.foldShort(ctx, keys, gone, rewrites, loaded)...)
}

// together folds several aggregates, one after the other.
type together struct {
	m *Moment
	x *folding
	// name is the aggregate, seen how many of its events were read, and left tells that whoever folds it by itself gets further.
	name j17.Key
	seen uint64
	left bool
}

// begin begins with an aggregate.
func (f *together) begin(ctx context.Context, key j17.Key) {
	typ := f.m.d.Program(key.Type)
	if f.x == nil || f.x.typ != typ {
		f.x = f.m.e.folding(ctx, typ)
	}
	f.x.begin(key, typ.First())
	f.name, f.seen, f.left = key, 0, false
}

// next takes the next event. What is no light work is left to those who do such in slices, and what was rewritten to those who ask its head
// for its generation. What is behind the moment tells only that the aggregate has gone on.
func (f *together) next(ev *j17.Event, most uint64) {
	f.seen++
	et := f.x.typ.Events[ev.Type]
	heavy := et != nil && et.Code != nil || f.x.cost > inlineWork || f.x.f.Data.Size()+len(ev.Data) > inlineBytes
	f.left = f.left || f.seen > most || heavy || ev.Erased() || ev.StreamID.Compare(f.m.at) <= 0 && f.x.apply(ev) != nil
}

// state returns what has become of the aggregate, nil if it is left.
func (f *together) state() *decider.State {
	if f.left || f.x.f.Finish(f.x.te.Key) != nil {
		return nil
	}
	state := f.x.f
	return &state
}

// foldTogether folds the aggregates at some places, in the order of their keys, and returns the places of those that it has not folded. An
// aggregate without events is among these: only its head tells that it has none.
func (m *Moment) foldTogether(ctx context.Context, keys []j17.Key, some []int, rewrites uint64, loaded []Loaded) (left []int) {
	most := min(shortStream, m.e.every-1) // what may have a snapshot is folded from there
	wanted := make([]j17.Key, len(some))
	for n, i := range some {
		wanted[n] = keys[i]
	}
	folded, seen := make([]*decider.State, len(some)), make([]uint64, len(some))
	f, at, long := together{m: m}, -1, 0
	for ev, err := range m.e.store.ReadStreams(ctx, m.d.env.tenant, wanted, most+1) {
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
			if long++; long == mostLong {
				break
			}
		}
	}
	if at >= 0 {
		folded[at], seen[at] = f.state(), f.seen
	}

	// Where something was rewritten meanwhile, some may be folded from what was before and what is now.
	if m.e.store.Rewrites() != rewrites {
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
		m.e.counts.folded.Add(state.Length)
		loaded[i].take(state, p)
		if !p.past && m.d.replaced != nil { // what is of the past, or not deployed, is not for the cache
			m.e.cache.offer(stateKey{m.d.env.tenant, keys[i]}, state)
		}
	}
	return left
}
