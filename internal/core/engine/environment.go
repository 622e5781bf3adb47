package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/core/decider"
	"j17/internal/core/fold"
	"j17/internal/core/groupcommit"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// environment is what the engine keeps in memory for one tenant: its spec, its time, and the locks and pending appends
// of its writers.
type environment struct {
	e       *Engine
	tenant  j17.Tenant
	current atomic.Pointer[deployed]
	// mu is held while current changes.
	mu sync.Mutex
	// gone reports that the environment was undeployed and is no longer in the engine's map.
	gone bool
	// renewing, if not nil, is the call of the hook Renew that is under way.
	renewing *renewal
	// latest is the time of the latest event that the engine knows of, in Unix seconds.
	latest  atomic.Int64
	commits *groupcommit.Committer
	// storing is read-locked while events are stored, and write-locked by Hold.
	storing sync.RWMutex
}

// deployed is the spec of a tenant with what the engine needs to run it.
type deployed struct {
	*decider.Decider
	env *environment
	// fences hold in the store as long as it is deployed; replaced is closed when this engine has another one.
	fences   []store.Fence
	replaced chan struct{}
	// absent records what conditions have looked for and not found.
	absent absences
	// retagged counts, by name, how often deployments have changed which events have a tag, since the environment was
	// first deployed to.
	retagged map[string]uint64
}

// renewal is one call of the hook Renew, for what was deployed then. err is valid once done is closed.
type renewal struct {
	of   *deployed
	done chan struct{}
	err  error
}

// errRedeployed reports that a write was decided under a spec that is no longer deployed. Nothing was written.
var errRedeployed = errors.New("engine: another spec has been deployed meanwhile")

// Deploy makes c the spec of a tenant, with the functions of its custom code: event types whose code has no function
// are refused with CodeCustomCodeFailed. Reads and writes that begin afterwards see it; states that were folded with
// other handlers or functions are no longer used. Units decided with c are stored only while the fences hold: a fence
// on the item that records the deployment of c makes the switch exact, whoever makes the next deployment. Writes whose
// fences no longer hold are decided again with what the hook Renew deploys.
func (e *Engine) Deploy(t j17.Tenant, c *spec.Compiled, functions decider.Functions, fences ...store.Fence) {
	d := &deployed{Decider: decider.New(c, functions), fences: fences, replaced: make(chan struct{})}
	for {
		found, ok := e.environments.Load(t)
		if !ok {
			found, _ = e.environments.LoadOrStore(t, newEnvironment(e, t))
		}
		env, _ := found.(*environment)
		if env.deploy(d) {
			return
		}
	}
}

func newEnvironment(e *Engine, t j17.Tenant) *environment {
	env := &environment{e: e, tenant: t}
	env.commits = groupcommit.New(groupcommit.Options{
		Commit: func(ctx context.Context, units []store.Append) ([]store.Result, error) {
			results, err := env.commit(ctx, units)
			for i := range results {
				env.observe(results[i].Timestamp)
			}
			return results, err
		},
		Keep:   func(key j17.Key, state *decider.State) { e.states.Keep(fold.StateKey{Tenant: t, Key: key}, state) },
		Logger: e.logger,
	})
	return env
}

// deploy makes d the present one; it returns false if the environment has been undeployed.
func (env *environment) deploy(d *deployed) bool {
	env.mu.Lock()
	defer env.mu.Unlock()
	if env.gone {
		return false
	}
	d.env = env
	env.replace(d)
	return true
}

// replace makes d, which may be nil, the present one. The caller holds mu.
func (env *environment) replace(d *deployed) {
	old := env.current.Load()
	if old != nil && d != nil {
		d.retagged = old.retaggedBy(d)
	}
	env.current.Store(d)
	if old != nil {
		close(old.replaced)
	}
}

// retaggedBy returns the counts of changed tags when next takes the place of d.
func (d *deployed) retaggedBy(next *deployed) map[string]uint64 {
	counts := maps.Clone(d.retagged)
	count := func(name string) {
		if counts == nil {
			counts = map[string]uint64{}
		}
		counts[name]++
	}
	for name, tag := range d.TagNames {
		if now := next.TagNames[name]; now == nil || now.Fingerprint != tag.Fingerprint {
			count(name)
		}
	}
	for name := range next.TagNames {
		if d.TagNames[name] == nil {
			count(name)
		}
	}
	return counts
}

// Undeploy removes a tenant's spec: nothing can be written or read until another one is deployed.
func (e *Engine) Undeploy(t j17.Tenant) {
	found, ok := e.environments.Load(t)
	if !ok {
		return
	}
	env, _ := found.(*environment)
	env.mu.Lock()
	defer env.mu.Unlock()
	if env.gone {
		return
	}
	env.gone = true
	env.replace(nil)
	e.environments.Delete(t)
	for _, forget := range e.hooks.forget {
		forget(t)
	}
}

// Spec returns the deployed spec of a tenant, nil when there is none.
func (e *Engine) Spec(t j17.Tenant) *spec.Compiled {
	if d := e.present(t); d != nil {
		return d.Compiled
	}
	return nil
}

