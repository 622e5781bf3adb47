package saga

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// listed returns the keys of a saga in the lists of a status.
func (g *Saga) listed(s Status) [2]string {
	place := string(s) + "/" + g.Order + "/" + g.ID
	return [2]string{ofStatus + place, ofType + g.Type + "/" + place}
}

// The prefixes of list keys: all sagas of a status, and those of a type too.
const (
	ofStatus = "s/"
	ofType   = "t/"
)

// Filter selects sagas; the zero Filter selects all.
type Filter struct {
	// Status and Type select sagas, "" means any.
	Status Status
	Type   string
}

// List returns up to limit sagas of an environment, the newest first, after the first offset ones. Its cost depends on
// the offset, not on the number of sagas.
func (s *Service) List(ctx context.Context, t j17.Tenant, f Filter, offset, limit int) ([]*Saga, error) {
	// Each status has a list of its own: they are merged.
	var lists []iter.Seq2[string, error]
	for _, status := range Statuses() {
		if f.Status != "" && f.Status != status {
			continue
		}
		prefix := ofStatus + string(status) + "/"
		if f.Type != "" {
			prefix = ofType + f.Type + "/" + string(status) + "/"
		}
		lists = append(lists, store.Places(ctx, s.store, t, listSpace, prefix, min(offset+limit, entriesPage)))
	}

	var found []*Saga
	for place, err := range store.Merge(cmp.Less[string], lists...) {
		if err != nil {
			return nil, store.UserError(err)
		}
		if len(found) == limit {
			break
		}
		if offset--; offset >= 0 {
			continue
		}
		g, err := s.load(ctx, t, idAt(place))
		switch {
		case isAbsent(err): // it has just expired
		case err != nil:
			return nil, store.UserError(err)
		default:
			found = append(found, g)
		}
	}
	return found, nil
}

// entriesPage is how many entries of a list are read at a time.
const entriesPage = 1000

// idAt returns the ID of the saga at a place in a list.
func idAt(place string) string {
	_, id, _ := strings.Cut(place, "/")
	return id
}

// Get returns a saga; a *j17.Error of CodeNotFound if there is none.
func (s *Service) Get(ctx context.Context, t j17.Tenant, id string) (*Saga, error) {
	g, _, err := s.find(ctx, t, id)
	return g, err
}

// find is Get with the revision of the row.
func (s *Service) find(ctx context.Context, t j17.Tenant, id string) (*Saga, uint64, error) {
	it, err := s.store.Get(ctx, t, rowSpace, id)
	if isAbsent(err) {
		return nil, 0, j17.Errorf(j17.CodeNotFound, "There is no such saga in this environment. Completed ones are kept for %d days.", retention/(24*time.Hour))
	}
	if err != nil {
		return nil, 0, store.UserError(err)
	}
	g, err := decode(it.Value)
	return g, it.Rev, store.UserError(err)
}

// Retry continues a failed saga from the step that failed, or a dead-lettered one from the compensation that was
// refused. It returns the saga as it is afterwards: queued if there is no room. The error is CodeNotFound, or
// CodeConflict for a saga with another status.
func (s *Service) Retry(ctx context.Context, t j17.Tenant, id string) (*Saga, error) {
	for {
		g, rev, err := s.find(ctx, t, id)
		if err != nil {
			return nil, err
		}
		if g.Status != Failed && g.Status != DeadLettered {
			return nil, j17.Errorf(j17.CodeConflict, "The saga is %s. Only one that has failed or was given up can be retried.", g.Status)
		}
		if g.Erased {
			return nil, j17.Errorf(j17.CodeConflict, "The event that has started the saga was erased, so that it cannot be retried.")
		}
		now := s.clock.Now().Unix()
		m := machine{Saga: g, now: now}
		m.retry()

		// It runs at once, or is queued first: its trigger is older than those of all queued sagas.
		r, err := s.room(ctx, t)
		if err != nil {
			return nil, store.UserError(err)
		}
		var sides []store.Side
		var fences []store.Fence
		if r.free > 0 && !r.queued {
			m.start()
			fences = []store.Fence{{Space: admissionSpace, Key: admissionKey}}
			sides = append(sides, take(1, r.bound), g.wakes(s.at(now)))
		} else {
			at, err := j17.ParseStreamID(g.Trigger.StreamID)
			if err != nil {
				return nil, store.UserError(&store.CorruptionError{Where: string(rowSpace), Err: err})
			}
			m.queue()
			sides = append(sides, arrive(at, id), wake(s.at(now)))
		}
		saved, err := save(g, nil, now)
		if err != nil {
			return nil, err
		}
		saved[0].Cond, saved[0].Rev = store.IfRev, rev
		lost, err := conflict(s.store.Write(ctx, t, slices.Concat(saved, sides), fences...))
		if err != nil {
			return nil, store.UserError(err)
		}
		if lost == nil {
			s.counts.retried.Add(1)
			return g, nil
		}
	}
}
