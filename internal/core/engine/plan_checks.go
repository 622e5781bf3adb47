package engine

import (
	"context"
	"errors"
	"iter"
	"slices"

	"j17"
	"j17/internal/core/groupcommit"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// locks returns the locks that the plan needs. Streams that it has read, or whose unique values it has read, need an
// exclusive lock if it writes to them, otherwise a shared one. Streams that it writes without reading need an exclusive
// lock, but only if they have a lock already. contended reports whether one of the streams has a lock already. want is
// never nil.
func (p *plan) locks(q *groupcommit.Committer) (want groupcommit.Locks, contended bool) {
	want = groupcommit.Locks{}
	for key := range p.before {
		want = want.With(key, false)
		contended = contended || q.Contended(key)
	}
	for key := range p.keepers() {
		want = want.With(key, false)
		contended = contended || q.Contended(key)
	}
	for i := range p.unit.Events {
		key := p.unit.Events[i].Key
		if i > 0 && key == p.unit.Events[i-1].Key {
			continue
		}
		if _, looked := want.Find(key); looked {
			want = want.With(key, true)
		} else if q.Contended(key) {
			want, contended = want.With(key, true), true
		}
	}
	return want, contended
}

// keepers yields the aggregates whose unique values were read, some more than once.
func (p *plan) keepers() iter.Seq[j17.Key] {
	return func(yield func(j17.Key) bool) {
		if p.unique == nil {
			return
		}
		for _, key := range p.unique.Keepers() {
			if !yield(key) {
				return
			}
		}
	}
}

// looked yields the aggregates on which the plan was decided, some more than once.
func (p *plan) looked() iter.Seq[j17.Key] {
	return func(yield func(j17.Key) bool) {
		for key := range p.keepers() {
			if !yield(key) {
				return
			}
		}
		for key := range p.before {
			if !yield(key) {
				return
			}
		}
	}
}

// holds returns, for each aggregate and each set of unique values that were read, the value held after the plan; nil
// for none.
func (p *plan) holds() map[j17.Key]map[*spec.UniqueSet]*[32]byte {
	if p.unique == nil {
		return nil
	}
	all := map[j17.Key]map[*spec.UniqueSet]*[32]byte{}
	for set, key := range p.unique.Keepers() {
		if all[key] == nil {
			all[key] = map[*spec.UniqueSet]*[32]byte{}
		}
		all[key][set], _ = p.unique.Held(set, key)
	}
	return all
}

// refusal tells caches of the items that had changed, and returns the error of a conflict that a new plan cannot
// resolve: a length or a revision that the caller expects does not hold, or an item is full. It returns nil for other
// conflicts: a new plan from present data may succeed, or finds that none of the caller's entity tags matches any
// longer.
func (p *plan) refusal(r *store.Result) error {
	for _, changed := range p.changed {
		for i := range r.Sides {
			changed(&r.Sides[i])
		}
	}
	for i := range p.writes {
		w := &p.writes[i]
		for _, c := range r.Streams {
			if w.Expected != nil && c.Key == w.Key && c.Expected == *w.Expected && c.Actual != c.Expected {
				return p.of.InWrite(conflict(c), i)
			}
		}
	}
	if c := p.refusedSide(r); c != nil {
		return j17.Errorf(j17.CodeConflict, "The item %s of %s has changed since it was read. Nothing was written. Read it again and decide again.", c.Key, c.Space).Because(c)
	}
	return p.refusedFull(r)
}

// refusedFull returns the error of a command whose effects exceed a bound, nil if it is to be planned again.
func (p *plan) refusedFull(r *store.Result) error {
	if slices.ContainsFunc(r.Sides, func(c store.SideConflict) bool { return !c.Full }) {
		return nil // what it was decided on has changed meanwhile, so that a new plan may have room
	}
	for i := range r.Sides {
		if !r.Sides[i].Full {
			continue
		}
		for _, full := range p.full {
			if err := full(&r.Sides[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// refusedSide returns the conflict of one of the caller's own side writes, nil if there is none.
func (p *plan) refusedSide(r *store.Result) *store.SideConflict {
	for i := range r.Sides {
		conflict := &r.Sides[i]
		if slices.ContainsFunc(p.side, func(s store.Side) bool {
			return (s.Cond != store.Always || conflict.Full && s.Most != 0) && s.Space == conflict.Space &&
				s.Key == conflict.Key
		}) {
			return conflict
		}
	}
	return nil
}

// overtaken compares the data that a plan was made from with the present data. The error is errOvertaken if they
// differ, or a conflict if the caller's expectation does not hold.
func (x *execution) overtaken(ctx context.Context, p *plan) error {
	// Compare what the caller expects, and what was read.
	var pre []store.Pre
	for i := range p.writes {
		if w := &p.writes[i]; w.Expected != nil {
			pre = append(pre, store.Pre{Key: w.Key, Length: *w.Expected})
		}
	}
	expected := len(pre)
	pre = append(pre, p.unit.Pre...)
	for key, before := range p.before {
		pre = append(pre, store.Pre{Key: key, Length: before.Length, Looked: true, Generation: before.Generation})
	}
	keys := make([]j17.Key, len(pre))
	for i := range pre {
		keys[i] = pre[i].Key
	}
	heads, err := x.e.store.Heads(ctx, x.c.Tenant, keys)
	if err != nil {
		return store.UserError(err)
	}
	for i, now := range heads {
		switch pre := &pre[i]; {
		case i < expected && pre.Length != now.Length:
			err := conflict(store.StreamConflict{Key: pre.Key, Expected: pre.Length, Actual: now.Length})
			if n, ok := p.writeOf(pre.Key); ok {
				err = p.of.InWrite(err, n)
			}
			return err
		case i >= expected && (pre.Length != now.Length || pre.Looked && pre.Generation != now.Generation):
			return errOvertaken
		}
	}

	// Compare the items that effects were decided on: they may come from a cache.
	for i := range p.unit.Fences {
		fence := &p.unit.Fences[i]
		item, err := x.e.store.Get(ctx, x.c.Tenant, fence.Space, fence.Key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return store.UserError(err)
		}
		if fence.ByValue && string(item.Value) != fence.Value || !fence.ByValue && item.Rev != fence.Rev {
			for _, changed := range p.changed {
				changed(&store.SideConflict{Space: fence.Space, Key: fence.Key, Rev: item.Rev})
			}
			return errOvertaken
		}
	}
	return nil
}
