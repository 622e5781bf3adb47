package storetest

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"j17"
	"j17/internal/storage/store"
)

// testContention lets clients write one stream, each with the length that it knows as a precondition.
func testContention(s *suite) {
	t := s.t
	f := s.fixture(t)

	// Each client writes until it has committed wins units.
	const clients, wins = 8, 25
	key := order("hot")
	var conflicts atomic.Int64
	taken := make([][]uint64, clients)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			expected := uint64(0)
			for len(taken[c]) < wins {
				r := appendUnit(worker{t}, f, tenant, store.Append{
					Pre: []store.Pre{pre(key, expected)}, Events: events(key, fmt.Sprint(c)),
					Side: []store.Side{put("last", fmt.Sprint(c))},
				})
				switch r.Outcome {
				case store.Committed:
					taken[c] = append(taken[c], r.Lengths[0])
					expected = r.Lengths[0]
				case store.Conflict:
					conflicts.Add(1)
					if len(r.Streams) != 1 || r.Streams[0].Actual <= expected {
						t.Errorf("conflict %+v with length %d expected", r.Streams, expected)
						return
					}
					expected = r.Streams[0].Actual
				case store.Duplicate, store.TooEarly:
					t.Errorf("outcome %d without a command or a time", r.Outcome)
					return
				}
			}
		})
	}
	wg.Wait()
	if conflicts.Load() == 0 {
		t.Log("no conflicts occurred")
	}

	// Each client has the versions acknowledged to it, and the side item is from the last event.
	got := readStream(t, f, tenant, key, 1, 0)
	if len(got) != clients*wins {
		t.Fatalf("%d events, want %d", len(got), clients*wins)
	}
	for c := range clients {
		for _, version := range taken[c] {
			if got[version-1].Data != fmt.Sprint(c) {
				t.Errorf("version %d was acknowledged to client %d and holds %s", version, c, got[version-1].Data)
			}
		}
	}
	if item := get(t, f, tenant, space, "last"); string(item.Value) != got[len(got)-1].Data {
		t.Errorf("the side item is from client %s, the last event from %s", item.Value, got[len(got)-1].Data)
	}
}

// The operations of the linearizability test, on one stream of small numbers.
type (
	appendIf struct {
		length uint64
		value  string
	}
	readAll  struct{}
	readHead struct{}
	// appended is the length of the stream after the append, or the actual one when ok is false.
	appended struct {
		ok     bool
		length uint64
	}
)

// streamModel is a stream as a sequence: the state is the concatenated values, one byte each.
func streamModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, input, output any) (bool, any) {
			values, ok := state.(string)
			if !ok {
				return false, state
			}
			switch in := input.(type) {
			case appendIf:
				if in.length != uint64(len(values)) {
					return output == appended{false, uint64(len(values))}, state
				}
				return output == appended{true, in.length + 1}, values + in.value
			case readAll:
				return output == values, state
			case readHead:
				return output == uint64(len(values)), state
			default:
				return false, state
			}
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%T%v -> %v", input, input, output) },
	}
}

// testLinearizable records the calls and results of clients, and checks that they are linearizable.
func testLinearizable(s *suite) {
	t := s.t
	f := s.fixture(t)

	// Clients append and read, and record when each call began and ended.
	const clients, operations, streams = 6, 40, 3
	var tick atomic.Int64
	histories := make([][streams][]porcupine.Operation, clients)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			var known [streams]uint64
			for n := range operations {
				stream := (n + c) % streams
				key := order(fmt.Sprint("s", stream))
				var input, output any
				call := tick.Add(1)
				switch n % 5 {
				case 0, 1, 3:
					in := appendIf{known[stream], string("abcdef"[c])}
					r := appendUnit(worker{t}, f, tenant, store.Append{
						Pre: []store.Pre{pre(key, in.length)}, Events: events(key, `"`+in.value+`"`),
					})
					out := appended{ok: r.Outcome == store.Committed}
					if out.ok {
						out.length = r.Lengths[0]
					} else {
						out.length = r.Streams[0].Actual
					}
					known[stream] = out.length
					input, output = in, out
				case 2:
					var values strings.Builder
					for _, e := range readStream(worker{t}, f, tenant, key, 1, 0) {
						values.WriteString(e.Data[1:2])
					}
					known[stream] = uint64(values.Len())
					input, output = readAll{}, values.String()
				case 4:
					known[stream] = head(worker{t}, f, tenant, key).Length
					input, output = readHead{}, known[stream]
				}
				histories[c][stream] = append(histories[c][stream], porcupine.Operation{
					ClientId: c, Input: input, Call: call, Output: output, Return: tick.Add(1),
				})
			}
		})
	}
	wg.Wait()

	// Each stream has a history of its own.
	for stream := range streams {
		var history []porcupine.Operation
		for c := range clients {
			history = append(history, histories[c][stream]...)
		}
		if result := porcupine.CheckOperationsTimeout(streamModel(), history, time.Minute); result != porcupine.Ok {
			t.Errorf("the history of stream %d is not linearizable: %s", stream, result)
		}
	}
}

