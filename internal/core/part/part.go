// Package part says what a capability of the program is to the rest of it: the spaces that it stores items in, what
// it adds to the commit of events, what a deployment means for it, what it removes when streams are erased, and
// what it does in the background.
//
// The decisions behind it are in docs/internals/core.md.
package part

import (
	"context"
	"time"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Part is one capability of the program. A zero field is a hook that it does not have. A Part is made from the
// methods of a service without reading a field of it, so that the list of parts is known before anything is open.
type Part struct {
	// Name is that of its package, or what it is called in the package that has several.
	Name string
	// Spaces are all side spaces that belong to it.
	Spaces []Space
	Commit Commit
	Deploy Deploy
	Erase  Erase
	Work   Work
	// Metrics are the numbers that it counts and measures.
	Metrics []Metric
}

// Space is a side space, with the streams whose data its items have.
type Space struct {
	store.Declared
	// Sealed reports whether the store seals a value; nil for a space whose values are stored as they are.
	Sealed func(value []byte) bool
	// Derived items are made anew from events where they are missing: no backup has them. Secret ones are in no
	// backup in clear, and Open returns what a backup in clear has of a value that has a secret.
	Derived, Secret bool
	Open            func(value []byte) []byte
	// Check returns what is wrong with an item, nil for nothing.
	Check func(key string, value []byte) error
	// Void tells that an item without a value says the same as no item.
	Void bool
}

// Always reports of every value that the store seals it.
func Always([]byte) bool { return true }

// Spaces returns spaces without data of streams.
func Spaces(names ...store.Space) []Space {
	all := make([]Space, len(names))
	for i, name := range names {
		all[i] = Space{Declared: store.Declared{Space: name}}
	}
	return all
}

// Declared returns the spaces of which items have data of streams.
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
	// Effects says what events bring about beside events.
	Effects EffectsOf
	// Derive says what is kept of events beside them.
	Derive DerivedOf
	// Tagged tells whether all events have the tags of some names that the spec declares: CodeIndexNotReady where
	// older ones do not yet.
	Tagged TaggedOf
	// Unique says who holds unique values.
	Unique HoldingOf
	// Mend is told of a side item that a write needs and that cannot be read, because its bytes have changed. It
	// reports whether the write may be tried again, since what is kept there is being made anew.
	Mend func(ctx context.Context, t j17.Tenant, damaged store.ItemName) bool
}

// Deploy is what a deployment means for a part.
type Deploy struct {
	// Renew is called when the store refuses what was decided with the deployed spec, because it has another one:
	// it deploys that one to the engine, or undeploys.
	Renew func(ctx context.Context, t j17.Tenant) error
	// Beside tells what a spec would mean for what was deployed beside it. It may be asked about specs that are not
	// deployed after all, and again after others have changed something.
	Beside func(ctx context.Context, t j17.Tenant, after *spec.Compiled) (Beside, error)
	// Try tells what a spec would make of what an environment has, with up to so many rows of each projection.
	Try func(ctx context.Context, t j17.Tenant, after *decider.Decider, most int) (Trial, error)
	// Ready begins to build what a spec needs that is not deployed yet, waits a little, and tells how far that is.
	// Unready gives up what was built for a spec that is no longer prepared; other tells that another one is by
	// now.
	Ready   func(ctx context.Context, t j17.Tenant, after *decider.Decider) (Readiness, error)
	Unready func(ctx context.Context, t j17.Tenant, other bool) error
	// Prepare is called right before a spec is stored as that of an environment, with the one before it, nil where
	// there is none. An error refuses the deployment.
	Prepare func(ctx context.Context, t j17.Tenant, before, after *spec.Compiled) error
	// Fill makes what has to be there when a spec comes into force, and calls commit, which is to store the spec,
	// with the writes that put it into force and with what is against that.
	Fill func(ctx context.Context, t j17.Tenant, after *decider.Decider, commit CommitSpec) error
	// Adopt is called when the engine has been handed the spec of an environment: of a deployment, or at the start.
	// What fails is logged, and made up for later.
	Adopt func(ctx context.Context, t j17.Tenant)
	// Await waits until what is built after a deployment is there, or the context ends.
	Await func(ctx context.Context, t j17.Tenant) error
	// Forget drops from memory what was known of the spec of an environment that has none any more.
	Forget func(t j17.Tenant)
}

// CommitSpec stores a spec with writes, or refuses it for what was found.
type CommitSpec func(sides []store.Side, found []diag.Diagnostic) error

// Erase is what a part removes when streams are erased.
type Erase struct {
	// Beside returns writes that belong into the commit that replaces events of streams, and what they were decided
	// by: so that what is found by these, and shown beside them, is not seen when they no longer are. Where one of
	// the fences or conditions does not hold it is asked again. Streams does the same later: where Beside fails,
	// that is enough.
	Beside func(ctx context.Context, t j17.Tenant, of []Replaced) ([]store.Side, []store.Fence, error)
	// Streams removes what is kept of streams that were rewritten, on disk and in memory. Nobody gets to see it
	// when it has returned. It can be repeated, and may be called for streams of which there is nothing.
	Streams func(ctx context.Context, t j17.Tenant, e Erased) error
	// Waits tells that Streams waits for work in the background, which only a server does that runs.
	Waits bool
	// Gone is told of streams that no part keeps anything of any longer.
	Gone func(t j17.Tenant, keys []j17.Key)
	// Completed is told when a tombstone is completed: from then on nothing of what was erased is needed in memory.
	Completed func()
}

// Work is what a part does in the background.
type Work struct {
	// Run does it until the context ends.
	Run func(ctx context.Context) error
	// NextDue returns when the next of it is due that waits for a time, the zero time while nothing is; Settle does
	// all that is due now, and returns when nothing is under way any longer. Both are nil where nothing waits for a
	// time or for events.
	NextDue func(ctx context.Context) (time.Time, error)
	Settle  func(ctx context.Context) error
}
