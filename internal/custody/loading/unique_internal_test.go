package loading

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
	"runtime"
	"testing"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
)

// TestMemoryOfUniqueValues goes through events that take values, each aggregate one after the other: what is remembered
// is bounded for each aggregate, however many values it has had. The documentation names the figure.
func TestMemoryOfUniqueValues(t *testing.T) {
	const aggregates, each, most = 50_000, 3, 200
	set, of := &spec.UniqueSet{}, &spec.UniqueValue{}
	c := &recorder{Loader: &Loader{}, seed: maphash.MakeSeed(), values: newExchanged()}
	before := heap()
	for n := range uint64(aggregates) {
		key := j17.Key{
			Type: "user", ID: string(binary.BigEndian.AppendUint64([]byte("00000000-0000-4000-8000-0000"), n)),
		}
		for i := range uint64(each) {
			ev := &pastEvent{Examined: &decider.Examined{}}
			value := sha256.Sum256(binary.BigEndian.AppendUint64(nil, n*each+i))
			ev.Events = []decider.Event{{Key: key, Exchanges: []decider.Exchange{{Set: set, Of: of, Value: value}}}}
			if fault, err := c.exchange(t.Context(), ev, nil); fault != nil || err != nil {
				t.Fatal(fault, err)
			}
		}
	}
	if size := (heap() - before) / aggregates; size > most {
		t.Errorf("%d bytes are kept for an aggregate", size)
	} else {
		t.Logf("%d bytes are kept for an aggregate", size)
	}
	if len(c.values.holders) != aggregates || len(c.values.held) != aggregates {
		t.Errorf("%d values and %d holders are remembered", len(c.values.holders), len(c.values.held))
	}
	runtime.KeepAlive(c)
}

// TestUniqueValuesAreBounded goes through more values than are remembered: those of aggregates that hold them, and in
// an import those that were given back as well.
func TestUniqueValuesAreBounded(t *testing.T) {
	const most = 100
	set, of := &spec.UniqueSet{}, &spec.UniqueValue{}
	c := &recorder{Loader: &Loader{}, seed: maphash.MakeSeed(), values: newExchanged()}
	c.values.most = most
	for n := range uint64(2 * most) {
		ev := &pastEvent{Examined: &decider.Examined{}}
		ev.Events = []decider.Event{{
			Key: j17.Key{Type: "user", ID: string(binary.BigEndian.AppendUint64(nil, n))},
			Exchanges: []decider.Exchange{
				{Set: set, Of: of, Value: sha256.Sum256(binary.BigEndian.AppendUint64(nil, n))},
			},
		}}
		fault, err := c.exchange(t.Context(), ev, nil)
		switch refused := n > most; {
		case fault != nil, (err != nil) != refused, refused && j17.CodeOf(err) != j17.CodePayloadTooLarge:
			t.Fatalf("value %d: %v, %v", n, fault, err)
		case refused && len(c.values.holders) > most+1:
			t.Fatalf("%d values are remembered", len(c.values.holders))
		}
	}
}

// TestUniqueValuesOfAllFilesAreBounded goes through two files at a time that have room for a few values more together:
// one of them is told to wait, and goes on when the other one is through.
func TestUniqueValuesOfAllFilesAreBounded(t *testing.T) {
	set, of := &spec.UniqueSet{}, &spec.UniqueValue{}
	l := &Loader{}
	l.remembered.Store(2*allValues - 3*takenAtOnce)
	take := func(c *recorder, n uint64) error {
		ev := &pastEvent{Examined: &decider.Examined{}}
		ev.Events = []decider.Event{{
			Key: j17.Key{Type: "user", ID: string(binary.BigEndian.AppendUint64(nil, n))},
			Exchanges: []decider.Exchange{
				{Set: set, Of: of, Value: sha256.Sum256(binary.BigEndian.AppendUint64(nil, n))},
			},
		}}
		fault, err := c.exchange(t.Context(), ev, nil)
		if fault != nil {
			t.Fatal(fault)
		}
		return err
	}
	file := func() *recorder { return &recorder{Loader: l, seed: maphash.MakeSeed(), values: newExchanged()} }
	one, other := file(), file()
	if err := take(other, 0); err != nil {
		t.Fatal(err)
	}

	// The first file takes what is left, and no more.
	n := uint64(0)
	var err error
	for err == nil && n < 2*takenAtOnce {
		n++
		err = take(one, n)
	}
	if j17.CodeOf(err) != j17.CodeBusy || n < takenAtOnce-2 || n > takenAtOnce {
		t.Errorf("after %d values: %v", n, err)
	}
	if got := l.remembered.Load(); got != 2*allValues {
		t.Errorf("%d are counted of %d", got, 2*allValues)
	}

	// What one has is there again when it ends, once.
	other.forget()
	other.forget()
	if err := take(one, n); err != nil {
		t.Error(err)
	}
	one.forget()
	if got := l.remembered.Load(); got != 2*allValues-3*takenAtOnce {
		t.Errorf("%d are counted at the end", got)
	}
}

// heap returns how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
