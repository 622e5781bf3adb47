package tail

import (
	"context"
	"slices"

	"j17"
)

// mostChanged is how many changed aggregates a watch remembers.
const mostChanged = 1000

// Watch is notified which of the aggregates that it follows have changed: they have a new event, or one was erased. It
// neither receives nor keeps events. It is for one goroutine.
type Watch struct {
	hub   *hub
	ready chan struct{}

	// The rest is guarded by hub.mu: what is followed, and what has changed since the last Take.
	keys    []j17.Key
	types   []string
	changed map[j17.Key]struct{}
	// lost reports that more aggregates have changed than it remembers.
	lost  bool
	woken bool
}

// Changes are the changes that a watch was notified of.
type Changes struct {
	// Keys are the aggregates that have changed; if All is set, any may have.
	Keys []j17.Key
	All  bool
	// At is the position up to which the changes are complete.
	At j17.StreamID
	// Told is the number of the last notification: a reader that looks once Watch.Told has reached it sees all of these
	// changes.
	Told uint64
}

// Watch returns a watch that follows nothing yet. It must be closed.
func (t *Tail) Watch(ctx context.Context, tenant j17.Tenant) (*Watch, error) {
	h, err := t.enter(ctx, tenant)
	if err != nil {
		return nil, err
	}
	w := &Watch{hub: h, ready: make(chan struct{}, 1)}
	h.mu.Lock()
	h.watches[w] = struct{}{}
	h.mu.Unlock()
	return w, nil
}

// Close ends the watch.
func (w *Watch) Close() {
	w.hub.mu.Lock()
	w.forget()
	delete(w.hub.watches, w)
	w.hub.mu.Unlock()
	w.hub.leave()
}

// Follow makes the watch follow these aggregates, and all of these types, instead of those before. It returns the
// position after which it misses no change of them: a caller that has seen them as of an earlier position has to look
// again.
func (w *Watch) Follow(keys []j17.Key, types []string) j17.StreamID {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	w.forget()
	w.keys, w.types = slices.Clone(keys), slices.Clone(types)
	for _, key := range w.keys {
		h.byKey[key] = append(h.byKey[key], w)
	}
	for _, name := range w.types {
		h.byType[name] = append(h.byType[name], w)
	}
	return h.at
}

// forget removes the watch from what it follows. hub.mu is held.
func (w *Watch) forget() {
	for _, key := range w.keys {
		leaveOut(w.hub.byKey, key, w)
	}
	for _, name := range w.types {
		leaveOut(w.hub.byType, name, w)
	}
	w.keys, w.types = nil, nil
}

// leaveOut removes a watch from those under a key.
func leaveOut[K comparable](all map[K][]*Watch, key K, w *Watch) {
	of := all[key]
	i := slices.Index(of, w)
	if i < 0 {
		return
	}
	last := len(of) - 1
	of[i], of[last] = of[last], nil
	if last == 0 {
		delete(all, key)
		return
	}
	all[key] = of[:last]
}

// Ready returns a channel that receives when there may be something to take.
func (w *Watch) Ready() <-chan struct{} { return w.ready }

// Take returns what has changed since the last call. Errors are those of the store, which end the watch.
func (w *Watch) Take() (Changes, error) {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	c := Changes{All: w.lost, At: h.at, Told: h.told}
	for key := range w.changed {
		c.Keys = append(c.Keys, key)
	}
	w.changed, w.lost = nil, false
	return c, h.err
}

// Told returns the present value of Changes.Told.
func (w *Watch) Told() uint64 {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.hub.told
}

// Stir notifies all watches of an environment that anything may have changed, because values are now derived from its
// aggregates in another way.
func (t *Tail) Stir(tenant j17.Tenant) {
	h := t.hub(tenant)
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = h.tail.told.Add(1)
	for w := range h.watches {
		w.changed, w.lost = nil, true
		w.signal()
	}
}

// Touch notifies the watches of aggregates that their stored data have changed without an event.
func (t *Tail) Touch(tenant j17.Tenant, keys []j17.Key) {
	h := t.hub(tenant)
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		h.note(key)
	}
	h.wake()
}

// hub returns the hub of an environment, nil if there is none.
func (t *Tail) hub(tenant j17.Tenant) *hub {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hubs[tenant]
}

// note notifies the watches of an aggregate that it has changed. h.mu is held.
func (h *hub) note(key j17.Key) {
	h.told = h.tail.told.Add(1)
	for _, of := range [][]*Watch{h.byKey[key], h.byType[key.Type]} {
		for _, w := range of {
			w.add(key)
		}
	}
}

// add records that an aggregate has changed. hub.mu is held.
func (w *Watch) add(key j17.Key) {
	if !w.woken {
		w.woken = true
		w.hub.stirred = append(w.hub.stirred, w)
	}
	switch {
	case w.lost:
	case len(w.changed) == mostChanged:
		w.changed, w.lost = nil, true
	case w.changed == nil:
		w.changed = map[j17.Key]struct{}{key: {}}
	default:
		w.changed[key] = struct{}{}
	}
}

// wake signals the watches that have something to take. hub.mu is held.
func (h *hub) wake() {
	for i, w := range h.stirred {
		w.woken = false
		w.signal()
		h.stirred[i] = nil
	}
	h.stirred = h.stirred[:0]
}

func (w *Watch) signal() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}
