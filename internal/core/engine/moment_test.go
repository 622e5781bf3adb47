package engine_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/fold"
	"j17/internal/storage/store"
)

// counters returns the keys of counters, at most 256, that differ in the last digits of their ids.
func counters(n int) (keys []j17.Key) {
	for i := range n {
		keys = append(keys, j17.Key{Type: "counter", ID: fmt.Sprintf("0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f%02x", i)})
	}
	return keys
}

// TestAMomentIsExact counts with several counters while moments are taken: each shows every counter with just those
// events that stand up to its position, whenever it is asked.
func TestAMomentIsExact(t *testing.T) {
	f := enginetest.New(t, engine.Options{SnapshotEvery: 7})
	f.DeploySource(t, enginetest.CounterSpec)
	keys := append(counters(3), j17.Key{Type: "counter", ID: "main"}, j17.Key{Type: "ghost", ID: enginetest.ID})
	const rounds = 100
	var writing sync.WaitGroup
	for i := range 3 {
		writing.Go(func() {
			for range rounds {
				f.Post(t, "counter/"+keys[i].ID+"/was_counted", enginetest.Body(`{"by":1}`))
			}
		})
	}

	// Moments of the present, looked at now and once more when all is written.
	var taken []*fold.Moment
	var lengths [][]uint64
	for last := uint64(0); last < 3*rounds && !t.Failed(); {
		now, err := f.Store.Moment(t.Context(), enginetest.Tenant)
		if err != nil {
			t.Fatal(err)
		}
		heads, err := now.Heads(keys)
		now.Close()
		if err != nil {
			t.Fatal(err)
		}
		m, err := f.Moment(enginetest.Tenant, now.Position())
		if err != nil {
			t.Fatal(err)
		}
		taken, lengths, last = append(taken, m), append(lengths, nil), 0
		for _, h := range heads {
			lengths[len(lengths)-1] = append(lengths[len(lengths)-1], h.Length)
			last += h.Length
		}
		matches(t, m, keys, lengths[len(lengths)-1])
	}
	writing.Wait()
	for i, m := range taken {
		matches(t, m, keys, lengths[i])
	}
}

