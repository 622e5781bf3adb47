package pebble_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
)

const (
	tenant j17.Tenant  = "shop/prod"
	space  store.Space = "notes"
)

func key(id string) j17.Key { return j17.Key{Type: "order", ID: id} }

func events(k j17.Key, data ...string) []store.NewEvent {
	list := make([]store.NewEvent, len(data))
	for i := range data {
		list[i] = store.NewEvent{Key: k, Type: "was_changed", Data: []byte(data[i]), Metadata: []byte(`{}`)}
	}
	return list
}

// workload writes numbered units and knows which of them were acknowledged.
type workload struct {
	mu     sync.Mutex
	issued int
	acked  map[int]bool
	// padding makes the events larger.
	padding string
}

func newWorkload(padding int) *workload {
	return &workload{acked: map[int]bool{}, padding: strings.Repeat("p", padding)}
}

func unitKeys(n int) []j17.Key {
	return []j17.Key{key("all"), key(strconv.Itoa(n % 7)), {Type: "user", ID: strconv.Itoa(n % 3)}}
}

func commandID(n int) (id store.CommandID) {
	binary.BigEndian.PutUint64(id[:], uint64(n))
	return id
}

// unit returns unit n: three events, a side item and a command, which are there together or not at all.
func (w *workload) unit(n int) store.Append {
	u := store.Append{
		Command: &store.Command{ID: commandID(n), Memo: []byte("memo")},
		Side:    []store.Side{{Op: store.Put, Space: space, Key: strconv.Itoa(n), Value: []byte("v")}},
	}
	for _, k := range unitKeys(n) {
		u.Events = append(u.Events, events(k, fmt.Sprintf(`{"unit":%d,"padding":"%s"}`, n, w.padding))...)
	}
	return u
}

// write appends the next unit.
func (w *workload) write(t *testing.T, s store.Store) error {
	t.Helper()
	w.mu.Lock()
	w.issued++
	n := w.issued
	w.mu.Unlock()
	_, err := s.Append(t.Context(), tenant, []store.Append{w.unit(n)})
	if err == nil {
		w.mu.Lock()
		w.acked[n] = true
		w.mu.Unlock()
	}
	return err
}

func (w *workload) acknowledged() map[int]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.acked)
}

// stored returns the units that the store holds, after checking that each is whole, that order and chains are right
// and that nothing else is there.
func (w *workload) stored(t *testing.T, s store.Store) map[int]bool {
	t.Helper()
	if err := dump(t, s); err != nil {
		t.Fatalf("the data do not verify: %v", err)
	}
	found := map[int][]j17.Key{}
	var last j17.StreamID
	lengths := map[j17.Key]uint64{}
	for e, err := range s.ReadFeed(t.Context(), tenant, j17.StreamID{}, 1<<30) {
		if err != nil {
			t.Fatalf("feed: %v", err)
		}
		if e.StreamID.Compare(last) <= 0 {
			t.Fatalf("feed: %s after %s", e.StreamID, last)
		}
		last = e.StreamID
		if lengths[e.Key]++; e.Version != lengths[e.Key] {
			t.Fatalf("%s: version %d where %d should be", e.Key, e.Version, lengths[e.Key])
		}
		var n int
		if _, err := fmt.Sscanf(string(e.Data), `{"unit":%d,`, &n); err != nil {
			t.Fatalf("%s holds %s", e.StreamID, e.Data)
		}
		found[n] = append(found[n], e.Key)
	}
	for k, n := range lengths {
		w.checkStream(t, s, k, n)
	}
	units := map[int]bool{}
	for n := range w.issued + 1 {
		_, err := s.Get(t.Context(), tenant, space, strconv.Itoa(n))
		command, commandErr := s.Command(t.Context(), tenant, commandID(n))
		switch {
		case commandErr != nil || (err != nil && !errors.Is(err, store.ErrNotFound)):
			t.Fatalf("unit %d: %v, %v", n, err, commandErr)
		case len(found[n]) == 0 && err != nil && command == nil:
		case fmt.Sprint(found[n]) == fmt.Sprint(unitKeys(n)) && err == nil && command != nil:
			units[n] = true
		default:
			t.Fatalf("unit %d is there in part: events %v, side item %v, command %v", n, found[n], err, command)
		}
		delete(found, n)
	}
	if len(found) > 0 {
		t.Fatalf("units that nobody wrote: %v", found)
	}
	return units
}

func (w *workload) checkStream(t *testing.T, s store.Store, k j17.Key, want uint64) {
	t.Helper()
	heads, err := s.Heads(t.Context(), tenant, []j17.Key{k})
	if err != nil || heads[0].Length != want {
		t.Fatalf("head of %s: %+v, %v, want length %d", k, heads, err, want)
	}
	n := uint64(0)
	for _, err := range s.ReadStream(t.Context(), tenant, k, 1, 0) {
		if err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		n++
	}
	if n != want {
		t.Fatalf("%s has %d events, want %d", k, n, want)
	}
}

// checkKept opens the store on a file system and checks that it holds all units of acked, and none in part.
func (w *workload) checkKept(t *testing.T, fs vfs.FS, acked map[int]bool) {
	t.Helper()
	s := open(t, pebble.Options{Dir: "data", FS: fs})
	defer closeStore(t, s)
	units := w.stored(t, s)
	for n := range acked {
		if !units[n] {
			t.Errorf("unit %d was acknowledged and is lost", n)
		}
	}
	// The store goes on.
	if _, err := s.Append(t.Context(), tenant, []store.Append{{Events: events(key("more"), `1`, `2`)}}); err != nil {
		t.Errorf("append after a crash: %v", err)
	}
}

func closeStore(t *testing.T, s *pebble.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
