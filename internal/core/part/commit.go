package part

import (
	"context"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Decided is what a command comes to, while it is decided.
type Decided struct {
	Tenant j17.Tenant
	// Decider is what is deployed to the tenant.
	Decider *decider.Decider
	// Events are all that is about to be written, the command's own first, in the order of the unit. They happen at
	// Timestamp, in Unix seconds.
	Events    []decider.Event
	Timestamp int64
	// Scheduled are the events that are to come later, in the order in which they were scheduled.
	Scheduled []decider.Scheduled
	// Asked are the writes that the command itself asks for in the same commit, CorrelationID is kept with its
	// events, and Depth is how many sagas and scheduled events have led to it.
	Asked         []store.Side
	CorrelationID string
	Depth         int
	// Work is what all of it is charged to.
	Work *work.Budget
	// Tried tells that nothing will be stored, and somebody wants to know of the consequences.
	Tried bool
}

// Effects are what events bring about beside events: items that are scheduled, started or moved on in the commit of
// their cause. A store.Side may hold the positions that the events get (Stamps).
type Effects struct {
	Side []store.Side
	// Fences are on the items that were looked at. Where one of them, or a condition of Side, does not hold any
	// more, the command is decided anew.
	Fences []store.Fence
	// Full returns why the command is refused where an addition of Side would bring its item beyond the bound; nil
	// where that does not refuse it, so that it is decided anew.
	Full func(*store.SideConflict) error
	// Changed, if not nil, is called with each item of Fences and Side that was another one when it was to be
	// stored: whoever keeps what it has read lets go of it, before the command is decided anew.
	Changed func(*store.SideConflict)
	// Committed, if not nil, is called once when all of it is stored, with the positions of the events.
	Committed func(ids []j17.StreamID)
	// Consequences say what all this does, where the command is tried only.
	Consequences Consequences
}

// EffectsOf says what is to be written in one commit with events. It is asked each time a command is decided. An
// error of it refuses the command.
type EffectsOf func(context.Context, *Decided) (Effects, error)

// Entering is events that are about to be stored, whoever brings them.
type Entering struct {
	Tenant j17.Tenant
	// Decider is what is deployed to the tenant, and Fences hold as long as it is.
	Decider *decider.Decider
	Fences  []store.Fence
	// Events are all of a unit, in its order.
	Events []decider.Event

	// Stored are called when the events are, and Changed where one of Required does not hold.
	Stored   []func()
	Required []store.Fence
	Changed  []func(*store.SideConflict)
}

// WhenStored has something called once the events are stored, and not where they never are: the command is refused,
// decided anew, or only tried.
func (e *Entering) WhenStored(tell func()) { e.Stored = append(e.Stored, tell) }

// Require has the events stored only where a fence holds. Where it does not, changed is called, and the command is
// decided anew.
func (e *Entering) Require(f store.Fence, changed func()) {
	e.Required = append(e.Required, f)
	e.Changed = append(e.Changed, func(c *store.SideConflict) {
		if c.Space == f.Space && c.Key == f.Key {
			changed()
		}
	})
}

// DerivedOf says what is kept of events beside them, in their own commit. Unlike effects it follows from the events
// alone, so that it is asked about those that happened before as well.
type DerivedOf func(context.Context, *Entering) ([]store.Side, error)

// Holding says who holds unique values while one command is decided, and what is to be written for what that has
// come to.
type Holding interface {
	decider.Holders
	// Saw is told what an aggregate holds in a set, nil for nothing, by writes that are not stored yet. Held is not
	// asked then.
	Saw(ctx context.Context, set *spec.UniqueSet, key j17.Key, own *[32]byte) error
	// Effects returns the writes after which those hold values who do in the end, and fences on what was only
	// looked at.
	Effects(after *decider.Values) Effects
	// Exchanged returns the writes after which an aggregate has exchanged a value for what it has held so far, nil
	// for nothing. They have no conditions: who loads a whole environment past the engine makes sure of the rest.
	Exchanged(ctx context.Context, key j17.Key, x *decider.Exchange, own *[32]byte) ([]store.Side, error)
}

// HoldingOf returns who holds the unique values of a tenant, for one command that is decided with what is deployed
// as long as the fences hold.
type HoldingOf func(t j17.Tenant, d *decider.Decider, fences []store.Fence) Holding

// TaggedOf tells whether all events of a tenant have the tags of some names, as what is deployed declares them. The
// fences hold as long as that is deployed.
type TaggedOf func(ctx context.Context, t j17.Tenant, d *decider.Decider, fences []store.Fence, names []string) error

// Consequences are what effects would do, as they tell where the command is tried only.
type Consequences struct {
	// Scheduled are the events that would come later, Canceled those that would not come any more.
	Scheduled, Canceled []Later
	// Sagas are those that would begin or go on.
	Sagas []Moved
}

// Add adds what other effects would do.
func (c *Consequences) Add(more *Consequences) {
	c.Scheduled, c.Canceled = append(c.Scheduled, more.Scheduled...), append(c.Canceled, more.Canceled...)
	c.Sagas = append(c.Sagas, more.Sagas...)
}

// Later is an event that is to come, at FireAt in Unix seconds. ID is "" where it has none yet.
type Later struct {
	ID       string
	Key      j17.Key
	Type     string
	JSON     []byte
	FireAt   int64
	CancelOn []decider.Awaited
	// By and ByType name the event that has scheduled it.
	By     j17.Key
	ByType string
}

// Moved is a saga that an event begins, or lets go on. ID is "" where it has none yet.
type Moved struct {
	ID, Type, Status string
	// By and ByType name the event.
	By     j17.Key
	ByType string
}
