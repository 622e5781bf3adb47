package saga

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
	"j17/internal/storage/store"
)

// The slots of the bindings in templates of sagas, as package spec compiles them.
const (
	slotPrev = iota
	slotContext
	slotError
)

// maxData bounds the data of an event made by a template.
const maxData = 16 << 20

// scene is what the templates of a saga see.
type scene struct {
	service *Service
	tenant  j17.Tenant
	saga    *Saga
	trigger *tick.Event
	// correlationID is that of the trigger, "" if it has none.
	correlationID string
	work          *work.Budget
	env           *tick.Env
	// has reports which bindings are loaded.
	has [slotError + 1]bool
	// types are the aggregate types of the trigger and of the $prev event: an ID may be given as the key of an
	// aggregate of one of them.
	types []string
}

// look reads the trigger of a saga.
func (s *Service) look(ctx context.Context, t j17.Tenant, g *Saga) (*scene, error) {
	ev, err := s.event(ctx, t, g.Trigger.StreamID)
	if err != nil {
		return nil, err
	}
	sc := &scene{service: s, tenant: t, saga: g, work: work.New(ctx, work.Command), types: []string{ev.Key.Type}}
	sc.trigger = &tick.Event{
		Key: ev.Key.String(), Type: ev.Type, Timestamp: ev.Timestamp, Data: tick.Raw(ev.Data),
		Metadata: tick.Raw(ev.Metadata),
	}
	sc.correlationID = sc.trigger.Metadata.Value().Get("correlation_id").Str()
	sc.env = tick.NewEnv(sc.work)
	sc.env.Renew(sc.trigger)
	return sc, nil
}

// event reads the event at a position that the saga has stored.
func (s *Service) event(ctx context.Context, t j17.Tenant, position string) (*j17.Event, error) {
	at, err := j17.ParseStreamID(position)
	if err != nil {
		return nil, store.UserError(&store.CorruptionError{Where: string(rowSpace), Err: err})
	}
	for ev, err := range s.store.ReadFeed(ctx, t, before(at), 1) {
		if err != nil {
			return nil, store.UserError(err)
		}
		if ev.StreamID == at {
			if ev, err = s.engine.Shown().Show(ctx, t, ev); err != nil {
				return nil, store.UserError(err)
			}
			return &j17.Event{
				StreamID: at, Key: ev.Key, Type: ev.Type, Timestamp: ev.Timestamp, Data: bytes.Clone(ev.Data),
				Metadata: bytes.Clone(ev.Metadata),
			}, nil
		}
	}
	return nil, store.UserError(&store.CorruptionError{
		Where: string(rowSpace), Err: fmt.Errorf("there is no event at %s", position),
	})
}

// before returns the last position before one.
func before(at j17.StreamID) j17.StreamID {
	if at.Seq > 0 {
		return j17.StreamID{Ms: at.Ms, Seq: at.Seq - 1}
	}
	return j17.StreamID{Ms: at.Ms - 1, Seq: ^uint32(0)}
}

// seen returns the event at a position as templates see it.
func (sc *scene) seen(ctx context.Context, position string) (value.Value, error) {
	ev, err := sc.service.event(ctx, sc.tenant, position)
	if err != nil {
		return value.Value{}, err
	}
	if !sc.work.SpendBytes(len(ev.Data) + len(ev.Metadata)) {
		return value.Value{}, sc.work.Err()
	}
	data, err := value.ParseStored(string(ev.Data))
	if err != nil {
		return value.Value{}, err
	}
	metadata, err := value.ParseStored(string(ev.Metadata))
	if err != nil {
		return value.Value{}, err
	}
	sc.types = append(sc.types, ev.Key.Type)
	return value.ObjectValue(
		value.Member{Key: "key", Value: value.StringValue(ev.Key.String())},
		value.Member{Key: "id", Value: value.StringValue(ev.Key.ID)},
		value.Member{Key: "type", Value: value.StringValue(ev.Type)},
		value.Member{Key: "data", Value: data},
		value.Member{Key: "metadata", Value: metadata}), nil
}

