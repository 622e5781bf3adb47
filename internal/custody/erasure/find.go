package erasure

import (
	"context"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// foundAtOnce is how many events that name the aggregate are read between two writes of the progress.
const foundAtOnce = 1000

// roles are the ways in which events may name an aggregate: the tag by which such events are found, and the setting by
// which streams of a type are erased too.
func roles() []role {
	return []role{
		{j17.ActorTag, func(o *spec.OnTombstone) bool { return o.CascadeFromActor }},
		{j17.TargetTag, func(o *spec.OnTombstone) bool { return o.CascadeFromTarget }},
	}
}

type role struct {
	tag      func(j17.Agent) string
	cascades func(*spec.OnTombstone) bool
}

// types returns the aggregate types whose streams are erased too if one of their events names the aggregate in this
// role.
func (r *role) types(c *spec.Compiled) map[string]bool {
	types := map[string]bool{}
	if c == nil {
		return types
	}
	for name, typ := range c.Types {
		if typ.OnTombstone != nil && r.cascades(typ.OnTombstone) {
			types[name] = true
		}
	}
	return types
}

// name reads up to foundAtOnce events after a position that name an aggregate in a role, and returns the streams among
// them that are erased too, each once. upTo is the last position read; more reports whether there may be more after it.
func (s *Service) name(
	ctx context.Context, t j17.Tenant, who j17.Key, in role, types map[string]bool, after j17.StreamID,
) (found []j17.Key, upTo j17.StreamID, more bool, err error) {
	seen, n := map[j17.Key]bool{}, 0
	upTo = after
	for e, err := range s.o.Store.ReadTagged(
		ctx, t, store.Tagged{Tags: []string{in.tag(j17.Agent(who))}}, after, foundAtOnce, nil,
	) {
		if err != nil {
			return nil, upTo, false, err
		}
		n++
		upTo = e.StreamID
		if types[e.Key.Type] && e.Key != who && !seen[e.Key] {
			seen[e.Key] = true
			found = append(found, e.Key)
		}
	}
	return found, upTo, n == foundAtOnce, nil
}

const (
	// maxTried bounds the streams that a dry run shows, maxTriedEvents the events that it reads.
	maxTried       = maxListed
	maxTriedEvents = 100_000
)

// Try returns the streams that an erasure would reach now, and stores nothing. It checks the same as Create, except
// that another tombstone of the aggregate is no obstacle.
func (s *Service) Try(
	ctx context.Context, t j17.Tenant, aggregateType, id string, ask wire.NewTombstone,
) (wire.TombstoneDryRun, error) {
	out := wire.TombstoneDryRun{DryRun: true}
	if err := check(&ask); err != nil {
		return out, err
	}
	key, _, err := s.find(ctx, t, aggregateType, id)
	if err != nil {
		return out, err
	}

	// The streams that are erased too.
	keys, known := []j17.Key{key}, map[j17.Key]bool{key: true}
	for _, in := range roles() {
		types := in.types(s.o.Spec(t))
		after, looked := j17.StreamID{}, 0
		for more := len(types) > 0; more && !out.More; looked += foundAtOnce {
			var found []j17.Key
			if found, after, more, err = s.name(ctx, t, key, in, types, after); err != nil {
				return out, err
			}
			for _, k := range found {
				switch {
				case known[k]:
				case len(keys) == maxTried:
					out.More = true
				default:
					known[k] = true
					keys = append(keys, k)
				}
			}
			out.More = out.More || more && looked >= maxTriedEvents
		}
	}

	// Their lengths.
	heads, err := s.o.Store.Heads(ctx, t, keys)
	if err != nil {
		return out, err
	}
	for i := range keys {
		out.AffectedStreams = append(out.AffectedStreams, wire.AffectedStream{
			Key: keys[i].String(), EventCount: heads[i].Length, Action: "tombstoned",
		})
	}
	return out, nil
}

// find looks for streams that are erased too, a part at a time, and stores those that it has found together with its
// progress.
func (x *execution) find(ctx context.Context) error {
	r := x.row
	who := r.aggregate()
	all := roles()
	if r.Role == len(all) {
		return x.found(ctx)
	}
	types := all[r.Role].types(x.o.Spec(x.tenant))
	var sides []store.Side
	if r.Role == 0 && r.Looked == "" {
		sides = append(sides, (&entry{key: who}).put(r.id))
	}

	// The streams, each of which may have been found before.
	more := false
	if len(types) > 0 {
		after, err := lookedAt(r.Looked)
		if err != nil {
			return damaged(r.id, err)
		}
		keys, upTo, some, err := x.name(ctx, x.tenant, who, all[r.Role], types, after)
		if err != nil {
			return err
		}
		for _, key := range keys {
			sides = append(sides, (&entry{key: key}).put(r.id))
		}
		more, r.Looked = some, upTo.String()
	}
	if !more {
		r.Role, r.Looked = r.Role+1, ""
	}
	return x.save(ctx, sides...)
}

func lookedAt(looked string) (j17.StreamID, error) {
	if looked == "" {
		return j17.StreamID{}, nil
	}
	return j17.ParseStreamID(looked)
}

// found counts the streams and events that were found.
func (x *execution) found(ctx context.Context) error {
	streams, events := uint64(0), uint64(0)
	for after, last := "", false; !last; {
		some, err := x.entries(ctx, x.tenant, x.row.id, after, readAtOnce)
		if err != nil {
			return err
		}
		keys := make([]j17.Key, len(some))
		for i, e := range some {
			keys[i], after = e.key, e.key.String()
		}
		heads, err := x.o.Store.Heads(ctx, x.tenant, keys)
		if err != nil {
			return err
		}
		for i := range heads {
			streams, events = streams+1, events+heads[i].Length
		}
		last = len(some) < readAtOnce
	}
	x.row.Streams, x.row.Found, x.row.Phase = streams, events, rewriting
	return x.save(ctx)
}
