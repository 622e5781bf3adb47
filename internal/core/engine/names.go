package engine

import (
	"context"
	"errors"
	"strings"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/core/decider"
	"j17/internal/storage/store"
)

// The spaces of names. A space of names has an aggregate's name under its key, the index has the key under the name.
// numberLatest is the key in numberIndex of the highest number so far.
const (
	handles      store.Space = "identity.handle"
	handleIndex  store.Space = "identity.handle.index"
	numbers      store.Space = "identity.number"
	numberIndex  store.Space = "identity.number.index"
	numberLatest             = "latest"
)

// names reads the names of aggregates.
type names struct{ store Storage }

// Names returns the names of an aggregate.
func (e *Engine) Names(ctx context.Context, t j17.Tenant, d *decider.Decider, key j17.Key) (j17.Names, error) {
	return e.names.of(ctx, t, d, key)
}

// of returns the names of an aggregate.
func (n *names) of(ctx context.Context, t j17.Tenant, d *decider.Decider, key j17.Key) (j17.Names, error) {
	var id j17.Names
	typ := d.Types[key.Type]
	if typ.Handle != "" {
		v, err := n.name(ctx, t, handles, key.String())
		if err != nil {
			return id, err
		}
		id.Handle = v
	}
	if typ.Sequence {
		v, err := n.name(ctx, t, numbers, key.String())
		if err != nil {
			return id, err
		}
		if v != "" {
			id.PublicID = d.PublicID(v)
		}
	}
	return id, nil
}

// mintID returns an id for a new aggregate: a UUID of version 7 if the spec accepts those, else of version 4.
func mintID(mint *ident.Minter, d *deployed) string {
	if id := mint.UUIDv7(); acceptsID(d, id) {
		return id
	}
	return mint.UUIDv4()
}

// assign adds assignments of names for every aggregate of the unit that has none yet, those of the command's own
// aggregates first, in the order of its writes.
func (p *plan) assign(d *deployed, mint *ident.Minter) {
	var seen map[j17.Key]bool
	for i := range p.unit.Events {
		key := p.unit.Events[i].Key
		typ := d.Types[key.Type]
		if !decider.Named(typ) || seen[key] || i > 0 && key == p.unit.Events[i-1].Key {
			continue
		}
		if seen == nil {
			seen = map[j17.Key]bool{}
		}
		seen[key] = true
		if typ.Handle != "" {
			p.unit.Assign = append(p.unit.Assign, store.Assignment{
				Space: handles, Owner: key.String(), Index: handleIndex, Value: mint.Handle(typ.Handle),
			})
		}
		if typ.Sequence {
			p.unit.Assign = append(p.unit.Assign, store.Assignment{
				Space: numbers, Owner: key.String(), Index: numberIndex, Counter: numberLatest,
			})
		}
	}
}

// assigned returns the names that an aggregate of the command has after the commit, and the rest of the values, which
// belong to others.
func (d *deployed) assigned(aggregateType string, values []string) (j17.Names, []string) {
	var id j17.Names
	typ := d.Types[aggregateType]
	if typ.Handle != "" {
		id.Handle, values = values[0], values[1:]
	}
	if typ.Sequence {
		id.PublicID, values = d.PublicID(values[0]), values[1:]
	}
	return id, values
}

// name returns an item of a space of names, "" when there is none.
func (n *names) name(ctx context.Context, t j17.Tenant, space store.Space, key string) (string, error) {
	item, err := n.store.Get(ctx, t, space, key)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	return string(item.Value), store.UserError(err)
}

// Resolve returns the key of an aggregate by its id or one of its public names. An aggregate given by its id need not
// exist; the error is CodeUnknownType, CodeInvalidIdentifier or, for an unknown name, CodeAggregateNotFound.
func (e *Engine) Resolve(ctx context.Context, t j17.Tenant, aggregateType, id string) (j17.Key, error) {
	d, err := e.deployed(t)
	if err != nil {
		return j17.Key{}, err
	}
	if _, err := d.AggregateType(aggregateType); err != nil {
		return j17.Key{}, err
	}
	return e.names.resolve(ctx, t, d, aggregateType, id)
}

// resolve returns the key of an aggregate that a caller names. A handle or a public id, for an aggregate type that has
// them, must belong to an existing aggregate, else the error is CodeAggregateNotFound; anything else is an id.
func (n *names) resolve(ctx context.Context, t j17.Tenant, d *deployed, aggregateType, id string) (j17.Key, error) {
	key, _, err := n.lookUp(ctx, t, d, aggregateType, id)
	return key, err
}

// lookUp is resolve, and for an unknown name also returns a fence that holds as long as no aggregate has the name.
func (n *names) lookUp(
	ctx context.Context, t j17.Tenant, d *deployed, aggregateType, id string,
) (j17.Key, []store.Fence, error) {
	typ := d.Types[aggregateType]
	index, name := handleIndex, id
	number, numbered := d.Number(id)
	own := typ != nil && (typ.Sequence && numbered || typ.Handle != "" && ident.IsHandle(id))
	if numbered {
		index, name = numberIndex, number
	}
	if !own {
		key, err := d.Key(aggregateType, id)
		if err == nil || typ == nil || !ident.IsHandle(id) && !isPublicID(id) {
			return key, nil, err
		}
	}

	// Find the aggregate that has the name: one of this type, one of another type, or none.
	owner, err := n.name(ctx, t, index, name)
	if err != nil {
		return j17.Key{}, nil, err
	}
	ownerType, ownerID, ok := strings.Cut(owner, ":")
	switch {
	case !ok:
		return j17.Key{}, []store.Fence{{Space: index, Key: name}}, notFound()
	case ownerType != aggregateType: // a name stays with its aggregate
		return j17.Key{}, nil, j17.Errorf(j17.CodeAggregateNotFound, "Aggregate not found: '%s' is one of type '%s'", id, ownerType).At("key")
	default:
		return j17.Key{Type: ownerType, ID: ownerID}, nil, nil
	}
}

// isPublicID reports whether an id has the form of a public id, of this project or another.
func isPublicID(id string) bool {
	key, number, ok := strings.Cut(id, "-")
	upper := func(r rune) bool { return r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' }
	digit := func(r rune) bool { return r >= '0' && r <= '9' }
	return ok && key != "" && number != "" && (number[0] != '0' || number == "0") && !digit(rune(key[0])) &&
		!strings.ContainsFunc(key, func(r rune) bool { return !upper(r) }) &&
		!strings.ContainsFunc(number, func(r rune) bool { return !digit(r) })
}

func acceptsID(d *deployed, id string) bool {
	_, _, err := d.IDs.Check(id)
	return err == nil
}