// bind loads the bindings that an expression reads.
func (sc *scene) bind(ctx context.Context, reads func(slot int) bool) error {
	if reads(slotPrev) && !sc.has[slotPrev] && sc.saga.Prev != "" {
		v, err := sc.seen(ctx, sc.saga.Prev)
		if err != nil {
			return err
		}
		sc.env.Bind(slotPrev, v)
	}
	if reads(slotContext) && !sc.has[slotContext] {
		var results []value.Member
		for _, step := range sc.saga.Steps {
			if step.Result == "" {
				continue
			}
			v, err := sc.seen(ctx, step.Result)
			if err != nil {
				return err
			}
			results = append(results, value.Member{Key: step.Name, Value: v})
		}
		sc.env.Bind(slotContext, value.ObjectValue(results...))
	}
	if e := sc.saga.Error; reads(slotError) && !sc.has[slotError] && e != nil {
		sc.env.Bind(slotError, e.seen())
	}
	for slot := range sc.has {
		sc.has[slot] = sc.has[slot] || reads(slot)
	}
	return nil
}

// holds tests the condition of a task. A condition that cannot be evaluated does not hold.
func (sc *scene) holds(ctx context.Context, p *tick.Predicate) (bool, error) {
	if err := sc.bind(ctx, p.Reads); err != nil {
		return false, err
	}
	holds, ok, err := p.Test(sc.env)
	return holds && ok, err
}

// id returns the ID that a reference denotes; false if an optional path leads nowhere.
func (sc *scene) id(ctx context.Context, r *spec.Ref, aggregateType string) (string, bool, error) {
	if r.Path == nil {
		return r.Literal, true, nil
	}
	if err := sc.bind(ctx, r.Path.Reads); err != nil {
		return "", false, err
	}
	v, err := r.Path.In(sc.env)
	if err != nil || v.IsMissing() && r.Path.Optional() {
		return "", false, err
	}
	text := v.Str()
	if v.Kind() == value.Number {
		text = v.String()
	}
	if text == "" {
		return "", false, j17.Errorf(j17.CodeInvalidIdentifier, "%s leads to no identifier, so that nobody knows which %s is meant.", r.Path.Text(), aggregateType)
	}
	if typ, rest, ok := strings.Cut(text, ":"); ok && (typ == aggregateType || slices.Contains(sc.types, typ)) {
		text = rest
	}
	return text, true, nil
}

// command creates the command that writes the event of a task; nil if its template leaves the event out.
func (sc *scene) command(ctx context.Context, t *task) (*engine.Command, error) {
	// The aggregate and the data.
	id, ok, err := sc.id(ctx, &t.emit.ID, t.emit.AggregateType)
	if err != nil || !ok {
		return nil, err
	}
	if err := sc.bind(ctx, t.emit.Data.Reads); err != nil {
		return nil, err
	}
	data, ok, err := t.emit.Data.Eval(sc.env, maxData)
	if misfit, ok := errors.AsType[*tick.OperandError](err); ok {
		unfit := j17.Errorf(j17.CodeInvalidOperand, "An operator in the data of %s %s has no value: %s; it is at %s of the spec.", t.emit.AggregateType, t.emit.EventType, misfit.Message, misfit.Pointer)
		unfit.Plain = true
		err = unfit
	}
	if errors.Is(err, tick.ErrTooLarge) {
		err = j17.Errorf(j17.CodePayloadTooLarge, "The data of %s %s would be larger than %d MiB or nested too deep.", t.emit.AggregateType, t.emit.EventType, maxData>>20)
	}
	if err != nil || !ok {
		return nil, err
	}

	// The templates of a saga write what was newest when it began.
	began, err := sc.service.definitions.of(ctx, sc.tenant, sc.saga.Version)
	if err != nil {
		return nil, err
	}
	generation := command.Newest
	if et := began.EventType(t.emit.AggregateType, t.emit.EventType); et != nil {
		generation = et.Generation
	}

	// The origin of the event.
	actor := ident.SagaCoordinator
	if t.phase == Compensating {
		actor = ident.SagaCompensator
	}
	members := []value.Member{
		{Key: "saga_id", Value: value.StringValue(sc.saga.ID)}, {Key: "type", Value: value.StringValue(sc.saga.Type)},
	}
	if t.step != "" {
		members = append(members, value.Member{Key: "step", Value: value.StringValue(t.step)})
	}
	members = append(members, value.Member{Key: "phase", Value: value.StringValue(string(t.phase))})
	return &engine.Command{Tenant: sc.tenant, Depth: sc.saga.Depth + 1, Command: command.Command{
		Writes: command.One(t.emit.AggregateType, id, t.emit.EventType, data, generation),
		Actor:  j17.Agent{Type: ident.SystemActorType, ID: actor}, Trusted: true,
		Cause: command.Cause{
			CorrelationID: sc.correlationID,
			Members:       []value.Member{{Key: "saga", Value: value.ObjectValue(members...)}},
		},
	}}, nil
}

