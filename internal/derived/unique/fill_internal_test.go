package unique

import (
	"testing"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
)

// TestWhoComesBackToALineWaits has an aggregate wait for a value, take another one and come back to its place, since
// the event of the other one was erased, all on one page: it still waits, which a trial tells of, and gets the value
// when that is given back.
func TestWhoComesBackToALineWaits(t *testing.T) {
	t.Parallel()
	set := &spec.UniqueSet{Name: "email"}
	g := newGeneration("user", set)
	f := &filling{
		generations: []*generation{g}, sets: map[*spec.UniqueSet]*generation{set: g}, holders: map[string]string{},
		holdings: map[string]*holding{}, lines: map[string]*line{},
	}
	ann, bob := j17.Key{Type: "user", ID: "ann"}, j17.Key{Type: "user", ID: "bob"}
	takes := func(key j17.Key, value byte, at int64) {
		t.Helper()
		if err := f.exchange(
			t.Context(), decider.Exchange{Set: set, Of: &spec.UniqueValue{}, Value: [32]byte{value}}, key,
			j17.StreamID{Ms: at},
		); err != nil {
			t.Fatal(err)
		}
	}
	takes(ann, 1, 1)
	takes(bob, 1, 2)
	takes(bob, 2, 3)
	takes(bob, 1, 2)
	if all, err := f.conflicts(t.Context()); err != nil || len(all) != 1 || all[0].holder != ann.String() ||
		all[0].other != bob.String() {
		t.Errorf("the conflicts are %+v, %v", all, err)
	}
	takes(ann, 3, 4)
	if who := f.holders[g.valueKey([32]byte{1})]; who != bob.String() {
		t.Errorf("%q has the value", who)
	}
	if who := f.holders[g.valueKey([32]byte{2})]; who != "" {
		t.Errorf("%q has what was erased", who)
	}
}
