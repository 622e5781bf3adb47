package schedule

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// maxTogether bounds the data of the events written together.
const maxTogether = 4 << 20

// due is an event whose time has come.
type due struct {
	*row
	claim *worker.Claim
	// number is the number of its claim.
	number int
}

// fire writes the due events, in the order in which they were scheduled. An event, all its consequences, and the end of
// its schedule are one commit.
func (s *Service) fire(ctx context.Context, claims []*worker.Claim) []error {
	errs := make([]error, len(claims))
	var together []due
	size, alone := 0, true
	for i, c := range claims {
		r, err := s.dueRow(ctx, c)
		if err != nil || r == nil {
			errs[i] = err
			continue
		}
		if size += len(r.data); size > maxTogether && len(together) > 0 {
			s.fireAll(ctx, together, errs, alone)
			together, size, alone = nil, len(r.data), false
		}
		together = append(together, due{row: r, claim: c, number: i})
	}
	s.fireAll(ctx, together, errs, alone)
	return errs
}

// dueRow returns the row of a claimed item, nil for an event that a sweep is about to remove. The item of an erased row
// is removed here.
func (s *Service) dueRow(ctx context.Context, c *worker.Claim) (*row, error) {
	key, err := rowOf(c.Value)
	if err != nil {
		return nil, err
	}
	r, err := s.load(ctx, c.Tenant, key)
	if err != nil {
		return nil, err
	}
	if r != nil {
		if canceled, _, err := s.isCanceled(ctx, c.Tenant, r); canceled || err != nil {
			return nil, err
		}
		return r, nil
	}
	by, id, _ := cutLast(key)
	return nil, lost(s.Store.Write(ctx, c.Tenant, []store.Side{
		c.Remove(), {Op: store.Delete, Space: ids, Key: id}, add(by, -1, 0), add(total, -1, 0),
	}))
}

// lost returns nil for the error of a claim that was finished elsewhere: the event was canceled, or is written by
// another server.
func lost(err error) error {
	if _, ok := errors.AsType[*store.SideConflict](err); ok {
		return nil
	}
	return err
}

// fireAll writes events together and handles the result of each. alone reports that the first of them has all the time
// of the try: if that is not enough, it counts as an attempt, since another try would not be faster.
func (s *Service) fireAll(ctx context.Context, all []due, errs []error, alone bool) {
	if len(all) == 0 {
		return
	}
	t := all[0].claim.Tenant
	commands := make([]*engine.Command, len(all))
	for i := range all {
		commands[i] = s.command(&all[i])
	}
	var fired []string
	for i, outcome := range s.Execute(ctx, t, commands) {
		d := &all[i]
		switch err := lost(outcome.Err); {
		case outcome.Err == nil:
			s.counts.fired.Add(1)
			fired = append(fired, d.id)
		case err == nil:
		case alone && i == 0 && worker.Overdue(ctx):
			errs[d.number] = s.failed(context.WithoutCancel(ctx), d, errSlow())
		case s.passing(t, err):
			errs[d.number] = err
		default:
			errs[d.number] = s.failed(ctx, d, err)
		}
	}
	s.tell(ctx, t, Fired, fired)
}

// command returns the command that writes an event.
func (s *Service) command(d *due) *engine.Command {
	data, _ := value.Parse(d.data) // unreadable data are missing, and refused for that
	text := value.StringValue
	return &engine.Command{
		Tenant:  d.claim.Tenant,
		Depth:   d.Depth,
		Effects: s.unlessCanceled(d),
		Command: command.Command{
			Writes: command.One(d.Type, d.ID, d.Event, data, max(1, d.Generation)), Trusted: true,
			Actor: j17.Agent{Type: ident.SystemActorType, ID: ident.EventScheduler},
			Cause: command.Cause{CorrelationID: d.CorrelationID, Members: []value.Member{
				{Key: "implied_by", Value: value.ObjectValue(
					value.Member{Key: "key", Value: text(d.by)},
					value.Member{Key: "event_type", Value: text(d.ByEvent)},
					value.Member{Key: "depth", Value: value.Int(1)},
				)},
				{Key: "scheduled", Value: value.ObjectValue(
					value.Member{Key: "scheduled_id", Value: text(d.id)},
					value.Member{Key: "fire_at", Value: text(rfc3339(d.FireAt))},
				)},
			}},
		},
		Side: append(d.over(), d.claim.Remove(), s.list(Fired, d.at, d.N, d.key())),
	}
}

