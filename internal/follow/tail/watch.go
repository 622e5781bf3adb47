package tail

import (
	"context"
	"slices"

	"j17"
)

// mostChanged is how many aggregates a watch remembers that have changed.
const mostChanged = 1000

// Watch is notified which of the aggregates that it follows have changed: they have a new event, or one was erased. It
// gets no events, and keeps nothing of them. It is for one goroutine.
type Watch struct {
	hub   *hub
	ready chan struct{}

	// The rest is under hub.mu: what is followed, and what has changed since the last Take.
	keys    []j17.Key
	types   []string
	changed map[j17.Key]struct{}
	// lost reports that more has changed than is remembered.
	lost  bool
	woken bool
}

// Changes is what has happened to the aggregates of a watch.
type Changes struct {
	// Keys are the aggregates that have changed; where All is set they are not known: any may have.
	Keys []j17.Key
	All  bool
	// At is the position up to which this is everything.
	At j17.StreamID
	// Told counts what watches have been told of: who looks when Watch.Told has come as far sees all of this.
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

// Follow makes the watch follow these aggregates, and all of these types, in the place of what it has followed. It
// returns the position after which it misses no change of them: who has seen them as of an earlier one looks again.
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

// forget takes the watch out of what it follows. hub.mu is held.
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

// Ready receives when there may be something to take.
func (w *Watch) Ready() <-chan struct{} { return w.ready }

// Take returns what has changed since it was called last. Errors are those of the store, which end the watch.
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

// Told returns what Changes.Told would be.
func (w *Watch) Told() uint64 {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.hub.told
}

// Stir tells all watches of an environment that anything may have changed: what is made of its aggregates is made in
// another way now.
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

// Touch tells the watches of aggregates that what is kept of them has changed, without an event that would say so.
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

// hub returns that of an environment, nil where nobody watches it.
func (t *Tail) hub(tenant j17.Tenant) *hub {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hubs[tenant]
}

// note tells the watches of an aggregate that it has changed. h.mu is held.
func (h *hub) note(key j17.Key) {
	h.told = h.tail.told.Add(1)
	for _, of := range [][]*Watch{h.byKey[key], h.byType[key.Type]} {
		for _, w := range of {
			w.add(key)
		}
	}
}

// add remembers that an aggregate has changed. hub.mu is held.
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

// wake tells the watches that have something to take. hub.mu is held.
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