// await determines the aggregate whose answer a task awaits, unless it is the one written to, and the end of the wait,
// unless that is a timeout.
func (sc *scene) await(ctx context.Context, t *task) (err error) {
	a := t.await
	if a != nil && a.ID != nil {
		if t.awaited, err = sc.awaited(ctx, a); err != nil {
			return err
		}
	}
	if a != nil && a.Until != nil {
		t.until, err = sc.until(ctx, a.Until)
	}
	return err
}

// awaited returns the aggregate that an await names.
func (sc *scene) awaited(ctx context.Context, a *spec.Await) (j17.Key, error) {
	id, ok, err := sc.id(ctx, a.ID, a.AggregateType)
	if err != nil {
		return j17.Key{}, err
	}
	if !ok {
		return j17.Key{}, j17.Errorf(j17.CodeInvalidIdentifier, "%s leads nowhere, so that nobody knows which %s is awaited.", a.ID.Path.Text(), a.AggregateType)
	}
	return sc.service.engine.Resolve(ctx, sc.tenant, a.AggregateType, id)
}

// until computes the time until which an answer is awaited.
func (sc *scene) until(ctx context.Context, t *tick.Time) (time.Time, error) {
	if err := sc.bind(ctx, t.Reads); err != nil {
		return time.Time{}, err
	}
	seconds, ok, err := t.Eval(sc.env)
	misfit, unfit := errors.AsType[*tick.OperandError](err)
	switch {
	case err == nil && !ok:
		misfit, unfit = &tick.OperandError{Message: "there is none"}, true
	case err == nil && seconds > sc.service.clock.Now().Add(spec.MaxAhead).Unix():
		misfit, unfit = &tick.OperandError{Message: "the time is more than ten years ahead"}, true
	case err != nil && !unfit:
		return time.Time{}, err
	}
	if unfit {
		err := j17.Errorf(j17.CodeInvalidOperand, "The time until which an answer is awaited cannot be told: %s.", misfit.Message)
		err.Plain = true
		return time.Time{}, err
	}
	return time.Unix(seconds, 0), nil
}

// isRefusal reports whether an error means that an event cannot be written, however often it is tried. attempt counts
// the tries.
func isRefusal(err error, attempt int) bool {
	const customCodeAttempts = 10
	switch j17.CodeOf(err) { //nolint:exhaustive // all others are refusals
	case "", j17.CodeInternal, j17.CodeCorruption:
		return false
	case j17.CodeCustomCodeFailed:
		return attempt >= customCodeAttempts
	default:
		return !isPassing(err)
	}
}

// isPassing reports whether an error is about the server's state and says nothing about the saga.
func isPassing(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	//nolint:exhaustive // all others are about the saga, or about something that has to be mended
	switch j17.CodeOf(store.UserError(err)) {
	case j17.CodeUnavailable, j17.CodeStorageFull, j17.CodeOutcomeUnknown, j17.CodeBusy, j17.CodeStateNotReady,
		j17.CodeIndexNotReady,
		j17.CodeNoSpec, j17.CodeConflict:
		return true
	default:
		return false
	}
}
