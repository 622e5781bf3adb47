package index_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"j17"
	"j17/internal/base/work"
	"j17/internal/derived/index"
	"j17/internal/storage/store"
)

// titled is an index of the words of items, and of nothing else.
func (s source) titled() *index.Definition {
	return &index.Definition{
		ID: "one", Type: "item",
		Rows: func(ctx context.Context, t j17.Tenant, at j17.StreamID, ids []string) (rows []index.Row, err error) {
			for _, id := range ids {
				state, err := s.state(ctx, t, at, j17.Key{Type: "item", ID: id})
				if err != nil {
					return nil, err
				}
				words, _ := index.Words(titles, state.Get("title").Str())
				rows = append(rows, index.Row{ID: id, Entries: words})
			}
			return rows, nil
		},
	}
}

// TestQuestionsThatHoldManyRowsTakePlaces has as many questions hold many rows in memory as one environment may: each
// further one waits until one of them is over, whichever way it holds them.
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
			events = append(
				events, event("item", fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i), `{"title":"`+title+`"}`),
			)
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
			// It takes a place once, however often it is asked, and waits where there is none: until it is refused, or
			// has left.
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
