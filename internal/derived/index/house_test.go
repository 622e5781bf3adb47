package index_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/value"
	"j17/internal/core/worker"
	"j17/internal/derived/build"
	"j17/internal/derived/index"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

const (
	prod    = j17.Tenant("shop/prod")
	staging = j17.Tenant("shop/staging")
)

// house is a store in a bubble of its own time. What an aggregate is at a position is the data of its last event up to
// there.
type house struct {
	tb   testing.TB
	disk store.Store
	log  *bytes.Buffer
	// logger is the only one that writes to log: loggers do not know of each other.
	logger *slog.Logger
	// scrub is how often processes look through their indexes.
	scrub time.Duration
	// hasty lets the upkeep of processes rest, and work in bulk, where a handful of events are behind.
	hasty bool
}

// inBubble runs a test with a store whose time is made up.
func inBubble(t *testing.T, test func(t *testing.T, h *house)) {
	t.Helper()
	testopen.Bubble(t, func(t *testing.T) {
		h := &house{tb: t, disk: testopen.Open(t, clock.System{}), log: &bytes.Buffer{}}
		h.logger = slog.New(slog.NewTextHandler(h.log, nil))
		test(t, h)
	})
}

// process is what works on a store.
type process struct {
	*index.Service
	feed  *feed.Subscriptions
	build *build.Service
	stop  func()
}

// start begins a process over a store.
func (h *house) start(st store.Store, with ...func(*feed.Options)) *process {
	h.tb.Helper()
	kit := worker.New(clock.System{}, h.logger)
	o := feed.Options{Store: st, Clock: clock.System{}, Logger: h.logger, Worker: kit}
	for _, w := range with {
		w(&o)
	}
	p := &process{
		feed:  feed.New(o),
		build: build.New(build.Options{Store: st, Clock: clock.System{}, Worker: kit, Logger: h.logger, Parallel: 2}),
	}
	p.Service = index.New(index.Options{
		Store: st, Feed: p.feed, Build: p.build, Clock: clock.System{}, Logger: h.logger, Scrub: h.scrub,
	})
	if h.hasty {
		p.Hasten()
	}
	ctx, cancel := context.WithCancel(h.tb.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = p.feed.Run(ctx) })
	running.Go(func() { _ = p.build.Run(ctx) })
	running.Go(func() { _ = p.Run(ctx) })
	p.stop = func() {
		cancel()
		running.Wait()
	}
	return p
}

// pass lets the time of a bubble pass.
func (h *house) pass(d time.Duration) {
	h.tb.Helper()
	if err := (clock.System{}).Wait(h.tb.Context(), time.Now().Add(d)); err != nil {
		h.tb.Error(err)
	}
	synctest.Wait()
}

// wait is pass for who is not alone.
func (h *house) wait(d time.Duration) {
	_ = (clock.System{}).Wait(h.tb.Context(), time.Now().Add(d)) // the test sees that its time is over
}

// event is the next one of an aggregate.
func event(typ, id, data string) store.NewEvent {
	return store.NewEvent{Key: j17.Key{Type: typ, ID: id}, Type: "was_set", Data: []byte(data), Metadata: []byte(`{}`)}
}

// write stores events in one unit.
func (h *house) write(t j17.Tenant, events ...store.NewEvent) {
	h.tb.Helper()
	if _, err := h.disk.Append(h.tb.Context(), t, []store.Append{
		{Events: events, Timestamp: time.Now().Unix()},
	}); err != nil {
		h.tb.Fatal(err)
	}
}

// end returns where the feed ends.
func (h *house) end(t j17.Tenant) j17.StreamID {
	h.tb.Helper()
	m, err := h.disk.Moment(h.tb.Context(), t)
	if err != nil {
		h.tb.Fatal(err)
	}
	defer m.Close()
	return m.Position()
}

// source reads what is there as of a position.
type source struct{ store.Store }

// state returns what an aggregate is at a position; missing if it is not there.
func (s source) state(ctx context.Context, t j17.Tenant, at j17.StreamID, key j17.Key) (state value.Value, err error) {
	for e, err := range s.ReadStream(ctx, t, key, 1, 0) {
		if err != nil {
			return state, err
		}
		if e.StreamID.Compare(at) > 0 {
			break
		}
		if state, err = value.Parse(e.Data); err != nil {
			return state, err
		}
	}
	return state, nil
}

// row is a row as the model has it: under which values it stands in each index, and its words in index 2.
type row struct {
	id     string
	values map[int][][]value.Value
	words  []string
	keys   []j17.Key
}

// The indexes of items: all of them (0), their labels and the names of their shops (1), the words of their titles (2),
// how many notes there are about them (3).
const (
	all = iota
	labels
	titles
	notes
)

