package pebble

import (
	"cmp"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// batch has the writes that the committer makes in one commit, and the state after them.
type batch struct {
	store  *committer
	writes *pebble.Batch
	// units decides its units, and keeps what they have changed.
	units *unit.Batch[*tenant]

	// dropped are tenants that are removed, and due is work that was added.
	dropped []*tenant
	due     []dueWork
	// rewritten reports that events were rewritten; built, if not nil, is the tenant whose older events are all indexed
	// from then on.
	rewritten bool
	built     *tenant
	// operated reports that the batch has something other than units, settled that the batch before it was written and
	// had only units.
	operated, settled bool

	// recent are the tenants for whose latest events tags are kept, the one with the first condition first.
	recent []*tenant
	// lookup, if not nil, finds heads and items on disk.
	lookup *pebble.Iterator
	// headKeys are the keys of the heads that it changes.
	headKeys []string

	// run and tags are the events that have no entry in the feed and in the index of tags yet: those of a tenant, up to
	// a position.
	run    feedRun
	tags   tagRun
	runOf  *tenant
	runEnd j17.StreamID

	// Scratch space.
	wanted []wantedHead
	key    []byte
	key2   []byte
	value  []byte
	own    []byte
}

func newBatch(s *committer) *batch {
	b := &batch{store: s}
	b.units = unit.New[*tenant](b, b)
	return b
}

// reset empties the batch and sets its time to now.
func (b *batch) reset() {
	b.endLookup()
	if b.writes != nil {
		// A batch holds memory only; closing one cannot fail in a way that matters.
		_ = b.writes.Close()
	}
	b.writes = b.store.db.NewBatch()
	for _, t := range b.units.Tenants() {
		t.added = nil
	}
	b.units.Reset(b.store.clock.Now(), b.settled)
	b.rewritten, b.built, b.settled, b.operated = false, nil, false, false
	b.tags.clear() // left by a run that a failure has cut short
	b.run.n, b.runOf = 0, nil
	b.dropped, b.due, b.headKeys = b.dropped[:0], b.due[:0], b.headKeys[:0]
	if cap(b.due) > keptScratch {
		b.due = nil
	}
	if cap(b.headKeys) > keptScratch {
		b.headKeys = nil
	}
	if cap(b.value) > keptBytes {
		b.value, b.key2 = nil, nil
	}
}

func (b *batch) empty() bool { return b.writes.Empty() && len(b.units.Tenants()) == 0 }

// fill stages calls until the batch is full, and returns how many of them are complete.
func (b *batch) fill(calls []*call, full, unbelieved error) int {
	if full == nil && unbelieved == nil {
		b.lookUp(calls)
	}
	for i, c := range calls {
		switch {
		case unbelieved != nil && c.Need() != queue.Always:
			c.Fail(unbelieved)
		case full != nil && b.store.disk.refuses(c.Need()):
			c.Fail(full)
		case c.Op() != nil:
			b.operated = true
			err := c.Op()(b)
			if err != nil {
				b.reset()
			}
			c.Fail(err)
		case !b.stageUnits(c):
			return i
		}
	}
	return len(calls)
}

// stageUnits stages the units of a call. It returns false if the batch was full before the last one.
func (b *batch) stageUnits(c *call) bool {
	t := b.tenant(c.Tenant)
	return c.Stage(
		func() bool { return b.writes.Len() >= maxBatchBytes },
		func(u *store.Append, r *store.Result) error { return b.units.Decide(t, u, r) },
	)
}

// list puts a tenant into the directory.
func (b *batch) list(name j17.Tenant, number uint32) {
	b.put(appendTenantKey(b.key[:0], name), appendNumber(b.value[:0], number))
	b.putNextNumber()
}

// putNextNumber stores that all numbers given out so far are in use.
func (b *batch) putNextNumber() {
	b.put(appendPrefix(b.key[:0], storeNumber, kindNext), appendNumber(b.value[:0], b.store.nextNumber))
}

// finish stages the writes that are made once per batch.
func (b *batch) finish() {
	b.endRun()
	// Write heads in the order of their keys: the engine finds the place of each one from that of the last.
	changed := b.units.Changed()
	slices.SortFunc(
		changed, func(x, y *unit.Head[*tenant]) int { return compareHeads(x.Tenant, x.Key, y.Tenant, y.Key) },
	)
	for _, h := range changed {
		b.key = appendHeadKey(b.key[:0], h.Tenant.next.Number, h.Key)
		if h.Fresh {
			h.Tenant.streamFilter.Load().add(h.Tenant.next.Number, b.store.filters.filteredStream(b.key))
		}
		b.headKeys = append(b.headKeys, string(b.key))
		b.put(b.key, appendHeadRecord(b.value[:0], &h.Head))
	}
	for _, t := range b.units.Tenants() {
		if !t.listed {
			t.listed = true
			b.list(t.name, t.next.Number)
		}
		// Only the committer moves t.last.
		if t.next.Last != t.last {
			b.store.nextChange++
			t.next.change = b.store.nextChange
		}
		b.put(appendPrefix(b.key[:0], t.next.Number, kindState), appendStateRecord(b.value[:0], &t.next))
	}
}

// compareHeads compares heads by the order of their keys.
func compareHeads(t *tenant, key j17.Key, t2 *tenant, key2 j17.Key) int {
	return cmp.Or(
		cmp.Compare(t.next.Number, t2.next.Number), cmp.Compare(key.Type, key2.Type), cmp.Compare(key.ID, key2.ID),
	)
}

// put stages a write. key and value may be b.key and b.value, which then keep their memory.
func (b *batch) put(key, value []byte) {
	b.key, b.value = key, value
	must(b.writes.Set(key, value, nil))
}

func (b *batch) remove(key []byte) { must(b.writes.Delete(key, nil)) }

// must asserts that an error is nil: writes to a batch without an index cannot fail.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// wantedHead is a stream whose head a batch will need.
type wantedHead struct {
	tenant *tenant
	key    j17.Key
}

// mostWanted bounds how many heads are looked up together.
const mostWanted = 256

// lookUp looks up the heads that calls will need, in descending order of their keys: neighbours are found in tables
// that are open already, and the engine does not try to walk through its memory from one to the next, as it does where
// keys ascend. Errors are ignored here: the unit that needs the head meets them again.
func (b *batch) lookUp(calls []*call) {
	b.wanted = b.wanted[:0]
	for _, c := range calls {
		if c.Op() != nil || len(b.wanted) == mostWanted {
			break // operations are alone
		}
		t := b.tenant(c.Tenant)
		for _, u := range c.Waiting() {
			events := u.Events
			for n := range events[:min(len(events), mostWanted-len(b.wanted))] {
				b.wanted = append(b.wanted, wantedHead{t, events[n].Key})
			}
		}
	}
	slices.SortFunc(b.wanted, func(x, y wantedHead) int {
		return compareHeads(y.tenant, y.key, x.tenant, x.key)
	})
	for i := range b.wanted {
		_, _ = b.units.Head(b.wanted[i].tenant, b.wanted[i].key)
	}
	clear(b.wanted)
}

// find returns the stored value of a key, nil for none, valid until the next call. One iterator serves the whole batch:
// unlike for single look-ups it is not made again for each key, and it also uses the filters of the lowest level, which
// recognize most new streams and items without reading a block.
func (b *batch) find(key []byte) ([]byte, error) {
	if b.lookup == nil {
		lookup, err := b.store.db.NewIter(&pebble.IterOptions{UseL6Filters: true})
		if err != nil {
			return nil, err
		}
		b.lookup = lookup
	}
	if !b.lookup.SeekPrefixGE(key) {
		return nil, b.lookup.Error()
	}
	return b.lookup.ValueAndErr()
}

// endLookup closes the batch's iterator, if there is one.
func (b *batch) endLookup() {
	if b.lookup != nil {
		// Errors of seeks have been reported by then.
		_ = b.lookup.Close()
		b.lookup = nil
	}
}

// addToRun adds the event with the key b.key to the run of its tenant. The positions of a tenant in a batch are
// consecutive, so a run spans units: one entry of the feed, and of each tag, for many events is much cheaper than one
// for each.
func (b *batch) addToRun(t *tenant, id j17.StreamID, tags []string) {
	if b.runOf != t {
		b.endRun()
		b.runOf = t
	}
	b.run.add(b.key)
	b.tags.add(tags)
	if b.runEnd = id; b.run.n == maxRun {
		b.endRun()
	}
}

// endRun stages the entries of the run in the feed and in the index of tags, if there are events in it.
func (b *batch) endRun() {
	if b.run.n == 0 {
		return
	}
	b.key2 = appendFeedKey(b.key2[:0], b.runOf.next.Number, b.runEnd)
	must(b.writes.Set(b.key2, b.run.take(), nil))
	b.runOf.tagFilter.Load().addAll(b.runOf.next.Number, b.tags.ids)
	b.tags.write(b.writes, b.runOf.next.Number, b.runEnd)
}
