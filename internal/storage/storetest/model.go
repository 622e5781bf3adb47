package storetest

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/storage/store"
)

// model is the expected content of a store, in maps.
type model map[j17.Tenant]*modelTenant

type modelTenant struct {
	streams  map[j17.Key][]record
	chains   map[j17.Key][32]byte
	feed     []record
	items    map[itemKey]store.Item
	commands map[store.CommandID]modelCommand
	revs     map[uint64]bool
	tags     map[j17.StreamID][]string
	// generations counts how often events of a stream were rewritten.
	generations map[j17.Key]uint64
	lastTime    int64
	// written reports that the tenant holds something, or did.
	written bool
}

type itemKey struct {
	space store.Space
	key   string
}

type modelCommand struct {
	result  store.Result
	expires time.Time
}

func (m model) tenant(name j17.Tenant) *modelTenant {
	if m[name] == nil {
		m[name] = &modelTenant{
			streams: map[j17.Key][]record{}, chains: map[j17.Key][32]byte{}, items: map[itemKey]store.Item{},
			commands: map[store.CommandID]modelCommand{}, revs: map[uint64]bool{}, tags: map[j17.StreamID][]string{},
			generations: map[j17.Key]uint64{},
		}
	}
	return m[name]
}

// copied returns what a copy of the tenant holds; it shares nothing that is changed in place. It has neither what has
// expired nor the earlier revisions of items.
func (t *modelTenant) copied(now time.Time) *modelTenant {
	c := *t
	c.streams, c.chains, c.items = maps.Clone(t.streams), maps.Clone(t.chains), maps.Clone(t.items)
	c.commands, c.revs, c.tags = maps.Clone(t.commands), map[uint64]bool{}, maps.Clone(t.tags)
	maps.DeleteFunc(c.items, func(_ itemKey, item store.Item) bool { return gone(item.Expires, now) })
	maps.DeleteFunc(c.commands, func(_ store.CommandID, kept modelCommand) bool { return gone(kept.expires, now) })
	for _, item := range c.items {
		c.revs[item.Rev] = true
	}
	c.generations = maps.Clone(t.generations)
	for key, list := range c.streams {
		c.streams[key] = slices.Clone(list)
	}
	c.feed = slices.Clone(t.feed)
	return &c
}

func gone(expires, now time.Time) bool { return !expires.IsZero() && !expires.After(now) }

// live returns an item unless it is absent or has expired. Its Rev is 0 until it was read.
func (t *modelTenant) live(k itemKey, now time.Time) (store.Item, bool) {
	item, ok := t.items[k]
	if !ok || gone(item.Expires, now) {
		return store.Item{}, false
	}
	return item, true
}

func (t *modelTenant) command(id store.CommandID, now time.Time) *store.Result {
	c, ok := t.commands[id]
	if !ok || gone(c.expires, now) {
		return nil
	}
	r := c.result
	r.Outcome = store.Duplicate
	return &r
}

// stands reports whether a fence holds on an item, which exists if ok is set.
func stands(f *store.Fence, item *store.Item, ok bool) bool {
	if f.ByValue {
		return f.Value == string(item.Value)
	}
	return f.Rev == item.Rev && (!ok || item.Rev != 0)
}

