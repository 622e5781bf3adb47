//go:build !race

package loading

import (
	"encoding/binary"
	"hash/maphash"
	"runtime"
	"testing"

	"j17"
	"j17/internal/core/command"
	"j17/internal/core/decider"
)

// following is a file whose aggregates are gone through.
func following(l *Loader) *recorder {
	return &recorder{
		Loader: l, d: &decider.Decider{}, seed: maphash.MakeSeed(), streams: map[uint64]pastStream{},
		claimed: map[uint64]uint64{},
	}
}

// follows goes through the first event of an aggregate, with a name or without one.
func (c *recorder) follows(t *testing.T, n uint64, named bool) error {
	t.Helper()
	ev := &pastEvent{
		Examined: &decider.Examined{Key: j17.Key{Type: "user", ID: string(binary.BigEndian.AppendUint64(nil, n))}},
		file:     command.FileEvent{},
	}
	if named {
		ev.file.Handle = "h" + ev.Key.ID
	}
	fresh, err := c.follow(t.Context(), ev, false)
	if !fresh || len(c.faults) > 0 {
		t.Fatalf("aggregate %d is not new: %v", n, c.faults)
	}
	return err
}

// TestMemoryOfAggregates goes through many aggregates: what is remembered of each, and of its name, is as much as the
// bound is made of.
func TestMemoryOfAggregates(t *testing.T) {
	for _, named := range []bool{false, true} {
		const aggregates = 300_000
		c := following(&Loader{})
		before := heap()
		for n := range uint64(aggregates) {
			if err := c.follows(t, n, named); err != nil {
				t.Fatal(err)
			}
		}
		size, most := (heap()-before)/aggregates, int64(followedBytes)
		if named {
			most *= 2
		}
		if t.Logf("%d bytes are kept for an aggregate, named: %t", size, named); size > most {
			t.Errorf("that is more than %d", most)
		}
		runtime.KeepAlive(c)
	}
}

// TestAggregatesOfAllFilesAreBounded goes through two files at a time that together have more aggregates than memory is
// for: one is told to wait, and goes on when the other one is through. One that has too many alone is refused.
func TestAggregatesOfAllFilesAreBounded(t *testing.T) {
	l := &Loader{Memory: 1}
	l.followed.Store(fewFollowed - 3*takenAtOnce)
	one, other := following(l), following(l)
	if err := other.follows(t, 0, false); err != nil {
		t.Fatal(err)
	}
	n, err := uint64(0), error(nil)
	for ; err == nil && n < 3*takenAtOnce; n++ {
		err = one.follows(t, n, true)
	}
	if j17.CodeOf(err) != j17.CodeBusy || n < takenAtOnce/2 || n > takenAtOnce {
		t.Errorf("after %d aggregates: %v", n, err)
	}
	other.unfollow()
	other.unfollow()
	if err := one.follows(t, n, false); err != nil {
		t.Error(err)
	}
	one.unfollow()
	if got := l.followed.Load(); got != fewFollowed-3*takenAtOnce {
		t.Errorf("%d are counted at the end", got)
	}

	l.followed.Store(0)
	alone := following(l)
	for n, err = 0, nil; err == nil && n <= fewFollowed; n++ {
		err = alone.follows(t, n, false)
	}
	if j17.CodeOf(err) != j17.CodePayloadTooLarge || n < fewFollowed-takenAtOnce || n > fewFollowed {
		t.Errorf("after %d aggregates: %v", n, err)
	}
}
