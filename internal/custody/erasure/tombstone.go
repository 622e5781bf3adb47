package erasure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/storage/store"
)

const (
	// leastGrace is the minimum time in which a tombstone can be cancelled.
	leastGrace = 72 * time.Hour
	// mostGraceDays bounds that time.
	mostGraceDays = 3650
	// maxText bounds the texts of a request, in bytes.
	maxText = 1000
)

// Actions of the audit log.
const (
	ActionCreate  = "tombstone.create"
	ActionCancel  = "tombstone.cancel"
	ActionExecute = "tombstone.execute"
)

// Create requests the erasure of an aggregate, by its id or by a name. It is CodeAggregateNotFound if the aggregate has
// no events, and CodeConflict if another tombstone of it was not cancelled.
func (s *Service) Create(
	ctx context.Context, t j17.Tenant, aggregateType, id string, ask wire.NewTombstone,
) (wire.Tombstone, error) {
	if err := check(&ask); err != nil {
		return wire.Tombstone{}, err
	}
	key, head, err := s.find(ctx, t, aggregateType, id)
	if err != nil {
		return wire.Tombstone{}, err
	}
	holds, err := s.vacant(ctx, t, key, head, ask.Again)
	if err != nil {
		return wire.Tombstone{}, err
	}

	// The tombstone.
	now := s.o.Clock.Now().UTC().Truncate(time.Millisecond)
	grace := leastGrace
	if ask.GracePeriodDays != nil {
		grace = max(grace, time.Duration(*ask.GracePeriodDays)*24*time.Hour)
	}
	r := &row{
		id: s.mint.Handle(tombstonePrefix), Key: key.String(), Status: Pending, LegalBasis: ask.LegalBasis,
		RequestID:   ask.RequestID,
		RequestedBy: ask.RequestedBy, CreatedAt: now, ExecutableAt: now.Add(grace), Before: string(holds.Value),
	}
	holds.Value = []byte(r.id)
	sides := append(r.list(), holds, store.Side{
		Op: store.Put, Space: rows, Key: r.id, Value: r.value(), Cond: store.IfAbsent,
	})

	// If two are requested at once, one is refused.
	err = s.o.Store.Write(ctx, t, sides)
	if _, lost := errors.AsType[*store.SideConflict](err); lost {
		if _, err = s.vacant(ctx, t, key, head, ask.Again); err == nil {
			err = j17.Errorf(j17.CodeConflict, "The tombstones of %s have changed meanwhile. Nothing was stored. Try again.", key)
		}
	}
	if err != nil {
		return wire.Tombstone{}, err
	}
	s.record(ctx, t, &Act{Action: ActionCreate, Tombstone: r.id, Key: r.Key})
	return s.shown(ctx, t, r)
}

// check checks a request.
func check(ask *wire.NewTombstone) error {
	wrong := func(path, says string) error {
		return j17.Errorf(j17.CodeInvalidField, "'%s' must be %s", path, says).At(path)
	}
	for path, text := range map[string]*string{"legal_basis": ask.LegalBasis, "request_id": ask.RequestID} {
		if text != nil && len(*text) > maxText {
			return wrong(path, "a text of at most 1000 bytes")
		}
	}
	if days := ask.GracePeriodDays; days != nil && (*days < 0 || *days > mostGraceDays) {
		return wrong("grace_period_days", "a whole number of days from 0 to 3650; less than 3 count as 3")
	}
	by := bytes.TrimSpace(ask.RequestedBy)
	switch {
	case len(by) == 0 || bytes.Equal(by, []byte("null")):
		ask.RequestedBy = nil
	case by[0] != '{':
		return wrong("requested_by", `an object that says who has asked, such as {"type":"operator","id":"dpo@example.com"}`)
	default:
		var compact bytes.Buffer
		if json.Compact(&compact, by) != nil || compact.Len() > maxText {
			return wrong("requested_by", "an object of at most 1000 bytes")
		}
		ask.RequestedBy = compact.Bytes()
	}
	return nil
}

// find returns the aggregate with an id or a name, with its head. Aggregates with events are found even if the spec no
// longer has their type, so that they can still be erased.
func (s *Service) find(ctx context.Context, t j17.Tenant, aggregateType, id string) (j17.Key, store.Head, error) {
	if s.restoring(t) {
		return j17.Key{}, store.Head{}, j17.Errorf(j17.CodeUnavailable, "The server has just started and this environment is not ready yet. Try again in a moment.")
	}
	key, unknown := s.o.Resolve(ctx, t, aggregateType, id)
	code := j17.CodeOf(unknown)
	switch {
	case code == j17.CodeUnknownType, code == j17.CodeNoSpec, code == j17.CodeInvalidIdentifier:
		key = j17.Key{Type: aggregateType, ID: id}
		if store.ValidKey(key) != nil {
			return key, store.Head{}, unknown
		}
	case unknown != nil:
		return key, store.Head{}, unknown
	default:
		unknown = j17.Errorf(j17.CodeAggregateNotFound, "Aggregate not found: %s has no events that could be erased.", key)
	}
	heads, err := s.o.Store.Heads(ctx, t, []j17.Key{key})
	if err != nil {
		return key, store.Head{}, err
	}
	if heads[0].Length == 0 {
		return key, store.Head{}, unknown
	}
	return key, heads[0], nil
}

