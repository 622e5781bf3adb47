package pebble

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
)

// Append commits units. See store.Store.
func (s *Store) Append(ctx context.Context, t j17.Tenant, units []store.Append) ([]store.Result, error) {
	if err := store.ValidTenant(t); err != nil {
		return nil, err
	}
	for i := range units {
		if err := units[i].Validate(); err != nil {
			return nil, fmt.Errorf("unit %d: %w", i, err)
		}
		for _, n := range units[i].After {
			if n < 0 || n >= i {
				return nil, fmt.Errorf("%w: unit %d is decided on the events of unit %d, which does not come before it", store.ErrInvalid, i, n)
			}
		}
	}
	if len(units) == 0 {
		return []store.Result{}, nil
	}
	return s.queue.Append(ctx, t, units, queue.NeedOf(units))
}

// Command returns the result of a command. See store.Store.
func (s *Store) Command(_ context.Context, t j17.Tenant, id store.CommandID) (*store.Result, error) {
	r, err := s.read(t)
	if err != nil {
		return nil, err
	}
	defer r.close()
	result, expires, err := getCommand(r.snapshot, r.tenant, id)
	if err != nil || expired(expires, s.clock.Now().UnixNano()) {
		return nil, err
	}
	return result, nil
}

// getCommand returns the stored result of a command and when it expires, or nil.
func getCommand(from pebble.Reader, tenant uint32, id store.CommandID) (*store.Result, int64, error) {
	var key [tenantPrefix + 1 + len(id)]byte
	value, closer, err := from.Get(appendCommandKey(key[:0], tenant, id))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fault("a command", err)
	}
	result, expires, err := parseCommandRecord(value)
	if err = errors.Join(err, closer.Close()); err != nil {
		return nil, 0, corruption(err, "command %x", id)
	}
	return result, expires, nil
}

