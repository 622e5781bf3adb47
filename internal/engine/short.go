package engine

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"j17"
	"j17/internal/decider"
	"j17/internal/store"
)

const (
	// shortStream is how many events an aggregate has at most that is folded together with others.
	shortStream = 64
	// fewShort is how many such aggregates are folded one by one, manyShort from how many on they are divided among processors.
	fewShort  = 4
	manyShort = 32
)

// foldShort folds aggregates of which nothing is known and that have few events: these are read together, which is most of the work where
// each has a handful. rest are the places of those to be folded; it returns the places of those that are left, for
// whatever reason. rewrites is how often events had been rewritten before it was asked for their parts.
func (m *Moment) foldShort(ctx context.Context, keys []j17.Key, parts []part, rest []int, rewrites uint64, loaded []Loaded) (left []int) {
	short := make([]int, 0, len(rest))
	for _, i := range rest {
		if p := &parts[i]; p.Length <= shortStream && p.Length < m.e.every && m.e.cache.get(stateKey{m.d.env.tenant, keys[i]}) == nil {
			short = append(short, i)
		} else {
			left = append(left, i)
		}
	}
	if len(short) < fewShort {
		return rest
	}
	if len(short) < manyShort {
		return append(left, m.foldTogether(ctx, keys, parts, short, rewrites, loaded)...)
	}

	// Each processor gets some that stand next to each other.
	var mu sync.Mutex
	var folding sync.WaitGroup
	n := runtime.GOMAXPROCS(0)
	for some := range slices.Chunk(short, (len(short)+n-1)/n) {
		folding.Go(func() {
			others := m.foldTogether(ctx, keys, parts, some, rewrites, loaded)
			mu.Lock()
			defer mu.Unlock()
			left = append(left, others...)
		})
	}
	folding.Wait()
	return left
}

// foldTogether folds the aggregates at some places, and returns the places of those that it could not fold: whoever folds them by
// themselves finds out why.
func (m *Moment) foldTogether(ctx context.Context, keys []j17.Key, parts []part, some []int, rewrites uint64, loaded []Loaded) (left []int) {
	wanted := make([]store.Part, len(some))
	for n, i := range some {
		wanted[n] = store.Part{Key: keys[i], From: 1, To: parts[i].Length}
	}
	at, skipped := 0, false
	folded := make([]*decider.State, len(some))
	var x *folding
	for ev, err := range m.e.store.ReadStreams(ctx, m.d.env.tenant, wanted) {
		if err != nil {
			break
		}
		i := some[at]
		if ev.Version == 1 {
			typ := m.d.Program(keys[i].Type)
			if x == nil || x.typ != typ {
				x = m.e.folding(ctx, typ)
			}
			first := *typ.First()
			first.Generation = parts[i].Generation
			x.begin(keys[i], &first)
			skipped = false
		}

		// What is no light work is left to those who do such in slices.
		et := x.typ.Events[ev.Type]
		heavy := et != nil && et.Code != nil || x.cost > inlineWork || x.f.Data.Size()+len(ev.Data) > inlineBytes
		skipped = skipped || heavy || x.apply(ev) != nil
		if ev.Version < parts[i].Length {
			continue
		}
		if !skipped && x.f.Finish(x.te.Key) == nil {
			f := x.f
			folded[at] = &f
		}
		at++
	}

	// Where something was rewritten meanwhile, some may be folded from what was before and what is now.
	if m.e.store.Rewrites() != rewrites {
		return some
	}
	for n, i := range some {
		f := folded[n]
		if f == nil {
			left = append(left, i)
			continue
		}
		m.e.counts.folded.Add(f.Length)
		loaded[i].take(f, parts[i])
		if !parts[i].past && m.d.replaced != nil { // what is of the past, or not deployed, is not for the cache
			m.e.cache.put(stateKey{m.d.env.tenant, keys[i]}, f)
		}
	}
	return left
}
