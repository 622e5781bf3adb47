package schedule

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/storage/store"
)

// maxPage bounds the data of a page.
const maxPage = 8 << 20

// List returns up to limit events that have one of the statuses, the latest first, after the first offset ones. next is
// the offset of the next page, 0 if there is none. A page ends early when its data exceed maxPage. Events that are
// listed but gone, such as erased ones, are left out, and count in offsets.
func (s *Service) List(
	ctx context.Context, t j17.Tenant, of []Status, offset, limit int,
) (page []wire.Scheduled, next int, err error) {
	lists := make([]iter.Seq2[listed, error], len(of))
	for i, status := range of {
		lists[i] = s.listed(ctx, t, status, min(offset+limit+1, listPage))
	}
	later := func(a, b listed) bool { return a.item.Key > b.item.Key }
	size, n := 0, 0
	for l, err := range store.Merge(later, lists...) {
		if err != nil {
			return nil, 0, store.UserError(err)
		}
		if n >= offset && (len(page) == limit || size > maxPage) {
			return page, n, nil
		}
		if n++; n <= offset {
			continue
		}

		// Its row, unless it has been removed meanwhile.
		key, err := rowOf(l.item.Value)
		if err != nil {
			return nil, 0, store.UserError(err)
		}
		r, err := s.load(ctx, t, key)
		if err != nil {
			return nil, 0, store.UserError(err)
		}
		if r == nil {
			continue
		}
		status, err := s.present(ctx, t, r, l.status)
		if err != nil {
			return nil, 0, store.UserError(err)
		}
		if slices.Contains(of, status) {
			page = append(page, r.shown(status))
			size += len(r.data)
		}
	}
	return page, 0, nil
}

// listPage is how many items of a list are read at a time.
const listPage = 1000

// listed is the item of a scheduled event in the list of a status.
type listed struct {
	status Status
	item   *store.Item
}

// listed yields the events with a status, the latest first; it reads page of them at a time.
func (s *Service) listed(ctx context.Context, t j17.Tenant, of Status, page int) iter.Seq2[listed, error] {
	return func(yield func(listed, error) bool) {
		for it, err := range store.Items(ctx, s.Store, t, of.space(), store.Range{Backward: true}, page) {
			if !yield(listed{of, it}, err) {
				return
			}
		}
	}
}

// found is a scheduled event with its present item.
type found struct {
	*row
	status Status
	item   store.Item
}

// find returns an event by its ID; CodeNotFound if there is none.
func (s *Service) find(ctx context.Context, t j17.Tenant, id string) (*found, error) {
	unknown := j17.Errorf(j17.CodeNotFound, "There is no scheduled event %s in this environment.", j17.Printable(id))

	// The item of the ID gives the place.
	item, err := s.Store.Get(ctx, t, ids, id)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid) {
		return nil, unknown
	}
	if err != nil {
		return nil, store.UserError(err)
	}
	at, rest, err := store.ReadStamp(item.Value)
	if err != nil {
		return nil, store.UserError(err)
	}
	number, by, _ := strings.Cut(string(rest), " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return nil, store.UserError(damaged(id, err))
	}

	// Its row.
	r, err := s.load(ctx, t, by+"/"+id)
	if err != nil {
		return nil, store.UserError(err)
	}
	if r == nil {
		return nil, unknown
	}

	// Its status is the list that has it.
	order := store.StampedKey(at, suffix(n))
	for _, status := range append(Statuses(), Pending) { // a dead letter may become pending meanwhile
		item, err := s.Store.Get(ctx, t, status.space(), order)
		if err == nil {
			status, err = s.present(ctx, t, r, status)
			return &found{r, status, item}, store.UserError(err)
		}
		if !errors.Is(err, store.ErrNotFound) {
			return nil, store.UserError(err)
		}
	}
	return nil, unknown
}

// present returns the status of an event that is listed under a status: an event canceled by a mark is still listed as
// pending.
func (s *Service) present(ctx context.Context, t j17.Tenant, r *row, stands Status) (Status, error) {
	if stands != Pending {
		return stands, nil
	}
	canceled, _, err := s.isCanceled(ctx, t, r)
	if canceled {
		return Canceled, nil
	}
	return Pending, err
}

// tries is how often a change is tried again when others overtake it.
const tries = 100

// change moves an event to another status: sides are the writes for that, other than its removal from the present list.
// The error is CodeConflict if its status does not allow the change.
func (s *Service) change(
	ctx context.Context, t j17.Tenant, id, verb string, to Status, sides func(*found) []store.Side,
) (wire.Scheduled, error) {
	for range tries {
		f, err := s.find(ctx, t, id)
		if err != nil {
			return wire.Scheduled{}, err
		}
		more := sides(f)
		if more == nil {
			return wire.Scheduled{}, j17.Errorf(j17.CodeConflict, "The scheduled event %s is %s; one with that status cannot be %s.", id, f.status, verb)
		}
		err = s.Store.Write(ctx, t, append(more, store.Side{
			Op: store.Delete, Space: f.status.space(), Key: f.item.Key, Cond: store.IfRev, Rev: f.item.Rev,
		}))
		if err == nil {
			return f.shown(to), nil
		}
		conflict, ok := errors.AsType[*store.SideConflict](err)
		if !ok {
			return wire.Scheduled{}, store.UserError(err)
		}
		if conflict.Full {
			if err := s.full(conflict); err != nil {
				return wire.Scheduled{}, err
			}
		}
	}
	return wire.Scheduled{}, j17.Errorf(j17.CodeBusy, "Others have changed the scheduled event %s again and again. Nothing was changed. Try again.", id)
}

// Cancel cancels a pending event or a dead letter.
func (s *Service) Cancel(ctx context.Context, t j17.Tenant, id string) (wire.Scheduled, error) {
	e, err := s.change(ctx, t, id, "cancelled", Canceled, func(f *found) []store.Side {
		listed := s.list(Canceled, f.at, f.N, f.key())
		switch f.status {
		case Pending:
			return append(f.over(), listed)
		case DeadLetter:
			return []store.Side{listed}
		case Fired, Canceled, Refused:
			return nil
		default:
			return nil
		}
	})
	if err == nil {
		s.counts.canceled.Add(1)
		s.tell(ctx, t, Canceled, []string{id})
	}
	return e, err
}

// Retry makes a dead letter, or a refused event, pending again, to be tried at once. It counts as pending, and the
// events that cancel it do so again.
func (s *Service) Retry(ctx context.Context, t j17.Tenant, id string) (wire.Scheduled, error) {
	most, err := s.room(ctx, t)
	if err != nil {
		return wire.Scheduled{}, store.UserError(err)
	}
	if most == 0 {
		return wire.Scheduled{}, s.tooMany()
	}
	return s.change(ctx, t, id, "tried again", Pending, func(f *found) []store.Side {
		if f.status != DeadLetter && f.status != Refused {
			return nil
		}
		f.Attempts, f.LastError, f.LastCode, f.FailedAt = 0, "", "", 0
		now := s.Clock.Now()
		items, notes := f.await(now)
		for i := range items {
			items[i].Value = append(store.AppendStamp(nil, f.at), items[i].Value...)
		}
		return append(append(items, notes...), f.put(), add(f.by, 1, MaxPerAggregate), add(total, 1, most), store.Side{
			Op: store.Put, Space: Pending.space(), Key: f.order(),
			Value: append(store.AppendStamp(nil, f.at), f.key()...), Due: now,
		})
	})
}
