package restore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"j17"
	"j17/internal/custody/backup/repository"
	"j17/internal/storage/store"
)

// eventAt returns an event of some stream.
func eventAt(n int, version uint64, data string) *j17.Event {
	e := &j17.Event{
		StreamID: j17.StreamID{Ms: int64(1000 + n/3), Seq: uint32(n % 3)},
		Key:      j17.Key{Type: "note", ID: fmt.Sprint("n", n%7)}, Version: version, Type: "was_written", Timestamp: 7,
	}
	e.Raw, _ = j17.AppendEvent(nil, e.StreamID, e.Key, e.Type, []byte(data), []byte(`{}`), e.Timestamp)
	return e
}

// TestMarkersInBoundedMemory: however many events were erased after a backup, few markers are in memory at a time; each
// is put in the place of its event, and where there are several the last one.
func TestMarkersInBoundedMemory(t *testing.T) {
	const events, most = 5000, 8 << 10
	dir := t.TempDir()
	x := &erased{
		markers: markers{temp: dir, most: most}, noted: noteFile{temp: dir}, streams: map[[keyBytes]byte]erasedStream{},
	}
	last := map[int]string{}
	for round := range 2 {
		for _, n := range rand.New(rand.NewPCG(1, uint64(round))).Perm(events) {
			if n%5 == 0 || round == 1 && n%2 == 0 {
				continue
			}
			last[n] = fmt.Sprintf(`{"round":%d}`, round)
			e := eventAt(n, uint64(n/7+1), last[n])
			if err := x.add(&repository.Erasure{
				Note: store.Note{Position: j17.StreamID{Ms: 9000}}, Events: []*j17.Event{e},
			}); err != nil {
				t.Fatal(err)
			}
			if x.markers.held > most {
				t.Fatalf("%d bytes are held", x.markers.held)
			}
		}
	}
	if err := x.markers.begin(); err != nil || len(x.markers.runs) < 50 || len(x.streams) != 7 {
		t.Fatal(err, len(x.markers.runs), len(x.streams))
	}

	// Those of every fifth event were not erased: they are of streams of their own here.
	replaced := 0
	for n := range events {
		e := eventAt(n, uint64(n/7+1), `{}`)
		if n%5 == 0 {
			e.Version = events
		}
		got, err := x.of(e)
		if err != nil || (got != nil) != (n%5 != 0) {
			t.Fatalf("event %d: %v, %v", n, got, err)
		}
		if got == nil {
			continue
		}
		replaced++
		if string(got.Data) != last[n] || got.Version != e.Version || [32]byte(got.Kept) != j17.Leaf(e.Raw) {
			t.Fatalf("event %d: %s, want %s", n, got.Raw, last[n])
		}
	}
	if replaced != len(last) || x.done != 7 {
		t.Errorf("%d of %d, %d streams", replaced, len(last), x.done)
	}
	x.close()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// TestAnotherEvent: an event of a stream that was erased which stands at no position that was noted, or another event
// that does, is an error: what was erased would be back.
func TestAnotherEvent(t *testing.T) {
	for name, there := range map[string]*j17.Event{
		"at another position": eventAt(14, 1, `{}`),
		"of another stream": {
			StreamID: eventAt(7, 1, `{}`).StreamID, Key: j17.Key{Type: "note", ID: "other"}, Version: 1,
			Type: "was_written", Timestamp: 7,
		},
	} {
		x := &erased{
			markers: markers{temp: t.TempDir(), most: markersHeld}, noted: noteFile{temp: t.TempDir()},
			streams: map[[keyBytes]byte]erasedStream{},
		}
		if err := x.add(&repository.Erasure{Events: []*j17.Event{eventAt(7, 1, `{}`)}}); err != nil {
			t.Fatal(err)
		}
		if err := x.markers.begin(); err != nil {
			t.Fatal(err)
		}
		if got, err := x.of(there); err == nil {
			t.Errorf("%s: %v", name, got)
		}
		x.close()
	}
}
