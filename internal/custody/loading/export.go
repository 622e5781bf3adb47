package loading

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"math"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/core/upcast"
	"j17/internal/storage/store"
)

// Log signs the state of an environment's log.
type Log interface {
	// CheckpointAt returns the signed checkpoint of the events up to a position, and the verifier key of its signer.
	CheckpointAt(ctx context.Context, t j17.Tenant, upTo j17.StreamID) (note, vkey string, err error)
}

// Exported is a stored event as it is exported. It is valid until the next step.
type Exported struct {
	*j17.Event
	// Names are the names of the aggregate, only with the first event of an aggregate.
	j17.Names
	// Chain is the hash of the aggregate's chain up to the event, over the current bytes of its events.
	Chain [32]byte
	// newest reports that the event is in the newest generation of its type, however it is stored.
	newest bool
}

// AppendLine appends the line of an export: the canonical bytes of the event, and after its own members what else is
// known about it. Bytes that are not those that are stored have no chain.
func (e *Exported) AppendLine(dst []byte) []byte {
	dst = append(dst, e.Raw[:len(e.Raw)-1]...)
	if e.Handle != "" {
		dst = value.AppendString(append(dst, `,"handle":`...), e.Handle)
	}
	if e.PublicID != "" {
		dst = value.AppendString(append(dst, `,"public_id":`...), e.PublicID)
	}
	if e.newest {
		return append(dst, '}')
	}
	dst = append(dst, `,"chain":"`...)
	dst = hex.AppendEncode(dst, e.Chain[:])
	if e.Kept != nil {
		dst = append(dst, `","leaf":"`...)
		dst = hex.AppendEncode(dst, e.Kept)
	}
	return append(dst, `"}`...)
}

// Export covers the events of a tenant up to the last one at its beginning.
type Export struct {
	// Events is the number of all events at its beginning; the export has fewer if it is of one type, or begins later.
	Events uint64
	// UpTo is the position of the last event at its beginning.
	UpTo j17.StreamID

	l *Loader
	t j17.Tenant
	d *decider.Decider
	// newest asks for events in the newest generation of their types.
	newest bool
	typ    string
	from   j17.StreamID
	write  func(dst []byte, e *Exported) []byte
	chains chains
	// sent is the position of the last event that was handed out, noted how far the feed was searched for notes of
	// erasures.
	sent, noted j17.StreamID
	found       uint64
	// rewrites is the number of erasures at the last check whether they concern the export.
	rewrites uint64
}

// Newest makes the export one of events in the newest generation of their types, as the deployed spec reads them. It
// has nothing that proves them.
func (x *Export) Newest() { x.newest = true }

// Export begins an export of the events after a position, of one aggregate type or, for "", of all. write appends the
// exported form of an event.
func (l *Loader) Export(
	ctx context.Context, t j17.Tenant, aggregateType string, after j17.StreamID,
	write func(dst []byte, e *Exported) []byte,
) (*Export, error) {
	d, err := l.Engine.Decider(t)
	if err != nil {
		return nil, err
	}
	rewrites := l.Store.Rewrites()
	extent, err := l.Store.Extent(ctx, t)
	if err != nil {
		return nil, store.UserError(err)
	}
	return &Export{
		Events: extent.Events, UpTo: extent.Last,
		l: l, t: t, d: d, typ: aggregateType, from: after, write: write, sent: after, noted: extent.Last,
		rewrites: rewrites,
	}, nil
}

// Memory is the approximate memory of the export, in bytes: what is read and made ahead, and the chains of aggregates.
func (x *Export) Memory() int64 {
	return mostReads*readBytes + mostPieces*lineBytes + int64(chainRows(x.Events))*rowBytes
}

// Whole reports whether the export has all events of the tenant.
func (x *Export) Whole() bool { return x.typ == "" && x.from.IsZero() }

// Checkpoint returns the signed checkpoint of the tenant's log at the end of the export, and the verifier key of its
// signer; "" if there is none, or nothing to sign.
func (x *Export) Checkpoint(ctx context.Context) (note, vkey string, err error) {
	if x.l.Log == nil || x.UpTo.IsZero() || x.newest {
		return "", "", nil
	}
	note, vkey, err = x.l.Log.CheckpointAt(ctx, x.t, x.UpTo)
	return note, vkey, store.UserError(err)
}

