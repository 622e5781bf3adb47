package projection_test

import (
	"context"
	"strings"
	"testing"

	"j17"
	"j17/internal/core/engine/enginetest"
	"j17/internal/derived/projection"
	"j17/internal/storage/store"
)

// looked is a store that says when the streams of a type are looked through: comparing an index begins each page of
// rows with that.
type looked struct {
	store.Store

	s *server
}

// Streams lists streams.
func (l looked) Streams(ctx context.Context, t j17.Tenant, aggregateType, after string, limit int) ([]string, error) {
	if hook := l.s.looked; hook != nil {
		l.s.looked = nil
		hook()
	}
	return l.Store.Streams(ctx, t, aggregateType, after, limit)
}

// Get looks an item up.
func (l looked) Get(ctx context.Context, t j17.Tenant, space store.Space, key string) (store.Item, error) {
	if space == "index.heads" && l.s.asked != nil {
		l.s.asked()
	}
	return l.Store.Get(ctx, t, space, key)
}

// TestAnIndexThatIsLostMeanwhile is dropped because of damage, while it is compared with events: that is no fault of
// the server, and there is nothing to compare before it is built again.
func TestAnIndexThatIsLostMeanwhile(t *testing.T) {
	t.Parallel()
	const rows = 600 // several pages
	s := newServer(t)
	s.deploy(t, notes(keep, ""))
	s.load(t, 0, rows, "red")
	// Its record is read to list it once.
	c := enginetest.Command(t, "note/"+id(7)+"/was_made", enginetest.Body(`{"color":["green","blue"]}`))
	c.Tenant = s.tenant
	if _, err := s.engine.Execute(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	s.post(t, listOf(`"color"`), false)
	s.build(t)
	s.restart(t) // nothing is built from here on

	s.looked = func() {
		rows, err := s.store.Scan(t.Context(), s.tenant, "index.rows", store.Range{}, rows)
		if err != nil {
			t.Error(err)
		}
		for i := range rows {
			if strings.HasSuffix(rows[i].Key, "/"+id(7)) {
				side := store.Side{
					Op: store.Put, Space: "index.rows", Key: rows[i].Key, Value: []byte("\xff\xff"), Plain: true,
				}
				if err := s.store.Write(t.Context(), s.tenant, []store.Side{side}); err != nil {
					t.Error(err)
				}
			}
		}
		if _, err := s.views.List(t.Context(), s.tenant, projection.ListAsk{
			Name: "posted", Filters: map[string]string{"color": "blue"}, Count: 1,
		}); j17.CodeOf(err) != j17.CodeIndexNotReady {
			t.Errorf("the index is still there: %v", err)
		}
	}
	if v, err := s.views.Verify(t.Context(), s.tenant, "posted"); j17.CodeOf(err) != j17.CodeIndexNotReady ||
		s.looked != nil {
		t.Errorf("%+v, %v", v, err)
	}
	s.build(t)
	if v, err := s.views.Verify(t.Context(), s.tenant, "posted"); err != nil || !v.Verified || v.Rows != rows {
		t.Errorf("when it was built again: %+v, %v", v, err)
	}
}

// TestComparisonsAreBounded begins one comparison within another: of a projection there is one at a time, of an
// environment a few.
func TestComparisonsAreBounded(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.run(s.builds.Run)
	s.deploy(t, notes(keep, ""))
	s.write(t)
	names := []string{"first", "second", "third"}
	for i, name := range names {
		s.post(t, strings.Replace(listOf([]string{`"color"`, `"size"`, `"size","color"`}[i]), "posted", name, 1), false)
	}
	s.built(t)

	verify := func(name string, want j17.Code, says string) {
		v, err := s.views.Verify(t.Context(), s.tenant, name)
		switch {
		case want != "":
			if j17.CodeOf(err) != want || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %+v, %v, want %s", name, v, err, want)
			}
		case err != nil || !v.Verified:
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
	began := 0
	s.looked = func() {
		began++
		verify("first", j17.CodeConflict, "Wait until it is over")
		s.looked = func() {
			began++
			verify("third", j17.CodeBusy, "one after the other")
		}
		verify("second", "", "")
		verify("third", "", "")
	}
	verify("first", "", "")
	for _, name := range names {
		verify(name, "", "")
	}
	if began != 2 {
		t.Errorf("%d comparisons were interrupted", began)
	}
}
