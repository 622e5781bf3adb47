package checkpoint_test

import (
	"fmt"
	"strings"
	"testing"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
)

// TestStatesAreThoseOfOneMoment writes to aggregates between two steps, and has all of them as they were before.
func TestStatesAreThoseOfOneMoment(t *testing.T) {
	t.Parallel()
	f := newFixture(t, enginetest.CounterSpec, engine.Options{})
	id := func(n int) string { return fmt.Sprintf("00000000-0000-4000-a000-%012d", n) }
	count := func(n int) { f.Post(t, "counter/"+id(n)+"/was_counted", enginetest.Body(`{"by":1}`)) }
	for n := range 20 {
		count(2 * n)
	}
	f.Post(t, "other/main/was_seen", enginetest.Body(`{}`))

	x, err := f.States(t.Context(), enginetest.Tenant, "")
	if err != nil {
		t.Fatal(err)
	}
	want, n := lines(t.Context(), t, x), 0
	if strings.Count(want, "\n") != 21 || !strings.HasPrefix(
		want, `{"key":"counter:`+id(0)+`","length":1,"state":{"n":1,`,
	) || !strings.Contains(want, "\n"+`{"key":"other:main",`) {
		t.Fatalf("the states are %s", want)
	}
	var got strings.Builder
	for st, err := range x.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got.Write(st.Line)
		got.WriteByte('\n')
		count(38 - n)   // one that comes later, and was there
		count(2*n + 21) // one that was not
		if n += 2; n > 38 {
			n = 0
		}
	}
	if got.String() != want {
		t.Errorf("the states have changed on the way:\n%s\nwere\n%s", got.String(), want)
	}
	if later, err := f.States(t.Context(), enginetest.Tenant, "counter"); err != nil ||
		later.Position().Compare(x.Position()) <= 0 || strings.Count(lines(t.Context(), t, later), "\n") <= 20 {
		t.Errorf("later the states are those of %v, %v", later.Position(), err)
	}
}

// TestStatesHaveNames asks for the states of a type whose aggregates have names, and for one that there is not.
func TestStatesHaveNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t, enginetest.NamesSpec, engine.Options{})
	r := f.Fixture.Create(t, "refund/_new/was_made", enginetest.Body(`{}`))
	f.Post(t, "note/"+enginetest.ID+"/was_written", enginetest.Body(`{}`))
	x, err := f.States(t.Context(), enginetest.Tenant, "refund")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := lines(t.Context(), t, x), `,"handle":"`+r.Handle+`","public_id":"`+r.PublicID+`"}`+
		"\n"; !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("the states are %s, without %s", got, want)
	}
	if _, err := f.States(t.Context(), enginetest.Tenant, "ghost"); j17.CodeOf(err) != j17.CodeUnknownType {
		t.Errorf("of a type that there is not: %v", err)
	}
	if _, err := f.States(t.Context(), "ins_test/staging", ""); j17.CodeOf(err) != j17.CodeNoSpec {
		t.Errorf("without a spec: %v", err)
	}
}
