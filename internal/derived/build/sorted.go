package build

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"j17/internal/storage/store"
)

// What pages of a kind come to whose writes are sorted is gathered, and commits as one part of the build: at the end of
// a pass, or when it has so many bytes. What is more than a commit takes goes into a bulk write of the store.

const (
	// partBytes is from how many bytes on a part is committed.
	partBytes = 256 << 20
	// heldSides is how many items of a part are held in memory. From there on, and from maxBytes on, they go into a
	// bulk write.
	heldSides = maxSides
)

// gathered is what was made of the build since its last commit.
type gathered struct {
	// after is how far the build is with it, pages the number of pages in it.
	after progress
	pages int
	// held are its items as long as they are few, sums what is added to numbers.
	held      []store.Side
	sums      map[number]int64
	bulkWrite store.BulkWrite
	bytes     int
}

// number names an item that is written by store.Add.
type number struct {
	space store.Space
	key   string
}

// await waits until the first page under way is made. At the end of the pass it waits no longer with what was made
// before.
func (t *pass) await(ctx context.Context) error {
	done := t.pages[0].done
	if t.part.pages == 0 || t.pages[0].ready() {
		<-done
		return nil
	}
	waiting, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = t.s.o.Clock.Wait(waiting, t.until) // either way nothing is waited for any longer
	}()
	defer func() {
		stop()
		<-over
	}()
	select {
	case <-done:
		return nil
	case <-over:
	}
	if err := t.commitPart(ctx); err != nil {
		return err
	}
	<-done
	return nil
}

// gather takes the first page under way into the part, which is committed when it is large.
func (t *pass) gather(ctx context.Context) error {
	f := t.pages[0]
	if f.err != nil {
		return cmp.Or(t.commitPart(ctx), f.err)
	}
	t.pages = t.pages[1:]
	t.took = f.took
	p := &t.part
	for i := range f.writes {
		if err := t.add(ctx, &f.writes[i]); err != nil {
			return err
		}
	}
	p.after, p.pages = f.after, p.pages+1
	t.s.show(t.job.Tenant, t.at, p.after)
	if err := t.holds(ctx); err != nil {
		return err
	}
	if p.bytes < t.s.partBytes {
		return nil
	}
	return t.commitPart(ctx)
}

// holds returns the conflict that the next commit would end with where somebody has cancelled the build, or has begun
// it again: until then much may be made for nothing.
func (t *pass) holds(ctx context.Context) error {
	fence := t.claim.Fence()
	it, err := t.s.o.Store.Get(ctx, t.job.Tenant, fence.Space, fence.Key)
	if errors.Is(err, store.ErrNotFound) || err == nil && it.Rev != fence.Rev {
		return &store.SideConflict{Space: fence.Space, Key: fence.Key, Rev: it.Rev}
	}
	return err
}

// errUnsorted is what a kind gets that has said that its writes can be sorted.
var errUnsorted = errors.New("build: only plain puts and additions can be sorted")

// add takes a write into the part.
func (t *pass) add(ctx context.Context, w *store.Side) error {
	p := &t.part
	p.bytes += len(w.Key) + len(w.Value)
	switch {
	case w.Op == store.Add && w.Most == 0:
		n, err := strconv.ParseInt(string(w.Value), 10, 64)
		if p.sums == nil {
			p.sums = map[number]int64{}
		}
		p.sums[number{w.Space, w.Key}] += n
		return err
	case w.Op != store.Put || !w.Plain:
		return errUnsorted
	case p.bulkWrite != nil:
		return p.bulkWrite.Put(w.Space, w.Key, w.Value)
	}

	// As long as they are few they need no bulk write.
	if p.held = append(p.held, *w); len(p.held) < t.s.heldSides && p.bytes < maxBytes {
		return nil
	}
	var err error
	if p.bulkWrite, err = t.s.o.Store.BulkWrite(ctx, t.job.Tenant); err != nil {
		return err
	}
	for i := range p.held {
		if err := p.bulkWrite.Put(p.held[i].Space, p.held[i].Key, p.held[i].Value); err != nil {
			return err
		}
	}
	p.held = nil
	return nil
}

// commitPart commits the part, with how far the build is.
func (t *pass) commitPart(ctx context.Context) error {
	p := &t.part
	if p.pages == 0 {
		return nil
	}
	sides := append(p.held, p.after.put(t.at))
	for at, n := range p.sums {
		sides = append(sides, store.Side{
			Op: store.Add, Space: at.space, Key: at.key, Value: strconv.AppendInt(nil, n, 10),
		})
	}
	var err error
	if p.bulkWrite != nil {
		err = p.bulkWrite.Write(ctx, sides, t.claim.Fence())
	} else {
		err = t.s.o.Store.Write(ctx, t.job.Tenant, sides, t.claim.Fence())
	}
	if err != nil {
		return err
	}
	t.s.counts.streams.Add(p.after.Done - t.p.Done)
	t.p, t.part = p.after, gathered{}
	return nil
}

// dropPart releases what was not committed.
func (t *pass) dropPart() {
	if t.part.bulkWrite != nil {
		t.part.bulkWrite.Discard()
	}
	t.part = gathered{}
	t.s.show(t.job.Tenant, t.at, progress{})
}