const (
	// pieceBytes is how much of an export is handed out at a time; the last event of a piece may exceed it.
	pieceBytes = 256 << 10
	// piecesAhead is how many pieces are made before they are requested, readAhead for how many more the events are
	// read: reading, hashing and sending run concurrently.
	piecesAhead = 2
	readAhead   = 2
	// mostReads and mostPieces are how many of each there are at a time: beside the waiting ones, the producer and the
	// consumer have one each.
	mostReads  = readAhead + 2
	mostPieces = piecesAhead + 2
	// readBytes and lineBytes are their sizes if events have some hundred bytes: a read has a second buffer for an
	// event that does not fit into the first, and a reference to each event; a line is longer than its event.
	readBytes = 2*pieceBytes + pieceBytes/2
	lineBytes = 2 * pieceBytes
)

// Piece is a run of consecutive events of an export.
type Piece struct {
	Bytes []byte
	// Last is the position up to which the export is complete with this piece.
	Last j17.StreamID

	origin
}

// read holds copies of the events that a piece is made from.
type read struct {
	events []j17.Event
	raw    []byte
	last   j17.StreamID

	origin
}

// origin describes the events of a piece.
type origin struct {
	found uint64
	// rewrites is how often events had been rewritten before the first of these was read.
	rewrites uint64
	err      error
}

// add copies an event. Earlier copies keep their place.
func (r *read) add(e *j17.Event) {
	if cap(r.raw)-len(r.raw) < len(e.Raw) {
		r.raw = make([]byte, 0, max(len(e.Raw), pieceBytes))
	}
	r.events = append(r.events, j17.Event{})
	r.raw = e.CopyTo(&r.events[len(r.events)-1], r.raw)
}