// present returns the moment of an engine that it is now.
func present(t *testing.T, st store.Store, e *engine.Engine) *fold.Moment {
	t.Helper()
	now, err := st.Moment(t.Context(), enginetest.Tenant)
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	m, err := e.Moment(enginetest.Tenant, now.Position())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// matches compares what a moment shows of counters with how often each has counted.
func matches(t *testing.T, m *fold.Moment, keys []j17.Key, lengths []uint64) {
	t.Helper()
	for _, replay := range []bool{false, true} {
		loaded, err := m.Load(t.Context(), keys, replay)
		if err != nil {
			t.Fatal(err)
		}
		versions, err := m.Versions(t.Context(), keys)
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range loaded {
			if l.Key != keys[i] || l.Version.Length != lengths[i] || l.Length != lengths[i] ||
				versions[i] != l.Version {
				t.Fatalf("at %s %s has the version %+v, %+v by itself, want the length %d", m.At(), l.Key, l.Version, versions[i], lengths[i])
			}
			want := fmt.Sprint(lengths[i])
			if n := l.Data.Get("n"); lengths[i] > 0 && string(n.AppendJSON(nil)) != want ||
				lengths[i] == 0 && !l.Data.IsMissing() {
				t.Fatalf("at %s %s has counted %s, want %s", m.At(), l.Key, l.JSON, want)
			}
		}
	}
}

// TestAMomentUntilASecond looks at what was before a second, from the present position and from the one before the last
// event.
func TestAMomentUntilASecond(t *testing.T) {
	f := enginetest.New(t, engine.Options{})
	f.DeploySource(t, enginetest.CounterSpec)
	key := counters(1)[0]
	began := f.Clock.Now().Unix()
	for range 3 {
		f.Post(t, "counter/"+key.ID+"/was_counted", enginetest.Body(`{"by":1}`))
		f.Clock.Advance(10e9)
	}
	var positions []j17.StreamID
	for ev, err := range f.Store.ReadFeed(t.Context(), enginetest.Tenant, j17.StreamID{}, 3) {
		if err != nil {
			t.Fatal(err)
		}
		positions = append(positions, ev.StreamID)
	}
	for second, want := range map[int64]uint64{began - 1: 0, began: 1, began + 9: 1, began + 10: 2, began + 100: 3} {
		for i, at := range positions {
			m, err := f.Moment(enginetest.Tenant, at)
			if err != nil {
				t.Fatal(err)
			}
			matches(t, m.Until(second), []j17.Key{key}, []uint64{min(want, uint64(i+1))})
		}
	}
}

// TestAMomentNamesWhatCannotBeFolded asks for an aggregate whose code has gone.
func TestAMomentNamesWhatCannotBeFolded(t *testing.T) {
	f := enginetest.New(t, engine.Options{})
	f.DeploySource(t, enginetest.CounterSpec)
	keys := counters(2)
	for _, key := range keys {
		f.Post(t, "counter/"+key.ID+"/was_counted", enginetest.Body(`{"by":1}`))
	}
	f.Post(t, "counter/"+keys[1].ID+"/was_named", enginetest.Body(`{"name":"x"}`))
	f.DeploySource(t, `{"agent_types":["user"],"aggregate_types":{"counter":{"events":{"was_counted":{"schema":{},"handler":[]},
		"was_named":{"schema":{},"handler":{"wasm":"gone.wasm"}}}}}}`)
	now, err := f.Store.Moment(t.Context(), enginetest.Tenant)
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	m, err := f.Moment(enginetest.Tenant, now.Position())
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Load(t.Context(), keys, false)
	if failed, ok := errors.AsType[*fold.LoadError](err); !ok || failed.Key != keys[1] {
		t.Errorf("loading %v: %v", keys, err)
	}
}

// TestAMomentUnderAnotherSpec looks at aggregates as a spec would have them that is not deployed, and does not change
// what is.
func TestAMomentUnderAnotherSpec(t *testing.T) {
	f := enginetest.New(t, engine.Options{})
	f.DeploySource(t, enginetest.CounterSpec)
	key := counters(1)[0]
	for range 3 {
		f.Post(t, "counter/"+key.ID+"/was_counted", enginetest.Body(`{"by":1}`))
	}
	now, err := f.Store.Moment(t.Context(), enginetest.Tenant)
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	m, err := f.Moment(enginetest.Tenant, now.Position())
	if err != nil {
		t.Fatal(err)
	}
	other := m.Under(decider.New(enginetest.Compiled(t, `{"agent_types":["user"],"aggregate_types":{"counter":{"events":{
		"was_counted":{"schema":{},"handler":[{"increment":{"target":"n","by":10}}]}}}}}`), nil))
	for range 2 { // the second one sees what the first one has left behind
		matches(t, m, []j17.Key{key}, []uint64{3})
		loaded, err := other.Load(t.Context(), []j17.Key{key}, false)
		if err != nil || string(loaded[0].Data.Get("n").AppendJSON(nil)) != "30" {
			t.Fatal(loaded, err)
		}
	}

	// Both can be moved: to the first event, of which one has counted 1 and the other 10.
	for ev, err := range f.Store.ReadFeed(t.Context(), enginetest.Tenant, j17.StreamID{}, 1) {
		if err != nil {
			t.Fatal(err)
		}
		matches(t, m.Moved(ev.StreamID), []j17.Key{key}, []uint64{1})
		loaded, err := other.Moved(ev.StreamID).Load(t.Context(), []j17.Key{key}, false)
		if err != nil || string(loaded[0].Data.Get("n").AppendJSON(nil)) != "10" {
			t.Fatal(loaded, err)
		}
	}
}
