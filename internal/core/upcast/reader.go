package upcast

import (
	"context"
	"iter"
	"slices"

	"j17"
	"j17/internal/base/work"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
	"j17/internal/storage/store"
)

// Reader shows stored events as the specs in force read them, to whoever shows events to others. Code that computes
// under a spec of its own, such as a fold, calls Of or Read with that. A nil Reader shows events as they are stored.
type Reader struct {
	specs func(t j17.Tenant) (*spec.Compiled, *Tried)
}

// NewReader returns a reader of events under the specs that a function returns, nil for a tenant that has none, with
// what was tried under them.
func NewReader(specs func(t j17.Tenant) (*spec.Compiled, *Tried)) *Reader { return &Reader{specs} }

// Show returns an event as it is read: see Of. It is valid as long as the stored one. With an error of the event
// itself, it returns what is known of the event: the type that it would have, and no bytes, data and metadata.
func (r *Reader) Show(ctx context.Context, t j17.Tenant, ev *j17.Event) (*j17.Event, error) {
	typ, tried := r.typeOf(t, ev.Key.Type)
	stored := ev.AsStored()
	number, _, _ := stored.Generation()
	if asStored(typ, stored.Type, number) {
		return stored, nil
	}
	shown, err := show(typ, tried, stored, work.New(ctx, work.Replay))
	if Failure(err) != nil {
		shown = &j17.Event{
			StreamID: stored.StreamID, Key: stored.Key, Version: stored.Version,
			Type:      typ.Events[stored.Type].Newest().Name,
			Timestamp: stored.Timestamp, Stored: stored,
		}
	}
	return shown, err
}

// show is Of, without the comparison for what was tried.
func show(typ *spec.AggregateType, tried *Tried, ev *j17.Event, b *work.Budget) (*j17.Event, error) {
	stored := ev.AsStored()
	number, _, _ := stored.Generation()
	plan := covering(typ, tried, stored, number)
	if plan != nil {
		if shown := edited(typ, plan, stored); shown != nil {
			return shown, nil
		}
	}
	r, err := read(typ, stored, "", plan != nil, b)
	if err != nil {
		return nil, err
	}
	return r.shown(), nil
}

// covering returns the plan that an event takes, nil where it was not tried or takes none.
func covering(typ *spec.AggregateType, tried *Tried, stored *j17.Event, generation int) *tick.Plan {
	if typ == nil || typ.Events[stored.Type] == nil {
		return nil
	}
	plan := typ.Events[stored.Type].Plan(generation)
	if plan == nil || !tried.Covers(plan, stored.StreamID) {
		return nil
	}
	return plan
}

// edited returns an event that was tried as others are shown it, made of the stored text alone; nil where that is not
// enough.
func edited(typ *spec.AggregateType, plan *tick.Plan, stored *j17.Event) *j17.Event {
	var buf [1 << 10]byte
	text, ok := plan.AppendText(buf[:0], stored.Data)
	if !ok {
		return nil
	}
	r := reading{stored: stored, newest: typ.Events[stored.Type].Newest()}
	r.generation, r.at, r.end = stored.Generation()
	return r.shownAs(text)
}

// Type returns the type that an event is read as.
func (r *Reader) Type(t j17.Tenant, ev *j17.Event) string {
	stored := ev.AsStored()
	if typ, _ := r.typeOf(t, stored.Key.Type); typ != nil && typ.Events[stored.Type] != nil {
		return typ.Events[stored.Type].Newest().Name
	}
	return stored.Type
}

// Each shows the events of an iteration of the store. An event that cannot be read ends it with its error.
func (r *Reader) Each(
	ctx context.Context, t j17.Tenant, events iter.Seq2[*j17.Event, error],
) iter.Seq2[*j17.Event, error] {
	return func(yield func(*j17.Event, error) bool) {
		b := work.New(ctx, work.Replay)
		for ev, err := range events {
			if err == nil {
				b.Renew(work.Replay)
				typ, tried := r.typeOf(t, ev.Key.Type)
				ev, err = show(typ, tried, ev, b)
			}
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

// Spec returns the spec under which events of a tenant are shown, nil for none. Events that were shown under another
// one are outdated.
func (r *Reader) Spec(t j17.Tenant) *spec.Compiled {
	if r == nil {
		return nil
	}
	s, _ := r.specs(t)
	return s
}

func (r *Reader) typeOf(t j17.Tenant, aggregateType string) (*spec.AggregateType, *Tried) {
	if r == nil {
		return nil, nil
	}
	s, tried := r.specs(t)
	if s == nil {
		return nil, nil
	}
	return s.Types[aggregateType], tried
}

// Stored returns patterns that find, among stored events, all that are read as one of some patterns, and those stored
// under the names themselves.
func (r *Reader) Stored(t j17.Tenant, types []store.TypePattern) []store.TypePattern {
	return StoredTypes(r.Spec(t), types)
}

// StoredTypes is Reader.Stored for a spec, which may be nil.
func StoredTypes(s *spec.Compiled, types []store.TypePattern) []store.TypePattern {
	if s == nil {
		return types
	}
	all := slices.Clip(types)
	for _, p := range types {
		if et := s.EventType(p.Aggregate, p.Event); et != nil {
			for _, name := range et.ReadAs {
				all = append(all, store.TypePattern{Aggregate: p.Aggregate, Event: name.Name})
			}
		}
	}
	return all
}

// Fits reports whether a pattern selects an event that is shown: by its type, or by the name under which it is stored.
func Fits(p store.TypePattern, ev *j17.Event) bool {
	return p.Fits(ev.Key.Type, ev.Type) || ev.Stored != nil && p.Fits(ev.Key.Type, ev.Stored.Type)
}
