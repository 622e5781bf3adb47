package schedule

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// An event cancels the scheduled events that wait for it in its own commit, up to maxCanceled. More are canceled by a
// mark: an item under the event's name with the event's position, written in the same commit. From then on everything
// that waits for the name and was scheduled before that position is canceled, whether it is still stored as pending or
// not: fire looks for marks, and fences on them. sweep then removes the canceled events, some at a time, and the mark
// at the end.

const (
	// maxCanceled is how many pending events one command removes, swept how many one try of a sweep removes.
	maxCanceled = 500
	swept       = 500
	// maxContended bounds the number of event names whose contentions are remembered.
	maxContended = 1000
)

// ends collects the writes that remove events from the pending ones.
type ends struct {
	*Service
	tenant j17.Tenant
	sides  []store.Side
	// over has the keys of ended events in the pending list; pending has the changes of the numbers of pending events.
	over    map[string]bool
	pending map[string]int64
	// canceled has the IDs of the events. tried reports that nothing will be stored; taken then has the rows.
	canceled []string
	tried    bool
	taken    []*row
}

func (s *Service) ends(t j17.Tenant) ends {
	return ends{Service: s, tenant: t, over: map[string]bool{}, pending: map[string]int64{}}
}

// take cancels a waiting event. Its waiting item exists as long as it waits.
func (e *ends) take(ctx context.Context, item *store.Item, w *waiter) error {
	by, id, ok := cutLast(w.Row)
	if !ok {
		return damaged(w.Row, errors.New("the key names no event"))
	}
	order := store.StampedKey(w.at, suffix(w.N))
	if e.over[order] {
		return nil
	}
	e.over[order] = true
	e.sides = append(e.sides, store.Side{
		Op: store.Delete, Space: waiting, Key: item.Key, Cond: store.IfRev, Rev: item.Rev,
	})
	r, err := e.load(ctx, e.tenant, w.Row)
	if err != nil || r == nil {
		return err // it was erased, and its counter is gone with it, or is updated when its time comes
	}
	e.sides = append(
		e.sides, store.Side{Op: store.Delete, Space: Pending.space(), Key: order}, e.list(Canceled, w.at, w.N, w.Row),
	)
	for _, on := range r.CancelOn {
		if key := prefixOf(on) + r.id; key != item.Key {
			e.sides = append(e.sides, store.Side{Op: store.Delete, Space: waiting, Key: key})
		}
	}
	e.pending[by]--
	e.canceled = append(e.canceled, id)
	if e.tried {
		e.taken = append(e.taken, r)
	}
	return nil
}

// cancel cancels the events that wait for event number i of the command. If another event begins to wait for it at the
// same time, the fenced item changes, and the command is tried again; after repeated conflicts a mark replaces the
// fence.
func (e *effects) cancel(ctx context.Context, on decider.Awaited, i int) error {
	name := prefixOf(named(on))
	contended := e.contentions(name)
	fence := store.Fence{Space: waiting, Key: name}
	most := max(maxCanceled-len(e.canceled), 0)
	if contended > 1 && !e.tried {
		most = 0 // others remove the same events
	}

	// One item more than may be removed shows that there are more. The fenced item is among those read.
	items, err := e.Store.Scan(ctx, e.tenant, waiting, store.Prefix(name), most+2)
	if err != nil {
		return err
	}
	found := 0
	for n := range items {
		if items[n].Key == name {
			fence.Rev = items[n].Rev
			continue
		}
		if found++; found > most {
			break
		}
		if !e.d.Work.Start(work.Canceled, 1, 0) {
			return e.d.Work.Err()
		}
		w, err := readWaiter(&items[n])
		if err != nil {
			return err
		}
		before := len(e.canceled)
		if err := e.take(ctx, &items[n], w); err != nil {
			return err
		}
		for _, id := range e.canceled[before:] {
			e.sides = append(e.sides, e.endedBy(id, i)...)
		}
	}
	if found <= most && contended == 0 {
		e.fences = append(e.fences, fence)
		return nil
	}
	e.sides = append(e.sides, store.Side{Op: store.Put, Space: marks, Key: name, Due: e.Clock.Now(), Stamps: []int{i}})
	e.marked = append(e.marked, name)
	return nil
}

