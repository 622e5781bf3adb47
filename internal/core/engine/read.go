package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"maps"
	"slices"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/core/decider"
	"j17/internal/core/fold"
	"j17/internal/core/upcast"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Moment returns the moment of a position, for instance that of a store.Moment: all events up to the position, and none
// after it.
func (e *Engine) Moment(t j17.Tenant, at j17.StreamID) (*fold.Moment, error) {
	d, err := e.deployed(t)
	if err != nil {
		return nil, err
	}
	return e.states.Moment(t, d.Decider, at), nil
}

// Adopt lets folds of an aggregate begin with a state that was folded before. A state that was folded with handlers
// other than the deployed ones is ignored.
func (e *Engine) Adopt(ctx context.Context, t j17.Tenant, key j17.Key, f *decider.State, generation uint64) error {
	d, err := e.deployed(t)
	if err != nil || d.Types[key.Type] == nil {
		return err
	}
	return e.states.Adopt(ctx, t, d.Program(key.Type), key, f, generation)
}

// LoadOptions select a state of an aggregate.
type LoadOptions struct {
	// Replay folds from the first event on, whatever is cached.
	Replay bool
	// Until, if not nil, leaves out events later than that Unix second.
	Until *int64
	// Length, if not nil, leaves out all events after the first Length.
	Length *uint64
}

func notFound() error { return j17.Errorf(j17.CodeAggregateNotFound, "Aggregate not found") }

// locate resolves the id or name that a caller gives for an aggregate, and returns its key and durable head.
func (e *Engine) locate(
	ctx context.Context, t j17.Tenant, aggregateType, id string,
) (*deployed, j17.Key, store.Head, error) {
	d, err := e.deployed(t)
	if err != nil {
		return nil, j17.Key{}, store.Head{}, err
	}
	if _, err := d.AggregateType(aggregateType); err != nil {
		return nil, j17.Key{}, store.Head{}, err
	}
	key, err := e.names.resolve(ctx, t, d, aggregateType, id)
	if err != nil {
		return nil, j17.Key{}, store.Head{}, err
	}
	heads, err := e.store.Heads(ctx, t, []j17.Key{key})
	if err != nil {
		return nil, j17.Key{}, store.Head{}, store.UserError(err)
	}
	return d, key, heads[0], nil
}

// Load returns the state of an aggregate. Singletons always exist; for other aggregates without events, and any
// aggregate without events in the requested part of its history, the error is CodeAggregateNotFound.
func (e *Engine) Load(ctx context.Context, t j17.Tenant, aggregateType, id string, o LoadOptions) (fold.State, error) {
	d, key, head, err := e.locate(ctx, t, aggregateType, id)
	if err != nil {
		return fold.State{}, err
	}

	// Find how many events to fold.
	e.states.CountRead()
	length := head.Length
	past := false
	if o.Length != nil && *o.Length < length {
		length, past = *o.Length, true
	}
	if o.Until != nil && head.LastTime > *o.Until {
		past = true
		if length, err = e.states.LengthAt(ctx, t, key, length, *o.Until); err != nil {
			return fold.State{}, store.UserError(err)
		}
	}
	if length == 0 {
		if o.Until == nil && o.Length == nil && d.IDs.IsSingleton(key.ID) {
			return fold.State{
				Key: key, Data: value.ObjectValue(), JSON: []byte("{}"), EntityTag: d.Program(key.Type).EntityTag(0, 0),
			}, nil
		}
		return fold.State{}, notFound()
	}

	// Load the state and the names.
	s, err := e.states.State(
		ctx, t, d.Program(key.Type), key, fold.Version{Length: length, Generation: head.Generation}, past, o.Replay,
	)
	if err != nil {
		return fold.State{}, store.UserError(err)
	}
	state := fold.State{
		Key: key, Data: s.Data, JSON: s.JSON, Length: s.Length,
		EntityTag: d.Program(key.Type).EntityTag(s.Length, s.Generation),
	}
	if decider.Named(d.Types[key.Type]) {
		state.Names, err = e.Names(ctx, t, d.Decider, key)
	}
	return state, err
}

// Length returns the number of events of an aggregate, 0 when there are none.
func (e *Engine) Length(ctx context.Context, t j17.Tenant, aggregateType, id string) (uint64, error) {
	_, _, head, err := e.locate(ctx, t, aggregateType, id)
	return head.Length, err
}

// Events yields up to count events of an aggregate after a position, in order, each in the newest generation of its
// type. The bytes of an event are valid until the next step.
func (e *Engine) Events(
	ctx context.Context, t j17.Tenant, aggregateType, id string, after j17.StreamID, count int,
) (iter.Seq2[*j17.Event, error], error) {
	return e.events(ctx, t, aggregateType, id, after, count, e.shown)
}

// StoredEvents is Events for events as they are stored.
func (e *Engine) StoredEvents(
	ctx context.Context, t j17.Tenant, aggregateType, id string, after j17.StreamID, count int,
) (iter.Seq2[*j17.Event, error], error) {
	return e.events(ctx, t, aggregateType, id, after, count, nil)
}

func (e *Engine) events(
	ctx context.Context, t j17.Tenant, aggregateType, id string, after j17.StreamID, count int, shown *upcast.Reader,
) (iter.Seq2[*j17.Event, error], error) {
	_, key, head, err := e.locate(ctx, t, aggregateType, id)
	if err != nil {
		return nil, err
	}
	from := uint64(1)
	if !after.IsZero() {
		if from, err = e.store.VersionAfter(ctx, t, key, after); err != nil {
			return nil, store.UserError(err)
		}
	}
	to := min(head.Length, from+uint64(max(count, 1))-1)
	return func(yield func(*j17.Event, error) bool) {
		if from > to {
			return
		}
		for ev, err := range shown.Each(ctx, t, e.store.ReadStream(ctx, t, key, from, to)) {
			if !yield(ev, store.UserError(err)) {
				return
			}
		}
	}, nil
}

