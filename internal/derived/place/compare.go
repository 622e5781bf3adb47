package place

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/derived/build"
	"j17/internal/storage/store"
)

const (
	// comparedPage is how many aggregates, or entries, are compared as of one position.
	comparedPage = 256
	// comparedAgain is when a rewritten stream is compared again: until its places are erased it differs.
	comparedAgain = time.Minute
)

// comparison compares a slot with the events, each page as of one position.
type comparison struct {
	s    *Service
	t    j17.Tenant
	k    *known
	slot *slot
	// position is the position of the last page; aggregates and entries count what was compared.
	position            j17.StreamID
	aggregates, entries uint64
}

// run compares the records of all aggregates with their events, and all entries with the records. Places that differ
// are rebuilt. The error is errMoved if the slot is begun again meanwhile.
func (c *comparison) run(ctx context.Context, pause build.Pause) (*build.Difference, error) {
	replace := func(ctx context.Context, found *build.Difference) error {
		return c.s.replace(ctx, c.t, []*slot{c.slot}, c.slot.typ+" "+found.ID+": "+found.What)
	}
	return build.Compare(ctx, pause, replace, c.records, c.owners)
}

// moment opens a moment, in which the slot is the compared one.
func (c *comparison) moment(ctx context.Context) (store.Moment, error) {
	m, err := c.s.Store.Moment(ctx, c.t)
	if err != nil {
		return nil, err
	}
	kinds := Kinds{s: c.s, tenant: c.t, slots: []*slot{c.slot}}
	if err := kinds.current(m); err != nil {
		m.Close()
		return nil, err
	}
	c.position = m.Position()
	return m, nil
}

// records compares the records of the aggregates after an ID.
func (c *comparison) records(
	ctx context.Context, after string,
) (last string, n int, _ *build.Difference, err error) {
	ids, err := c.s.Store.Streams(ctx, c.t, c.slot.typ, after, comparedPage)
	if err != nil {
		return "", 0, nil, build.EventsError(err)
	}
	m, err := c.moment(ctx)
	if err != nil {
		return "", 0, nil, err
	}
	defer m.Close()
	keys := make([]j17.Key, len(ids))
	for i, id := range ids {
		keys[i] = j17.Key{Type: c.slot.typ, ID: id}
	}
	heads, err := m.Heads(keys)
	if err != nil {
		return "", 0, nil, build.EventsError(err)
	}
	for i, id := range ids {
		if heads[i].Length == 0 {
			continue // it is newer than the moment
		}
		what, err := c.aggregate(ctx, m, id, heads[i])
		if what != "" && err == nil {
			what, err = c.again(ctx, id)
		}
		switch {
		case err != nil:
			return "", 0, nil, err
		case what != "":
			return "", 0, &build.Difference{ID: id, What: what}, nil
		}
	}
	c.aggregates += uint64(len(ids))
	if len(ids) == comparedPage {
		last = ids[comparedPage-1]
	}
	return last, len(ids), nil, nil
}

// again compares an aggregate once more, as of now. Events are read as they are now, even if they were rewritten after
// the moment of the page, and their places are erased a moment after that.
func (c *comparison) again(ctx context.Context, id string) (what string, err error) {
	key := j17.Key{Type: c.slot.typ, ID: id}
	for waited := false; ; waited = true {
		m, err := c.s.Store.Moment(ctx, c.t)
		if err != nil {
			return "", err
		}
		heads, err := m.Heads([]j17.Key{key})
		if err != nil {
			err = build.EventsError(err)
		} else {
			what, err = c.aggregate(ctx, m, id, heads[0])
		}
		m.Close()
		if err != nil || what == "" || heads[0].Generation == 0 || waited {
			return what, err
		}
		if err := c.s.Clock.Wait(ctx, c.s.Clock.Now().Add(comparedAgain)); err != nil {
			return "", err
		}
	}
}

// aggregate describes a difference between the record of an aggregate and its events, or between its entries and the
// record.
func (c *comparison) aggregate(ctx context.Context, m store.Moment, id string, head store.Head) (string, error) {
	// The location by its events, and by its record.
	want, _, err := c.s.lastOf(ctx, c.t, c.k.decider.Types[c.slot.typ], c.slot, id, 1, head.Length)
	if err != nil {
		return "", build.EventsError(err)
	}
	if want != nil && want.Point == nil && want.Shape == nil {
		want = nil
	}
	item, err := m.Get(places, c.slot.key(id))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", err
	}
	var have *decider.Location
	if err == nil {
		if have, err = readRecord(&item); err != nil {
			return "", err
		}
	}
	switch {
	case equal(have, want):
	case have == nil:
		return "its place is missing", nil
	case want == nil:
		return "it has a place, and its events have none", nil
	default:
		return "its place is not that of its last event with one", nil
	}
	if have == nil {
		return "", nil
	}

	// Its entries.
	keys, _, err := store.ReadEntries(item.Value)
	if err != nil {
		return "", err
	}
	if should, _, _ := store.ReadEntries(c.slot.record(id, want).Value); len(keys) == 0 ||
		want.Point != nil && !slices.EqualFunc(keys, should, bytes.Equal) {
		return "the entries that are kept of its place are not those of the place", nil
	}
	for _, key := range keys {
		_, err := m.Get(cells, string(key))
		if errors.Is(err, store.ErrNotFound) {
			return "an entry of its place is missing", nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

// equal reports whether two locations are the same; nil means nowhere.
func equal(a, b *decider.Location) bool {
	if a == nil || b == nil {
		return a == b
	}
	switch {
	case a.Point != nil && b.Point != nil:
		if *a.Point != *b.Point {
			return false
		}
	case a.Shape != nil && b.Shape != nil:
		if !bytes.Equal(a.Shape.AppendBinary(nil), b.Shape.AppendBinary(nil)) {
			return false
		}
	default:
		return false
	}
	return bytes.Equal(a.Properties.AppendJSON(nil), b.Properties.AppendJSON(nil))
}

// entryParts is how many parts the key of an entry has; the last one is the ID.
const entryParts = 4

// owners checks that each of the entries after a key belongs to the aggregate that it names.
func (c *comparison) owners(
	ctx context.Context, after string,
) (last string, n int, _ *build.Difference, err error) {
	m, err := c.moment(ctx)
	if err != nil {
		return "", 0, nil, err
	}
	defer m.Close()
	items, err := m.Scan(cells, store.Prefix(c.slot.ID+"/").After(after), comparedPage)
	if err != nil {
		return "", 0, nil, err
	}
	for i := range items {
		last = items[i].Key
		parts := strings.SplitN(last, "/", entryParts)
		if len(parts) < entryParts {
			return "", 0, nil, &store.CorruptionError{Where: "an entry of places", Err: errRecord}
		}
		id := parts[entryParts-1]
		var own [][]byte
		item, err := m.Get(places, c.slot.key(id))
		if err == nil {
			own, _, err = store.ReadEntries(item.Value)
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return "", 0, nil, err
		}
		if !slices.ContainsFunc(own, func(k []byte) bool { return string(k) == last }) {
			return "", 0, &build.Difference{ID: id, What: "there is an entry in its name that is none of its place"}, nil
		}
	}
	c.entries += uint64(len(items))
	if len(items) < comparedPage {
		last = ""
	}
	return last, len(items), nil, nil
}