// unlessCanceled refuses an event that is canceled by a mark, like one that was removed elsewhere; it is nil if nothing
// can cancel the event.
func (s *Service) unlessCanceled(d *due) part.EffectsOf {
	if len(d.CancelOn) == 0 {
		return nil
	}
	return func(ctx context.Context, decided *part.Decided) (part.Effects, error) {
		canceled, fences, err := s.isCanceled(ctx, decided.Tenant, d.row)
		if canceled {
			return part.Effects{}, &store.SideConflict{Space: Pending.space(), Key: d.order()}
		}
		return part.Effects{Fences: fences}, store.UserError(err)
	}
}

// errSlow returns the error for an event that takes longer than a try may.
func errSlow() error {
	err := j17.Errorf(j17.CodeWorkLimit, "The event, with all that it implies, could not be written within %d seconds: its custom code takes too long, or the server was too busy.", int(lease.Seconds()))
	err.Plain = true
	return err
}

// passing reports whether an error is about the server's state and says nothing about the event: it is tried again
// soon, and the try does not count as an attempt.
func (s *Service) passing(t j17.Tenant, err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	//nolint:exhaustive // all others are about the event, or about something that has to be mended
	switch j17.CodeOf(err) {
	case j17.CodeStorageFull, j17.CodeOutcomeUnknown, j17.CodeUnavailable, j17.CodeBusy, j17.CodeStateNotReady,
		j17.CodeIndexNotReady:
		return true
	case j17.CodeNoSpec:
		return s.Restoring != nil && s.Restoring(t)
	default:
		return false
	}
}

// failed records that an event could not be written: it is tried again, or given up. An event that its aggregate
// refuses has ended.
func (s *Service) failed(ctx context.Context, d *due, err error) error {
	r := *d.row
	r.Attempts++
	r.LastError, r.LastCode, r.FailedAt = reason(err), j17.CodeOf(err), s.Clock.Now().Unix()

	// The resulting status.
	status := Pending
	switch {
	case isRefusal(err):
		status = Refused
	case r.Attempts >= attempts:
		status = DeadLetter
	}
	var sides []store.Side
	if status == Pending {
		sides = []store.Side{d.claim.Replace(d.claim.Value, s.Clock.Now().Add(attemptPause)), r.put()}
	} else {
		sides = append(r.over(), d.claim.Remove(), s.list(status, r.at, r.N, r.key()), r.put())
	}
	if err := s.Store.Write(ctx, d.claim.Tenant, sides); err != nil {
		return lost(err)
	}

	// Log it.
	attrs := []slog.Attr{
		slog.String("tenant", string(d.claim.Tenant)), slog.String("scheduled_id", r.id),
		slog.Int("attempts", r.Attempts), slog.String("error", r.LastError),
	}
	switch status {
	case Refused:
		s.counts.refused.Add(1)
		s.Logger.LogAttrs(ctx, slog.LevelDebug, "a scheduled event was refused by its aggregate", attrs...)
	case DeadLetter:
		s.counts.deadLettered.Add(1)
		s.Logger.LogAttrs(ctx, slog.LevelWarn, "a scheduled event was given up", attrs...)
	case Pending, Fired, Canceled:
		s.Logger.LogAttrs(ctx, slog.LevelDebug, "a scheduled event could not be written; it is tried again", attrs...)
	}
	return nil
}

// isRefusal reports whether an aggregate refuses the event, or one that it implies, by its spec or by custom code.
// Another try is useless then, unless an operator decides otherwise.
func isRefusal(err error) bool {
	e, ok := errors.AsType[*j17.Error](err)
	if !ok {
		return false
	}
	_, forbidden := e.Details.(decider.RefusalDetails)
	return forbidden || e.Code == j17.CodeHandlerRejected
}

// maxReason bounds the text of a stored error.
const maxReason = 1000

// reason returns the stored text of an error.
func reason(err error) string {
	text := j17.Record(err)
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

// forget removes events that ended long ago.
func (s *Service) forget(ctx context.Context, claims []*worker.Claim) []error {
	errs := make([]error, len(claims))
	each := make([][]store.Side, len(claims))
	for i, c := range claims {
		key, err := rowOf(c.Value)
		if err != nil {
			errs[i] = err
			continue
		}
		_, id, _ := cutLast(key)
		each[i] = []store.Side{
			c.Remove(), {Op: store.Delete, Space: rows, Key: key}, {Op: store.Delete, Space: ids, Key: id},
		}
	}

	// All at once, or one by one if a claim is lost.
	t := claims[0].Tenant
	if s.Store.WriteFreeing(ctx, t, slices.Concat(each...)) == nil {
		return errs
	}
	for i := range claims {
		if each[i] != nil {
			errs[i] = lost(s.Store.WriteFreeing(ctx, t, each[i]))
		}
	}
	return errs
}