// row returns an item at a position, nil where it is not there.
func (s source) row(ctx context.Context, t j17.Tenant, at j17.StreamID, id string) (*row, error) {
	state, err := s.state(ctx, t, at, j17.Key{Type: "item", ID: id})
	if err != nil || state.IsMissing() {
		return nil, err
	}
	r := &row{id: id, values: map[int][][]value.Value{all: {nil}}}

	// Its shop.
	shop := j17.Key{Type: "shop", ID: state.Get("shop").Str()}
	name := value.Value{}
	if shop.ID != "" {
		r.keys = append(r.keys, shop)
		of, err := s.state(ctx, t, at, shop)
		if err != nil {
			return nil, err
		}
		name = of.Get("name")
	}
	some := []value.Value{state.Get("label")}
	if elems := some[0].Elems(); len(elems) > 0 {
		some = elems
	}
	for i, label := range some {
		if !slices.ContainsFunc(some[:i], func(v value.Value) bool { return compare(v, label) == 0 }) {
			r.values[labels] = append(r.values[labels], []value.Value{label, name})
		}
	}
	r.words = index.SplitWords(state.Get("title").Str())

	// The notes that may be about it, many of which are not there.
	n := 0
	for _, key := range notesFor(id) {
		r.keys = append(r.keys, key)
		of, err := s.state(ctx, t, at, key)
		if err != nil {
			return nil, err
		}
		if of.Get("about").Str() == id {
			n++
		}
	}
	r.values[notes] = [][]value.Value{{value.Int(int64(n))}}
	return r, nil
}

// notesFor returns the two notes that may be about an item: every other one of n0 to n3.
func notesFor(item string) []j17.Key {
	first := item[len(item)-1] % 2
	return []j17.Key{{Type: "note", ID: fmt.Sprintf("n%d", first)}, {Type: "note", ID: fmt.Sprintf("n%d", first+2)}}
}

// definition is that of items. bad, if not nil, may fail or wait.
func (s source) definition(bad func(ctx context.Context, ids []string) error) *index.Definition {
	return &index.Definition{
		ID: "one", Type: "item", Types: []string{"shop", "note"},
		Rows: func(ctx context.Context, t j17.Tenant, at j17.StreamID, ids []string) (rows []index.Row, err error) {
			if bad != nil {
				if err := bad(ctx, ids); err != nil {
					return nil, err
				}
			}
			for _, id := range ids {
				r, err := s.row(ctx, t, at, id)
				if err != nil {
					return nil, err
				}
				rows = append(rows, r.made(id))
			}
			return rows, nil
		},
	}
}

// made returns the row as its definition does.
func (r *row) made(id string) index.Row {
	made := index.Row{ID: id}
	if r == nil {
		return made
	}
	made.Sources = r.keys
	for n, tuples := range r.values {
		for _, values := range tuples {
			made.Entries = append(made.Entries, index.NewEntry(n, values...))
		}
	}
	words, _ := index.Words(titles, strings.Join(r.words, " "))
	made.Entries = append(made.Entries, words...)
	return made
}

// compare orders values as indexes do.
func compare(a, b value.Value) int {
	rank := func(v value.Value) int {
		switch v.Kind() {
		case value.Missing, value.Null:
			return 0
		case value.Bool:
			return 1 + len(v.String()[4:])*-1 + 1 // false before true
		case value.Number:
			return 3
		case value.String:
			return 4
		case value.Array, value.Object:
		}
		return 5
	}
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	if a.Kind() == value.String {
		return strings.Compare(a.Str(), b.Str())
	}
	c, _ := value.Compare(a, b)
	return c
}

// wanted says in the model's terms what a query finds.
type wanted struct {
	name  string
	n     int
	query index.Query
	// given is the number of values that are the same, has tells which values are found.
	given int
	has   func(values []value.Value) bool
}

// find returns the ids of the rows that the model finds, in their order.
func (w *wanted) find(rows []*row) (ids []string) {
	type hit struct {
		id   string
		tail []value.Value
	}
	order := func(a, b []value.Value) int { return slices.CompareFunc(a, b, compare) }
	var hits []hit
	for _, r := range rows {
		var best []value.Value
		found := false
		for _, values := range r.values[w.n] {
			if w.has(values) && (!found || order(values[w.given:], best) < 0) {
				found, best = true, values[w.given:]
			}
		}
		if found {
			hits = append(hits, hit{r.id, best})
		}
	}
	slices.SortFunc(hits, func(a, b hit) int { return cmp.Or(order(a.tail, b.tail), strings.Compare(a.id, b.id)) })
	for _, h := range hits {
		ids = append(ids, h.id)
	}
	return ids
}

