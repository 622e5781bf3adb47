package place

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"j17"
	"j17/internal/decider"
	"j17/internal/store"
	"j17/internal/worker"
)

const (
	// scrubEvery is the time between two looks through all places where the options do not say, scrubPause what each page of them waits.
	scrubEvery = 6 * time.Hour
	scrubPause = 50 * time.Millisecond
	// scrubPage is how many aggregates, or entries, are compared between two pauses.
	scrubPage = 256
	// scrubAgain is after how long what differs is looked at once more: streams that are erased differ until their places were, too.
	scrubAgain = time.Minute
)

// errEvents is that events cannot be read. It says nothing against places, which could not be made anew either.
var errEvents = errors.New("the events of an aggregate cannot be read")

// Run looks through all places from time to time, slowly, until the context ends. Those that are not what follows from events are read no more,
// and made anew.
func (s *Service) Run(ctx context.Context) error {
	s.Worker.Every(ctx, worker.Loop{Name: "place_scrub", Do: func(ctx context.Context) error {
		if err := s.Clock.Wait(ctx, s.Clock.Now().Add(s.Scrub)); err != nil {
			return err
		}
		return s.scrub(ctx)
	}})
	return nil
}

// scrub looks through the places of all environments that are known here.
func (s *Service) scrub(ctx context.Context) error {
	var all []j17.Tenant
	s.known.Range(func(t, _ any) bool {
		tenant, _ := t.(j17.Tenant)
		all = append(all, tenant)
		return true
	})
	slices.Sort(all)
	var errs []error
	for _, t := range all {
		errs = append(errs, s.scrubTenant(ctx, t))
	}
	return errors.Join(errs...)
}

// scrubTenant looks through the places of an environment, up to the first that differs.
func (s *Service) scrubTenant(ctx context.Context, t j17.Tenant) error {
	s.known.Delete(t) // what another process has begun anew is not compared before it is done
	k, err := s.present(ctx, t)
	if err != nil {
		if j17.CodeOf(err) == j17.CodeNoSpec {
			return nil
		}
		return err
	}
	for _, list := range k.slots {
		for _, sl := range list {
			if s.check(ctx, t, sl) != nil {
				continue
			}
			c := comparison{s: s, t: t, k: k, slot: sl}
			what, err := c.all(ctx)
			damage, damaged := errors.AsType[*store.CorruptionError](err)
			switch {
			case damaged && !errors.Is(err, errEvents):
				what = damage.Error()
			case err != nil:
				return err
			case what == "":
				continue
			}
			return s.replace(ctx, t, []*slot{sl}, what)
		}
	}
	return nil
}

// comparison compares a slot with what follows from events.
type comparison struct {
	s    *Service
	t    j17.Tenant
	k    *known
	slot *slot
}

// all compares all aggregates and all entries. It says what differs, "" for nothing.
func (c *comparison) all(ctx context.Context) (what string, err error) {
	for after := ""; ; {
		ids, err := c.s.Store.Streams(ctx, c.t, c.slot.typ, after, scrubPage)
		if err != nil {
			return "", fmt.Errorf("%w: %w", errEvents, err)
		}
		for _, id := range ids {
			if what, err := c.twice(ctx, func() (string, error) { return c.aggregate(ctx, id) }); what != "" || err != nil {
				return what, err
			}
		}
		if len(ids) < scrubPage {
			break
		}
		after = ids[len(ids)-1]
		if err := c.s.Clock.Wait(ctx, c.s.Clock.Now().Add(scrubPause)); err != nil {
			return "", err
		}
	}
	for keys := store.Prefix(c.slot.ID + "/"); ; {
		items, err := c.s.Store.Scan(ctx, c.t, cells, keys, scrubPage)
		if err != nil {
			return "", err
		}
		for i := range items {
			if what, err := c.twice(ctx, func() (string, error) { return c.entry(ctx, items[i].Key) }); what != "" || err != nil {
				return what, err
			}
		}
		if len(items) < scrubPage {
			return "", nil
		}
		keys = keys.After(items[len(items)-1].Key)
		if err := c.s.Clock.Wait(ctx, c.s.Clock.Now().Add(scrubPause)); err != nil {
			return "", err
		}
	}
}

