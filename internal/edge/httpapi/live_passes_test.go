package httpapi_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/testopen"
)

// passesSpec has notes around a point.
const passesSpec = `{
	"agent_types": ["user"],
	"aggregate_types": {"note": {"events": {"was_written": {"schema": {}, "handler": [{"merge": {"target": "", "value": "$.data"}}], "geo": {"type": "point", "path": "$.data.place"}}}}},
	"projections": {"notes": {"for_each": "note", "sources": {"note": "$key"}, "select": {"text": "$.note.text", "n": "$.note.n"}}}
}`

// large writes so many notes with long texts.
func (f *fixture) large(t *testing.T, notes, size int) {
	t.Helper()
	for n := range notes {
		f.write(t, fmt.Sprintf("0b6e9d4e-6f0a-4f3c-8c53-%012d/was_written", n), fmt.Sprintf(`{"n":%d,"place":{"lat":50,"lng":10},"text":%q}`, n, strings.Repeat("x", size)))
	}
}

// change gives the first note another number.
func (f *fixture) change(t *testing.T, n int) {
	t.Helper()
	f.write(t, fmt.Sprintf("0b6e9d4e-6f0a-4f3c-8c53-%012d/was_written", 0), fmt.Sprintf(`{"n":%d,"place":{"lat":50,"lng":10}}`, n))
}

// all reads a live list until it is ready.
func (c *client) all(t *testing.T) {
	t.Helper()
	for c.live(t).name != "ready" {
		continue
	}
}

// after lets a time pass.
func after(t *testing.T, d time.Duration) {
	t.Helper()
	if err := (clock.System{}).Wait(t.Context(), time.Now().Add(d)); err != nil {
		t.Error(err)
	}
	synctest.Wait()
}

// TestLiveListsShareTheirPasses follows one list with many streams of two keys: each write has it read and compared
// once, whatever the order of their parameters and how often they have heartbeats, and all get the row.
func TestLiveListsShareTheirPasses(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		const streams, notes, writes = 40, 50, 10
		f := newRows(t, passesSpec)
		p := f.serve(t)
		f.large(t, notes, 1000)
		var open []*client
		for n := range streams {
			path := []string{"?near=50,10&radius=5000", "?radius=5000&heartbeat=20s&near=50,10"}[n%2]
			c := f.stream(t, p, "/_projections/notes/_stream"+path)
			c.all(t)
			open = append(open, c)
		}
		passes, compared := f.metric(t, "j17_live_passes_total"), f.metric(t, "j17_live_rows_compared_total")
		for n := range writes {
			after(t, time.Second)
			f.change(t, 100+n)
			var all sync.WaitGroup
			for _, c := range open {
				all.Go(func() {
					if ev := c.live(t); ev.name != "row" || !strings.Contains(ev.data, fmt.Sprintf(`"n":%d`, 100+n)) {
						t.Errorf("%s %.80s", ev.name, ev.data)
					}
				})
			}
			all.Wait()
		}
		if passes = f.metric(t, "j17_live_passes_total") - passes; passes != writes {
			t.Errorf("%v passes for %d writes", passes, writes)
		}
		if shared := f.metric(t, "j17_live_shared_total"); shared != writes*(streams-1) {
			t.Errorf("%v times shared", shared)
		}
		if compared = f.metric(t, "j17_live_rows_compared_total") - compared; compared > (streams+writes)*notes {
			// at first each has rows of its own
			t.Errorf("%v rows compared for %d writes in %d rows", compared, writes, notes)
		}
	})
}

// TestLiveListsAreReadAtTheirPace follows many different lists with one key, each of which takes much to read, while
// somebody writes all the time: how often they are read depends on what that costs, and in the end each shows what
// there is.
func TestLiveListsAreReadAtTheirPace(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		const streams, notes, size, seconds = 20, 200, 4000, 3
		f := newRows(t, passesSpec)
		p := f.serve(t)
		f.large(t, notes, size)
		last := make(chan struct{}, streams)
		var reading sync.WaitGroup
		for n := range streams {
			c := f.stream(t, p, fmt.Sprintf("/_projections/notes/_stream?near=50,10&radius=%d", 5000+n))
			c.all(t)
			reading.Go(func() {
				for !strings.Contains(c.live(t).data, `"n":99999`) {
					continue
				}
				last <- struct{}{}
			})
		}
		before := f.metric(t, "j17_live_passes_total")
		began := time.Now()
		for n := range seconds * 100 {
			f.change(t, 1000+n)
			after(t, 10*time.Millisecond)
		}
		passes := f.metric(t, "j17_live_passes_total") - before

		// A pass reads the text of each note at least, of which a key pays four million units a second, with 16 bytes a
		// unit.
		most := time.Since(began).Seconds()*float64(4<<20)/float64(notes*size/16) + streams
		if passes > most || passes < streams {
			t.Errorf("%v passes in %s, want at most %v", passes, time.Since(began), most)
		}
		f.change(t, 99_999)
		reading.Wait()
		if len(last) != streams {
			t.Errorf("%d of %d show the last", len(last), streams)
		}
	})
}

// TestLiveListsTakeTurns: what a live list shows is read in a turn of its environment.
func TestLiveListsTakeTurns(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newRows(t, passesSpec)
		p := f.serve(t)
		f.large(t, 20, 1000)
		c := f.stream(t, p, "/_projections/notes/_stream")
		c.all(t)
		give := f.HoldTurns(string(j17.TenantOf(f.instance.ID, j17.Prod)))
		f.change(t, 7)
		after(t, time.Second)
		shown := make(chan liveEvent, 1)
		go func() { shown <- c.live(t) }()
		after(t, time.Second)
		if len(shown) != 0 {
			t.Error("it was read without a turn")
		}
		give()
		if ev := <-shown; !strings.Contains(ev.data, `"n":7`) {
			t.Errorf("%.80s", ev.data)
		}
	})
}

// TestALiveListOutlivesItsReader lets the stream end that reads for the others: they go on.
func TestALiveListOutlivesItsReader(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newRows(t, passesSpec)
		p := f.serve(t)
		f.large(t, 20, 1000)
		var open []*client
		for range 5 {
			c := f.stream(t, p, "/_projections/notes/_stream")
			c.all(t)
			open = append(open, c)
		}

		// One after the other of them ends while it waits for its turn, or before.
		give := f.HoldTurns(string(j17.TenantOf(f.instance.ID, j17.Prod)))
		f.change(t, 7)
		synctest.Wait()
		for len(open) > 1 {
			_ = open[0].conn.Close()
			open = open[1:]
			after(t, time.Second)
		}
		give()
		for {
			ev := open[0].live(t)
			if strings.Contains(ev.data, `"n":7`) {
				break
			}
			if ev.name != "row" {
				t.Fatalf("%s %.80s", ev.name, ev.data)
			}
		}
		if n := f.metric(t, "j17_streams"); n != 1 {
			t.Errorf("%v streams are open", n)
		}
	})
}