// parse reads JSON.
func parse(tb testing.TB, text string) value.Value {
	tb.Helper()
	v, err := value.ParseString(text)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// queries are what is asked of every view.
func (h *house) queries() (queries []wanted) {
	text := value.StringValue
	queries = append(queries, wanted{
		name: "all", n: all, query: index.Query{Lanes: [][]index.Range{{index.All(all, 0)}}},
		has: func([]value.Value) bool { return true },
	}, wanted{
		name: "by label", n: labels, query: index.Query{Lanes: [][]index.Range{{index.All(labels, 2)}}},
		has: func([]value.Value) bool { return true },
	}, wanted{
		name: "with notes", n: notes,
		query: index.Query{Lanes: [][]index.Range{
			{index.All(notes, 1).Between(index.Bound{Value: value.Int(0), Exclusive: true}, index.Bound{})},
		}},
		has: func(v []value.Value) bool { return v[0].Sign() > 0 },
	})
	for _, label := range []string{`null`, `true`, `1`, `"a"`, `"ab"`, `[]`} {
		v := parse(h.tb, label)
		queries = append(queries, wanted{
			name: "label " + label, n: labels, given: 1,
			query: index.Query{Lanes: [][]index.Range{{index.All(labels, 2).Equal(v)}}},
			has:   func(values []value.Value) bool { return compare(values[0], v) == 0 },
		})
	}
	one := []value.Value{value.Int(1), text("1")}
	queries = append(queries, wanted{
		name: "label 1 or text, shop from b on", n: labels, given: 1,
		query: index.Query{Lanes: [][]index.Range{
			{index.All(labels, 2).Equal(one[0]).Between(index.Bound{Value: text("b")}, index.Bound{})},
			{index.All(labels, 2).Equal(one[1]).Between(index.Bound{Value: text("b")}, index.Bound{})},
		}},
		has: func(values []value.Value) bool {
			return (compare(values[0], one[0]) == 0 || compare(values[0], one[1]) == 0) &&
				values[1].Kind() == value.String && values[1].Str() >= "b"
		},
	}, wanted{
		name: "label a..., or numbers up to 1", n: labels,
		query: index.Query{Lanes: [][]index.Range{{
			index.All(labels, 2).Between(index.Bound{}, index.Bound{Value: value.Int(1)}),
			index.All(labels, 2).Prefix("a"),
		}}},
		has: func(values []value.Value) bool {
			c, _ := value.Compare(values[0], value.Int(1))
			return strings.HasPrefix(values[0].Str(), "a") || values[0].Kind() == value.Number && c <= 0
		},
	})
	return queries
}

// check compares a view with what all aggregates are at its position.
func (h *house) check(t j17.Tenant, v *index.View) {
	h.tb.Helper()
	ctx := h.tb.Context()
	ids, err := h.disk.Streams(ctx, t, "item", "", 100_000)
	if err != nil {
		h.tb.Fatal(err)
	}
	var rows []*row
	for _, id := range ids {
		r, err := source{h.disk}.row(ctx, t, v.Position(), id)
		if err != nil {
			h.tb.Fatal(err)
		}
		if r != nil {
			rows = append(rows, r)
		}
	}
	for _, w := range h.queries() {
		want := w.find(rows)
		for _, backward := range []bool{false, true} {
			w.query.Backward = backward
			for _, limit := range []int{1000, 3} {
				if got := h.scan(v, w.query, limit); !slices.Equal(got, want) {
					h.tb.Fatalf("%s, backward %v, %d at a time, as of %s: %v, want %v", w.name, backward, limit, v.Position(), got, want)
				}
			}
			slices.Reverse(want)
		}
		if n, err := v.Count(plenty(), w.query); err != nil || n != uint64(len(want)) {
			h.tb.Fatalf("%s: %d rows, %v, want %d", w.name, n, err, len(want))
		}
	}
	for _, words := range []string{
		"red", "re", "red green", "red gr", "green re", "red blue gr", "red red", "re re", "red green re red",
	} {
		h.checkWords(v, rows, index.AskedWords(words))
	}
}

// scan reads all pages of a query.
func (h *house) scan(v *index.View, q index.Query, limit int) []string {
	h.tb.Helper()
	ids, err := h.pagesOf(v, q, limit)
	if err != nil {
		h.tb.Fatal(err)
	}
	return ids
}

// pagesOf is scan for a view that may be of an index that moves on.
func (h *house) pagesOf(v *index.View, q index.Query, limit int) (ids []string, err error) {
	h.tb.Helper()
	for after := ""; ; {
		hits, err := v.Scan(plenty(), q, after, limit)
		if err != nil {
			return nil, err
		}
		for _, hit := range hits {
			ids = append(ids, hit.ID)
			after = hit.Cursor
		}
		if len(hits) < limit {
			return ids, nil
		}
	}
}

// checkWords compares the rows that have words.
func (h *house) checkWords(v *index.View, rows []*row, words []string) {
	h.tb.Helper()
	var want, got []string
	for _, r := range rows {
		found := true
		for i, word := range words {
			found = found && slices.ContainsFunc(
				r.words, func(w string) bool { return w == word || i == len(words)-1 && strings.HasPrefix(w, word) },
			)
		}
		if found {
			want = append(want, r.id)
		}
	}
	for after := ""; ; {
		hits, err := v.Words(plenty(), titles, words, after, 2)
		if err != nil {
			h.tb.Fatal(err)
		}
		for _, hit := range hits {
			got = append(got, hit.ID)
			after = hit.Cursor
		}
		if len(hits) < 2 {
			break
		}
	}
	if len(words) == 1 {
		slices.Sort(got) // they come in the order of the words
	}
	if n, err := v.CountWords(plenty(), titles, words); err != nil || !slices.Equal(got, want) ||
		n != uint64(len(want)) {
		h.tb.Fatalf("words %v: %v, %d of them, %v, want %v", words, got, n, err, want)
	}
}

// at opens a view that has everything up to now, and compares it.
func (h *house) at(p *process, t j17.Tenant) {
	h.tb.Helper()
	end := h.end(t)
	v, err := p.At(h.tb.Context(), t, "one", end)
	if err != nil {
		h.tb.Fatalf("at %s: %v\n%s", end, err, h.log)
	}
	defer v.Close()
	if v.Position().Compare(end) < 0 {
		h.tb.Fatalf("as of %s, want %s", v.Position(), end)
	}
	h.check(t, v)
}

// ready makes sure that an index is there.
func (h *house) ready(p *process, t j17.Tenant, d *index.Definition) {
	h.tb.Helper()
	if _, err := p.Ensure(h.tb.Context(), t, d); err != nil {
		h.tb.Fatal(err)
	}
	if status, err := p.Await(h.tb.Context(), t, d.ID); err != nil || !status.Ready {
		h.tb.Fatalf("%+v, %v\n%s", status, err, h.log)
	}
}

// notReady waits until an index that cannot be read says why as it is wanted.
func (h *house) notReady(p *process, what string, wanted func(*index.NotReadyError) bool) {
	h.tb.Helper()
	var err error
	for range 100 {
		var v *index.View
		if v, err = p.At(h.tb.Context(), prod, "one", j17.StreamID{}); err == nil {
			v.Close()
		}
		if e, is := errors.AsType[*index.NotReadyError](err); is && wanted(e) {
			return
		}
		h.pass(time.Second)
	}
	h.tb.Fatalf("not %s: %+v", what, err)
}

// verify fails if the index differs from what follows from events.
func (h *house) verify(p *process, t j17.Tenant) {
	h.tb.Helper()
	h.same(p, t, "one")
}

// same is verify for any index.
func (h *house) same(p *process, t j17.Tenant, id string) {
	h.tb.Helper()
	difference, err := p.Verify(h.tb.Context(), t, id, nil)
	if err != nil || difference != nil {
		h.tb.Fatalf("%+v, %v", difference, err)
	}
}

// some returns data of items, shops and notes by a number.
func some(typ string, n int) string {
	switch typ {
	case "item":
		label := []string{
			`null`, `true`, `false`, `1`, `1.0`, `"1"`, `"a"`, `"ab"`, `[]`, `{"a":1}`, `["a","ab",1]`, `[1,"1",1.0]`,
			`-2.5`, `["b"]`,
		}
		title := []string{"Red green", "blue", "green, RED!", "great red blue", "", "Greens and reds"}
		return fmt.Sprintf(`{"label":%s,"title":%q,"shop":"s%d"}`, label[n%len(label)], title[n/3%len(title)], n/7%3)
	case "shop":
		return fmt.Sprintf(`{"name":%s}`, []string{`"a"`, `"b"`, `"c"`, `null`, `3`}[n%5])
	default:
		return fmt.Sprintf(`{"about":"i%02d"}`, n%6)
	}
}

// unreadable reports whether an index cannot be read.
func (h *house) unreadable(p *process, t j17.Tenant, id string) bool {
	v, err := p.At(h.tb.Context(), t, id, j17.StreamID{})
	if err == nil {
		v.Close()
	}
	_, is := errors.AsType[*index.NotReadyError](err)
	return is
}
