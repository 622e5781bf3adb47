package engine

import (
	"context"
	"slices"
	"strings"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// maxCounted is how many aggregates of a type are counted, maxCountedInAll how many of all types that are asked for at once.
const (
	maxCounted      = 10_000
	maxCountedInAll = 200_000
)

// TypeCount is how many aggregates a type has; More tells that there are more than were counted.
type TypeCount struct {
	Count int
	More  bool
}

// Counts counts the aggregates of types, declared or not.
func (e *Engine) Counts(ctx context.Context, t j17.Tenant, types []string) ([]TypeCount, error) {
	counts, left := make([]TypeCount, len(types)), maxCountedInAll
	for i, typ := range types {
		limit := max(1, min(maxCounted, left))
		ids, err := e.store.Streams(ctx, t, typ, "", limit+1)
		if err != nil {
			return nil, store.UserError(err)
		}
		counts[i] = TypeCount{Count: min(limit, len(ids)), More: len(ids) > limit}
		left -= len(ids)
	}
	return counts, nil
}

// Aggregate is an aggregate in a list.
type Aggregate struct {
	ID     string
	Names  j17.Names
	Length uint64
	// UpdatedAt is the time of its last event.
	UpdatedAt time.Time
}

// Aggregates returns up to count aggregates of a type whose ids, handles or public ids begin with a prefix, by their ids: ids greater than
// start. next is the start of what follows, "" where nothing does. Those that are found by a name come on the first page only, and at most count
// of them. The type need not be declared, if it has aggregates.
func (e *Engine) Aggregates(ctx context.Context, t j17.Tenant, typ, prefix, start string, count int) (found []Aggregate, next string, err error) {
	known, err := e.KnowsType(ctx, t, typ)
	if err != nil {
		return nil, "", err
	}
	if !known {
		return nil, "", j17.Errorf(j17.CodeUnknownType, "There is no aggregate type '%s', and no aggregate of one", j17.Printable(typ))
	}
	d, err := e.deployed(t)
	if err != nil {
		return nil, "", err
	}

	// Those whose ids begin so.
	after := max(start, prefix)
	ids, err := e.store.Streams(ctx, t, typ, after, count+1)
	if err != nil {
		return nil, "", store.UserError(err)
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return !strings.HasPrefix(id, prefix) })
	if prefix != "" && start < prefix { // the id that is the prefix itself
		ids = slices.Insert(ids, 0, prefix)
	}

	// Those whose names do.
	if prefix != "" && start == "" && d.Types[typ] != nil {
		named, err := e.named(ctx, t, d, typ, prefix, count)
		if err != nil {
			return nil, "", err
		}
		ids = append(ids, named...)
		slices.Sort(ids)
		ids = slices.Compact(ids)
	}

	// What they are, as far as they are there.
	keys := make([]j17.Key, len(ids))
	for i, id := range ids {
		keys[i] = j17.Key{Type: typ, ID: id}
	}
	heads, err := e.store.Heads(ctx, t, keys)
	if err != nil {
		return nil, "", store.UserError(err)
	}
	for i, head := range heads {
		if head.Length == 0 {
			continue
		}
		if len(found) == count {
			return found, found[count-1].ID, nil
		}
		a := Aggregate{ID: ids[i], Length: head.Length, UpdatedAt: time.Unix(head.LastTime, 0).UTC()}
		if d.Types[typ] != nil {
			if a.Names, err = e.names.of(ctx, t, d.Decider, keys[i]); err != nil {
				return nil, "", err
			}
		}
		found = append(found, a)
	}
	return found, "", nil
}

// named returns the ids of up to count aggregates of a type whose handles or public ids begin with a prefix.
func (e *Engine) named(ctx context.Context, t j17.Tenant, d *deployed, typ, prefix string, count int) (ids []string, err error) {
	look := func(space store.Space, prefix string) error {
		items, err := e.names.store.Scan(ctx, t, space, store.Prefix(prefix), 4*count)
		if err != nil {
			return store.UserError(err)
		}
		for _, item := range items {
			if owner, id, ok := strings.Cut(string(item.Value), ":"); ok && owner == typ && len(ids) < count {
				ids = append(ids, id)
			}
		}
		return nil
	}
	if d.Types[typ].Handle != "" && strings.HasPrefix(prefix, string(d.Types[typ].Handle)+"_") {
		err = look(handleIndex, prefix)
	}
	if number, ok := strings.CutPrefix(prefix, d.ProjectKey+"-"); err == nil && ok && d.ProjectKey != "" && d.Types[typ].Sequence {
		err = look(numberIndex, number)
	}
	return ids, err
}