// present returns what is deployed to a tenant, nil for nothing.
func (e *Engine) present(t j17.Tenant) *deployed {
	found, ok := e.environments.Load(t)
	if !ok {
		return nil
	}
	env, _ := found.(*environment)
	return env.current.Load()
}

func (e *Engine) deployed(t j17.Tenant) (*deployed, error) {
	if d := e.present(t); d != nil {
		return d, nil
	}
	return nil, j17.Errorf(j17.CodeNoSpec, "No spec is deployed to this environment. Deploy one and try again.")
}

// Decider returns what is deployed to a tenant; the error is CodeNoSpec if nothing is.
func (e *Engine) Decider(t j17.Tenant) (*decider.Decider, error) {
	d, err := e.deployed(t)
	if err != nil {
		return nil, err
	}
	return d.Decider, nil
}

// append hands a unit that was decided under d to the store. The error is errRedeployed if d is no longer deployed.
func (d *deployed) append(ctx context.Context, unit *store.Append) (store.Result, error) {
	if !d.Current() {
		return store.Result{}, errRedeployed
	}
	unit.Fences = d.fence(unit.Fences)
	results, err := d.env.commit(ctx, []store.Append{*unit})
	if err != nil && d.env.mended(ctx, err) {
		results, err = d.env.commit(ctx, []store.Append{*unit})
	}
	if err != nil {
		return store.Result{}, store.UserError(err)
	}
	if d.RefusedBy(&results[0]) {
		return store.Result{}, errRedeployed
	}
	d.env.observe(results[0].Timestamp)
	return results[0], nil
}

// commit hands units to the store. It waits while Hold is under way.
func (env *environment) commit(ctx context.Context, units []store.Append) ([]store.Result, error) {
	env.storing.RLock()
	defer env.storing.RUnlock()
	return env.e.store.Append(ctx, env.tenant, units)
}

// Hold calls do while no events of a tenant are stored: this engine stores none, and no other can, since the one
// process that has a store open locks it. Writers wait until do has returned. The store then refuses decisions that are
// fenced on items that do has changed.
func (e *Engine) Hold(t j17.Tenant, do func() error) error {
	found, ok := e.environments.Load(t)
	if !ok {
		return do() // nobody writes where nothing is deployed
	}
	env, _ := found.(*environment)
	env.storing.Lock()
	defer env.storing.Unlock()
	return do()
}

// fence returns the given fences together with those of the deployed spec.
func (d *deployed) fence(more []store.Fence) []store.Fence {
	if len(more) == 0 {
		return d.fences
	}
	return slices.Concat(d.fences, more)
}

// Current reports whether d is what is deployed.
func (d *deployed) Current() bool { return d.env.current.Load() == d }

// RefusedBy reports whether a unit was refused because d is no longer deployed.
func (d *deployed) RefusedBy(r *store.Result) bool {
	return slices.ContainsFunc(r.Sides, func(c store.SideConflict) bool {
		return slices.ContainsFunc(d.fences, func(f store.Fence) bool { return f.Space == c.Space && f.Key == c.Key })
	})
}

// renew returns when something other than d is deployed, since nothing can be decided with d any longer. It calls the
// hook Renew, unless the engine is told of the deployment first.
func (d *deployed) renew(ctx context.Context) error {
	env := d.env
	env.mu.Lock()
	asked := env.renewing
	if asked == nil && env.current.Load() == d {
		asked = &renewal{of: d, done: make(chan struct{})}
		env.renewing = asked
		go env.ask(context.WithoutCancel(ctx), asked)
	}
	env.mu.Unlock()
	if asked == nil {
		return nil
	}
	select {
	case <-d.replaced:
		return nil
	case <-asked.done:
	case <-ctx.Done():
		return store.UserError(ctx.Err())
	}
	switch {
	case env.current.Load() != d:
		return nil
	case asked.of != d: // the hook was called for an earlier one
		return d.renew(ctx)
	case asked.err != nil:
		return asked.err
	default:
		return j17.Errorf(j17.CodeUnavailable, "Another spec was deployed to this environment, and this server cannot work with it. Nothing was written. Deploy a spec that this server accepts, or bring all servers to the same version.")
	}
}

// ask calls the hook Renew for the environment.
func (env *environment) ask(ctx context.Context, r *renewal) {
	if env.e.hooks.renew != nil {
		r.err = panics.Caught(func() error { return env.e.hooks.renew(ctx, env.tenant) })
	}
	env.mu.Lock()
	env.renewing = nil
	env.mu.Unlock()
	close(r.done)
}

// now returns the time for decisions, in Unix seconds: the clock's, or that of the latest event if it is later.
func (env *environment) now() int64 { return max(env.e.clock.Now().Unix(), env.latest.Load()) }

// observe records that there is an event of that Unix second.
func (env *environment) observe(timestamp int64) {
	for {
		latest := env.latest.Load()
		if timestamp <= latest || env.latest.CompareAndSwap(latest, timestamp) {
			return
		}
	}
}
