package store

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"j17"
)

// Whole returns an engine as a store with all roles. Those that the engine lacks get general implementations. It is
// called once, where the engine is opened.
func Whole(e Engine) Store {
	if s, is := e.(Store); is {
		return s
	}
	w := &whole{
		Engine: e, PurgeRequests: PurgesAtOnce{}, Compaction: nothing{}, Scrubbing: nothing{}, Footprint: nothing{},
		Monitoring: nothing{}, Memory: nothing{},
	}
	if role, is := e.(PurgeRequests); is {
		w.PurgeRequests = role
	}
	if role, is := e.(BulkWrites); is {
		w.BulkWrites = role
	} else {
		spools := &spools{of: e, open: map[*spool]bool{}}
		w.BulkWrites, w.Engine = spools, purging{e, spools}
		w.PurgeRequests = purgeRequests{w.PurgeRequests, spools}
	}
	if role, is := e.(Compaction); is {
		w.Compaction = role
	}
	if role, is := e.(Scrubbing); is {
		w.Scrubbing = role
	}
	if role, is := e.(Footprint); is {
		w.Footprint = role
	}
	if role, is := e.(Monitoring); is {
		w.Monitoring = role
	}
	if role, is := e.(Memory); is {
		w.Memory = role
	}
	return w
}

// whole is an engine with all roles.
type whole struct {
	Engine
	BulkWrites
	PurgeRequests
	Compaction
	Scrubbing
	Footprint
	Monitoring
	Memory
}

// PurgesAtOnce implements PurgeRequests for an engine that removes old bytes as soon as Purge is called.
type PurgesAtOnce struct{}

// RequestPurge makes no request.
func (PurgesAtOnce) RequestPurge(context.Context, j17.Tenant) (string, error) { return "", nil }

// PurgeProgress knows of no request.
func (PurgesAtOnce) PurgeProgress(context.Context, string) (PurgeProgress, error) {
	return PurgeProgress{}, ErrNotFound
}

// AwaitPurge knows of no request.
func (PurgesAtOnce) AwaitPurge(context.Context, string) (PurgeProgress, error) {
	return PurgeProgress{}, ErrNotFound
}

// nothing implements roles in which there is nothing to do.
type nothing struct{}

// DeferCompaction defers nothing.
func (nothing) DeferCompaction() (done func()) { return func() {} }

// CheckTables finds no files.
func (nothing) CheckTables(context.Context, string, int64) (TablesChecked, error) {
	return TablesChecked{}, nil
}

// DiskBytes knows of no files.
func (nothing) DiskBytes() uint64 { return 0 }

// FilterBytes knows of no filters.
func (nothing) FilterBytes() uint64 { return 0 }

// Figures has counted nothing.
func (nothing) Figures() Figures { return Figures{} }

// Forget has no memory to overwrite.
func (nothing) Forget(context.Context) error { return nil }

// spools plays the role of BulkWrites for an engine that has no quicker way: items are spooled to a file and written in
// units.
type spools struct {
	of   Engine
	mu   sync.Mutex
	open map[*spool]bool
}

// spool has the items of a BulkWrite in a file, each as the lengths of space, key and value in varints, and then these.
type spool struct {
	spools *spools
	tenant j17.Tenant
	life   uint64

	// mu is held by each call: Purge ends spools that are in use.
	mu   sync.Mutex
	file *os.File
	to   *bufio.Writer
	// err, if not nil, is the error of further calls.
	err error
}

var errBulkWriteEnded = errors.New("the bulk write has ended")