// apply checks the result of a unit against the model and puts its effects into the model. Positions, which the store
// is free to choose, come from the result.
func (t *modelTenant) apply(u *store.Append, got *store.Result, now time.Time) error {
	want := store.Result{Outcome: store.Committed}

	// A command that was carried out already.
	if u.Command != nil {
		if r := t.command(u.Command.ID, now); r != nil {
			return same("duplicate", *r, *got)
		}
	}

	// Its conditions.
	for _, p := range u.Pre {
		if n := uint64(len(t.streams[p.Key])); n != p.Length {
			want.Streams = append(want.Streams, store.StreamConflict{Key: p.Key, Expected: p.Length, Actual: n})
		}
	}
	for _, f := range u.Fences {
		if item, ok := t.live(itemKey{f.Space, f.Key}, now); !stands(&f, &item, ok) {
			want.Sides = append(want.Sides, conflictOf(f.Space, f.Key, item, ok, want.Sides, got.Sides))
		}
	}
	for _, w := range u.Side {
		item, ok := t.live(itemKey{w.Space, w.Key}, now)
		if (w.Cond == store.IfAbsent && ok) || (w.Cond == store.IfRev && w.Rev != item.Rev) ||
			(w.Cond == store.IfRev && ok && item.Rev == 0) ||
			(w.Cond == store.IfValue && w.Was != string(item.Value)) {
			want.Sides = append(want.Sides, conflictOf(w.Space, w.Key, item, ok, want.Sides, got.Sides))
		}
	}

	for i := range u.Unless {
		want.Matched = want.Matched || len(t.absent(&u.Unless[i])) > 0
	}

	// Its time and outcome.
	want.Timestamp = u.Timestamp
	if len(t.feed) > 0 {
		want.Timestamp = max(want.Timestamp, t.lastTime)
	}
	if want.Streams != nil || want.Sides != nil || want.Matched {
		want.Outcome = store.Conflict
		return same("conflict", want, *got)
	}
	if u.Decided && want.Timestamp != u.Timestamp {
		want.Outcome = store.TooEarly
		return same("too early", want, *got)
	}

	// What it changes.
	if err := t.applyEvents(u, got, &want, now); err != nil {
		return err
	}
	for _, w := range u.Side {
		switch k := (itemKey{w.Space, w.Key}); w.Op {
		case store.Put:
			// The Rev is learned when the item is read.
			t.items[k] = store.Item{Key: w.Key, Value: w.Value, Expires: w.Expires, Due: w.Due}
			t.written = true
		case store.Delete:
			delete(t.items, k)
		case store.Add:
			added, _ := strconv.ParseInt(string(w.Value), 10, 64)
			have, _ := strconv.ParseInt(string(t.items[k].Value), 10, 64)
			if have+added <= 0 {
				delete(t.items, k)
			} else {
				t.items[k] = store.Item{
					Key: w.Key, Value: strconv.AppendInt(nil, have+added, 10), Expires: w.Expires, Due: w.Due,
				}
				t.written = true
			}
		case store.Raise:
			want, _ := strconv.ParseUint(string(w.Value), 10, 63)
			if have, err := strconv.ParseUint(string(t.items[k].Value), 10, 63); err != nil || have < want {
				t.items[k] = store.Item{Key: w.Key, Value: w.Value, Expires: w.Expires, Due: w.Due}
				t.written = true
			}
		}
	}

	// What is kept of the command.
	if u.Command != nil {
		kept := *got
		kept.Memo = u.Command.Memo
		t.commands[u.Command.ID] = modelCommand{kept, u.Command.Expires}
		t.written = true
	}
	return same("result", want, *got)
}

// conflictOf returns the next conflict that a unit should report.
func conflictOf(
	sp store.Space, key string, item store.Item, live bool, want, got []store.SideConflict,
) store.SideConflict {
	if n := len(want); live && item.Rev == 0 && n < len(got) && got[n].Rev != 0 {
		// Another unit of the same call has written it, and the store chose its Rev.
		item.Rev = got[n].Rev
	}
	return store.SideConflict{Space: sp, Key: key, Rev: item.Rev}
}

func (t *modelTenant) applyEvents(u *store.Append, got, want *store.Result, now time.Time) error {
	if len(got.IDs) != len(u.Events) || len(got.Lengths) != len(u.Events) {
		return fmt.Errorf("%d positions and %d lengths for %d events", len(got.IDs), len(got.Lengths), len(u.Events))
	}
	for i, e := range u.Events {
		var last j17.StreamID
		if len(t.feed) > 0 {
			last = t.feed[len(t.feed)-1].ID
		}
		id := got.IDs[i]
		if id.Compare(last) <= 0 || id.Ms < now.UnixMilli() || (i > 0 && id != got.IDs[i-1].Next()) {
			return fmt.Errorf("position %s after %s at %d ms", id, last, now.UnixMilli())
		}
		timestamp := want.Timestamp
		if e.Timestamp != nil {
			timestamp = *e.Timestamp
		}
		raw, layout := j17.AppendEvent(nil, id, e.Key, e.Type, e.Data, e.Metadata, timestamp)
		r := record{
			ID: id, Key: e.Key, Version: uint64(len(t.streams[e.Key]) + 1), Type: e.Type, Timestamp: timestamp,
			Raw: string(raw), Data: string(e.Data), Metadata: string(layout.MetadataOf(raw)),
		}
		leaf := sha256.Sum256(append([]byte{0}, raw...))
		chain := t.chains[e.Key]
		t.chains[e.Key] = sha256.Sum256(append(chain[:], leaf[:]...))
		if len(t.feed) == 0 {
			t.lastTime = timestamp
		}
		t.lastTime = max(t.lastTime, timestamp)
		t.streams[e.Key] = append(t.streams[e.Key], r)
		t.feed = append(t.feed, r)
		t.tags[id] = e.Tags
		t.written = true
		want.IDs = append(want.IDs, id)
		want.Lengths = append(want.Lengths, r.Version)
	}
	return nil
}