// stageUnit decides a unit and, when it holds, stages it. An error leaves nothing staged.
func (b *batch) stageUnit(t *tenant, u *store.Append, r *store.Result) error {
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

	// The conditions, and that the decision has seen the latest time.
	*r = store.Result{Timestamp: t.next.raise(u.Timestamp)}
	if err := b.checkUnit(t, u, r); err != nil {
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
	// Everything that can fail comes before the first change.
	if err := b.loadUnit(t, u); err != nil {
		return err
	}

	// Now nothing fails.
	if len(u.Events) > 0 || u.Command != nil {
		b.stage(t)
	}
	b.stageEvents(t, u, r)
	for i := range u.Side {
		b.stageSide(t, &u.Side[i], b.sides[i], r.IDs)
	}
	b.stageAssignments(t, u, r)
	if command != nil {
		b.stageCommand(t, u.Command, command, r)
	}
	r.Outcome = store.Committed
	return nil
}

// command looks the unit's command up; it returns nil when the unit has none.
func (b *batch) command(t *tenant, u *store.Append) (*stagedCommand, error) {
	if u.Command == nil {
		return nil, nil
	}
	k := commandKey{t.nextNumber, u.Command.ID}
	if c := b.commands[k]; c != nil {
		return c, nil
	}
	result, expires, err := getCommand(b.store.db, t.nextNumber, u.Command.ID)
	if err != nil {
		return nil, err
	}
	c := &stagedCommand{result: result, expires: expires}
	if result != nil {
		c.memo = result.Memo
	}
	b.commands[k] = c
	return c, nil
}

// checkUnit tests the preconditions and side conditions and puts those that fail into r.
func (b *batch) checkUnit(t *tenant, u *store.Append, r *store.Result) error {
	// The lengths of streams, written to or only looked at.
	for i := range u.Pre {
		p := &u.Pre[i]
		h, err := b.head(t, p.Key)
		if err != nil {
			return err
		}
		if h.Length != p.Length || p.Looked && h.Generation != p.Generation {
			r.Streams = append(r.Streams, store.StreamConflict{Key: p.Key, Expected: p.Length, Actual: h.Length})
		}
	}

	// Revisions of side items that are only looked at.
	for i := range u.Fences {
		f := &u.Fences[i]
		item, err := b.fenced(t, f.Space, f.Key)
		if err != nil {
			return err
		}
		if f.ByValue && !item.holds(f.Value, b.now) || !f.ByValue && item.present(b.now) != f.Rev {
			r.Sides = append(r.Sides, store.SideConflict{Space: f.Space, Key: f.Key, Rev: item.present(b.now)})
		}
	}

	// Conditions of side writes, and the bounds of counters.
	if err := b.checkSums(t, u, r); err != nil {
		return err
	}
	for i := range u.Side {
		w := &u.Side[i]
		if w.Cond == store.Always {
			continue
		}
		item, err := b.item(t, w.Space, w.Key)
		if err != nil {
			return err
		}
		rev := item.present(b.now)
		if (w.Cond == store.IfAbsent && rev != 0) || (w.Cond == store.IfRev && rev != w.Rev) || (w.Cond == store.IfValue && !item.holds(w.Was, b.now)) {
			r.Sides = append(r.Sides, store.SideConflict{Space: w.Space, Key: w.Key, Rev: rev})
		}
	}

	if err := b.checkAssignments(t, u, r); err != nil || len(u.Unless) == 0 {
		return err
	}

	// What must not have happened.
	var err error
	r.Matched, err = b.matches(t, u)
	return err
}

// present returns the revision that an item has at a time, 0 when it is absent.
func (i *stagedItem) present(now int64) uint64 {
	if !i.live(now) {
		return 0
	}
	return i.rev
}

// holds reports whether the value of an item, empty where it is absent, is another one, which has at most maxKeptValue bytes.
func (i *stagedItem) holds(value string, now int64) bool {
	if !i.live(now) {
		return value == ""
	}
	return i.value != nil && string(i.value) == value
}

// loadUnit puts what the unit changes into b.unit and b.sides.
func (b *batch) loadUnit(t *tenant, u *store.Append) error {
	b.unit, b.sides = b.unit[:0], b.sides[:0]
	for i := range u.Events {
		h, err := b.head(t, u.Events[i].Key)
		if err != nil {
			return err
		}
		b.unit = append(b.unit, h)
	}
	for i := range u.Side {
		if u.Side[i].StampKey || u.Side[i].Plain {
			b.sides = append(b.sides, nil) // its key is not known yet, and nobody has it; or it does not matter what it was
			continue
		}
		if n := u.Side[i].Stream; n > 0 && b.unit[n-1].Length == 0 {
			b.expectNone(t, u.Side[i].Space, u.Side[i].Key)
		}
		item, err := b.item(t, u.Side[i].Space, u.Side[i].Key)
		if err != nil {
			return err
		}
		if u.Side[i].Entries != "" {
			item.keep = true
			if err := b.loadEntries(t, &u.Side[i], item); err != nil {
				return err
			}
		}
		b.sides = append(b.sides, item)
	}
	return nil
}

// head returns the head of a stream after what was staged so far.
func (b *batch) head(t *tenant, key j17.Key) (*stagedHead, error) {
	b.key = appendHeadKey(b.key[:0], t.nextNumber, key)
	if h := b.heads[string(b.key)]; h != nil {
		return h, nil
	}
	head, ok := b.store.cachedHead(b.key)
	hashes := b.store.filteredStream(b.key)
	if !ok && !t.streamFilter.Load().lacks(t.nextNumber, hashes) {
		var err error
		if head, err = b.findHead(b.key, key); err != nil {
			return nil, err
		}
		if head.Length == 0 {
			b.missed(t)
		}
	}
	if len(b.slab) == cap(b.slab) {
		b.slab = make([]stagedHead, 0, 256)
	}
	b.slab = append(b.slab, stagedHead{key: string(b.key), Head: head, fresh: head.Length == 0, tenant: t, filtered: hashes})
	h := &b.slab[len(b.slab)-1]
	b.heads[h.key] = h
	return h, nil
}

// wantedHead is a stream whose head a batch is going to ask for.
type wantedHead struct {
	tenant *tenant
	key    j17.Key
}

// mostWanted bounds how many heads are looked up together.
const mostWanted = 256

// lookUp looks up the heads that calls are going to ask for, in descending order of their keys: neighbours are found in tables that are open
// already, and the engine does not try to walk through its memory from one to the next, as it does where keys ascend. What cannot be read is met
// again by the unit that needs it.
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
		return -cmp.Or(cmp.Compare(x.tenant.nextNumber, y.tenant.nextNumber), cmp.Compare(x.key.Type, y.key.Type), cmp.Compare(x.key.ID, y.key.ID))
	})
	for i := range b.wanted {
		_, _ = b.head(b.wanted[i].tenant, b.wanted[i].key)
	}
	clear(b.wanted)
}

// findHead reads a head from disk.
func (b *batch) findHead(headKey []byte, key j17.Key) (store.Head, error) {
	v, err := b.find(headKey)
	if err != nil {
		return store.Head{}, fault("the head of "+key.String(), err)
	}
	if v == nil {
		return store.Head{}, nil
	}
	h, err := parseHeadRecord(v)
	if err != nil {
		return store.Head{}, corruption(err, "the head of %s", key)
	}
	return h, nil
}

