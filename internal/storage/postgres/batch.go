package postgres

import (
	"errors"
	"hash/crc32"
	"slices"
	"strconv"

	"j17"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// batch is what a lane commits at once. It answers the reads of package unit from what was read before, and collects
// the changes of units.
type batch struct {
	lane  *lane
	units *unit.Batch[*tenant]
	// id is stored with each tenant that the batch changes, to find out later whether the batch was committed.
	id [16]byte
	w  writes
	// decided are the tenants on whose cached data a decision relied.
	decided map[*tenant]bool
	// The indexes of answers to what was asked.
	q        *questions
	heads    map[headKey]int
	items    map[itemKey]int
	commands map[commandKey]int
	matches  map[*store.Absent]int
	// counts is how many numbers units take from each counter.
	counts map[counterKey]int
}

type counterKey struct {
	t       *tenant
	index   store.Space
	counter string
}

type commandKey struct {
	number uint32
	id     store.CommandID
}

func newBatch(l *lane) *batch {
	b := &batch{lane: l}
	b.units = unit.New[*tenant](b, b)
	return b
}

// reset empties the batch and sets its time to the present.
func (b *batch) reset() {
	for _, t := range b.units.Tenants() {
		t.added = nil
	}
	b.units.Reset(b.lane.clock.Now(), false)
	b.w.reset()
	b.decided = map[*tenant]bool{}
	b.ask()
}

// ask replaces the questions by empty ones.
func (b *batch) ask() {
	b.q = &questions{}
	b.heads, b.items = map[headKey]int{}, map[itemKey]int{}
	b.commands, b.matches = map[commandKey]int{}, map[*store.Absent]int{}
	b.counts = map[counterKey]int{}
}

// prepare reads what calls depend on, except what is cached.
func (b *batch) prepare(calls []*call) error {
	// The rows of tenants are read first: only a tenant's row tells which of its cached data is valid.
	var unknown []*tenant
	for _, c := range calls {
		if t := b.lane.tenant(c.Tenant); !t.known || !t.named && b.lane.o.Shared {
			unknown = append(unknown, t)
		}
	}
	if err := b.lane.readStates(unknown...); err != nil {
		return err
	}
	units := 0
	for _, c := range calls {
		t := b.lane.tenant(c.Tenant)
		if c.Op() != nil {
			continue
		}
		if err := b.lane.number(t); err != nil {
			return err
		}
		for i := range c.Waiting() {
			if units++; units > mostUnits {
				break
			}
			if err := b.need(t, &c.Waiting()[i]); err != nil {
				return err
			}
		}
	}
	return b.read()
}

// need collects what a unit reads, and assigns numbers to the spaces that it writes to.
func (b *batch) need(t *tenant, u *store.Append) error {
	unit.Needs(u, needed{b, t})
	give := func(names ...store.Space) error {
		for _, name := range names {
			if _, known := b.lane.spaces.known(name); known || name == "" {
				continue
			}
			if err := b.lane.spaces.give(b.lane.ending, name); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range u.Side {
		if err := give(u.Side[i].Space, u.Side[i].Entries); err != nil {
			return err
		}
	}
	for i := range u.Assign {
		a := &u.Assign[i]
		if err := give(a.Space, a.Index); err != nil {
			return err
		}
		if a.Counter != "" {
			b.counts[counterKey{t, a.Index, a.Counter}]++
		}
	}
	return nil
}

// prepareUnit reads what a unit that is decided by an operation depends on.
func (b *batch) prepareUnit(t *tenant, u *store.Append) error {
	if err := b.lane.number(t); err != nil {
		return err
	}
	if err := b.need(t, u); err != nil {
		return err
	}
	return b.read()
}

// read asks the questions, if there are any.
func (b *batch) read() error {
	b.askNumbers()
	if b.q.empty() {
		return nil
	}
	err := b.q.ask(b.lane.ending, b.lane.conn)
	if err != nil {
		return b.lane.failed("what writes depend on", err)
	}
	return nil
}

// askNumbers asks whether the next numbers of counters are taken, for counters whose last number is cached.
func (b *batch) askNumbers() {
	for c, count := range b.counts {
		item, known := b.lane.cache.item(c.t, c.index, c.counter)
		last, err := strconv.ParseUint(string(item.Value), 10, 63)
		if !known || err != nil && item.Rev != 0 {
			continue
		}
		for n := range uint64(count) {
			needed{b, c.t}.Item(c.index, strconv.FormatUint(last+n+1, 10))
		}
	}
}

// readStates reads the rows of tenants.
func (l *lane) readStates(tenants ...*tenant) error {
	if len(tenants) == 0 {
		return nil
	}
	q := &questions{}
	for _, t := range tenants {
		q.states.add(t.name)
	}
	if err := q.ask(l.ending, l.conn); err != nil {
		return l.failed("the state of a tenant", err)
	}
	for _, t := range tenants {
		t.take(q.states.rows[t.name])
	}
	return nil
}

// needed collects what the units of a tenant read.
type needed struct {
	b *batch
	t *tenant
}

// Head is part of unit.Needed.
func (n needed) Head(key j17.Key) {
	k := n.t.headKey(key)
	if _, asked := n.b.heads[k]; asked || !n.t.named {
		return
	}
	if _, known := n.b.lane.cache.head(k); !known {
		n.b.heads[k] = n.b.q.heads.add(n.t.name, key)
	}
}

// Item is part of unit.Needed.
func (n needed) Item(space store.Space, key string) {
	k := itemKey{n.t.next.Number, n.t.epoch, space, key}
	if _, asked := n.b.items[k]; asked || !n.t.named {
		return
	}
	if _, known := n.b.lane.cache.item(n.t, space, key); known {
		return
	}
	// An error occurs again when the unit reads the item.
	if number, err := n.b.lane.spaces.number(n.b.lane.ending, space); err == nil && number != noSpace {
		n.b.items[k] = n.b.q.items.add(n.t.name, number, key, false)
	}
}

// Command is part of unit.Needed.
func (n needed) Command(id store.CommandID) {
	k := commandKey{n.t.next.Number, id}
	if _, asked := n.b.commands[k]; !asked && n.t.named {
		n.b.commands[k] = n.b.q.commands.add(n.t.name, id)
	}
}

// Match is part of unit.Needed.
func (n needed) Match(a *store.Absent) {
	if n.t.named {
		n.b.matches[a] = len(n.b.q.matches)
		n.b.q.matches = append(n.b.q.matches, matchQuestion{tenant: n.t.name, of: a})
	}
}

// fill decides calls until the batch is full, and returns how many of them are complete.
func (b *batch) fill(calls []*call) (complete int) {
	for i, c := range calls {
		t := b.lane.tenant(c.Tenant)
		b.decided[t] = true
		if op := c.Op(); op != nil {
			if err := op(b); err != nil {
				b.reset()
				c.Fail(err)
			}
			continue
		}
		staged := c.Stage(
			func() bool { return b.w.bytes >= mostBatchBytes },
			func(u *store.Append, r *store.Result) error { return b.units.Decide(t, u, r) },
		)
		if !staged {
			return i
		}
	}
	return len(calls)
}

// alone makes one more round trip, for what need did not foresee.
func (b *batch) alone(what string, ask func(q *questions)) (*questions, error) {
	q := &questions{}
	ask(q)
	if err := q.ask(b.lane.ending, b.lane.conn); err != nil {
		return nil, b.lane.failed(what, err)
	}
	return q, nil
}

// ReadHead is part of unit.Reader.
func (b *batch) ReadHead(t *tenant, key j17.Key) (store.Head, error) {
	if !t.named || !canExist(key) {
		return store.Head{}, nil
	}
	if head, known := b.lane.cache.head(t.headKey(key)); known {
		return head, nil
	}
	if at, asked := b.heads[t.headKey(key)]; asked {
		return b.q.heads.heads[at], nil
	}
	q, err := b.alone("the head of "+key.String(), func(q *questions) { q.heads.add(t.name, key) })
	if err != nil {
		return store.Head{}, err
	}
	return q.heads.heads[0], nil
}

// canExist reports whether a stream can have the key. An invalid key is not an error: it has no events.
func canExist(key j17.Key) bool { return store.ValidKey(key) == nil }

// ReadItem is part of unit.Reader.
func (b *batch) ReadItem(t *tenant, space store.Space, key string) (unit.Item, error) {
	if !t.named {
		return unit.Item{}, nil
	}
	if item, known := b.lane.cache.item(t, space, key); known {
		return item, nil
	}
	if at, asked := b.items[itemKey{t.next.Number, t.epoch, space, key}]; asked {
		return b.q.items.items[at].item(), nil
	}
	stored, err := b.readItem(t, space, key, false)
	return stored.item(), err
}

// readItem reads one item.
func (b *batch) readItem(t *tenant, space store.Space, key string, whole bool) (storedItem, error) {
	number, err := b.lane.spaces.number(b.lane.ending, space)
	if err != nil || number == noSpace {
		return storedItem{}, err
	}
	q, err := b.alone("a side item", func(q *questions) { q.items.add(t.name, number, key, whole) })
	if err != nil {
		return storedItem{}, ofItem(space, key, err)
	}
	return q.items.items[0], nil
}

// item returns the item as decisions see it.
func (i *storedItem) item() unit.Item {
	item := unit.Item{Meta: i.Meta}
	if !i.sealed && len(i.value) <= unit.MaxValue {
		item.Value = i.value
	}
	return item
}

// ReadEntries is part of unit.Reader.
func (b *batch) ReadEntries(t *tenant, space store.Space, key string) ([]byte, error) {
	stored, err := b.readItem(t, space, key, true)
	if err == nil && stored.sealed {
		stored.value, err = b.lane.sealing.Open(space, key, stored.value)
	}
	if err == nil {
		_, err = store.BehindEntries(stored.value)
	}
	if err != nil {
		err = corruption(err, "side item %s/%s of tenant %s", space, key, t.name)
		return nil, ofItem(space, key, err)
	}
	return stored.value, nil
}

// ofItem sets the side item that is damaged, if err is a CorruptionError.
func ofItem(space store.Space, key string, err error) error {
	if damage, is := errors.AsType[*store.CorruptionError](err); is {
		damage.Item = store.ItemName{Space: space, Key: key}
	}
	return err
}

// ReadCommand is part of unit.Reader.
func (b *batch) ReadCommand(t *tenant, id store.CommandID) (*store.Result, int64, error) {
	if !t.named {
		return nil, 0, nil
	}
	at, asked := b.commands[commandKey{t.next.Number, id}]
	q := b.q
	if !asked {
		var err error
		if q, err = b.alone("a command", func(q *questions) { q.commands.add(t.name, id) }); err != nil {
			return nil, 0, err
		}
		at = 0
	}
	if q.commands.results[at] == nil {
		return nil, 0, nil
	}
	result, expires, err := record.ParseCommand(q.commands.results[at])
	if err != nil {
		return nil, 0, corruption(err, "command %x", id)
	}
	return result, expires, nil
}

// ReadMatch is part of unit.Reader.
func (b *batch) ReadMatch(t *tenant, a *store.Absent) (bool, error) {
	if !t.named {
		return false, nil
	}
	if at, asked := b.matches[a]; asked {
		return b.q.matches[at].found, nil
	}
	q, err := b.alone("a condition", func(q *questions) {
		q.matches = []matchQuestion{{tenant: t.name, of: a}}
	})
	if err != nil {
		return false, err
	}
	return q.matches[0].found, nil
}

// WriteEvent is part of unit.Writer.
func (b *batch) WriteEvent(t *tenant, e *unit.Event) {
	b.w.event(int32(t.next.Number), e)
	t.added = append(t.added, b.lane.leaves.Leaf(e.ID, e.Leaf, e.Key.Type))
}

// WriteItem is part of unit.Writer.
func (b *batch) WriteItem(t *tenant, c *unit.ItemChange) {
	value, sealed := c.Value, false
	if c.Is.Rev != 0 && b.lane.sealing.Seals(c.Space, c.Value) {
		value, sealed = b.lane.sealing.Seal(c.Space, c.Key, c.Value), true
	}
	b.w.item(t, c, value, sealed)
}

// WriteCommand is part of unit.Writer.
func (b *batch) WriteCommand(t *tenant, c *unit.CommandRecord) {
	b.w.command(int32(t.next.Number), c)
}

// changedTenants returns the tenants that the batch changes.
func (b *batch) changedTenants() []*tenant { return b.units.Tenants() }

// wrote reports whether any tenant that the batch changes was written.
func (b *batch) wrote(written map[int32]bool) bool {
	return slices.ContainsFunc(b.w.tenants.t, func(t int32) bool { return written[t] })
}

// staleOf returns the tenants of the batch that were neither written nor found unchanged.
func (b *batch) staleOf(written map[int32]bool) (stale map[*tenant]bool) {
	if l := b.w.loaded; l != nil && l.was.Number != 0 && !written[int32(l.was.Number)] {
		written = nil // the name still refers to the old tenant
	}
	for t := range b.decided {
		if !written[int32(t.next.Number)] && (t.named || b.w.changes(t)) {
			if stale == nil {
				stale = map[*tenant]bool{}
			}
			stale[t] = true
			t.forget()
		}
	}
	return stale
}

// publish makes what was committed known to later batches and to readers that wait for changes.
func (b *batch) publish(stale map[*tenant]bool) {
	for _, h := range b.units.Changed() {
		if !stale[h.Tenant] {
			b.lane.cache.putHead(h.Tenant.headKey(h.Key), h.Head)
		}
	}
	b.w.cacheItems(&b.lane.cache, stale)
	capture := b.lane.capture.Load()
	for _, t := range b.units.Tenants() {
		if stale[t] {
			continue
		}
		b.lane.noteFollowed(&b.w, t)
		t.ver++
		if capture != nil {
			capture.written(int32(t.next.Number), t.ver)
		}
		t.named, t.reserved = true, 0
		if b.w.drops(t) {
			t.forget()
			t.named = false
		}
		if b.w.clears(t) {
			t.epoch++
		}
		t.was = t.next
	}
	if b.w.stored.rewritten && len(stale) == 0 && !b.lane.o.Shared {
		b.lane.rewrites.Add(1)
	}
	b.lane.changes.publish(b, stale)
	if len(b.w.unnamed)+len(b.w.cleared) > 0 || b.w.loaded != nil {
		b.lane.wakeSweeper()
	}
	b.units.Stored(false)
}

// sumOf returns the checksum (CRC-32C) of a value.
func sumOf(value []byte) uint32 { return crc32.Checksum(value, crc32.MakeTable(crc32.Castagnoli)) }
