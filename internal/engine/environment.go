package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"j17"
	"j17/internal/spec"
	"j17/internal/store"
)

// environment is what the engine keeps of one tenant: its spec, its time and who is about to write.
type environment struct {
	tenant  j17.Tenant
	current atomic.Pointer[deployed]
	// gate is held shared from the look at current to the end of an append, and alone while current changes: what a spec
	// has let in is stored before the next one is deployed, or not at all.
	gate sync.RWMutex
	// gone tells that the environment was undeployed and is not in the engine's map any more. gate guards it.
	gone bool
	// latest is the time of the latest event that the engine has heard of, in Unix seconds.
	latest atomic.Int64
	turns  turns
}

// errRedeployed tells that a write was decided under a spec that is not deployed any more. Nothing was written.
var errRedeployed = errors.New("engine: another spec has been deployed meanwhile")

// Deploy makes c the spec of a tenant, with the functions of its custom code: event types whose code has none are refused
// with CodeCustomCodeFailed. Reads and writes that begin afterwards see it; states that were folded with other handlers or
// functions are not used any more. When it returns, all events that the former spec has let in are stored; writes that are
// still on their way are checked against c.
func (e *Engine) Deploy(t j17.Tenant, c *spec.Compiled, functions Functions) {
	d := newDeployed(c, functions)
	for {
		found, ok := e.environments.Load(t)
		if !ok {
			found, _ = e.environments.LoadOrStore(t, newEnvironment(t))
		}
		env, _ := found.(*environment)
		if env.deploy(d) {
			return
		}
	}
}

func newEnvironment(t j17.Tenant) *environment {
	return &environment{tenant: t, turns: turns{lanes: map[j17.Key]*lane{}}}
}

// deploy reports false when the environment has been given up.
func (env *environment) deploy(d *deployed) bool {
	env.gate.Lock()
	defer env.gate.Unlock()
	if env.gone {
		return false
	}
	d.env = env
	env.current.Store(d)
	return true
}

// Undeploy takes a tenant's spec away: nothing can be written or read until there is another one.
func (e *Engine) Undeploy(t j17.Tenant) {
	found, ok := e.environments.Load(t)
	if !ok {
		return
	}
	env, _ := found.(*environment)
	env.gate.Lock()
	defer env.gate.Unlock()
	if env.gone {
		return
	}
	env.gone = true
	env.current.Store(nil)
	e.environments.Delete(t)
}

// Spec returns the deployed spec of a tenant, nil when there is none.
func (e *Engine) Spec(t j17.Tenant) *spec.Compiled {
	if d := e.present(t); d != nil {
		return d.spec
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

// append hands a unit that was decided under d to the store. The error is errRedeployed where d is not deployed any more.
func (e *Engine) append(ctx context.Context, d *deployed, unit *store.Append) (store.Result, error) {
	env := d.env
	env.gate.RLock()
	defer env.gate.RUnlock()
	if env.current.Load() != d {
		return store.Result{}, errRedeployed
	}
	results, err := e.store.Append(ctx, env.tenant, []store.Append{*unit})
	if err != nil {
		return store.Result{}, storage(err)
	}
	env.pass(results[0].Timestamp)
	return results[0], nil
}

// now returns the time at which something is decided, in Unix seconds: the clock's, or that of the latest event if it is later.
func (e *Engine) now(env *environment) int64 { return max(e.clock.Now().Unix(), env.latest.Load()) }

// pass notes that there are events of that time.
func (env *environment) pass(timestamp int64) {
	for {
		latest := env.latest.Load()
		if timestamp <= latest || env.latest.CompareAndSwap(latest, timestamp) {
			return
		}
	}
}