// BulkWrite is part of BulkWrites.
func (s *spools) BulkWrite(ctx context.Context, t j17.Tenant) (BulkWrite, error) {
	extent, err := s.of.Extent(ctx, t)
	if err == nil && extent.Life == 0 {
		err = fmt.Errorf("tenant %s: %w", t, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp("", "j17-items-")
	if err != nil {
		return nil, fmt.Errorf("make a file for items: %w", err)
	}
	// Where a file may be open without a name, nothing is left of it after a crash, and of what is erased by then.
	_ = os.Remove(file.Name())
	p := &spool{spools: s, tenant: t, life: extent.Life, file: file, to: bufio.NewWriter(file)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[p] = true
	return p, nil
}

// Put is part of BulkWrite.
func (p *spool) Put(space Space, key string, value []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	if err := ValidItem(space, key); err != nil {
		return err
	}
	var head []byte
	for _, n := range []int{len(space), len(key), len(value)} {
		head = binary.AppendUvarint(head, uint64(n))
	}
	for _, part := range [][]byte{head, []byte(space), []byte(key), value} {
		if _, err := p.to.Write(part); err != nil {
			p.err = fmt.Errorf("spool an item: %w", err)
		}
	}
	return p.err
}

// Write is part of BulkWrite.
func (p *spool) Write(ctx context.Context, side []Side, fences ...Fence) error {
	if err := (&Append{Fences: fences, Side: side}).Validate(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	defer p.end(errBulkWriteEnded)
	extent, err := p.spools.of.Extent(ctx, p.tenant)
	if err == nil && extent.Life != p.life {
		err = fmt.Errorf("tenant %s was removed: %w", p.tenant, ErrNotFound)
	}
	if err == nil {
		err = p.writeItems(ctx, append(conditionsOf(side), fences...))
	}
	if err != nil {
		return err
	}
	return p.spools.of.Write(ctx, p.tenant, side, fences...)
}

// conditionsOf returns the conditions of side writes as fences.
func conditionsOf(side []Side) (fences []Fence) {
	for i := range side {
		switch w := &side[i]; w.Cond {
		case IfAbsent:
			fences = append(fences, Fence{Space: w.Space, Key: w.Key})
		case IfRev:
			fences = append(fences, Fence{Space: w.Space, Key: w.Key, Rev: w.Rev})
		case IfValue:
			fences = append(fences, Fence{Space: w.Space, Key: w.Key, ByValue: true, Value: w.Was})
		case Always:
		}
	}
	return fences
}

// The items and bytes of a spool that are written at once.
const (
	spooledItems = 1000
	spooledBytes = 4 << 20
)

// writeItems writes the items, some at a time.
func (p *spool) writeItems(ctx context.Context, fences []Fence) error {
	if err := p.to.Flush(); err != nil {
		return fmt.Errorf("spool items: %w", err)
	}
	if _, err := p.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read spooled items: %w", err)
	}
	from := bufio.NewReader(p.file)
	for more := true; more; {
		var some []Side
		for size := 0; more && len(some) < spooledItems && size < spooledBytes; {
			w, err := readSpooled(from)
			switch {
			case errors.Is(err, io.EOF):
				more = false
			case err != nil:
				return fmt.Errorf("read spooled items: %w", err)
			default:
				some = append(some, w)
				size += len(w.Key) + len(w.Value)
			}
		}
		if len(some) == 0 {
			return nil
		}
		if err := p.spools.of.Write(ctx, p.tenant, some, fences...); err != nil {
			return err
		}
	}
	return nil
}

// readSpooled returns the next item; io.EOF after the last one.
func readSpooled(from *bufio.Reader) (w Side, err error) {
	var lengths [3]uint64
	for i := range lengths {
		if lengths[i], err = binary.ReadUvarint(from); err != nil {
			return w, err
		}
	}
	var parts [3][]byte
	for i, n := range lengths {
		parts[i] = make([]byte, n)
		if _, err := io.ReadFull(from, parts[i]); err != nil {
			return w, fmt.Errorf("it is cut short: %v", err) //nolint:errorlint // it is no end
		}
	}
	return Side{Op: Put, Plain: true, Space: Space(parts[0]), Key: string(parts[1]), Value: parts[2]}, nil
}

// Discard is part of BulkWrite.
func (p *spool) Discard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(errBulkWriteEnded)
}

// end removes the file; reason is the error of further calls. It needs mu.
func (p *spool) end(reason error) {
	if p.file == nil {
		return
	}
	// Its content is no longer needed.
	_ = p.file.Close()
	_ = os.Remove(p.file.Name()) // if it could not be removed while it was open
	p.file, p.err = nil, reason
	p.spools.mu.Lock()
	delete(p.spools.open, p)
	p.spools.mu.Unlock()
}

// endOf ends the spools of a tenant.
func (s *spools) endOf(t j17.Tenant) {
	s.mu.Lock()
	var of []*spool
	for p := range s.open {
		if p.tenant == t {
			of = append(of, p)
		}
	}
	s.mu.Unlock()
	for _, p := range of {
		p.mu.Lock()
		p.end(ErrEnded)
		p.mu.Unlock()
	}
}

// purging is an engine whose Purge ends spools.
type purging struct {
	Engine
	spools *spools
}

// Purge is part of Erasure.
func (p purging) Purge(
	ctx context.Context, t j17.Tenant, keys []j17.Key, spaces []Declared, items []ItemName,
) (Purged, error) {
	p.spools.endOf(t)
	return p.Engine.Purge(ctx, t, keys, spaces, items)
}

// purgeRequests is an engine whose RequestPurge ends spools.
type purgeRequests struct {
	PurgeRequests
	spools *spools
}

// RequestPurge is part of PurgeRequests.
func (p purgeRequests) RequestPurge(ctx context.Context, t j17.Tenant) (request string, err error) {
	if request, err = p.PurgeRequests.RequestPurge(ctx, t); err == nil && request != "" {
		p.spools.endOf(t)
	}
	return request, err
}
