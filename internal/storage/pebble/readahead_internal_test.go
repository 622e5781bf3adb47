package pebble

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// windowedEvents is how many events the feeds have that windows are tried on.
const windowedEvents = 2000

// windowed opens a store with a feed: half of the events are the second ones of their streams, and ids are in another
// order than positions.
func windowed(t *testing.T, data func(i int) []byte) *Store {
	t.Helper()
	s, _ := opened(t, clock.System{})
	for begin := 0; begin < windowedEvents; begin += 50 {
		var u store.Append
		for i := begin; i < begin+50; i++ {
			u.Events = append(u.Events, store.NewEvent{
				Key: windowedKey(i), Type: "was_made", Data: data(i), Metadata: []byte(`{}`),
			})
		}
		if _, err := s.Append(t.Context(), "a/prod", []store.Append{u}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func windowedKey(i int) j17.Key {
	i %= windowedEvents / 2
	return j17.Key{Type: []string{"order", "orders"}[i%2], ID: fmt.Sprint(i * 7919 % windowedEvents)}
}

// noise is a text that cannot be compressed much.
func noise(r *rand.Rand, n int) []byte {
	text := []byte{'"'}
	for range n {
		text = append(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[r.IntN(64)])
	}
	return append(text, '"')
}

// windowPager is a pager of the feed, with notes, that counts how often something is read.
func windowPager(t *testing.T, s *Store, used *atomic.Int64) pager {
	t.Helper()
	r, err := s.read("a/prod")
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	of := feedPager(true)
	of.tenant = "a/prod"
	of.use = func(do func(reader) error) error {
		used.Add(1)
		return s.use("a/prod", r.tenant, do)
	}
	of.stale = func(*page) bool { return false }
	return of
}

// TestWindowsHoldNoMoreThanTheirRoom reads feeds of which less goes into a window than is expected, and sometimes
// nothing. Everything comes once, as it is in the feed.
func TestWindowsHoldNoMoreThanTheirRoom(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]func(i int) int{
		"of one size":        func(int) int { return 900 },
		"ever larger":        func(i int) int { return 100 + i },
		"large ones at last": func(i int) int { return 100 + i/1990*500_000 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			var data [][]byte
			s := windowed(t, func(i int) []byte {
				data = append(data, noise(random, size(i)))
				return data[i]
			})
			var used atomic.Int64
			read, windows := 0, 0
			of := windowPager(t, s, &used)
			p := page{room: 1 << 20}
			var names record.TypeNames
			var from j17.StreamID
			check := func() {
				for i := range p.entries {
					var record eventRecord
					e := &p.entries[i]
					if err := record.parse(e.value); err != nil || e.key != windowedKey(read) || e.id != record.id ||
						e.version != uint64(1+read/(windowedEvents/2)) ||
						!slices.Equal(record.layout.DataOf(record.raw), data[read]) {
						t.Fatalf("event %d is %s version %d at %s, %v", read, e.key, e.version, e.id, err)
					}
					read, from = read+1, e.id.Next()
				}
			}
			for p.full = true; p.full; {
				p.room = 1 << 20
				if err := p.window.fill(t.Context(), s.feeds, &of, &p, from, windowedEvents); err != nil {
					t.Fatal(err)
				}
				held, next := 0, read
				for i := range p.window.buckets {
					next += len(p.window.buckets[i].references)
					for _, chunk := range p.window.buckets[i].chunks {
						held += len(chunk)
					}
				}
				if held > p.room {
					t.Errorf("a window of %d events holds %d bytes", next-read, held)
				}
				if windows++; !p.window.left() {
					p.room = 0
					if err := s.nextPage(t.Context(), &of, &p, false, from, windowedEvents, &names); err != nil {
						t.Fatal(err)
					}
					check()
				}
				for p.window.left() {
					if err := p.window.open(&p, &names); err != nil {
						t.Fatal(err)
					}
					if len(p.values) > maxBucketBytes+1<<20 {
						t.Errorf("a page of a window has %d bytes", len(p.values))
					}
					check()
				}
			}
			if read != windowedEvents || windows < 2 || len(p.window.buckets)+len(p.window.streams) > 0 {
				t.Errorf("%d events were read by %d windows", read, windows)
			}
		})
	}
}

// TestWindowsAreGivenUpAtOnce has something be erased, or the reader go away, at each moment of the making of a window:
// nothing more is read for it, so that no purge waits.
func TestWindowsAreGivenUpAtOnce(t *testing.T) {
	t.Parallel()
	s := windowed(t, func(i int) []byte { return fmt.Appendf(nil, "1%0900d", i) })
	for _, by := range []error{context.Canceled, errOutdated} {
		for at := int64(1); ; at++ {
			ctx, cancel := context.WithCancel(t.Context())
			var used atomic.Int64
			var outdated atomic.Bool
			of := windowPager(t, s, &used)
			use := of.use
			of.use = func(do func(reader) error) error {
				if used.Load()+1 == at {
					if errors.Is(by, errOutdated) {
						outdated.Store(true)
					}
					cancel()
				}
				return use(do)
			}
			of.stale = func(*page) bool { return outdated.Load() }
			p := page{room: 1 << 20}
			err := p.window.fill(ctx, s.feeds, &of, &p, j17.StreamID{}, windowedEvents)
			cancel()
			if used.Load() < at && err == nil && at > 2 {
				break // so often something is read
			}
			if !errors.Is(err, by) || used.Load() > at+mostLooking {
				t.Fatalf("given up when something was read for the %dth time, after %d times: %v", at, used.Load(), err)
			}
		}
	}
}

// TestErasureInTheMakingOfAWindow has something be erased while the first window of an iteration is made: it goes on
// from where it is.
func TestErasureInTheMakingOfAWindow(t *testing.T) {
	t.Parallel()
	s := windowed(t, func(i int) []byte { return fmt.Appendf(nil, "1%0900d", i) })
	var used atomic.Int64
	of := windowPager(t, s, &used)
	looked := 0
	of.stale = func(p *page) bool {
		if len(p.entries) == 0 { // one that is made
			looked++
			return looked == 1
		}
		return false
	}
	n := 0
	err := s.eachPage(t.Context(), of, j17.StreamID{}, windowedEvents, func(e store.Entry, _ *eventRecord) bool {
		if e.Event == nil || e.Event.Key != windowedKey(n) {
			t.Fatalf("entry %d is %+v", n, e.Event)
		}
		n++
		return true
	})
	if err != nil || n != windowedEvents || looked < 2 || s.pages.wide.Load() != 0 {
		t.Errorf("%d events, looked %d times, %d bytes are kept: %v", n, looked, s.pages.wide.Load(), err)
	}
}

// TestWindowsHaveNotes reads a feed with notes of rewrites, with them and without.
func TestWindowsHaveNotes(t *testing.T) {
	t.Parallel()
	s := windowed(t, func(i int) []byte { return fmt.Appendf(nil, "1%0900d", i) })
	const rewritten = 3
	for i := range rewritten {
		marker := store.Rewritten{Version: 1, Type: "was_erased", Data: []byte(`{}`), Metadata: []byte(`{}`)}
		r, err := s.Rewrite(t.Context(), "a/prod", store.Rewrite{
			Streams: []store.RewrittenStream{{Key: windowedKey(i), Events: []store.Rewritten{marker}}},
		})
		if err != nil || r.Outcome != store.Committed {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	for _, with := range []int{0, 1} {
		var used atomic.Int64
		of := windowPager(t, s, &used)
		of.notes = with == 1
		p := page{room: 1 << 20}
		var names record.TypeNames
		events, erased, notes := 0, 0, 0
		var from j17.StreamID
		for p.full = true; p.full; {
			if err := p.window.fill(t.Context(), s.feeds, &of, &p, from, 2*windowedEvents); err != nil {
				t.Fatal(err)
			}
			for p.window.left() {
				if err := p.window.open(&p, &names); err != nil {
					t.Fatal(err)
				}
				for i := range p.entries {
					e := &p.entries[i]
					from = e.id.Next()
					if e.version == 0 {
						note, err := record.ParseNote(e.id, e.value)
						if err != nil || note.Streams[0].Key != windowedKey(notes) {
							t.Fatalf("note %d is %+v, %v", notes, note, err)
						}
						notes++
						continue
					}
					var record eventRecord
					if err := record.parse(e.value); err != nil || e.key != windowedKey(events) {
						t.Fatalf("event %d is %s, %v", events, e.key, err)
					}
					events++
					if record.kept != nil {
						erased++
					}
				}
			}
		}
		if events != windowedEvents || erased != rewritten || notes != with*rewritten {
			t.Errorf("%d events, %d erased, %d notes", events, erased, notes)
		}
	}
}

// TestWindowsNameWhatIsMissing reads a feed that refers to an event that is not there.
func TestWindowsNameWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := windowed(t, func(i int) []byte { return fmt.Appendf(nil, "1%0900d", i) })
	var used atomic.Int64
	of := windowPager(t, s, &used)
	key := windowedKey(700)
	var lost j17.StreamID
	for e, err := range s.ReadStream(t.Context(), "a/prod", key, 1, 1) {
		if err != nil {
			t.Fatal(err)
		}
		lost = e.StreamID
	}
	r, err := s.read("a/prod")
	if err != nil {
		t.Fatal(err)
	}
	number := r.tenant
	r.close()
	if err := s.db.Delete(appendEventKey(nil, number, key, 1), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), "a/prod", []store.Side{
		{Op: store.Put, Space: "space", Key: "key", Value: []byte("1")},
	}); err != nil {
		t.Fatal(err) // a younger view
	}
	p := page{room: 1 << 20}
	err = p.window.fill(t.Context(), s.feeds, &of, &p, j17.StreamID{}, windowedEvents)
	damage, ok := errors.AsType[*store.CorruptionError](err)
	if want := fmt.Sprintf("the feed of tenant number %d at %s", number, lost); !ok || damage.Where != want {
		t.Errorf("got %v, want damage of %s", err, want)
	}
}

// TestWindowsRest reads an archive whose reader rests: he is asked to for all that is read ahead, with nothing held,
// and his error ends it.
func TestWindowsRest(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	s := windowed(t, func(int) []byte { return noise(random, 900) })
	opened, err := s.Archive(t.Context(), "a/prod")
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	a, ok := opened.(*archive)
	if !ok {
		t.Fatalf("%T", opened)
	}
	var bytes atomic.Int64
	refused := errors.New("no more")
	var answer error
	a.Rest(func(n int) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if n <= 0 {
			t.Errorf("a rest after %d bytes", n)
		}
		bytes.Add(int64(n))
		return answer
	})
	read := func() (n int, failed error) {
		for _, err := range a.Changes(t.Context(), j17.StreamID{}) {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	if n, err := read(); n != windowedEvents || err != nil || bytes.Load() < windowedEvents/4*900 {
		t.Errorf("%d events, rests after %d bytes, %v", n, bytes.Load(), err)
	}
	answer = refused
	if n, err := read(); !errors.Is(err, refused) || n == windowedEvents {
		t.Errorf("%d events, %v", n, err)
	}
}
