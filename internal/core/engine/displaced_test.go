package engine_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/storage/store"
)

// hooked is a store whose next append is done by a hook, once.
type hooked struct {
	store.Store
	mu   sync.Mutex
	hook func(do func() ([]store.Result, error)) ([]store.Result, error)
}

// next lets the next append be done by a hook.
func (h *hooked) next(hook func(do func() ([]store.Result, error)) ([]store.Result, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hook = hook
}

func (h *hooked) Append(ctx context.Context, t j17.Tenant, u []store.Append) ([]store.Result, error) {
	do := func() ([]store.Result, error) { return h.Store.Append(ctx, t, u) }
	h.mu.Lock()
	hook := h.hook
	h.hook = nil
	h.mu.Unlock()
	if hook != nil {
		return hook(do)
	}
	return do()
}

// TestAStateThatNeverWasIsNotKept: an event that brings about nothing is stored in turn behind one of a writer who saw
// no lane, so the state that was computed with it must not be cached, nor decided on.
func TestAStateThatNeverWasIsNotKept(t *testing.T) {
	f := newFixture(t, engine.Options{})
	h := &hooked{Store: f.Store}
	f.Engine = engine.New(engine.Options{Store: h, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
	f.DeploySource(t, accountSpec)
	dep := func(n string) string { return `{"data":{"amount":` + n + `},` + meta + `}` }
	raw := func(n string) {
		_, err := f.Store.Append(t.Context(), tenant, []store.Append{{Timestamp: 1, Events: []store.NewEvent{{
			Key: j17.Key{Type: "account", ID: id}, Type: "was_deposited", Data: []byte(`{"amount":` + n + `}`),
			Metadata: []byte(`{}`),
		}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	f.Post(t, "account/"+id+"/was_opened", `{"data":{},`+meta+`}`)
	// W1 is outside the lane: held back between its look at the lanes and the committer.
	reached, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	h.next(func(do func() ([]store.Result, error)) ([]store.Result, error) { close(reached); <-goOn; return do() })
	go func() {
		defer close(done)
		if _, err := f.Execute(
			t.Context(), enginetest.Command(t, "account/"+id+"/was_deposited", dep("100")),
		); err != nil {
			t.Error(err)
		}
	}()
	<-reached
	// A payment is overtaken: the lane comes into being.
	h.next(func(do func() ([]store.Result, error)) ([]store.Result, error) { raw("10"); return do() })
	f.Post(t, "account/"+id+"/was_paid", paid())
	// W2 deposits in turn, W1 gets to the committer just before it.
	h.next(func(do func() ([]store.Result, error)) ([]store.Result, error) { close(goOn); <-done; return do() })
	f.Post(t, "account/"+id+"/was_deposited", dep("1000"))
	served, truth := f.State(t, "account/"+id, engine.LoadOptions{}), f.State(t, "account/"+id, engine.LoadOptions{
		Replay: true,
	})
	if served != truth {
		t.Errorf("served %s, truth %s", served, truth)
	}
}
