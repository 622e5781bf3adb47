package part

import (
	"context"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Decided is the result of a command so far, while it is decided.
type Decided struct {
	Tenant j17.Tenant
	// Decider is what is deployed to the tenant.
	Decider *decider.Decider
	// Events are all events about to be written, the command's own first, in the order of the unit. They happen at
	// Timestamp, in Unix seconds.
	Events    []decider.Event
	Timestamp int64
	// Scheduled are the events for later, in the order in which they were scheduled.
	Scheduled []decider.Scheduled
	// Asked are the writes that the command itself asks for in the same commit, CorrelationID is kept with its
	// events, and Depth is how many sagas and scheduled events have led to it.
	Asked         []store.Side
	CorrelationID string
	Depth         int
	// Work is the budget that everything is charged to.
	Work *work.Budget
	// Tried reports that nothing will be stored, and that Consequences are wanted.
	Tried bool
}

// Effects are what events cause apart from other events: items that are scheduled, started or moved on in the commit of
// their cause. A store.Side may hold the positions that the events get (Stamps).
type Effects struct {
	Side []store.Side
	// Fences are on the items that were read. If one of them, or a condition of Side, no longer holds, the command is
	// decided again.
	Fences []store.Fence
	// Full returns why the command is refused when an Add of Side would bring its item beyond the bound; after nil the
	// command is decided again.
	Full func(*store.SideConflict) error
	// Changed, if not nil, is called with each item of Fences and Side that had changed when the command was to be
	// stored, so that cached values are dropped before the command is decided again.
	Changed func(*store.SideConflict)
	// Committed, if not nil, is called once everything is stored, with the positions of the events.
	Committed func(ids []j17.StreamID)
	// Consequences describe all this if the command is only tried.
	Consequences Consequences
}

// EffectsOf returns what is to be written in one commit with events. It is called each time a command is decided. An
// error refuses the command.
type EffectsOf func(context.Context, *Decided) (Effects, error)

// Entering has events that are about to be stored, from whatever source.
type Entering struct {
	Tenant j17.Tenant
	// Decider is what is deployed to the tenant, and Fences hold as long as it is.
	Decider *decider.Decider
	Fences  []store.Fence
	// Events are all of a unit, in its order.
	Events []decider.Event

	// Stored are called when the events are stored, Changed if one of Required does not hold.
	Stored   []func()
	Required []store.Fence
	Changed  []func(*store.SideConflict)
}

// WhenStored registers a function that is called once the events are stored. It is not called if the command is
// refused, decided again or only tried.
func (e *Entering) WhenStored(tell func()) { e.Stored = append(e.Stored, tell) }

// Require lets the events be stored only if a fence holds. If it does not, changed is called and the command is decided
// again.
func (e *Entering) Require(f store.Fence, changed func()) {
	e.Required = append(e.Required, f)
	e.Changed = append(e.Changed, func(c *store.SideConflict) {
		if c.Space == f.Space && c.Key == f.Key {
			changed()
		}
	})
}

// DerivedOf returns the derived data that is written in the commit of events. Unlike effects it follows from the events
// alone, so it is also called for events that happened before.
type DerivedOf func(context.Context, *Entering) ([]store.Side, error)

// Holding returns the holders of unique values while one command is decided, and the writes for what has changed in the
// end.
type Holding interface {
	decider.Holders
	// Saw is told what an aggregate holds in a set, nil for nothing, after writes that are not stored yet. Held is then
	// not called.
	Saw(ctx context.Context, set *spec.UniqueSet, key j17.Key, own *[32]byte) error
	// Effects returns the writes that store the final holders of values, and fences on values that were only read.
	Effects(after *decider.Values) Effects
	// Exchanged returns the writes by which an aggregate exchanges the value it has held so far, own, nil for none.
	// They have no conditions: the load of a whole environment past the engine has to ensure that the values are free.
	Exchanged(ctx context.Context, key j17.Key, x *decider.Exchange, own *[32]byte) ([]store.Side, error)
}

// HoldingOf returns the Holding of a tenant for one command, which is decided with d, deployed as long as the fences
// hold.
type HoldingOf func(t j17.Tenant, d *decider.Decider, fences []store.Fence) Holding

// TaggedOf reports whether all events of a tenant have the tags of some names, as the deployed spec declares them. The
// fences hold as long as that is deployed.
type TaggedOf func(ctx context.Context, t j17.Tenant, d *decider.Decider, fences []store.Fence, names []string) error

// Consequences are what effects would do, for a command that is only tried.
type Consequences struct {
	// Scheduled are the events that would come later, Canceled those that would no longer come.
	Scheduled, Canceled []Later
	// Sagas are the sagas that would begin or go on.
	Sagas []Moved
}

// Add adds what other effects would do.
func (c *Consequences) Add(more *Consequences) {
	c.Scheduled, c.Canceled = append(c.Scheduled, more.Scheduled...), append(c.Canceled, more.Canceled...)
	c.Sagas = append(c.Sagas, more.Sagas...)
}

// Later is a scheduled event, for FireAt in Unix seconds. ID is "" if it has none yet.
type Later struct {
	ID       string
	Key      j17.Key
	Type     string
	JSON     []byte
	FireAt   int64
	CancelOn []decider.Awaited
	// By and ByType name the event that scheduled it.
	By     j17.Key
	ByType string
}

// Moved is a saga that an event begins or moves on. ID is "" if it has none yet.
type Moved struct {
	ID, Type, Status string
	// By and ByType name the event.
	By     j17.Key
	ByType string
}
