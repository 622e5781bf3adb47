//go:build !race

package projection_test

import (
	"fmt"
	"strings"
	"testing"

	"j17/internal/base/wire"
	"j17/internal/core/decider"
	"j17/internal/core/engine/enginetest"
	"j17/internal/derived/projection"
	"j17/internal/lang/spec"
)

// makeNotes writes notes with some data.
func (s *server) makeNotes(tb testing.TB, n int, data string) {
	tb.Helper()
	for i := range n {
		c := enginetest.Command(tb, "note/"+id(i)+"/was_made", enginetest.Body(data))
		c.Tenant = s.tenant
		if _, err := s.engine.Execute(tb.Context(), c); err != nil {
			tb.Fatal(err)
		}
	}
}

// compiled is a spec that is tried.
func compiled(tb testing.TB, source string) *decider.Decider {
	tb.Helper()
	after, found := spec.Compile([]byte(source))
	if after == nil {
		tb.Fatal(found)
	}
	return decider.New(after, nil)
}

// labelled is data with so many labels, by the first note.
func labelled(labels int) string {
	var all []string
	for i := range labels {
		all = append(all, fmt.Sprintf(`{"n":%d}`, i))
	}
	return `{"k":1,"by":"` + id(0) + `","labels":[` + strings.Join(all, ",") + `]}`
}

// byLabels is a definition whose rows have an entry for each label. All of them are made of the first note, too: the
// widest says how many were made beside it.
const byLabels = `"for_each":"note","sources":{"n":"$key","first":{"type":"note","id":"$.n.by"}},
	"select":{"k":"$.n.k","labels":"$.n.labels[*].n","n":"$.n.k","first":"$.first.k"},"index":["k",["labels","n"],"first"]}`

// TestThePriceIsBounded tries an index of rows with many entries: some of the rows tell what it would cost.
func TestThePriceIsBounded(t *testing.T) {
	t.Parallel()
	const rows, labels, most = 200, 2500, 100
	s := newServer(t)
	s.deploy(t, notes(keep, ""))
	s.makeNotes(t, rows, labelled(labels))
	near := func(p wire.Price, made uint64) {
		t.Helper()
		if p.Exact || p.Widest == nil || p.Widest.Rows == 0 || p.Widest.Rows > made {
			t.Errorf("more than %d rows were made: %+v, %+v", made, p, p.Widest)
		}
		if p.Rows != rows || p.Entries < rows*labels || p.Entries > rows*(labels+5) {
			t.Errorf("%+v, want %d rows of %d entries", p, rows, labels+3)
		}
	}
	tried, err := s.views.Try(
		t.Context(), s.tenant, projection.Posting{Definition: []byte(`{"name":"listed",` + byLabels)}, 1,
	)
	if err != nil {
		t.Fatal(err)
	}
	near(tried.Price, most)

	// Several projections that are tried together have no more than that.
	var all []string
	for i := range 5 {
		all = append(all, fmt.Sprintf(`"p%d":{%s`, i, byLabels))
	}
	made := uint64(0)
	trials, err := s.views.TrySpec(t.Context(), s.tenant, compiled(t, notes(keep, strings.Join(all, ","))), 1)
	if err != nil || len(trials) != 5 {
		t.Fatal(len(trials), err)
	}
	for i := range trials {
		near(*trials[i].Price, most)
		made += trials[i].Price.Widest.Rows
	}
	if made > most {
		t.Errorf("%d rows were made for %d projections", made, len(trials))
	}
}

// TestThePriceOfManySmallRowsIsExact: several projections of some thousand rows with a handful of entries are made
// whole.
func TestThePriceOfManySmallRowsIsExact(t *testing.T) {
	t.Parallel()
	const rows = 2000
	s := newServer(t)
	s.deploy(t, notes(keep, ""))
	s.makeNotes(t, rows, labelled(10))
	trials, err := s.views.TrySpec(
		t.Context(), s.tenant, compiled(t, notes(keep, `"a":{`+byLabels+`,"b":{`+byLabels+`,"c":{`+byLabels)), 1,
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range trials {
		if !p.Price.Exact || p.Price.Rows != rows || p.Price.Widest == nil || p.Price.Widest.Rows != rows-1 {
			t.Errorf("%s: %+v", p.Name, p.Price)
		}
	}
}