// IDs returns up to count ids of aggregates of one type in byte order, after the id given, and whether there are more.
func (e *Engine) IDs(
	ctx context.Context, t j17.Tenant, aggregateType, after string, count int,
) (ids []string, more bool, err error) {
	d, err := e.deployed(t)
	if err != nil {
		return nil, false, err
	}
	if _, err := d.AggregateType(aggregateType); err != nil {
		return nil, false, err
	}
	ids, err = e.store.Streams(ctx, t, aggregateType, after, count+1)
	if err != nil {
		return nil, false, store.UserError(err)
	}
	if len(ids) > count {
		return ids[:count], true, nil
	}
	return ids, false, nil
}

// HasType reports whether the tenant's spec has an aggregate type of that name.
func (e *Engine) HasType(t j17.Tenant, aggregateType string) bool {
	c := e.Spec(t)
	return c != nil && c.Types[aggregateType] != nil
}

// Singleton returns the states that a declared singleton has, one for each aggregate type under which it has events. It
// returns false if the spec declares no singleton of that name.
func (e *Engine) Singleton(ctx context.Context, t j17.Tenant, name string) ([]fold.State, bool, error) {
	d, err := e.deployed(t)
	if err != nil {
		return nil, false, err
	}
	if name == ident.Global || !d.IDs.IsSingleton(name) {
		return nil, false, nil
	}
	var states []fold.State
	for _, typ := range slices.Sorted(maps.Keys(d.Types)) {
		s, err := e.Load(ctx, t, typ, name, LoadOptions{})
		if err != nil {
			return nil, false, err
		}
		if s.Length > 0 {
			states = append(states, s)
		}
	}
	return states, true, nil
}

// Types lists the aggregate types of a tenant's spec in byte order.
func (e *Engine) Types(t j17.Tenant) ([]string, error) {
	d, err := e.deployed(t)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(d.Types)), nil
}

// Key returns the key of the aggregate that a caller names, whether or not it has events.
func (e *Engine) Key(ctx context.Context, t j17.Tenant, aggregateType, id string) (j17.Key, error) {
	_, key, _, err := e.locate(ctx, t, aggregateType, id)
	return key, err
}

// Agent returns an actor or a target in the form in which events have it, by the rules of the tenant's spec. Its type
// need not be declared: older events may have it.
func (e *Engine) Agent(t j17.Tenant, a j17.Agent) (j17.Agent, error) {
	d, err := e.deployed(t)
	if err != nil {
		return a, err
	}
	return d.Agent(a)
}

// KnowsType reports whether the tenant's spec has an aggregate type of that name, or aggregates of it have events.
func (e *Engine) KnowsType(ctx context.Context, t j17.Tenant, aggregateType string) (bool, error) {
	d, err := e.deployed(t)
	if err != nil || d.Types[aggregateType] != nil {
		return err == nil, err
	}
	ids, err := e.store.Streams(ctx, t, aggregateType, "", 1)
	return len(ids) > 0, store.UserError(err)
}

// HasEvent reports whether any aggregate type of the tenant's spec has an event type of that name.
func (e *Engine) HasEvent(t j17.Tenant, eventType string) bool {
	c := e.Spec(t)
	if c == nil {
		return false
	}
	for _, typ := range c.Types {
		if typ.Events[eventType] != nil {
			return true
		}
	}
	return false
}

// Pattern reads a pattern of event types, "type.event", "type.*" or "*". If neither the tenant's spec nor any stored
// event has it, the error is CodeInvalidField; known then reports whether the aggregate type is known, so that an
// earlier spec may have had the event type.
func (e *Engine) Pattern(ctx context.Context, t j17.Tenant, text string) (p spec.Pattern, known bool, err error) {
	d, err := e.deployed(t)
	if err != nil {
		return p, false, err
	}
	p, refused := d.Pattern(text)
	if refused == nil || p.AggregateType == "" {
		return p, false, refused
	}
	known, err = e.KnowsType(ctx, t, p.AggregateType)
	switch {
	case err != nil:
		return p, false, err
	case known && p.EventType == "":
		return p, true, nil
	default:
		return p, known, refused
	}
}

// TagsDeclared returns a fingerprint that changes whenever a deployment changes which events have the given tags, even
// if a later one changes it back: events written in between are tagged by another rule.
func (e *Engine) TagsDeclared(t j17.Tenant, given []string) (declared [32]byte) {
	d, err := e.deployed(t)
	if err != nil {
		return declared
	}
	h := sha256.New()
	for _, name := range decider.TagNames(given) {
		if tag := d.TagNames[name]; tag != nil {
			h.Write(tag.Fingerprint[:])
		}
		_ = binary.Write(h, binary.BigEndian, d.retagged[name]) // a hash returns no error
	}
	return [32]byte(h.Sum(nil))
}

// Tags returns requested tags in the form in which events have them. The error is CodeInvalidField for a tag that no
// event can have, and CodeIndexNotReady if older events do not have one yet.
func (e *Engine) Tags(ctx context.Context, t j17.Tenant, given []string) ([]string, error) {
	d, err := e.deployed(t)
	if err != nil {
		return nil, err
	}
	tags := make([]string, len(given))
	for i, text := range given {
		if tags[i], err = d.Tag(text); err != nil {
			return nil, err
		}
	}
	return tags, d.indexedTags(ctx, tags)
}
