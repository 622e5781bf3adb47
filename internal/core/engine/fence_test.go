package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// deployments says in a store which spec is deployed, as several servers share it.
type deployments struct {
	store.Store
	// before, if not nil, is called once before the next append of events.
	before func()
	mu     sync.Mutex
}

const deployedSpace, deployedKey = "test.deployed", "spec"

func (d *deployments) Append(ctx context.Context, t j17.Tenant, units []store.Append) ([]store.Result, error) {
	d.mu.Lock()
	before := d.before
	if len(units[0].Events) > 0 {
		d.before = nil
	} else {
		before = nil
	}
	d.mu.Unlock()
	if before != nil {
		before()
	}
	return d.Store.Append(ctx, t, units)
}

// put makes a spec the deployed one for every server.
func (d *deployments) put(tb testing.TB, source string) {
	tb.Helper()
	side := store.Side{Op: store.Put, Space: deployedSpace, Key: deployedKey, Value: []byte(source)}
	if err := d.Write(tb.Context(), tenant, []store.Side{side}); err != nil {
		tb.Fatal(err)
	}
}

// adopt hands the deployed spec to an engine.
func (d *deployments) adopt(ctx context.Context, e *engine.Engine) error {
	it, err := d.Get(ctx, tenant, deployedSpace, deployedKey)
	if err != nil {
		return err
	}
	c, found := spec.Compile(it.Value)
	if c == nil {
		return fmt.Errorf("%+v", found)
	}
	e.Deploy(tenant, c, nil, store.Fence{Space: deployedSpace, Key: deployedKey, Rev: it.Rev})
	return nil
}

const (
	firstSpec  = `{"agent_types":["user"],"aggregate_types":{"account":{"events":{"was_paid":{"schema":{},"handler":[{"increment":{"target":"n","by":1}}]%s},"was_noted":{"schema":{},"handler":[]}}}}}`
	secondSpec = `{"agent_types":["user"],"aggregate_types":{"account":{"events":{"was_noted":{"schema":{},"handler":[]}}}}}`
	notes      = `,"implications":[{"condition":{"gte":["$.state.n",0]},"emit":{"aggregate_type":"account","id":"$.key","event_type":"was_noted","data":{}}}]`
)

