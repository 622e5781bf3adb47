package deploy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/base/work"
	"j17/internal/code/sandbox"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/trial"
	"j17/internal/lang/compare"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// Limits of a dry run and of its report.
const (
	// maxReplayed is the number of events that it replays at most.
	maxReplayed = 500_000
	// maxFaults is how many places in the spec it shows whose operations did not fit. maxBeyond is how many events it
	// shows that take more work than they may; it stops after them, since each costs so much.
	maxFaults = 100
	maxBeyond = 100
	// maxRefusals is how many events it shows that guards would have refused. maxAsking is the work that all guards
	// together may take; each event costs askWork beside the work of its guards.
	maxRefusals = 100
	askWork     = 50
	maxAsking   = 32 * work.Command
)

// dryRun compares the states of aggregates under the deployed spec and under another one, and evaluates the guards of
// the other one on past events.
type dryRun struct {
	*Service
	tenant        j17.Tenant
	before, after deployed
	report        *wire.SpecReplay
	// guarded are the event types whose guards are evaluated, by the names of their aggregate types and their own.
	// budget is for one event; asked is the work of all so far.
	guarded map[string]map[string]*spec.EventType
	budget  *work.Budget
	asked   int64
	// told is how many bytes of states were compared to find out since when they differ.
	told int64
}

// replay compares the states of aggregates under the deployed spec and under another one with these changes.
func (s *Service) replay(
	ctx context.Context, t j17.Tenant, before, after deployed, changes []compare.Change, most int,
) (*wire.SpecReplay, error) {
	r := &wire.SpecReplay{
		Replay:   wire.Replay{Types: []string{}, Complete: true, Differences: []wire.StateDifference{}},
		Refusals: []wire.ReplayRefusal{},
	}
	if before.compiled == nil {
		return r, nil
	}
	d := &dryRun{Service: s, tenant: t, before: before, after: after, report: r, budget: work.New(ctx, work.Command)}
	d.guard(changes)
	for _, typ := range slices.Sorted(maps.Keys(before.compiled.Types)) {
		if after.compiled.Types[typ] != nil && (d.folds(typ) || d.guarded[typ] != nil) {
			r.Types = append(r.Types, typ)
		}
	}
	left := min(most, trial.MaxAggregates)
	for i, typ := range r.Types {
		// The unused part of a type's share goes to the types after it.
		share := left / (len(r.Types) - i)
		ids, more, err := s.engine.IDs(ctx, t, typ, "", max(share, 1))
		if err != nil {
			return nil, err
		}
		r.Complete = r.Complete && !more && len(ids) <= share
		for _, id := range ids[:min(share, len(ids))] {
			if err := d.one(ctx, j17.Key{Type: typ, ID: id}); err != nil {
				return nil, err
			}
			left--
		}
	}
	return r, nil
}

// folds reports whether the states of an aggregate type may differ under the new spec.
func (d *dryRun) folds(typ string) bool {
	was, is := d.before.compiled.Types[typ], d.after.compiled.Types[typ]
	return was.Fingerprint != is.Fingerprint || !sameCode(was, is, d.before.code.functions, d.after.code.functions)
}

// guard finds the event types whose definitions differ and that have guards.
func (d *dryRun) guard(changes []compare.Change) {
	d.guarded = map[string]map[string]*spec.EventType{}
	for i := range changes {
		typ, name, _ := strings.Cut(changes[i].Name, ".")
		if changes[i].What != "event type" || changes[i].Kind == compare.Removed {
			continue
		}
		et := d.after.compiled.EventType(typ, name)
		if et == nil {
			continue
		}
		asked := false
		for _, guard := range et.Requires {
			if guard.That.ReadsOf() != 0 {
				d.report.Unchecked++
			} else {
				asked = true
			}
		}
		if asked && d.guarded[typ] == nil {
			d.guarded[typ] = map[string]*spec.EventType{}
		}
		if asked {
			d.guarded[typ][name] = et
		}
	}
}

