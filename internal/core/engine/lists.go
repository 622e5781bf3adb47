package engine

import (
	"context"
	"strings"
	"time"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/storage/store"
)

// maxCounted bounds the counted aggregates of a type, maxCountedInAll those of all requested types together.
const (
	maxCounted      = 10_000
	maxCountedInAll = 200_000
)

// TypeCount is how many aggregates a type has; More reports that there are more than were counted.
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

// Aggregates returns up to count aggregates of a type whose ids, handles or public ids begin with a prefix: first those
// whose ids do, then those whose handles do, then those whose public ids do, each group sorted by these. start is the
// id or name with which an earlier page ended, "" for the first page. next is the start of the next page, "" if there
// is none. If only few of many names with the prefix belong to the type, a page may have fewer than count aggregates,
// or none, and still be followed by others. The type need not be declared, if it has aggregates.
func (e *Engine) Aggregates(
	ctx context.Context, t j17.Tenant, typ, prefix, start string, count int,
) (found []Aggregate, next string, err error) {
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

	// Look for one more than the page has, to know whether there are more. A page that begins after a name has no ids.
	l := &listing{e: e, ctx: ctx, tenant: t, d: d, typ: typ, prefix: prefix, most: count + 1}
	names := l.namesFrom(start)
	if len(names) == 0 || names[0].start == "" {
		if err := l.ids(start); err != nil {
			return nil, "", err
		}
	}
	for _, n := range names {
		if err := l.named(n); err != nil {
			return nil, "", err
		}
	}
	if len(l.found) > count {
		l.found = l.found[:count]
		l.next = l.found[count-1].at
	}

	// Load the aggregates that exist.
	keys := make([]j17.Key, len(l.found))
	for i := range l.found {
		keys[i] = j17.Key{Type: typ, ID: l.found[i].id}
	}
	heads, err := e.store.Heads(ctx, t, keys)
	if err != nil {
		return nil, "", store.UserError(err)
	}
	for i, head := range heads {
		if head.Length == 0 {
			continue
		}
		a := Aggregate{ID: keys[i].ID, Length: head.Length, UpdatedAt: time.Unix(head.LastTime, 0).UTC()}
		if d.Types[typ] != nil {
			if a.Names, err = e.names.of(ctx, t, d.Decider, keys[i]); err != nil {
				return nil, "", err
			}
		}
		found = append(found, a)
	}
	return found, l.next, nil
}

// maxNames bounds the names that a page reads: names of other types lie between those of its type.
const maxNames = 10_000

// listing collects a page of aggregates.
type listing struct {
	e           *Engine
	ctx         context.Context
	tenant      j17.Tenant
	d           *deployed
	typ, prefix string
	// most bounds the aggregates that are collected.
	most  int
	found []listed
	// next is where the next page begins if this one ended early.
	next string
	// looked counts the names that were read.
	looked int
}

// listed is an aggregate of a page; at is the id or the name by which it was found.
type listed struct{ id, at string }

// nameRange is the range of names of one kind that begin with a prefix, after start.
type nameRange struct {
	space store.Space
	keys  store.Range
	start string
	// text returns the name for a key of the space.
	text func(key string) string
}

// namesFrom returns the ranges of names for a page that begins at start.
func (l *listing) namesFrom(start string) (all []nameRange) {
	typ := l.d.Types[l.typ]
	if typ == nil || l.prefix == "" {
		return nil
	}
	if lead := string(typ.Handle) + "_"; typ.Handle != "" && alike(lead, l.prefix) {
		r := nameRange{
			space: handleIndex, keys: store.Prefix(max(lead, l.prefix)), text: func(key string) string { return key },
		}
		if ident.IsHandle(start) {
			r.start, r.keys = start, r.keys.After(start)
		}
		all = append(all, r)
	}
	if lead := l.d.ProjectKey + "-"; typ.Sequence && l.d.ProjectKey != "" && alike(lead, l.prefix) {
		// All numbers; the space has other keys too.
		r := nameRange{space: numberIndex, keys: store.Range{From: "0", To: ":"}, text: l.d.PublicID}
		if digits := strings.TrimPrefix(l.prefix, lead); len(l.prefix) > len(lead) {
			r.keys = store.Prefix(digits)
		}
		if number, ok := l.d.Number(start); ok {
			r.start, r.keys = start, r.keys.After(number)
		}
		all = append(all, r)
	}
	return all
}

// alike reports whether one of two texts begins with the other.
func alike(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

// ids finds aggregates whose ids begin with the prefix.
func (l *listing) ids(start string) error {
	if l.prefix != "" && start < l.prefix { // the id that is the prefix itself
		heads, err := l.e.store.Heads(l.ctx, l.tenant, []j17.Key{{Type: l.typ, ID: l.prefix}})
		if err != nil {
			return store.UserError(err)
		}
		if heads[0].Length > 0 {
			l.found = append(l.found, listed{l.prefix, l.prefix})
		}
	}
	ids, err := l.e.store.Streams(l.ctx, l.tenant, l.typ, max(start, l.prefix), l.most)
	if err != nil {
		return store.UserError(err)
	}
	for _, id := range ids {
		if strings.HasPrefix(id, l.prefix) && len(l.found) < l.most {
			l.found = append(l.found, listed{id, id})
		}
	}
	return nil
}

// named finds aggregates whose names are in a range.
func (l *listing) named(n nameRange) error {
	for len(l.found) < l.most && l.next == "" {
		size := max(min(4*l.most, maxNames-l.looked), 1)
		items, err := l.e.names.store.Scan(l.ctx, l.tenant, n.space, n.keys, size)
		if err != nil {
			return store.UserError(err)
		}
		for _, item := range items {
			owner, id, ok := strings.Cut(string(item.Value), ":")
			if ok && owner == l.typ && !strings.HasPrefix(id, l.prefix) {
				l.found = append(l.found, listed{id, n.text(item.Key)})
			}
		}
		if len(items) < size {
			return nil
		}
		last := items[len(items)-1].Key
		n.keys = n.keys.After(last)
		if l.looked += len(items); l.looked >= maxNames && len(l.found) < l.most {
			l.next = n.text(last)
		}
	}
	return nil
}