// testCounter draws numbers from a counter in the same commit as the events that carry them.
func testCounter(s *suite) {
	t := s.t
	f := s.fixture(t)
	const clients, draws = 6, 15
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for n := range draws {
				for draw(worker{t}, f, order(fmt.Sprintf("%d-%d", c, n))) != store.Committed {
				}
			}
		})
	}
	wg.Wait()

	// No number occurs twice, and none is left out.
	seen := map[string]bool{}
	for _, e := range readFeed(t, f, tenant, j17.StreamID{}, everything) {
		seen[e.Data] = true
	}
	for n := range clients * draws {
		if !seen[fmt.Sprint(n+1)] {
			t.Errorf("nobody got number %d", n+1)
		}
	}
	if len(seen) != clients*draws {
		t.Errorf("%d numbers, want %d", len(seen), clients*draws)
	}
}

// draw takes the next number of the counter and writes an event with it.
func draw(t failer, s store.Store, key j17.Key) store.Outcome {
	t.Helper()
	side := store.Side{Op: store.Put, Space: "counters", Key: "c", Cond: store.IfAbsent}
	number := 1
	items, err := s.Scan(t.Context(), tenant, side.Space, store.Prefix("c"), 1)
	if err != nil {
		t.Fatalf("scan: %v", err)
	}
	if len(items) == 1 {
		if _, err := fmt.Sscan(string(items[0].Value), &number); err != nil {
			t.Fatalf("the counter holds %q", items[0].Value)
		}
		number++
		side.Cond, side.Rev = store.IfRev, items[0].Rev
	}
	side.Value = fmt.Append(nil, number)
	return appendUnit(t, s, tenant, store.Append{
		Events: events(key, fmt.Sprint(number)), Side: []store.Side{side},
	}).Outcome
}

// testFencing takes a lease from its holders: by the clock, in a race, over a restart. A unit of a former holder, even
// one that renews the lease, is refused as a whole.
func testFencing(s *suite) {
	t := s.t
	f := s.fixture(t)
	stream := order("effects")
	effects := uint64(0)

	// tries commits an effect in each way in which a unit can depend on the revision of the lease.
	tries := func(when string, rev uint64, want store.Outcome) {
		t.Helper()
		keep := store.Side{
			Op: store.Put, Space: "work", Key: "lease", Value: []byte("kept"), Due: f.clock.Now().Add(time.Minute),
			Cond: store.IfRev, Rev: rev,
		}
		units := []store.Append{
			{Events: events(stream, `1`), Fences: []store.Fence{{Space: "work", Key: "lease", Rev: rev}}},
			{Events: events(stream, `1`), Side: []store.Side{put("effect", when), keep}},
		}

		// Check their outcomes.
		for i, u := range units {
			r := appendUnit(t, f, tenant, u)
			if r.Outcome != want {
				t.Errorf("%s: unit %d of revision %d has the outcome %d, not %d", when, i, rev, r.Outcome, want)
			}
			if r.Outcome == store.Committed {
				effects++
			}
		}
		if n := head(t, f, tenant, stream).Length; n != effects {
			t.Errorf("%s: %d effects, not %d", when, n, effects)
		}
	}
	rev := func() uint64 { return get(t, f, tenant, "work", "lease").Rev }

	// The lease of the first holder ends, and the second one claims it.
	write(t, f, tenant, store.Side{Op: store.Put, Space: "work", Key: "lease", Due: f.clock.Now()})
	first := claim(t, f, 1, 10*time.Second)[0].Rev
	f.clock.Advance(11 * time.Second)
	second := claim(t, f, 1, 10*time.Second)[0].Rev
	tries("taken over", first, store.Conflict)
	tries("held", second, store.Committed)
	third := rev()
	tries("renewed", second, store.Conflict)

	// Many writers try to take it at once: one succeeds, and later units of the others are refused.
	for round := range 10 {
		before := rev()
		var won atomic.Int64
		var wg sync.WaitGroup
		for c := range 8 {
			wg.Go(func() {
				take := store.Side{
					Op: store.Put, Space: "work", Key: "lease", Value: []byte(fmt.Sprint(c)), Cond: store.IfRev,
					Rev: before,
				}
				r := appendUnit(worker{t}, f, tenant, store.Append{
					Side: []store.Side{take}, Events: events(stream, `1`),
				})
				if r.Outcome == store.Committed {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		if effects++; won.Load() != 1 {
			t.Fatalf("round %d: %d have taken the lease", round, won.Load())
		}
		tries("lost in a race", before, store.Conflict)
	}

	// A lease that was removed and created again is another one, also after a restart.
	last := rev()
	write(t, f, tenant, store.Side{Op: store.Delete, Space: "work", Key: "lease"})
	f.reopen(t, t)
	tries("removed", last, store.Conflict)
	write(t, f, tenant, store.Side{Op: store.Put, Space: "work", Key: "lease"})
	for _, old := range []uint64{first, second, third, last} {
		tries("made anew", old, store.Conflict)
	}
	tries("the new one", rev(), store.Committed)
}