// restoring reports whether the spec of an environment is not known yet.
func (s *Service) restoring(t j17.Tenant) bool { return s.o.Restoring != nil && s.o.Restoring(t) }

// conflictDetails identify the conflicting tombstone.
type conflictDetails struct {
	TombstoneID string `json:"tombstone_id"`
	Status      Status `json:"status"`
}

// vacant returns the write by which a new tombstone takes its aggregate, whose value is the completed one that it
// follows, if any; CodeConflict if another one has it.
func (s *Service) vacant(
	ctx context.Context, t j17.Tenant, key j17.Key, head store.Head, again bool,
) (store.Side, error) {
	take := store.Side{Op: store.Put, Space: aggregates, Key: key.String(), Cond: store.IfAbsent}
	item, err := s.o.Store.Get(ctx, t, aggregates, key.String())
	if errors.Is(err, store.ErrNotFound) {
		return take, nil
	}
	if err != nil {
		return take, err
	}
	last, err := s.load(ctx, t, string(item.Value))
	if err != nil {
		return take, err
	}

	// A completed one may be followed by another if there are new events to erase.
	taken := j17.Errorf(j17.CodeConflict, "There is a tombstone of %s already: %s, which is %s.", key, last.id, last.Status)
	taken.Details = conflictDetails{last.id, last.Status}
	if last.Status != Completed {
		return take, taken
	}
	done, err := s.o.Store.Get(ctx, t, reached, reachedKey(last.id, key))
	if err != nil {
		return take, err
	}
	e, err := readEntry(&done)
	switch {
	case err != nil:
		return take, err
	case head.Length <= e.Events:
		taken.Message += " Nothing has been written to the aggregate since."
		return take, taken
	case !again:
		taken.Message += ` Events have been written to the aggregate since; to erase these too, ask with "again": true.`
		return take, taken
	}
	take.Cond, take.Rev, take.Value = store.IfRev, item.Rev, item.Value
	return take, nil
}

// Cancel cancels a pending tombstone; for others it is CodeConflict. The completed one that it followed becomes the
// last one of its aggregate again.
func (s *Service) Cancel(ctx context.Context, t j17.Tenant, id string) (wire.Tombstone, error) {
	r, err := s.load(ctx, t, id)
	if err != nil {
		return wire.Tombstone{}, err
	}
	if r.Status != Pending {
		return wire.Tombstone{}, s.not(r, "cancelled")
	}
	leave := store.Side{Op: store.Delete, Space: aggregates, Key: r.Key}
	if r.Before != "" {
		leave.Op, leave.Value = store.Put, []byte(r.Before)
	}
	sides := append(r.become(Cancelled), r.replace(), leave)
	err = s.o.Store.Write(ctx, t, sides)
	if _, lost := errors.AsType[*store.SideConflict](err); lost {
		return s.Cancel(ctx, t, id) // finds the new status
	}
	if err != nil {
		return wire.Tombstone{}, err
	}
	s.record(ctx, t, &Act{Action: ActionCancel, Tombstone: r.id, Key: r.Key})
	return s.shown(ctx, t, r)
}

// replace writes a tombstone, unless it has changed since it was read.
func (r *row) replace() store.Side {
	return store.Side{Op: store.Put, Space: rows, Key: r.id, Value: r.value(), Cond: store.IfRev, Rev: r.rev}
}

// not is the error of an action that the status of a tombstone does not allow.
func (s *Service) not(r *row, verb string) error {
	err := j17.Errorf(j17.CodeConflict, "The tombstone %s is %s; it can no longer be %s.", r.id, r.Status, verb)
	err.Details = conflictDetails{r.id, r.Status}
	return err
}

// graceDetails say when a tombstone can be executed.
type graceDetails struct {
	ExecutableAt time.Time `json:"executable_at"`
}