func same(what string, want, got any) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("%s (-want +got):\n%s", what, diff)
	}
	return nil
}

// rewrite changes the content of an event, and nothing else.
func (t *modelTenant) rewrite(key j17.Key, n store.Rewritten) {
	r := &t.streams[key][n.Version-1]
	delete(t.tags, r.ID)
	if r.Kept == "" {
		leaf := j17.Leaf([]byte(r.Raw))
		r.Kept = string(leaf[:])
	}
	t.generations[key]++
	raw, layout := j17.AppendEvent(nil, r.ID, key, n.Type, n.Data, n.Metadata, r.Timestamp)
	r.Type, r.Raw, r.Data, r.Metadata = n.Type, string(raw), string(n.Data), string(layout.MetadataOf(raw))
	at, _ := slices.BinarySearchFunc(t.feed, r.ID, func(e record, id j17.StreamID) int { return e.ID.Compare(id) })
	t.feed[at] = *r
}

// retag gives events other tags.
func (t *modelTenant) retag(list []store.Retagged) {
	for _, e := range list {
		if r := t.streams[e.Key][e.Version-1]; r.Kept == "" {
			t.tags[r.ID] = append(j17.MetadataTags([]byte(r.Metadata)), own(e.Tags)...)
		}
	}
}

// changedBy reports whether an event has other tags than those of e.
func (t *modelTenant) changedBy(e store.Retagged) bool {
	r := t.streams[e.Key][e.Version-1]
	return r.Kept == "" && !slices.Equal(own(t.tags[r.ID]), own(e.Tags))
}

// own returns the tags that do not come from metadata.
func own(tags []string) []string {
	return slices.DeleteFunc(slices.Clone(tags), func(tag string) bool {
		return strings.HasPrefix(tag, "actor:") || strings.HasPrefix(tag, "target:") || j17.IsCorrelationTag(tag)
	})
}

// head returns the expected head of a stream.
func (t *modelTenant) head(key j17.Key) store.Head {
	list := t.streams[key]
	if len(list) == 0 {
		return store.Head{}
	}
	first, last := list[0], list[len(list)-1]
	h := store.Head{
		Length: last.Version, Chain: t.chains[key], Last: last.ID, FirstTime: first.Timestamp, LastTime: last.Timestamp,
		Generation: t.generations[key],
	}
	for i := range list {
		if h.Generation > 0 {
			h.Present = j17.Link(h.Present, j17.Leaf([]byte(list[i].Raw)))
		}
	}
	return h
}

// tagged lists the events after a position that have all of some tags.
func (t *modelTenant) tagged(tags []string, after j17.StreamID) (list []record) {
	for _, r := range t.feed {
		missing := slices.ContainsFunc(tags, func(tag string) bool { return !slices.Contains(t.tags[r.ID], tag) })
		if !missing && r.ID.Compare(after) > 0 {
			list = append(list, r)
		}
	}
	return list
}

// absent lists the events that must not exist.
func (t *modelTenant) absent(a *store.Absent) []record {
	return slices.DeleteFunc(t.tagged(a.Tags, a.After), func(r record) bool { return !a.Fits(r.Key.Type, r.Type) })
}

// ids lists the streams of a type.
func (t *modelTenant) ids(typ string) []string {
	var ids []string
	for key := range t.streams {
		if key.Type == typ {
			ids = append(ids, key.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// scan lists the live items of a space.
func (t *modelTenant) scan(sp store.Space, prefix, after string, now time.Time) []store.Item {
	var items []store.Item
	for k := range t.items {
		if item, ok := t.live(k, now); ok && k.space == sp && strings.HasPrefix(k.key, prefix) && k.key > after {
			items = append(items, item)
		}
	}
	slices.SortFunc(items, func(a, b store.Item) int { return strings.Compare(a.Key, b.Key) })
	return items
}

// due lists the keys of the live items of a space that are due, the earliest first.
func (t *modelTenant) due(sp store.Space, now time.Time) []string {
	var items []store.Item
	for k := range t.items {
		if item, ok := t.live(k, now); ok && k.space == sp && !item.Due.IsZero() && !item.Due.After(now) {
			items = append(items, item)
		}
	}
	slices.SortFunc(items, func(a, b store.Item) int {
		return cmpOr(a.Due.Compare(b.Due), strings.Compare(a.Key, b.Key))
	})
	return keysOf(items)
}

func cmpOr(a, b int) int {
	if a != 0 {
		return a
	}
	return b
}
