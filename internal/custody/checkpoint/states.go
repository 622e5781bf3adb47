package checkpoint

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/fold"
	"j17/internal/storage/store"
)

// States are aggregates as they are at one moment.
type States struct {
	s *Service
	t j17.Tenant
	m *fold.Moment
	// types are those of the aggregates, typed reports that a single type was requested; only is the only aggregate, if
	// it is not the zero key.
	types []string
	typed bool
	only  j17.Key
}

// State is the state of one aggregate.
type State struct {
	fold.Loaded
	// Line is its line in an export: a JSON object. It is valid until the next step.
	Line []byte
	// begins is the offset of the state in the line.
	begins int
}

// States returns the aggregates of a type, or for "" those of all types, as they are now.
func (s *Service) States(ctx context.Context, t j17.Tenant, aggregateType string) (*States, error) {
	x, err := s.present(ctx, t)
	if err != nil || aggregateType == "" {
		return x, err
	}
	if _, err := x.m.Decider().AggregateType(aggregateType); err != nil {
		return nil, err
	}
	x.types, x.typed = []string{aggregateType}, true
	return x, nil
}

// present returns all aggregates as they are now.
func (s *Service) present(ctx context.Context, t j17.Tenant) (*States, error) {
	now, err := s.Store.Moment(ctx, t)
	if err != nil {
		return nil, store.UserError(err)
	}
	at := now.Position()
	now.Close()
	m, err := s.Engine.Moment(t, at)
	if err != nil {
		return nil, err
	}
	return &States{s: s, t: t, m: m, types: slices.Sorted(maps.Keys(m.Decider().Types))}, nil
}

// one leaves out all aggregates but one, which must have events.
func (x *States) one(ctx context.Context, key j17.Key) error {
	has, err := x.m.Versions(ctx, []j17.Key{key})
	if err != nil {
		return err
	}
	if has[0].Length == 0 {
		return j17.Errorf(j17.CodeAggregateNotFound, "Aggregate not found")
	}
	x.only = key
	return nil
}

// Position is that of the last event in the states.
func (x *States) Position() j17.StreamID { return x.m.At() }

const (
	// idPage is how many ids are listed at a time, loadedAtOnce how many aggregates are loaded in parallel: as many as
	// may have large states without filling the memory.
	idPage       = 256
	loadedAtOnce = 4
)

// All yields the states, in the order of types and, within each, of ids.
func (x *States) All(ctx context.Context) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		err := x.pages(ctx, func(keys []j17.Key) (bool, error) { return x.load(ctx, keys, yield) })
		if err != nil {
			yield(State{}, err)
		}
	}
}

// pages calls do with the keys of the aggregates, some at a time, until it returns false.
func (x *States) pages(ctx context.Context, do func(keys []j17.Key) (bool, error)) error {
	if x.only != (j17.Key{}) {
		_, err := do([]j17.Key{x.only})
		return err
	}
	return x.s.streams(ctx, x.t, x.types, "", do)
}

// streams calls do with the keys of all streams of some types, in their order, until it returns false; of the first
// type only with those after an id.
func (s *Service) streams(
	ctx context.Context, t j17.Tenant, types []string, after string, do func(keys []j17.Key) (bool, error),
) error {
	keys := make([]j17.Key, 0, idPage)
	for _, typ := range types {
		for more := true; more; {
			if err := ctx.Err(); err != nil {
				return err
			}
			ids, err := s.Store.Streams(ctx, t, typ, after, idPage)
			if err != nil {
				return store.UserError(err)
			}
			if more = len(ids) == idPage; len(ids) == 0 {
				break
			}
			after = ids[len(ids)-1]
			keys = keys[:0]
			for _, id := range ids {
				keys = append(keys, j17.Key{Type: typ, ID: id})
			}
			if on, err := do(keys); err != nil || !on {
				return err
			}
		}
		after = ""
	}
	return nil
}

// load yields the states of those aggregates of a page that have events at the moment.
func (x *States) load(ctx context.Context, keys []j17.Key, yield func(State, error) bool) (bool, error) {
	var line []byte
	for some := range slices.Chunk(keys, loadedAtOnce) {
		loaded, err := x.wait(ctx, some)
		if err != nil {
			return false, err
		}
		for i := range loaded {
			l := &loaded[i]
			if l.Version.Length == 0 {
				continue
			}
			if l.Names, err = x.m.Names(ctx, l.Key); err != nil {
				return false, err
			}
			st := State{Loaded: *l}
			st.Line, st.begins = appendLine(line[:0], l)
			line = st.Line
			if !yield(st, nil) {
				return false, nil
			}
		}
	}
	return true, nil
}

// wait loads aggregates, however long folding them takes. The request takes turns with others.
func (x *States) wait(ctx context.Context, keys []j17.Key) ([]fold.Loaded, error) {
	for {
		loaded, err := x.m.Load(ctx, keys, false)
		if j17.CodeOf(err) != j17.CodeStateNotReady || ctx.Err() != nil {
			return loaded, err
		}
		work.New(ctx, work.Replay).Rest()
	}
}

// appendLine appends the line of an aggregate, and returns the offset of its state.
func appendLine(b []byte, l *fold.Loaded) (line []byte, begins int) {
	b = append(b, `{"key":"`...)
	b = append(b, l.Key.String()...)
	b = append(b, `","length":`...)
	b = strconv.AppendUint(b, l.Length, 10)
	b = append(b, `,"state":`...)
	begins = len(b)
	b = append(b, l.JSON...)
	if l.Handle != "" {
		b = value.AppendString(append(b, `,"handle":`...), l.Handle)
	}
	if l.PublicID != "" {
		b = value.AppendString(append(b, `,"public_id":`...), l.PublicID)
	}
	return append(b, '}'), begins
}
