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

// locks returns the locks that the plan needs: exclusive ones of the streams that it writes after it has looked at
// them, or at the unique values that they hold, and of those that it only writes where others hold locks; shared ones
// of those that it only looks at. contended reports whether one of them has a lock already. The result is never nil.
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

// keepers yields the aggregates of which it was looked at what unique values they hold. Some may come more than once.
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

// looked yields the aggregates on which the plan was decided. Some may come more than once.
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

// holds returns what aggregates hold after the plan, in the sets that were looked at.
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

// refusal is the error of a plan that was overtaken where the caller named a length or a revision that does not hold.
// In all other cases a new plan from fresh state may succeed, or finds that no entity tag of the caller's matches any
// more.
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

// refusedFull returns why a command is refused whose effects have no room, nil where that does not refuse it.
func (p *plan) refusedFull(r *store.Result) error {
	if slices.ContainsFunc(r.Sides, func(c store.SideConflict) bool { return !c.Full }) {
		return nil // it was decided on what has changed meanwhile, and there may be room by that
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

// refusedSide returns the conflict of a side write that the caller has asked for, nil where there is none.
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

// overtaken compares what a plan was made of with what it is now. The error is errOvertaken where they differ, or why
// the caller's expectation does not hold.
func (x *execution) overtaken(ctx context.Context, p *plan) error {
	// What the caller expects, and what was looked at.
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

	// The items that effects have gone by, of which they may have kept old ones.
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
