// Package unit decides units: whether their conditions hold and, if so, what they change, down to positions, times,
// bytes, hashes and revisions. All engines use it, so that a unit means the same on each.
//
// A Batch decides units one after the other, each on the result of those before it. It reads stored data from a Reader
// and hands changes to a Writer. It is used by one goroutine at a time.
package unit

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// Stateful is an engine's type for a tenant.
type Stateful interface {
	comparable
	// Now returns the tenant's state after all decided units. The batch changes it.
	Now() *State
}

// State is what must be known of a tenant to continue its feed and its revisions.
type State struct {
	// Name is the tenant's name, Number the one under which the engine keeps its data.
	Name   j17.Tenant
	Number uint32
	// Last is the position of the last event or note, LastTime the latest timestamp of all events.
	Last     j17.StreamID
	LastTime int64
	// Rev is the last revision given to a side item.
	Rev uint64
	// Events counts the events of the feed.
	Events uint64

	// changed reports that the present batch changes the tenant.
	changed bool
}

// Raise returns the timestamp, or that of the tenant's latest event if it is greater.
func (s *State) Raise(timestamp int64) int64 {
	if s.Events == 0 {
		return timestamp
	}
	return max(timestamp, s.LastTime)
}

// Reader reads what was stored before the batch.
type Reader[T Stateful] interface {
	// ReadHead returns the head of a stream; the zero Head for a stream without events.
	ReadHead(t T, key j17.Key) (store.Head, error)
	// ReadItem returns a side item, even if it has expired; the zero Item if there is none. A value that is longer than
	// MaxValue, or that the engine cannot compare, is nil; others belong to the batch from then on.
	ReadItem(t T, space store.Space, key string) (Item, error)
	// ReadEntries returns the value of an item with entries for which ReadItem returned a nil value.
	ReadEntries(t T, space store.Space, key string) ([]byte, error)
	// ReadCommand returns the result of a command, even if it has expired, and when it expires; nil if there is none.
	ReadCommand(t T, id store.CommandID) (result *store.Result, expires int64, err error)
	// ReadMatch reports whether there is an event that a unit requires to be absent.
	ReadMatch(t T, a *store.Absent) (bool, error)
}

// MaxValue bounds the length of values that conditions compare, like that of names.
const MaxValue = store.MaxNameBytes

// Writer takes the changes of units. It cannot fail: everything it needs was read from the Reader before. Arguments are
// valid until a method returns.
type Writer[T Stateful] interface {
	WriteEvent(t T, e *Event)
	WriteItem(t T, w *ItemChange)
	WriteCommand(t T, c *CommandRecord)
}

// Event is an event as it is stored.
type Event struct {
	*store.NewEvent
	// ID is its position, Version its place in its stream.
	ID        j17.StreamID
	Version   uint64
	Timestamp int64
	// LeafInput is a zero byte and the canonical bytes, whose layout is Layout, and Leaf the hash of LeafInput.
	LeafInput []byte
	Layout    j17.Layout
	Leaf      [32]byte
	// Head is that of the stream after the event.
	Head *store.Head
}

// ItemChange is a change of a side item.
type ItemChange struct {
	Space store.Space
	Key   string
	// Was is the item before. It is unknown if Unseen is set: the item then has no times, before or after.
	Was    Meta
	Unseen bool
	// Is is the item now; it is removed if its Rev is 0.
	Is    Meta
	Value []byte
	// Claimed, if not 0, is when the item was due before the lease that ends at its present due time.
	Claimed int64
}

// CommandRecord is the result of a unit with a command, and when it expires in Unix nanoseconds. Was is when an older
// one expired, 0 if there is none.
type CommandRecord struct {
	ID           store.CommandID
	Result       *store.Result
	Memo         []byte
	Expires, Was int64
}

// Batch decides the units that an engine commits at once.
type Batch[T Stateful] struct {
	reader Reader[T]
	writer Writer[T]
	// now is the time of the batch in Unix nanoseconds, ms in milliseconds.
	now, ms int64

	// What units of the batch have read or changed.
	heads    map[headKey]*Head[T]
	slab     []Head[T]
	changed  []*Head[T]
	tenants  []T
	items    map[itemKey]*Item
	kept     keptItems
	commands map[commandKey]*command
	events   tagged[T]

	// Slices for results, which are handed out and never reused.
	ids     []j17.StreamID
	lengths []uint64

	// Scratch space.
	written []*Head[T]
	sides   []*Item
	assign  []assignment
	input   []byte
	event   Event
	write   ItemChange
}

// keptScratch bounds the memory that a batch keeps, in elements, so that batches after a large one are as cheap as
// before it.
const keptScratch = 1024

type (
	headKey struct {
		number uint32
		key    j17.Key
	}
	commandKey struct {
		number uint32
		id     store.CommandID
	}
)

