// Package part defines how a capability of the program plugs into the rest: the spaces that it stores items in, what it
// adds to the commit of events, what it does on a deployment, what it removes when streams are erased, and what it does
// in the background.
//
// The decisions behind it are in docs/internals/core.md.
package part

import (
	"context"
	"time"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Part is one capability of the program. A zero field is a hook that it does not have. A Part is made from the methods
// of a service without reading its fields, so that the list of parts is known before anything is open.
type Part struct {
	// Name is the name of its package, or its own name if the package has several parts.
	Name string
	// Spaces are all side spaces that belong to it.
	Spaces []Space
	Commit Commit
	Deploy Deploy
	Erase  Erase
	Work   Work
	// Metrics are the part's counters and measurements.
	Metrics []Metric
}

// Space is a side space, with the streams whose data its items have.
type Space struct {
	store.Declared
	// Sealed reports whether the store seals a value; nil for a space whose values are stored as they are.
	Sealed func(value []byte) bool
	// Derived items are rebuilt from events if they are missing: no backup has them. Secret ones are left out of
	// backups in clear, and Open returns what such a backup has of a value that contains a secret.
	Derived, Secret bool
	Open            func(value []byte) []byte
	// Check returns what is wrong with an item, nil for nothing.
	Check func(key string, value []byte) error
	// Void reports that an item without a value means the same as no item.
	Void bool
}

// Always is a Sealed for spaces whose values are all sealed.
func Always([]byte) bool { return true }

// Spaces returns spaces that hold no data of streams.
func Spaces(names ...store.Space) []Space {
	all := make([]Space, len(names))
	for i, name := range names {
		all[i] = Space{Declared: store.Declared{Space: name}}
	}
	return all
}

// Declared returns the spaces whose items hold data of streams.
func Declared(all []Space) []store.Declared {
	var of []store.Declared
	for i := range all {
		if all[i].OfStreams || all[i].Whole {
			of = append(of, all[i].Declared)
		}
	}
	return of
}

// ByName returns spaces by their names.
func ByName(all []Space) map[store.Space]Space {
	by := make(map[store.Space]Space, len(all))
	for _, s := range all {
		by[s.Space] = s
	}
	return by
}

// Commit is what a part adds to the commit of events.
type Commit struct {
	// Effects returns what events cause apart from other events.
	Effects EffectsOf
	// Derive returns the derived data that is written with events.
	Derive DerivedOf
	// Tagged reports whether all events have the tags of some names that the spec declares: CodeIndexNotReady if older
	// ones do not yet.
	Tagged TaggedOf
	// Unique returns the holders of unique values.
	Unique HoldingOf
	// Mend is told of a side item that a write needs but that is damaged. It reports whether the write may be tried
	// again because the item is being rebuilt.
	Mend func(ctx context.Context, t j17.Tenant, damaged store.ItemName) bool
}

// Deploy has the hooks of a part for deployments.
type Deploy struct {
	// Renew is called when the store refuses a unit because it has another spec than the engine: it deploys that spec
	// to the engine, or undeploys.
	Renew func(ctx context.Context, t j17.Tenant) error
	// Beside returns what a spec would mean for things that are deployed separately from it. It may be called for specs
	// that are not deployed in the end, and again after those things have changed.
	Beside func(ctx context.Context, t j17.Tenant, after *spec.Compiled) (Beside, error)
	// Try returns what a spec would make of the data of an environment.
	Try func(ctx context.Context, t j17.Tenant, after *decider.Decider, asked Asked) (Trial, error)
	// Ready begins to build what a spec that is not deployed yet needs, waits briefly, and returns the progress.
	// Unready discards what was built for a spec that is no longer prepared; other reports that another one is prepared
	// now.
	Ready   func(ctx context.Context, t j17.Tenant, after *decider.Decider) (Readiness, error)
	Unready func(ctx context.Context, t j17.Tenant, other bool) error
	// Prepare is called right before a spec is stored as that of an environment, with the previous one, nil if there is
	// none. An error refuses the deployment.
	Prepare func(ctx context.Context, t j17.Tenant, before, after *spec.Compiled) error
	// Fill begins to build what has to exist when a spec comes into force; nil for nothing.
	Fill func(ctx context.Context, t j17.Tenant, after *decider.Decider, asked Asked) (*Filling, error)
	// Adopt is called when the engine has received the spec of an environment, after a deployment or at the start.
	// After a failure it is called again.
	Adopt func(ctx context.Context, t j17.Tenant) error
	// Await waits until everything built after a deployment is complete, or the context ends.
	Await func(ctx context.Context, t j17.Tenant) error
	// Forget drops from memory everything about the spec of an environment that no longer has one.
	Forget func(t j17.Tenant)
}

// Erase is what a part removes when streams are erased.
type Erase struct {
	// Beside returns writes for the commit that replaces events of streams, and the fences they depend on, so that data
	// found by these events, or shown with them, disappears together with them. If a fence or condition does not hold
	// it is called again. Streams removes the same data later, so a failure of Beside does no harm.
	Beside func(ctx context.Context, t j17.Tenant, of []Replaced) ([]store.Side, []store.Fence, error)
	// Streams removes everything kept of rewritten streams, on disk and in memory. Nobody sees it once Streams has
	// returned. It can be repeated, and may be called for streams of which nothing is kept.
	Streams func(ctx context.Context, t j17.Tenant, e Erased) error
	// Waits reports that Streams waits for background work, which is done only in a running server.
	Waits bool
	// Gone is told of streams of which no part keeps anything any longer.
	Gone func(t j17.Tenant, keys []j17.Key)
	// Completed is called when a tombstone is completed: from then on no erased data is needed in memory.
	Completed func()
}

// Work is the background work of a part.
type Work struct {
	// Run works until the context ends.
	Run func(ctx context.Context) error
	// NextDue returns when the next timed work is due, the zero time if there is none; Settle does all work that is due
	// now, and returns when nothing is under way any longer. Both are nil for work that waits neither for a time nor
	// for events.
	NextDue func(ctx context.Context) (time.Time, error)
	Settle  func(ctx context.Context) error
}
