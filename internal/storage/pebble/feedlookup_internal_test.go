package pebble

import (
	"bytes"
	"fmt"
	"testing"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// TestGatheredIsNotMuchMoreThanAPageTakes fills a page where a feed of small events goes on with large ones: several
// look up many of them, as the small ones let expect that they all go in, and all of them together take no more than a
// page has room for.
func TestGatheredIsNotMuchMoreThanAPageTakes(t *testing.T) {
	t.Parallel()
	const small, large = minGathered + 1, 300
	text := func(n int) []byte { return append(append([]byte{'"'}, bytes.Repeat([]byte{'x'}, n)...), '"') }
	s, _ := opened(t, clock.System{})
	var u store.Append
	for i := range small + large {
		data := text(100)
		if i >= small {
			data = text(4000)
		}
		id := fmt.Sprint(i * 7919 % (small + large)) // ids are in another order than positions
		u.Events = append(u.Events, store.NewEvent{
			Key: j17.Key{Type: "order", ID: id}, Type: "was_made", Data: data, Metadata: []byte(`{}`),
		})
	}
	if _, err := s.Append(t.Context(), "a/prod", []store.Append{u}); err != nil {
		t.Fatal(err)
	}
	r, err := s.read("a/prod")
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()

	// The second time is in the memory of the first.
	var p page
	for range 2 {
		p.clear()
		if err := p.feed(r, j17.StreamID{}, small+large, &record.TypeNames{}, false); err != nil {
			t.Fatal(err)
		}
		if !p.full || p.bytes > pageBytes+5000 {
			t.Errorf("%d bytes make a page, full: %v", p.bytes, p.full)
		}
		for i := range p.entries {
			e := &p.entries[i]
			if want := fmt.Sprint(i * 7919 % (small + large)); e.key.ID != want || len(e.value) < 100 ||
				i >= small && len(e.value) < 4000 {
				t.Fatalf("entry %d is %s with %d bytes instead of %s", i, e.key.ID, len(e.value), want)
			}
		}

		// Values in the same memory end where it ends.
		memory := map[*byte]int{}
		for i := range p.gathering.refs {
			if v := p.gathering.refs[i].value; v != nil {
				end := &v[:cap(v)][cap(v)-1]
				memory[end] = max(memory[end], cap(v))
			}
		}
		sum := 0
		for _, n := range memory {
			sum += n
		}
		if sum > pageBytes*3/2 || sum < pageBytes/2 || len(p.gathering.refs) != small+large-minGathered {
			t.Errorf("%d events that are looked up for a page keep %d bytes", len(p.gathering.refs), sum)
		}
	}
}

// TestErasureTakesTheMemoryOfWidePages reads a feed until its pages are larger, and has what stands in one of them be
// erased: the iteration goes on with the event that was not handed out, in pages that are as small as at first.
func TestErasureTakesTheMemoryOfWidePages(t *testing.T) {
	t.Parallel()
	const all = 600
	s, _ := opened(t, clock.System{})
	var u store.Append
	data := append(append([]byte{'"'}, bytes.Repeat([]byte{'x'}, 4000)...), '"')
	for i := range all {
		u.Events = append(u.Events, store.NewEvent{
			Key: j17.Key{Type: "order", ID: fmt.Sprint(i)}, Type: "was_made", Data: data, Metadata: []byte(`{}`),
		})
	}
	if _, err := s.Append(t.Context(), "a/prod", []store.Append{u}); err != nil {
		t.Fatal(err)
	}
	r, err := s.read("a/prod")
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()

	const erasedAt = 10 // the entry of the first larger page
	looked, stale := 0, false
	of := pager{
		tenant: "a/prod",
		use:    func(do func(reader) error) error { return s.use("a/prod", r.tenant, do) },
		copy: func(r reader, p *page, from j17.StreamID, limit int, names *record.TypeNames) error {
			if g := &p.gathering; stale && looked == erasedAt {
				kept := cap(p.values) + cap(p.entries) + cap(g.refs) + cap(g.order) + cap(g.keys)
				for i := range g.values {
					kept += cap(g.values[i].to) + cap(g.values[i].largest)
				}
				if kept > 0 || p.size() != pageBytes || s.pages.wide.Load() != 0 {
					t.Errorf("after the erasure the page keeps %d and takes %d bytes", kept, p.size())
				}
			}
			looked = 0
			return p.feed(r, from, limit, names, false)
		},
		stale: func(p *page) bool {
			if stale || p.room == 0 {
				return false
			}
			looked++
			stale = looked == erasedAt
			return stale
		},
	}
	n := 0
	err = s.eachPage(t.Context(), of, j17.StreamID{}, all, func(e store.Entry, _ *eventRecord) bool {
		if e.Event == nil || e.Event.Key.ID != fmt.Sprint(n) {
			t.Fatalf("entry %d is %+v", n, e.Event)
		}
		n++
		return true
	})
	if err != nil || n != all || !stale {
		t.Errorf("%d entries, erased: %v, %v", n, stale, err)
	}
}

// TestLargePagesKeepNoMemoryTwice fills a large page with values that are looked up one by one, and adds up the memory
// that its entries keep.
func TestLargePagesKeepNoMemoryTwice(t *testing.T) {
	t.Parallel()
	p := page{room: 16 * pageBytes}
	value := make([]byte, 10_000)
	var kept int
	var last *byte
	for i := range value {
		value[i] = byte(i)
	}
	for !p.full {
		p.add(value)
		if first := &p.values[:1][0]; first != last {
			kept, last = kept+cap(p.values), first
		}
	}
	if most := p.room * 3 / 2; kept > most || kept < p.room {
		t.Errorf("%d bytes are kept for a page of %d", kept, p.room)
	}
	for i := range p.entries {
		if !bytes.Equal(p.entries[i].value, value) {
			t.Fatalf("entry %d is another one", i)
		}
	}
}