// find reads what is stored under a key, nil for nothing. It is valid until the next call. One iterator serves the whole batch: unlike
// single look-ups it need not be made anew for each key, and it asks the filters of the lowest level too, which tell of most new streams
// and items that they are new without reading a block.
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
		// What a seek could not read it has reported.
		_ = b.lookup.Close()
		b.lookup = nil
	}
}

// position returns the position of what comes next in the feed.
func (b *batch) position(t *tenant) j17.StreamID {
	if id := (j17.StreamID{Ms: b.ms}); id.Compare(t.next.last) > 0 {
		return id
	}
	return t.next.last.Next()
}

// stageEvents stages the unit's events; b.unit holds their heads.
func (b *batch) stageEvents(t *tenant, u *store.Append, r *store.Result) {
	if len(u.Events) == 0 {
		return
	}

	id := b.position(t)
	first := len(b.ids)
	t.added = slices.Grow(t.added, len(u.Events))

	for i := range u.Events {
		e := &u.Events[i]
		timestamp := r.Timestamp
		if e.Timestamp != nil {
			timestamp = *e.Timestamp
		}

		// The record, and the leaf that joins the stream's hashes.
		h := b.unit[i]
		b.own = appendTags(b.own[:0], e.Tags)
		b.value = appendEventRecord(b.value[:0], id, e.Key, e.Type, e.Data, e.Metadata, timestamp, nil, b.own)
		leaf := sha256.Sum256(b.value[leafOffset(len(b.own)):])
		t.added = append(t.added, keptLeaf{store.Leaf{Position: id, Hash: leaf}, b.store.leaves.hash(e.Key.Type)})
		h.Chain = j17.Link(h.Chain, leaf)
		if h.Generation > 0 && !h.Rewriting() {
			h.Present = j17.Link(h.Present, leaf)
		}

		// The stream's head, written once a batch however many events change it.
		h.Length++
		if h.Length == 1 {
			h.FirstTime = timestamp
		}
		h.Last, h.LastTime = id, timestamp
		if !h.changed {
			h.changed = true
			b.changed = append(b.changed, h)
		}

		// The event under its key, and in the feed in runs that the batch ends.
		b.key = appendEventKey(b.key[:0], t.nextNumber, e.Key, h.Length)
		must(b.writes.Set(b.key, b.value, nil))
		b.addToRun(t, id, e.Tags)

		b.ids = append(b.ids, id)
		b.lengths = append(b.lengths, h.Length)
		t.next.lastTime = t.next.raise(timestamp)
		t.next.last = id
		t.next.events++
		id = id.Next()
	}
	r.IDs, r.Lengths = b.ids[first:len(b.ids):len(b.ids)], b.lengths[first:len(b.lengths):len(b.lengths)]
	b.staged.add(t, u.Events, r.IDs)
}

// addToRun adds the event with the key b.key to the run of its tenant. The positions that a tenant gets in a batch follow each other, so
// that a run goes on over units: an entry of the feed, and of each tag, is much cheaper for many events than one for each.
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
	b.key2 = appendFeedKey(b.key2[:0], b.runOf.nextNumber, b.runEnd)
	must(b.writes.Set(b.key2, b.run.take(), nil))
	b.runOf.tagFilter.Load().addAll(b.runOf.nextNumber, b.tags.ids)
	b.tags.write(b.writes, b.runOf.nextNumber, b.runEnd)
}

func (b *batch) stageCommand(t *tenant, cmd *store.Command, c *stagedCommand, r *store.Result) {
	b.key = appendCommandKey(b.key[:0], t.nextNumber, cmd.ID)
	b.replaceExpiry(t.nextNumber, c.expires, nanos(cmd.Expires))
	c.expires, c.result, c.memo = nanos(cmd.Expires), r, bytes.Clone(cmd.Memo)
	b.put(b.key, appendCommandRecord(b.value[:0], c.expires, r, cmd.Memo))
}

// replaceExpiry moves the expiry entry of the item or command whose key is b.key.
func (b *batch) replaceExpiry(tenant uint32, from, to int64) {
	if from == to {
		return
	}
	if from != 0 {
		b.key2 = appendExpiryKey(b.key2[:0], tenant, from, b.key)
		b.remove(b.key2)
	}
	if to != 0 {
		b.key2 = appendExpiryKey(b.key2[:0], tenant, to, b.key)
		must(b.writes.Set(b.key2, nil, nil))
	}
}
