//go:build !race

package index_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"j17"
	"j17/internal/base/work"
	"j17/internal/derived/index"
	"j17/internal/storage/store"
)

// TestManyRowsAreFoundByWords compares questions about so many rows that they are not put in order in memory with a
// look at each, while no record of a row can be read: only where thousands of words of rows with ids of all lengths
// have the beginning that is asked for they are. It looks for long, one question after the other.
func TestManyRowsAreFoundByWords(t *testing.T) {
	const rows = 1800
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var events []store.NewEvent
		said := map[string][]string{}
		for i := range rows {
			id, title := fmt.Sprintf("%08x-0000-4000-8000-%012x", i*7919%rows, i),
				[]string{"the", fmt.Sprintf("red%d", i%40), fmt.Sprintf("red%d", 40+i%7)}
			if i%2 == 0 {
				title = append(title, "red")
			}
			if i%400 == 0 {
				title = append(title, "rare")
			}
			for n := range 3 {
				title = append(title, fmt.Sprintf("n%d", n*rows+i))
			}
			if i%4 == 0 { // the entries of ids of other lengths are held up to a bound
				id = fmt.Sprintf("i%05d", i*7919%rows)
				for n := range 10 {
					title = append(title, fmt.Sprintf("x%d", n*rows+i))
				}
			}
			said[id] = title
			events = append(events, event("item", id, `{"title":"`+strings.Join(title, " ")+`"}`))
		}
		h.write(prod, events...)
		st := &rotten{Store: h.disk}
		p := h.start(st)
		defer p.stop()
		h.ready(p, prod, source{h.disk}.titled())
		v, err := p.At(t.Context(), prod, "one", h.end(prod))
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()

		check := func(text string) {
			words := strings.Fields(text)
			want := found(said, words)
			if n, err := v.CountWords(plenty(), titles, words); err != nil || n != uint64(len(want)) {
				t.Errorf("%q: %d rows, %v, want %d", text, n, err, len(want))
			}
			if got := h.pages(v, words); len(words) > 1 && !slices.Equal(got, want) {
				t.Errorf("%q: %d rows in pages, want %d", text, len(got), len(want))
			}
		}

		// Where fewer ids are held than there are rows.
		for _, most := range []int{100, 700, 2000} {
			v.Hold(most)
			for _, text := range []string{"x", "the x", "n", "the n", "red the n1", "rare n"} {
				check(text)
			}
		}
		v.Hold(1 << 20)

		for _, c := range []struct {
			words   string
			records bool
		}{
			{"x", true},
			{"the x", true},
			{"the n", true},
			{"n", false},
			{"the", false},
			{"red", false},
			{"re", false},
			{"red3", false},
			{"rare re", false},
			{"the red", false},
			{"red the", false},
			{"red7 the red44", false},
			{"red rare", false},
			{"none the", false},
			{"the none", false},
			{"rare n17", false},
		} {
			if !c.records && st.harm.Load() == nil {
				st.rot(t, nil, "index.rows")
			}
			check(c.words)
		}
		if _, err := v.CountWords(work.Counted(rows), titles, []string{
			"red", "the",
		}); j17.CodeOf(err) != j17.CodeWorkLimit {
			t.Errorf("with a unit for each row: %v", err)
		}
	})
}

// found returns the ids of the titles that have some words, the last one as a beginning.
func found(said map[string][]string, words []string) (ids []string) {
	for id, title := range said {
		has := true
		for i, word := range words {
			has = has && slices.ContainsFunc(
				title, func(w string) bool { return w == word || i == len(words)-1 && strings.HasPrefix(w, word) },
			)
		}
		if has {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// pages reads all rows that have several words, and none for one word.
func (h *house) pages(v *index.View, words []string) (ids []string) {
	h.tb.Helper()
	const page = 700
	for after := ""; len(words) > 1; {
		hits, err := v.Words(plenty(), titles, words, after, page)
		if err != nil {
			h.tb.Fatal(err)
		}
		for _, hit := range hits {
			ids = append(ids, hit.ID)
			after = hit.Cursor
		}
		if len(hits) < page {
			break
		}
	}
	return ids
}
