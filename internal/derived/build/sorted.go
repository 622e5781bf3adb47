package build

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// If the writes of a kind are sorted, those of many pages are collected in a part, which commits at the end of a pass
// or at a number of bytes. A part that is too large for one commit goes into a bulk write of the store.

const (
	// partBytes is from how many bytes on a part is committed.
	partBytes = 256 << 20
	// heldSides is how many items of a part are held in memory. At that number, or at maxBytes, the part goes into a
	// bulk write.
	heldSides = maxSides
)

// gathered is the uncommitted part of a build.
type gathered struct {
	// after is the progress including the part, pages the number of pages in it.
	after progress
	pages int
	// held has the items while they are few, sums the additions to numbers.
	held      []store.Side
	sums      map[number]int64
	bulkWrite store.BulkWrite
	bytes     int
}

// number identifies an item that is written by store.Add.
type number struct {
	space store.Space
	key   string
}

// await waits until the first page under way is made. If there is an uncommitted part, it commits that at the end of
// the pass before it waits further.
func (t *pass) await(ctx context.Context) error {
	done := t.pages[0].done
	if t.part.pages == 0 || t.pages[0].ready() {
		<-done
		return nil
	}
	if clock.Either(ctx, t.s.o.Clock, t.until, done) {
		return nil
	}
	if err := t.commitPart(ctx); err != nil {
		return err
	}
	<-done
	return nil
}

// gather moves the first page under way into the part, which is committed when it is large.
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

// holds returns the conflict that the next commit would end with if the build has been canceled or begun again. Without
// this check much could be made for nothing until then.
func (t *pass) holds(ctx context.Context) error {
	fence := t.claim.Fence()
	it, err := t.s.o.Store.Get(ctx, t.job.Tenant, fence.Space, fence.Key)
	if errors.Is(err, store.ErrNotFound) || err == nil && it.Rev != fence.Rev {
		return &store.SideConflict{Space: fence.Space, Key: fence.Key, Rev: it.Rev}
	}
	return err
}

// errUnsorted is the error of a kind that is declared as sorted and returns other writes.
var errUnsorted = errors.New("build: only plain puts and additions can be sorted")

// add adds a write to the part.
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

	// A few items need no bulk write.
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

// commitPart commits the part with the progress of the build.
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

// dropPart releases the uncommitted part.
func (t *pass) dropPart() {
	if t.part.bulkWrite != nil {
		t.part.bulkWrite.Discard()
	}
	t.part = gathered{}
	t.s.show(t.job.Tenant, t.at, progress{})
}
