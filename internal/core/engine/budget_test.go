package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/lang/spec"
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

// TestAStateFromCodeHasALimit: one that is too large is refused before anything is stored.
func TestAStateFromCodeHasALimit(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.deployAnswer(t, `{"state":{"pad":"`+strings.Repeat("x", 9<<20)+`"}}`)
	if _, err := f.Execute(
		t.Context(), enginetest.Command(t, "order/"+id+"/had_line", line("1")),
	); j17.CodeOf(err) != j17.CodeCustomCodeFailed {
		t.Errorf("got %v", err)
	}
	if n := f.Written(t, "order", id); n != 0 {
		t.Errorf("%d events", n)
	}
}