// contended identifies an event of a tenant.
type contended struct {
	tenant j17.Tenant
	name   string
}

// contend records a conflict on a waiting item, or on its fence, of a command that was canceling by the event's name.
func (s *Service) contend(t j17.Tenant, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.contended) >= maxContended {
		clear(s.contended)
	}
	s.contended[contended{t, key[:strings.LastIndexByte(key, '/')+1]}]++
}

// contentions returns the number of conflicts on an event's name since the event was last stored.
func (e *effects) contentions(name string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.contended[contended{e.tenant, name}]
}

// uncontend clears the conflicts of events that have now been stored.
func (e *effects) uncontend() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.contended) > 0 {
		for on := range e.seen {
			delete(e.contended, contended{e.tenant, prefixOf(named(on))})
		}
	}
}

// readMark decodes the value of a mark: events scheduled before the position are canceled, and those up to a key have
// been removed.
func readMark(value []byte) (at j17.StreamID, upTo string, err error) {
	_, value, err = worker.ReadAttempts(value)
	if err != nil {
		return at, "", err
	}
	at, rest, err := store.ReadStamp(value)
	return at, string(rest), err
}

// isCanceled reports whether a pending event is canceled by a mark; if it is not, it returns the fences under which
// that holds.
func (s *Service) isCanceled(
	ctx context.Context, t j17.Tenant, r *row,
) (canceled bool, fences []store.Fence, err error) {
	for _, on := range r.CancelOn {
		fence := store.Fence{Space: marks, Key: prefixOf(on)}
		item, err := s.Store.Get(ctx, t, marks, fence.Key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return false, nil, err
		}
		if err == nil {
			at, _, err := readMark(item.Value)
			if err != nil {
				return false, nil, err
			}
			if r.at.Compare(at) < 0 {
				return true, nil, nil
			}
			fence.Rev = item.Rev
		}
		fences = append(fences, fence)
	}
	return false, fences, nil
}

// sweep removes some of the pending events that a mark has canceled, and the mark when none is left.
func (s *Service) sweep(ctx context.Context, c *worker.Claim) error {
	at, upTo, err := readMark(c.Value)
	if err != nil {
		return err
	}
	keys := store.Prefix(c.Key)
	if upTo != "" {
		keys = keys.After(upTo)
	}
	for {
		e := s.ends(c.Tenant)
		items, err := s.Store.Scan(ctx, c.Tenant, waiting, keys, swept)
		if err != nil {
			return err
		}
		for i := range items {
			upTo = items[i].Key
			if upTo == c.Key {
				continue // the fenced item itself
			}
			w, err := readWaiter(&items[i])
			if err != nil {
				return err
			}
			if w.at.Compare(at) < 0 {
				before := len(e.canceled)
				if err := e.take(ctx, &items[i], w); err != nil {
					return err
				}
				for _, id := range e.canceled[before:] {
					e.sides = append(e.sides, s.endedAt(id, at)...)
				}
			}
		}

		// The counters, and the progress.
		all := int64(0)
		for _, by := range slices.Sorted(maps.Keys(e.pending)) {
			all += e.pending[by]
			e.sides = append(e.sides, add(by, e.pending[by], 0))
		}
		if all < 0 {
			e.sides = append(e.sides, add(total, all, 0))
		}
		if len(items) < swept {
			e.sides = append(e.sides, c.Remove())
		} else {
			e.sides = append(e.sides, c.Replace(append(store.AppendStamp(nil, at), upTo...), s.Clock.Now()))
		}
		err = s.Store.Write(ctx, c.Tenant, e.sides)
		lost, ok := errors.AsType[*store.SideConflict](err)
		switch {
		case err == nil:
			s.counts.canceled.Add(uint64(len(e.canceled)))
			s.tell(ctx, c.Tenant, Canceled, e.canceled)
			return nil
		case !ok:
			return err
		case lost.Space == marks:
			return nil // a later event has renewed the mark, and the sweep begins again
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