// one compares the states of one aggregate.
func (d *dryRun) one(ctx context.Context, key j17.Key) error {
	// The total of replayed events is bounded; the report says that it is not complete.
	r := d.report
	length, err := d.engine.Length(ctx, d.tenant, key.Type, key.ID)
	if err != nil {
		return err
	}
	if r.Events+length > maxReplayed || len(r.Beyond) >= maxBeyond {
		r.Complete = false
		return nil
	}
	r.Aggregates++
	r.Events += length

	// The state under the deployed spec, and under the new one.
	difference := wire.StateDifference{Key: key.String(), Length: length}
	var was value.Value
	folds := d.folds(key.Type)
	if folds {
		was, err = d.engine.Replay(
			ctx, d.tenant, d.before.compiled, d.before.code.functions, key, length, engine.Replayed{},
		)
		if _, ok := codeError(err); ok {
			folds = false // there is no state to compare with; if the new spec has one, that does no harm
		} else if err != nil {
			return err
		}
	}
	if !folds && d.guarded[key.Type] == nil {
		return nil
	}
	told := told(&r.Replay, key)
	told.Before = d.ask
	is, err := d.engine.Replay(ctx, d.tenant, d.after.compiled, d.after.code.functions, key, length, told)
	why, failed := codeError(err)
	switch {
	case err != nil && !failed:
		return err
	case failed && folds:
		trial.Fail(&r.Replay, difference, why)
	case folds:
		if len(r.Differences) < trial.MaxDiffering && !value.Equal(was, is) {
			difference.Versions = d.versions(ctx, key, length)
		}
		trial.Compare(&r.Replay, difference, was, is)
	}
	return nil
}

// ask evaluates the guards on a past event and notes a refusal.
func (d *dryRun) ask(id j17.StreamID, ev *tick.Event, state value.Value) error {
	typ, _, _ := strings.Cut(ev.Key, ":")
	et := d.guarded[typ][ev.Type]
	if et == nil {
		return nil
	}
	r := d.report
	if d.asked >= d.asking {
		r.Complete = false
		return nil
	}
	d.budget.Renew(work.Command)
	guard, message, err := decider.Objection(et, ev, state, d.budget)
	d.asked += askWork + d.budget.Spent()
	if err != nil || guard == nil {
		return err
	}
	if r.Refused++; len(r.Refusals) < maxRefusals {
		r.Refusals = append(r.Refusals, wire.ReplayRefusal{
			StreamID: id.String(), Key: ev.Key, Type: ev.Type, Pointer: string(guard.Pointer),
			Message: trial.Beginning(message),
		})
	}
	return nil
}

// told collects the faults in the replay of an aggregate.
func told(r *wire.Replay, key j17.Key) engine.Replayed {
	return engine.Replayed{
		Fault: func(length uint64, eventType string, d diag.Diagnostic) {
			place := func(f wire.ReplayFault) bool { return f.Pointer == string(d.Pointer) }
			if i := slices.IndexFunc(r.Faults, place); i >= 0 {
				r.Faults[i].Times++
			} else if len(r.Faults) < maxFaults {
				r.Faults = append(r.Faults, wire.ReplayFault{
					Pointer: string(d.Pointer), Line: d.Line, Column: d.Column, Message: trial.Beginning(d.Message),
					Times:         1,
					ReplayedEvent: wire.ReplayedEvent{Key: key.String(), Length: length, EventType: eventType},
				})
			} else {
				r.FaultsMore++
			}
		},
		Beyond: func(length uint64, eventType string) bool {
			if len(r.Beyond) < maxBeyond {
				r.Beyond = append(r.Beyond, wire.ReplayedEvent{Key: key.String(), Length: length, EventType: eventType})
			}
			return len(r.Beyond) < maxBeyond
		},
	}
}

// codeError reports whether a state cannot be computed because of the spec: custom code of handlers fails, one event
// takes more work than it may, or cannot be read in its newest generation. It returns the reason.
func codeError(err error) (string, bool) {
	if fault, ok := errors.AsType[*sandbox.Fault](err); ok {
		return fault.Detail, true
	}
	if e, ok := errors.AsType[*j17.Error](err); ok &&
		(e.Code == j17.CodeCustomCodeFailed || e.Code == j17.CodeHandlerRejected || e.Code == j17.CodeWorkLimit ||
			e.Code == j17.CodeUpcastFailed) {
		return e.Message, true
	}
	return "", false
}

// sameCode reports whether the handlers of an aggregate type run the same custom code.
func sameCode(was, is *spec.AggregateType, before, after decider.Functions) bool {
	for name, old := range was.Events {
		next := is.Events[name]
		if old.Code == nil || next == nil || next.Code == nil {
			continue // the fingerprints show a difference
		}
		f, g := before[old.Code], after[next.Code]
		if (f == nil) != (g == nil) || f != nil && f.Digest() != g.Digest() {
			return false
		}
	}
	return true
}
