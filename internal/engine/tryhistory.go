package engine

import (
	"context"
	"strconv"

	"j17"
	"j17/internal/decider"
	"j17/internal/sandbox"
	"j17/internal/spec/diag"
	"j17/internal/value"
	"j17/internal/work"
)

// maxTrying is how much work it may be to try the events of one import: many seconds.
const maxTrying = 64 * work.Replay

// mostTried is how much of it one event may be: less than a replay has, which may have to find anew what is known here.
const mostTried = work.Replay / 2

// try applies the events of a unit whose handlers may take more work than a replay has, and what else the file has for their
// aggregates: an event that was stored and cannot be replayed would make its aggregate unreadable for good. The states that are
// looked at are those that the plan expects.
func (c *recorder) try(ctx context.Context, u *pastUnit, p *plan) error {
	// Find the aggregates.
	states := map[j17.Key]*decider.Computed{}
	for i := range u.events {
		ev := &u.events[i]
		if et := c.d.EventType(ev.Key.Type, ev.file.Type); et != nil && et.Handler != nil && et.Handler.Heavy(len(p.unit.Events[i].Data)+len(p.unit.Events[i].Metadata)) {
			states[ev.Key] = nil
		}
	}
	if len(states) == 0 {
		return nil
	}
	for _, pre := range p.unit.Pre {
		if _, ok := states[pre.Key]; !ok {
			continue
		}
		f := c.d.Program(pre.Key.Type).First()
		if pre.Length > 0 {
			var err error
			if f, err = c.e.stateOf(ctx, c.r.Tenant, c.d, pre.Key, pre.Length, false, false); err != nil {
				return storage(err)
			}
			if f.Length != pre.Length {
				return nil // somebody else has written to it, and the plan will be made anew
			}
		}
		states[pre.Key] = &decider.Computed{Key: pre.Key, State: *f, Editor: value.NewEditor()}
	}
	// Apply the events. Each may take what it may when it is replayed, and all together what an import may.
	b, replaying := work.New(ctx, work.Replay), sandbox.ForReplay(ctx)
	for i := range u.events {
		ev, n := &u.events[i], &p.unit.Events[i]
		s := states[ev.Key]
		if s == nil {
			continue
		}
		at := n.Timestamp
		if at == 0 {
			at = p.unit.Timestamp
		}
		if c.spent >= maxTrying {
			return c.untried(ev)
		}
		b.Renew(min(mostTried, maxTrying-c.spent))
		err := c.d.Program(ev.Key.Type).Apply(replaying, &s.State, s.Editor, ev.Events[0].Stored(at), b, nil)
		c.spent += b.Spent()
		switch {
		case err == nil:
		case j17.CodeOf(err) == j17.CodeWorkLimit:
			return c.untried(ev)
		case ctx.Err() != nil:
			return ctx.Err()
		default: // custom code is not asked what it says of the past; what a fold makes of it is seen when it is deployed anew
			delete(states, ev.Key)
			continue
		}
		s.State.Loose += len(n.Data)
	}
	for _, s := range states {
		p.after = append(p.after, s)
	}
	return nil
}

// untried is the error for an event of the file that cannot be applied within its limits.
func (c *recorder) untried(ev *pastEvent) error {
	place := diag.Pointer("/aggregate_types").Key(ev.Key.Type).Key("events").Key(ev.file.Type).Key("handler")
	why := "the handler at " + string(place) + " takes more work than one event may. Deploy a handler that does less, or leave the event out"
	if c.spent >= maxTrying {
		why = "the handlers of the events so far have taken all the work that one import may. Import the rest in another file, or the same file again, which goes on where it was"
	}
	out := j17.Errorf(j17.CodeWorkLimit, "Line %d: the event %s of %s was not stored, nor what follows it: %s. %d events before it have been stored.",
		ev.line, ev.file.Type, ev.Key, why, c.done.Stored+c.done.Known)
	out.Details = decider.WorkDetails{Key: ev.Key.String(), EventType: ev.file.Type, Pointer: place}
	field := j17.FieldError{Pointer: "/" + strconv.Itoa(ev.index), Message: why}
	if ev.element {
		field.Index = &ev.index
	} else {
		field.Line = ev.line
	}
	out.Errors = []j17.FieldError{field}
	return j17.InEvent(out, ev.index)
}
