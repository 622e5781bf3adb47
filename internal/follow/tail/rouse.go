package tail

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"time"

	"j17/internal/base/work"
)

const (
	// wokenAtOnce is how many readers are woken together. Each reader takes some 40 µs for an event, most of them for
	// its client.
	wokenAtOnce = 128
	// comeTime is how long a batch is waited for: readers that have not come by then are held up by their clients, and
	// find the events when they continue.
	comeTime = 10 * time.Millisecond
	// restTime is the pause between two batches. It lets processors run out of woken readers, which is when they look
	// for other work that has arrived.
	restTime = time.Millisecond
)

// batch is the readers that were woken together and have not come yet. It is guarded by hub.mu.
type batch struct {
	left int
	done chan struct{}
}

// came records that a woken reader has come, or never will. hub.mu is held.
func (r *Reader) came() {
	b := r.batch
	if b == nil {
		return
	}
	r.batch = nil
	if b.left--; b.left == 0 {
		close(b.done)
	}
}

// newTurns returns the turns for batches of readers: those of one environment keep at most half of the processors busy.
func newTurns() *work.Pool {
	turns := int64(max(runtime.NumCPU(), 2))
	return work.NewPool(turns, turns/2)
}

// rouse wakes the readers of groups, those of small groups first. A few are woken together. Very many are woken in
// batches, each in a turn of the environment, after the readers of the previous batch have come, so that other work of
// the server can run in between.
func (h *hub) rouse(ctx context.Context, woken []*group) {
	readers := h.called(woken)
	if len(readers) <= wokenAtOnce {
		for _, r := range readers {
			r.wake()
		}
		return
	}
	for some := range slices.Chunk(readers, wokenAtOnce) {
		if h.rouseSome(ctx, some) != nil {
			return // the hub has ended, and all readers with it
		}
	}
}

// called returns the readers to be woken.
func (h *hub) called(woken []*group) (readers []*Reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortFunc(woken, func(a, b *group) int { return cmp.Compare(len(a.readers), len(b.readers)) })
	for _, g := range woken {
		g.woken = false
		readers = append(readers, g.readers...)
	}
	return readers
}

// rouseSome wakes a batch and waits until its readers have come, at most comeTime. The error is that of the context.
func (h *hub) rouseSome(ctx context.Context, readers []*Reader) error {
	n, err := h.tail.turns.Take(ctx, string(h.tenant), 1)
	if err != nil {
		return err
	}
	defer h.tail.turns.Give(string(h.tenant), n)
	h.tail.batches.Add(1)

	h.mu.Lock()
	b := &batch{done: make(chan struct{})}
	for _, r := range readers {
		if r.batch == nil && !r.closed {
			r.batch = b
			b.left++
		}
		r.wake()
	}
	if b.left == 0 {
		close(b.done)
	}
	h.mu.Unlock()

	until, cancel := context.WithTimeout(ctx, comeTime)
	defer cancel()
	select {
	case <-b.done:
		rest, over := context.WithTimeout(ctx, restTime)
		defer over()
		<-rest.Done()
	case <-until.Done():
	}
	return ctx.Err()
}