// command is a command that was looked up or decided. result is nil if there is none; an expired one is found until the
// engine removes it.
type command struct {
	result  *store.Result
	memo    []byte
	expires int64
}

// New returns an empty batch.
func New[T Stateful](reader Reader[T], writer Writer[T]) *Batch[T] {
	b := &Batch[T]{reader: reader, writer: writer}
	b.heads = make(map[headKey]*Head[T])
	b.items = make(map[itemKey]*Item)
	b.commands = make(map[commandKey]*command)
	b.kept.clear()
	return b
}

// Reset begins an empty batch at a time. keep reports that the result of the last batch is stored and nothing has
// changed since, so that frequently used items need not be read again.
func (b *Batch[T]) Reset(now time.Time, keep bool) {
	b.now, b.ms = now.UnixNano(), now.UnixMilli()
	b.events.clear()
	if !keep {
		b.kept.clear()
	}
	b.heads, b.items, b.commands = Emptied(b.heads), Emptied(b.items), Emptied(b.commands)
	for _, t := range b.tenants {
		t.Now().changed = false
	}
	b.changed, b.tenants, b.slab = b.changed[:0], b.tenants[:0], b.slab[:0]
	if cap(b.changed) > keptScratch {
		b.changed, b.slab, b.written, b.sides = nil, nil, nil, nil
	}
	const keptBytes = 1 << 20
	if cap(b.input) > keptBytes {
		b.input = nil
	}
	// Memory that was handed out is not reused, but as much is probably needed as the last time.
	b.ids = make([]j17.StreamID, 0, min(cap(b.ids), keptScratch))
	b.lengths = make([]uint64, 0, min(cap(b.lengths), keptScratch))
}

// Stored tells the batch that it is durable. With keep its items are kept for the next one; without, the writers may
// already reuse the memory of their values.
func (b *Batch[T]) Stored(keep bool) {
	if keep {
		b.kept.add(b.items)
	}
	b.events.clear()
}

// Emptied returns an empty map: m cleared, unless m is large, since clearing takes time in proportion to the most that
// it ever held.
func Emptied[K comparable, V any](m map[K]V) map[K]V {
	if len(m) > keptScratch {
		return make(map[K]V)
	}
	clear(m)
	return m
}

// Now returns the time of the batch in Unix nanoseconds.
func (b *Batch[T]) Now() int64 { return b.now }

// Tenants returns the tenants that the batch changes.
func (b *Batch[T]) Tenants() []T { return b.tenants }

// Changed returns the heads that the batch changes, each once.
func (b *Batch[T]) Changed() []*Head[T] { return b.changed }

// Touch marks a tenant as changed by the batch.
func (b *Batch[T]) Touch(t T) {
	if s := t.Now(); !s.changed {
		s.changed = true
		b.tenants = append(b.tenants, t)
	}
}

// Decide decides a unit and writes it if its conditions hold. After an error nothing is written.
func (b *Batch[T]) Decide(t T, u *store.Append, r *store.Result) error {
	// A command that was carried out already is answered from its record.
	command, err := b.command(t, u)
	if err != nil {
		return err
	}
	if command != nil && command.result != nil && !expired(command.expires, b.now) {
		*r = *command.result
		r.Outcome, r.Memo = store.Duplicate, command.memo
		return nil
	}

	// Test the conditions, and that the unit was not decided for an earlier time.
	*r = store.Result{Timestamp: t.Now().Raise(u.Timestamp)}
	if err := b.Check(t, u, r); err != nil {
		return err
	}
	switch {
	case len(r.Streams) > 0 || len(r.Sides) > 0 || r.Matched:
		r.Outcome = store.Conflict
		return nil
	case u.Decided && r.Timestamp != u.Timestamp:
		r.Outcome = store.TooEarly
		return nil
	}
	// Do everything that can fail before the first change.
	if err := b.Load(t, u); err != nil {
		return err
	}

	// Now nothing fails.
	if len(u.Events) > 0 || u.Command != nil {
		b.Touch(t)
	}
	b.appendEvents(t, u, r)
	b.WriteSides(t, u, r.IDs)
	b.writeAssignments(t, u, r)
	if command != nil {
		b.writeCommand(t, u.Command, command, r)
	}
	r.Outcome = store.Committed
	return nil
}

// command looks up the unit's command; it returns nil if the unit has none.
func (b *Batch[T]) command(t T, u *store.Append) (*command, error) {
	if u.Command == nil {
		return nil, nil
	}
	k := commandKey{t.Now().Number, u.Command.ID}
	if c := b.commands[k]; c != nil {
		return c, nil
	}
	result, expires, err := b.reader.ReadCommand(t, u.Command.ID)
	if err != nil {
		return nil, err
	}
	c := &command{result: result, expires: expires}
	if result != nil {
		c.memo = result.Memo
	}
	b.commands[k] = c
	return c, nil
}