// Execute begins the execution of a tombstone, which continues in the background. Before its time it is
// CodeGracePeriod, unless it is forced. A tombstone that is being executed continues at once if its last try has
// failed. For all others it is CodeConflict.
func (s *Service) Execute(ctx context.Context, t j17.Tenant, id string, force bool) (wire.Tombstone, error) {
	r, err := s.load(ctx, t, id)
	if err != nil {
		return wire.Tombstone{}, err
	}
	now := s.o.Clock.Now().UTC().Truncate(time.Millisecond)
	early := now.Before(r.ExecutableAt)
	switch {
	case r.Status == Executing:
		if err := s.again(ctx, t, r, now); err != nil {
			return wire.Tombstone{}, err
		}
		return s.shown(ctx, t, r)
	case r.Status != Pending:
		return wire.Tombstone{}, s.not(r, "executed")
	case early && !force:
		err := j17.Errorf(j17.CodeGracePeriod, "The tombstone %s can be executed from %s on; until then it can be cancelled. Wait, or force it.", r.id, r.ExecutableAt.Format(time.RFC3339Nano))
		err.Details = graceDetails{r.ExecutableAt}
		return wire.Tombstone{}, err
	}

	// From here on it cannot be cancelled. The row names the operator until the audit log does.
	r.Forced, r.Phase, r.By = early, rooting, s.o.By(ctx)
	sides := append(r.become(Executing), r.replace(), store.Side{Op: store.Put, Space: executions, Key: r.id, Due: now})
	err = s.o.Store.Write(ctx, t, sides)
	if _, lost := errors.AsType[*store.SideConflict](err); lost {
		return s.Execute(ctx, t, id, force) // finds the new status
	}
	if err != nil {
		return wire.Tombstone{}, err
	}
	if r.Forced {
		s.o.Logger.LogAttrs(ctx, slog.LevelWarn, "the execution of a tombstone was forced before its time", slog.String("tenant", string(t)),
			slog.String("tombstone", r.id), slog.Time("executable_at", r.ExecutableAt))
	}
	return s.shown(ctx, t, r)
}

// again makes an execution due whose last try has failed.
func (s *Service) again(ctx context.Context, t j17.Tenant, r *row, now time.Time) error {
	item, tried, err := s.execution(ctx, t, r)
	if err != nil || tried.Failed == 0 || !item.Due.After(now) {
		return err
	}
	err = s.o.Store.Write(ctx, t, []store.Side{{
		Op: store.Put, Space: executions, Key: r.id, Value: item.Value, Due: now, Cond: store.IfRev, Rev: item.Rev,
	}})
	if _, lost := errors.AsType[*store.SideConflict](err); lost {
		return nil // it continues already
	}
	return err
}

// Get returns a tombstone; CodeNotFound if there is none.
func (s *Service) Get(ctx context.Context, t j17.Tenant, id string) (wire.Tombstone, error) {
	r, err := s.load(ctx, t, id)
	if err != nil {
		return wire.Tombstone{}, err
	}
	return s.shown(ctx, t, r)
}

// maxPage bounds the streams that a page of a list shows, over all of its tombstones.
const maxPage = 20_000

// List returns up to limit tombstones of a status, "" for any, the newest first, after skipping offset of them. next is
// the offset of the next page, 0 if there is none. A page ends early rather than becoming very large.
func (s *Service) List(
	ctx context.Context, t j17.Tenant, of Status, offset, limit int,
) (page []wire.Tombstone, next int, err error) {
	if of == "" {
		of = allOf
	}
	keys := store.Prefix(string(of) + "/")
	keys.Backward = true
	n, streams := 0, 0
	for item, err := range store.Items(ctx, s.o.Store, t, lists, keys, min(offset+limit+1, listedAtOnce)) {
		if err != nil {
			return nil, 0, err
		}
		if n++; n <= offset {
			continue
		}
		if n > offset+limit || streams >= maxPage {
			return page, n - 1, nil
		}
		r, err := s.load(ctx, t, item.Key[strings.LastIndexByte(item.Key, '/')+1:])
		if err != nil {
			return nil, 0, err
		}
		if of != allOf && r.Status != of {
			continue // its status has changed meanwhile
		}
		shown, err := s.shown(ctx, t, r)
		if err != nil {
			return nil, 0, err
		}
		page = append(page, shown)
		streams += len(shown.AffectedStreams)
	}
	return page, 0, nil
}

// listedAtOnce is how many entries of a list are read at a time.
const listedAtOnce = 1000

// Streams returns up to limit streams that a tombstone has rewritten, in the order of their keys, after the key start.
// next is the start of the next page, "" if there is none.
func (s *Service) Streams(
	ctx context.Context, t j17.Tenant, id, start string, limit int,
) (page []wire.AffectedStream, next string, err error) {
	r, err := s.load(ctx, t, id)
	if err != nil {
		return nil, "", err
	}
	all, err := s.entries(ctx, t, r.id, start, limit+1)
	if err != nil {
		return nil, "", err
	}
	for i, e := range all {
		if i == limit {
			return page, all[i-1].key.String(), nil
		}
		if e.Done {
			page = append(page, e.shown())
		}
	}
	return page, "", nil
}

// Certificate returns the certificate of a tombstone, a signed note; CodeConflict if it is not completed.
func (s *Service) Certificate(ctx context.Context, t j17.Tenant, id string) (string, error) {
	r, err := s.load(ctx, t, id)
	if err != nil {
		return "", err
	}
	if r.Status != Completed {
		err := j17.Errorf(j17.CodeConflict, "The tombstone %s is %s. There is a certificate when it is completed.", r.id, r.Status)
		err.Details = conflictDetails{r.id, r.Status}
		return "", err
	}
	item, err := s.o.Store.Get(ctx, t, certificates, r.id)
	return string(item.Value), err
}
