package index_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"j17"
	"j17/internal/index"
	"j17/internal/store"
	"j17/internal/work"
)

// titled is an index of the words of items, and of nothing else.
func (s source) titled() *index.Definition {
	return &index.Definition{ID: "one", Type: "item", Rows: func(ctx context.Context, t j17.Tenant, at j17.StreamID, ids []string) (rows []index.Row, err error) {
		for _, id := range ids {
			state, err := s.state(ctx, t, at, j17.Key{Type: "item", ID: id})
			if err != nil {
				return nil, err
			}
			words, _ := index.Words(titles, state.Get("title").Str())
			rows = append(rows, index.Row{ID: id, Entries: words})
		}
		return rows, nil
	}}
}

// TestManyRowsAreFoundByWords compares questions about so many rows that they are not put in order in memory with a look at each, while no
// record of a row can be read: only where thousands of words of rows with ids of all lengths have the beginning that is asked for they are.
func TestManyRowsAreFoundByWords(t *testing.T) {
	const rows = 1800
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var events []store.NewEvent
		said := map[string][]string{}
		for i := range rows {
			id, title := fmt.Sprintf("%08x-0000-4000-8000-%012x", i*7919%rows, i), []string{"the", fmt.Sprintf("red%d", i%40), fmt.Sprintf("red%d", 40+i%7)}
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
		if _, err := v.CountWords(work.Counted(rows), titles, []string{"red", "the"}); j17.CodeOf(err) != j17.CodeWorkLimit {
			t.Errorf("with a unit for each row: %v", err)
		}
	})
}

// found returns the ids of the titles that have some words, the last one as a beginning.
func found(said map[string][]string, words []string) (ids []string) {
	for id, title := range said {
		has := true
		for i, word := range words {
			has = has && slices.ContainsFunc(title, func(w string) bool { return w == word || i == len(words)-1 && strings.HasPrefix(w, word) })
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

// TestQuestionsThatHoldManyRowsTakePlaces has as many questions hold many rows in memory as one environment may: each further one waits until
// one of them is over, whichever way it holds them.
func TestQuestionsThatHoldManyRowsTakePlaces(t *testing.T) {
	const rows = 600
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		events := make([]store.NewEvent, 0, rows)
		for i := range rows {
			title := "the"
			for n := range 15 {
				title += fmt.Sprintf(" x%d", n*rows+i)
			}
			events = append(events, event("item", fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i), `{"title":"`+title+`"}`))
		}
		h.write(prod, events...)
		p := h.start(h.disk)
		defer p.stop()
		h.ready(p, prod, source{h.disk}.titled())
		p.Places(2)
		open := func() *index.View {
			v, err := p.At(t.Context(), prod, "one", h.end(prod))
			if err != nil {
				t.Fatal(err)
			}
			v.Many(50)
			return v
		}
		left, leave := context.WithCancel(t.Context())
		leave()

		some := index.Query{Lanes: [][]index.Range{{index.All(titles, 1).Prefix("x")}}}
		for name, ask := range map[string]func(*index.View, *work.Budget) (uint64, error){
			"rows of several entries": func(v *index.View, b *work.Budget) (uint64, error) { return v.Count(b, some) },
			"rows of many words": func(v *index.View, b *work.Budget) (uint64, error) {
				return v.CountWords(b, titles, []string{"the", "x"})
			},
		} {
			// It takes a place once, however often it is asked, and waits where there is none: until it is refused, or has left.
			first, second := open(), open()
			for range 2 {
				if n, err := ask(first, plenty()); err != nil || n != rows {
					t.Errorf("%s: %d, %v", name, n, err)
				}
			}
			if _, err := ask(second, work.New(t.Context(), 1<<40)); j17.CodeOf(err) != j17.CodeBusy {
				t.Errorf("%s beside another one: %v", name, err)
			}
			if _, err := ask(second, work.New(left, 1<<40)); !errors.Is(err, context.Canceled) {
				t.Errorf("%s of one who has left: %v", name, err)
			}
			first.Close()
			if n, err := ask(second, plenty()); err != nil || n != rows {
				t.Errorf("%s behind another one: %d, %v", name, n, err)
			}
			second.Close()
		}
	})
}