// twice compares what differs once more after a while.
func (c *comparison) twice(ctx context.Context, compare func() (string, error)) (string, error) {
	what, err := compare()
	if what == "" || err != nil {
		return "", err
	}
	if err := c.s.Clock.Wait(ctx, c.s.Clock.Now().Add(scrubAgain)); err != nil {
		return "", err
	}
	return compare()
}

// record returns the record of an aggregate, the zero Item for none.
func (c *comparison) record(ctx context.Context, id string) (store.Item, error) {
	item, err := c.s.Store.Get(ctx, c.t, places, c.slot.key(id))
	if errors.Is(err, store.ErrNotFound) {
		return store.Item{}, nil
	}
	return item, err
}

// still compares something with a record that does not change meanwhile: what is true then was so at one moment.
func (c *comparison) still(ctx context.Context, id string, compare func(store.Item) (string, error)) (string, error) {
	for range maxOvertaken {
		item, err := c.record(ctx, id)
		if err != nil {
			return "", err
		}
		what, err := compare(item)
		if what == "" || err != nil {
			return "", err
		}
		again, err := c.record(ctx, id)
		if err != nil || again.Rev == item.Rev {
			return what, err
		}
	}
	return "", nil // it moves all the time: the next look will tell
}

// aggregate says in what the record of an aggregate differs from its events, and its entries from the record.
func (c *comparison) aggregate(ctx context.Context, id string) (string, error) {
	return c.still(ctx, id, func(item store.Item) (string, error) {
		want, err := c.s.last(ctx, c.t, c.k.decider.Types[c.slot.typ], c.slot, id)
		if err != nil {
			return "", fmt.Errorf("%w: %w", errEvents, err)
		}
		if want != nil && want.Point == nil && want.Shape == nil {
			want = nil
		}
		var have *decider.Location
		if item.Rev != 0 {
			if have, err = readRecord(&item); err != nil {
				return "", err
			}
		}
		if !equal(have, want) {
			return "the place of " + c.slot.key(id) + " is not that of its last event with one", nil
		}
		if have == nil {
			return "", nil
		}

		// The entries by which it is found.
		keys, _, err := store.ReadEntries(item.Value)
		if err != nil {
			return "", err
		}
		if should, _, _ := store.ReadEntries(c.slot.record(id, want).Value); len(keys) == 0 || want.Point != nil && !slices.EqualFunc(keys, should, bytes.Equal) {
			return "the record of " + c.slot.key(id) + " does not have its entries", nil
		}
		for _, key := range keys {
			_, err := c.s.Store.Get(ctx, c.t, cells, string(key))
			if errors.Is(err, store.ErrNotFound) {
				return "an entry of " + c.slot.key(id) + " is missing", nil
			}
			if err != nil {
				return "", err
			}
		}
		return "", nil
	})
}

// equal reports whether two locations are the same one; nil is nowhere.
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

// entryParts is how many parts the key of an entry has; the last one is the id.
const entryParts = 4

// entry says whether an entry is none of the aggregate that it names.
func (c *comparison) entry(ctx context.Context, key string) (string, error) {
	parts := strings.SplitN(key, "/", entryParts)
	if len(parts) < entryParts {
		return "", &store.CorruptionError{Where: "an entry of places", Err: errRecord}
	}
	id := parts[entryParts-1]
	return c.still(ctx, id, func(item store.Item) (string, error) {
		if item.Rev != 0 {
			keys, _, err := store.ReadEntries(item.Value)
			if err != nil || slices.ContainsFunc(keys, func(k []byte) bool { return string(k) == key }) {
				return "", err
			}
		}
		_, err := c.s.Store.Get(ctx, c.t, cells, key)
		if errors.Is(err, store.ErrNotFound) {
			return "", nil // it has gone with a move
		}
		return "there is an entry that is none of " + c.slot.key(id), err
	})
}