// Pieces yields the export piece by piece, in the order in which events were stored; a piece is valid until the next
// step. While the consumer is busy with one, the export holds copies of the next events but nothing of the store;
// pieces are made again if events in them are erased meanwhile. It ends with an error if events that were handed out
// already are erased (their chain would match no state of the store), and if an export of the whole tenant has not
// found as many events as the store has counted.
func (x *Export) Pieces(ctx context.Context) iter.Seq2[*Piece, error] {
	return func(yield func(*Piece, error) bool) {
		x.chains = newChains(chainRows(x.Events))
		for again := true; again; {
			var err error
			if again, err = x.run(ctx, func(p *Piece) bool { return yield(p, nil) }); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// run makes pieces from the current position, and hands them out. It reports whether it has to be called again because
// of an erasure.
func (x *Export) run(ctx context.Context, yield func(*Piece) bool) (again bool, err error) {
	ctx, stop := context.WithCancel(ctx)
	copied, ready := make(chan *read, readAhead), make(chan *Piece, piecesAhead)
	freeReads, free := make(chan *read, mostReads), make(chan *Piece, mostPieces)
	for range cap(freeReads) {
		freeReads <- &read{}
	}
	for range cap(free) {
		free <- &Piece{}
	}
	var making panics.Parts
	making.Go(func() {
		defer close(copied)
		x.read(ctx, copied, freeReads)
	})
	making.Go(func() {
		defer close(ready)
		x.make(ctx, copied, freeReads, ready, free)
	})
	defer making.Wait()
	defer stop()

	for p := range ready {
		if p.err != nil {
			return false, store.UserError(p.err)
		}
		// Pieces made before an erasure may contain what is erased, and those made after it must match what was handed
		// out.
		if now := x.l.Store.Rewrites(); now != p.rewrites || now != x.rewrites {
			x.rewrites = now
			keys, err := x.erased(ctx)
			if err != nil {
				return false, err
			}
			if len(keys) > 0 {
				stop()
				making.Wait()
				for _, key := range keys {
					x.chains.forget(key)
				}
				return true, nil
			}
		}
		x.sent, x.found = p.Last, x.found+p.found
		if !yield(p) {
			return false, nil
		}
		free <- p
	}
	return false, x.complete(ctx)
}

// next receives a free object; ok is false if the context ends first.
func next[T any](ctx context.Context, free <-chan T) (one T, ok bool) {
	select {
	case one = <-free:
		return one, true
	case <-ctx.Done():
		return one, false
	}
}

// pass sends a value, unless the context ends first.
func pass[T any](ctx context.Context, to chan<- T, one T) bool {
	select {
	case to <- one:
		return true
	case <-ctx.Done():
		return false
	}
}

// read reads events from the current position, as far as there is room for them.
func (x *Export) read(ctx context.Context, copied chan<- *read, free <-chan *read) {
	begin := func() *read {
		r, ok := next(ctx, free)
		if !ok {
			return nil
		}
		*r = read{events: r.events[:0], raw: r.raw[:0], origin: origin{rewrites: x.l.Store.Rewrites()}}
		return r
	}
	r := begin()
	if r == nil {
		return
	}

	// The feed is read page by page; a sequential reader gets large pages. Nothing after the end is read except one
	// event, so that a surplus event is noticed.
	size := 0
	for ev, err := range x.l.Store.ReadFeed(ctx, x.t, x.sent, int(x.Events-x.found)+1) {
		if err != nil {
			r.err = err
			break
		}
		if ev.StreamID.Compare(x.UpTo) > 0 {
			break
		}
		r.last, r.found = ev.StreamID, r.found+1
		if x.typ == "" || ev.Key.Type == x.typ {
			r.add(ev)
			size += len(ev.Raw)
		}
		if size < pieceBytes {
			continue
		}
		if !pass(ctx, copied, r) {
			return
		}
		if r, size = begin(), 0; r == nil {
			return
		}
	}
	if r.found > 0 || r.err != nil {
		_ = pass(ctx, copied, r) // the end in either case
	}
}

// make makes pieces from reads, which are free afterwards.
func (x *Export) make(
	ctx context.Context, copied <-chan *read, freeReads chan<- *read, ready chan<- *Piece, free <-chan *Piece,
) {
	for r := range copied {
		p, ok := next(ctx, free)
		if !ok {
			return
		}
		*p = Piece{Bytes: p.Bytes[:0], Last: r.last, origin: r.origin}
		e := Exported{}
		for i := range r.events {
			e.Event = &r.events[i]
			if err := x.add(ctx, p, &e); err != nil {
				p.err = err
				break
			}
		}
		freeReads <- r
		if !pass(ctx, ready, p) {
			return
		}
	}
}

// add writes an event to a piece, with what is known about its aggregate.
func (x *Export) add(ctx context.Context, p *Piece, e *Exported) (err error) {
	e.Names = j17.Names{}
	if typ := x.d.Types[e.Key.Type]; e.Version == 1 && typ != nil && decider.Named(typ) {
		if e.Names, err = x.l.Engine.Names(ctx, x.t, x.d, e.Key); err != nil {
			return err
		}
	}
	if e.newest = x.newest; e.newest {
		e.Event, err = upcast.Of(x.d.Types[e.Key.Type], e.Event, work.New(ctx, work.Replay))
	} else {
		e.Chain, err = x.chain(ctx, e.Event)
	}
	if err == nil {
		p.Bytes = x.write(p.Bytes, e)
	}
	return err
}

// chain returns the hash of an aggregate's chain up to an event.
func (x *Export) chain(ctx context.Context, e *j17.Event) (sum [32]byte, err error) {
	at := x.chains.place(e.Key)
	if e.Version > 1 {
		known, ok := at.upTo(e.Version - 1)
		if !ok {
			if known, err = x.before(ctx, e); err != nil {
				return sum, err
			}
		}
		sum = known
	}
	sum = j17.Link(sum, j17.Leaf(e.Raw))
	at.put(e.Version, sum)
	return sum, nil
}

// before reads the chain of an aggregate up to the event before one.
func (x *Export) before(ctx context.Context, e *j17.Event) (sum [32]byte, err error) {
	n := uint64(0)
	for ev, err := range x.l.Store.ReadStream(ctx, x.t, e.Key, 1, e.Version-1) {
		if err != nil {
			return sum, err
		}
		sum, n = j17.Link(sum, j17.Leaf(ev.Raw)), n+1
	}
	if n != e.Version-1 {
		return sum, &store.CorruptionError{Where: e.Key.String(), Err: fmt.Errorf("%d events were found before version %d", n, e.Version)}
	}
	return sum, nil
}

// erased returns the aggregates of the export that have lost events since the last call. It is an error if events of
// them were handed out.
func (x *Export) erased(ctx context.Context) (keys []j17.Key, err error) {
	for entry, err := range x.l.Store.ReadChanges(ctx, x.t, x.noted, math.MaxInt) {
		if err != nil {
			return nil, store.UserError(err)
		}
		if entry.Event != nil {
			x.noted = entry.Event.StreamID
			continue
		}
		x.noted = entry.Note.Position
		for _, g := range entry.Note.Streams {
			if x.typ == "" || g.Key.Type == x.typ {
				keys = append(keys, g.Key)
			}
		}
	}

	// The first event of each that the export has.
	for _, key := range keys {
		first, err := x.l.Store.VersionAfter(ctx, x.t, key, x.from)
		if err != nil {
			return nil, store.UserError(err)
		}
		for ev, err := range x.l.Store.ReadStream(ctx, x.t, key, first, first) {
			if err != nil {
				return nil, store.UserError(err)
			}
			if ev.StreamID.Compare(x.sent) <= 0 {
				return nil, j17.Errorf(j17.CodeConflict, "Events of %s that the export has already were erased while it was made. Export again.", key)
			}
		}
	}
	return keys, nil
}

// complete checks that an export of the whole tenant has found all of it. An environment that was removed meanwhile has
// fewer events.
func (x *Export) complete(ctx context.Context) error {
	if err := ctx.Err(); err != nil || !x.from.IsZero() || x.found == x.Events {
		return err
	}
	now, err := x.l.Store.Extent(ctx, x.t)
	if err == nil && now.Events < x.Events {
		return nil
	}
	return store.UserError(&store.CorruptionError{
		Where: "the events of " + string(x.t),
		Err:   errors.Join(err, fmt.Errorf("%d were found of %d that were stored", x.found, x.Events)),
	})
}

// Chains are kept in rows of chainWays; at most mostRows of them have room for the chains of 262,144 aggregates.
const (
	chainWays = 8
	mostRows  = 1 << 15
	rowBytes  = chainWays * (8 + 8 + 32)
)

// chains caches the chains of aggregates that may have more events; a missing one is read again. The hash of an
// aggregate selects the row of its chain and, if the row is full, the chain that it replaces: so if there are more
// interleaved aggregates than places, some stay cached.
type chains struct {
	seed maphash.Seed
	rows []chainRow
}

// chainRow has chains up to a version, 0 for a free place. Aggregates are distinguished by a hash: two with the same
// hash and version are as unlikely as a fault of the machine, and a verification of the export finds it.
type chainRow struct {
	hashes, versions [chainWays]uint64
	sums             [chainWays][32]byte
}

// chainRows is how many rows an export of so many events has: a power of two, with places for twice as many aggregates.
func chainRows(events uint64) int {
	rows := 1
	for rows < mostRows && uint64(rows)*chainWays/2 < events {
		rows *= 2
	}
	return rows
}

func newChains(rows int) chains {
	return chains{seed: maphash.MakeSeed(), rows: make([]chainRow, rows)}
}

// place returns the place for the chain of an aggregate.
func (c *chains) place(key j17.Key) chainPlace {
	hash := maphash.Comparable(c.seed, key)
	p := chainPlace{&c.rows[hash&uint64(len(c.rows)-1)], hash, int(hash >> 32 % chainWays)}
	for i, version := range p.row.versions {
		if version == 0 {
			p.at = i
		} else if p.row.hashes[i] == hash {
			p.at = i
			break
		}
	}
	return p
}

// chainPlace is the place for the chain of an aggregate with some hash. It may still hold the chain of another one.
type chainPlace struct {
	row  *chainRow
	hash uint64
	at   int
}

// upTo returns the chain up to a version, if it is cached.
func (p chainPlace) upTo(version uint64) ([32]byte, bool) {
	return p.row.sums[p.at], p.row.hashes[p.at] == p.hash && p.row.versions[p.at] == version
}

// put caches the chain up to a version.
func (p chainPlace) put(version uint64, sum [32]byte) {
	p.row.hashes[p.at], p.row.versions[p.at], p.row.sums[p.at] = p.hash, version, sum
}

// forget removes an aggregate.
func (c *chains) forget(key j17.Key) {
	if p := c.place(key); p.row.hashes[p.at] == p.hash {
		p.row.versions[p.at] = 0
	}
}
