package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"j17"
	"j17/internal/decider"
	"j17/internal/engine"
	"j17/internal/engine/enginetest"
	"j17/internal/spec"
)

// answering is code that always answers the same and counts the bytes that pass.
type answering struct {
	passed *atomic.Int64
	answer string
}

func (a answering) Call(_ context.Context, in []byte) ([]byte, error) {
	a.passed.Add(int64(len(in) + len(a.answer)))
	return []byte(a.answer), nil
}

func (a answering) Digest() [32]byte { return [32]byte{7} }

func (f *fixture) deployAnswer(t *testing.T, answer string) *atomic.Int64 {
	t.Helper()
	c, found := spec.Compile([]byte(codedSpec))
	if c == nil {
		t.Fatal(found)
	}
	a := answering{new(atomic.Int64), answer}
	functions := decider.Functions{}
	for _, u := range c.CodeUses() {
		functions[u.Code] = a
	}
	f.Deploy(tenant, c, functions)
	return a.passed
}

// TestABatchThroughCodeHasABudget: what goes in and out of custom code for one command is bounded.
func TestABatchThroughCodeHasABudget(t *testing.T) {
	f := newFixture(t, engine.Options{})
	passed := f.deployAnswer(t, `{"state":{"pad":"`+strings.Repeat("x", 1<<20)+`"}}`)
	batch := func(n int) *engine.Command {
		return enginetest.Command(t, "order/"+id, `{"events":[`+strings.TrimSuffix(strings.Repeat(`{"type":"had_line","data":{}},`, n), ",")+`],`+meta+`}`)
	}
	if _, err := f.Execute(t.Context(), batch(500)); j17.CodeOf(err) != j17.CodeWorkLimit {
		t.Errorf("got %v", err)
	}
	if n := passed.Load() >> 20; n > 200 {
		t.Errorf("%d MiB passed", n)
	}
	if _, err := f.Execute(t.Context(), batch(10)); err != nil {
		t.Error(err)
	}
}

// TestAStateFromCodeHasALimit: one that is too large is refused before anything is stored.
func TestAStateFromCodeHasALimit(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.deployAnswer(t, `{"state":{"pad":"`+strings.Repeat("x", 9<<20)+`"}}`)
	if _, err := f.Execute(t.Context(), enginetest.Command(t, "order/"+id+"/had_line", line("1"))); j17.CodeOf(err) != j17.CodeCustomCodeFailed {
		t.Errorf("got %v", err)
	}
	if n := f.Written(t, "order", id); n != 0 {
		t.Errorf("%d events", n)
	}
}

// TestTheCacheHoldsWhatItCharges: a small state does not hold on to the large answer that it came with.
func TestTheCacheHoldsWhatItCharges(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.deployAnswer(t, `{"state":{"a":"small"},"junk":"`+strings.Repeat("x", 4<<20)+`"}`)
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc >> 20)
	}
	before := heap()
	for i := range 30 {
		f.Post(t, fmt.Sprintf("order/%08d-0000-4000-8000-000000000000/had_line", i), line("1"))
	}
	if held := heap() - before; held > 40 {
		t.Errorf("%d MiB are held for %d charged bytes", held, f.Stats().CacheBytes)
	}
	runtime.KeepAlive(f)
}