func (b *Batch[T]) writeCommand(t T, cmd *store.Command, c *command, r *store.Result) {
	was := c.expires
	c.expires, c.result, c.memo = Nanos(cmd.Expires), r, bytes.Clone(cmd.Memo)
	b.writer.WriteCommand(t, &CommandRecord{ID: cmd.ID, Result: r, Memo: cmd.Memo, Expires: c.expires, Was: was})
}

// Load reads everything that a unit changes, so that writing it cannot fail.
func (b *Batch[T]) Load(t T, u *store.Append) error {
	b.written, b.sides = b.written[:0], b.sides[:0]
	for i := range u.Events {
		h, err := b.Head(t, u.Events[i].Key)
		if err != nil {
			return err
		}
		b.written = append(b.written, h)
	}
	for i := range u.Side {
		item, err := b.loadSide(t, &u.Side[i])
		if err != nil {
			return err
		}
		b.sides = append(b.sides, item)
	}
	return nil
}

// loadSide returns the item of a side write; nil if its previous content does not matter.
func (b *Batch[T]) loadSide(t T, w *store.Side) (*Item, error) {
	if w.StampKey || w.Plain {
		return nil, nil // its key is new, and not known yet; or the previous content does not matter
	}
	if n := w.Stream; n > 0 && b.written[n-1].Length == 0 {
		b.expectNone(t, w.Space, w.Key)
	}
	item, err := b.Item(t, w.Space, w.Key)
	if err != nil || w.Entries == "" {
		return item, err
	}
	item.keep = true
	if item.Rev != 0 && item.Value == nil {
		item.Value, err = b.reader.ReadEntries(t, w.Space, w.Key)
	}
	return item, err
}

// Head is the head of a stream after all units decided so far.
type Head[T Stateful] struct {
	store.Head

	Tenant T
	Key    j17.Key
	// Fresh reports that the tenant did not have the stream before the batch.
	Fresh   bool
	changed bool
}

// Head returns the head of a stream after all units decided so far.
func (b *Batch[T]) Head(t T, key j17.Key) (*Head[T], error) {
	k := headKey{t.Now().Number, key}
	if h := b.heads[k]; h != nil {
		return h, nil
	}
	head, err := b.reader.ReadHead(t, key)
	if err != nil {
		return nil, err
	}
	const together = 256
	if len(b.slab) == cap(b.slab) {
		b.slab = make([]Head[T], 0, together)
	}
	b.slab = append(b.slab, Head[T]{Head: head, Tenant: t, Key: key, Fresh: head.Length == 0})
	h := &b.slab[len(b.slab)-1]
	b.heads[k] = h
	return h, nil
}

// Change marks a head as changed: it is written once per batch, however many events change it.
func (b *Batch[T]) Change(h *Head[T]) {
	if !h.changed {
		h.changed = true
		b.changed = append(b.changed, h)
	}
}

// Position returns the position of the next event or note in a tenant's feed.
func (b *Batch[T]) Position(t T) j17.StreamID {
	last := t.Now().Last
	if id := (j17.StreamID{Ms: b.ms}); id.Compare(last) > 0 {
		return id
	}
	return last.Next()
}

// appendEvents writes the unit's events; b.written holds their heads.
func (b *Batch[T]) appendEvents(t T, u *store.Append, r *store.Result) {
	if len(u.Events) == 0 {
		return
	}
	now, id := t.Now(), b.Position(t)
	first := len(b.ids)

	for i := range u.Events {
		e := &b.event
		*e = Event{NewEvent: &u.Events[i], ID: id, Timestamp: r.Timestamp}
		if e.NewEvent.Timestamp != nil {
			e.Timestamp = *e.NewEvent.Timestamp
		}

		// The bytes, and the leaf that is linked into the stream's chain.
		b.input = append(b.input[:0], 0)
		b.input, e.Layout = j17.AppendEvent(b.input, id, e.Key, e.Type, e.Data, e.Metadata, e.Timestamp)
		e.LeafInput = b.input
		e.Leaf = sha256.Sum256(b.input)
		h := b.written[i]
		h.Chain = j17.Link(h.Chain, e.Leaf)
		if h.Generation > 0 && !h.Rewriting() {
			h.Present = j17.Link(h.Present, e.Leaf)
		}

		// The stream's head.
		h.Length++
		if h.Length == 1 {
			h.FirstTime = e.Timestamp
		}
		h.Last, h.LastTime = id, e.Timestamp
		b.Change(h)

		e.Version, e.Head = h.Length, &h.Head
		b.writer.WriteEvent(t, e)
		b.ids = append(b.ids, id)
		b.lengths = append(b.lengths, h.Length)
		now.LastTime = now.Raise(e.Timestamp)
		now.Last = id
		now.Events++
		id = id.Next()
	}
	b.event = Event{}
	r.IDs, r.Lengths = slices.Clip(b.ids[first:]), slices.Clip(b.lengths[first:])
	b.events.add(t, u.Events, r.IDs)
}