// TestNoEventIsStoredUnderAFormerSpec deploys a spec elsewhere between the decision of a write and its commit: the
// event that the new one does not know is not stored, and others are decided with the new one.
func TestNoEventIsStoredUnderAFormerSpec(t *testing.T) {
	for name, implied := range map[string]string{"alone": "", "implying": notes, "in turn": notes} {
		t.Run(name, func(t *testing.T) {
			d := &deployments{}
			var e *engine.Engine
			asked := 0
			f := newFixture(t, engine.Options{})
			d.Store = f.Store
			e = engine.New(engine.Options{
				Store: d, Clock: f.Clock,
			}).Use(renewing(func(ctx context.Context, _ j17.Tenant) error {
				asked++
				return d.adopt(ctx, e)
			}))
			d.put(t, fmt.Sprintf(firstSpec, implied))
			if err := d.adopt(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			paid := enginetest.Command(t, "account/"+id+"/was_paid", `{"data":{},`+meta+`}`)
			if _, err := e.Execute(t.Context(), paid); err != nil {
				t.Fatal(err)
			}
			for name == "in turn" && e.Stats().Waited == 0 { // from then on who writes takes turns
				var crowd sync.WaitGroup
				for range 8 {
					crowd.Go(func() {
						if _, err := e.Execute(t.Context(), paid); err != nil {
							t.Error(err)
						}
					})
				}
				crowd.Wait()
			}
			stored, err := e.Length(t.Context(), tenant, "account", id)
			if err != nil {
				t.Fatal(err)
			}

			d.before = func() { d.put(t, secondSpec) }
			if _, err := e.Execute(t.Context(), paid); j17.CodeOf(err) != j17.CodeUnknownEventType {
				t.Errorf("an event of the former spec: %v", err)
			}
			if n, err := e.Length(t.Context(), tenant, "account", id); err != nil || n != stored {
				t.Errorf("%d events, there were %d: %v", n, stored, err)
			}
			d.before = func() { d.put(t, fmt.Sprintf(firstSpec, "")) }
			if _, err := e.Execute(
				t.Context(), enginetest.Command(t, "account/"+id+"/was_noted", `{"data":{},`+meta+`}`),
			); err != nil {
				t.Errorf("an event of both specs: %v", err)
			}
			if asked != 2 {
				t.Errorf("asked %d times what is deployed", asked)
			}
		})
	}
}

// TestASpecThatCannotBeTakenOver refuses writes, and reads go on.
func TestASpecThatCannotBeTakenOver(t *testing.T) {
	f := newFixture(t, engine.Options{})
	d := &deployments{Store: f.Store}
	e := engine.New(engine.Options{Store: d, Clock: f.Clock}).Use(
		renewing(func(context.Context, j17.Tenant) error { return nil }),
	)
	d.put(t, fmt.Sprintf(firstSpec, ""))
	if err := d.adopt(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	paid := enginetest.Command(t, "account/"+id+"/was_paid", `{"data":{},`+meta+`}`)
	if _, err := e.Execute(t.Context(), paid); err != nil {
		t.Fatal(err)
	}
	d.put(t, secondSpec)
	if _, err := e.Execute(t.Context(), paid); j17.CodeOf(err) != j17.CodeUnavailable {
		t.Errorf("a write: %v", err)
	}
	if _, err := e.Load(t.Context(), tenant, "account", id, engine.LoadOptions{}); err != nil {
		t.Errorf("a read: %v", err)
	}
}

// TestADeployIsExactAmongManyWriters lets writers go on while specs change: every event was stored under a spec that
// has it.
func TestADeployIsExactAmongManyWriters(t *testing.T) {
	const servers, writers, rounds = 2, 8, 5
	f := newFixture(t, engine.Options{})
	d := &deployments{Store: f.Store}
	d.put(t, fmt.Sprintf(firstSpec, notes))
	engines := make([]*engine.Engine, servers)
	for i := range engines {
		engines[i] = engine.New(engine.Options{Store: d, Clock: f.Clock}).Use(
			renewing(func(ctx context.Context, _ j17.Tenant) error { return d.adopt(ctx, engines[i]) }),
		)
		if err := d.adopt(t.Context(), engines[i]); err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				_, err := engines[w%servers].Execute(
					t.Context(), enginetest.Command(t, "account/"+id+"/was_paid", `{"data":{},`+meta+`}`),
				)
				if code := j17.CodeOf(err); err != nil && code != j17.CodeUnknownEventType && code != j17.CodeBusy {
					t.Error(err)
				}
			}
		})
	}
	key := []j17.Key{{Type: "account", ID: id}}
	for range rounds {
		d.put(t, secondSpec)
		before, err := d.Heads(t.Context(), tenant, key)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 { // what was under way comes in among these
			if err := d.Write(t.Context(), tenant, []store.Side{
				{Op: store.Put, Space: "test.other", Key: fmt.Sprint(i)},
			}); err != nil {
				t.Fatal(err)
			}
		}
		after, err := d.Heads(t.Context(), tenant, key)
		if err != nil || after[0].Length != before[0].Length {
			t.Errorf("%d events came in after the spec that does not have them: %v", after[0].Length-before[0].Length, err)
		}
		d.put(t, fmt.Sprintf(firstSpec, notes))
		for { // let some in
			now, err := d.Heads(t.Context(), tenant, key)
			if err != nil || now[0].Length > after[0].Length {
				break
			}
			for _, e := range engines {
				_, _ = e.Execute(t.Context(), enginetest.Command(t, "account/"+id+"/was_noted", `{"data":{},`+meta+`}`))
			}
		}
	}
	close(stop)
	writing.Wait()
}

// renewing is a part that deploys what the store has.
func renewing(renew func(context.Context, j17.Tenant) error) part.Part {
	return part.Part{Deploy: part.Deploy{Renew: renew}}
}
