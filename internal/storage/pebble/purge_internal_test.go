package pebble

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// TestRangesAreJoined joins ranges that stand in the same tables, or in tables beside each other, and no others.
func TestRangesAreJoined(t *testing.T) {
	t.Parallel()
	parse := func(text string) (ranges []keyRange) {
		for word := range strings.FieldsSeq(text) {
			lower, upper, _ := strings.Cut(word, "-")
			ranges = append(ranges, keyRange{[]byte(lower), []byte(upper)})
		}
		return ranges
	}
	for _, c := range []struct{ tables, ranges, want string }{
		{"", "", ""},
		{"", "c-d a-b", "a-d"},
		{"b-d f-h k-m", "b-c", "b-c"},
		{"b-d f-h k-m", "l-m b-c", "b-c l-m"},
		{"b-d f-h k-m", "b-c g-h", "b-h"},
		{"b-d f-h k-m", "a-c ba-bb d-da", "a-da"},
		{"b-d f-h k-m", "a-aa e-ea", "a-aa e-ea"}, // a table that has none of it stands between
		{"b-d f-h k-m", "c-ca e-ea i-ia", "c-ea i-ia"},
		{"b-d f-h k-m", "a-z c-d n-o", "a-z"},
		{"b-d f-h k-m", "x-y z-zz", "x-zz"},
	} {
		var got []string
		for _, r := range joined(parse(c.ranges), parse(c.tables)) {
			got = append(got, string(r.lower)+"-"+string(r.upper))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s in tables %s: %s, want %s", c.ranges, c.tables, text, c.want)
		}
	}
}

// keysOf returns the keys of a kind that any version in the store has, as the engine's files and memory hold them.
func keysLeft(t *testing.T, s *Store, kind byte) (left []string) {
	t.Helper()
	levels, err := s.db.SSTables(pebble.WithProperties())
	if err != nil {
		t.Fatal(err)
	}
	prefix := appendPrefix(nil, s.tenants["a/prod"].number, kind)
	for _, level := range levels {
		for i := range level {
			if level[i].Properties.NumDeletions > 0 && string(level[i].Smallest.UserKey) <= string(after(prefix)) &&
				string(level[i].Largest.UserKey) >= string(prefix) {
				left = append(left, "deletions in "+level[i].BackingSSTNum.String())
			}
		}
	}
	it, err := newIter(s.db, prefix, after(prefix))
	if err != nil {
		t.Fatal(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		left = append(left, fmt.Sprintf("%x", it.Key()))
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return left
}

// TestPurgeFindsTags erases some of the events that share tags with others. The records of what is to be removed are
// there until it is, also after an erasure that was cut short, and they go with it.
func TestPurgeFindsTags(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	open := func() *Store {
		s, err := Open(Options{Dir: "data", FS: fs, Clock: clock.System{}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i := range 200 {
		e := store.NewEvent{
			Key: j17.Key{Type: "order", ID: fmt.Sprint(i % 10)}, Type: "was_made", Data: []byte(`1`),
			Metadata: []byte(`{}`),
			Tags:     []string{"all", fmt.Sprint("some", i%3), fmt.Sprint("one", i)},
		}
		if _, err := s.Append(t.Context(), "a/prod", []store.Append{{Events: []store.NewEvent{e}}}); err != nil {
			t.Fatal(err)
		}
	}
	rewrite := func(id string) {
		t.Helper()
		stream := store.RewrittenStream{Key: j17.Key{Type: "order", ID: id}}
		for v := range 20 {
			stream.Events = append(stream.Events, store.Rewritten{
				Version: uint64(v) + 1, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`),
			})
		}
		if _, err := s.Rewrite(t.Context(), "a/prod", store.Rewrite{
			Streams: []store.RewrittenStream{stream},
		}); err != nil {
			t.Fatal(err)
		}
	}
	rewrite("3")
	rewrite("7")
	ranges := func() (found []keyRange) {
		r, err := s.read("a/prod")
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		if _, err := r.replaced(func(more []keyRange) { found = append(found, more...) }); err != nil {
			t.Fatal(err)
		}
		return found
	}
	if got := ranges(); len(got) != 2*20*3 || !slices.IsSortedFunc(
		got[:60], func(a, b keyRange) int { return strings.Compare(string(a.lower), string(b.lower)) },
	) {
		t.Errorf("%d entries are to be removed", len(got))
	}

	// One that is given up before its end leaves the records to the next one.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	keys := []j17.Key{{Type: "order", ID: "3"}}
	if _, err := s.Purge(ctx, "a/prod", keys, nil, nil); err == nil {
		t.Error("a purge that was cancelled has ended well")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	if got := ranges(); len(got) != 120 {
		t.Errorf("%d entries are to be removed after a restart", len(got))
	}
	for range 2 {
		if _, err := s.Purge(t.Context(), "a/prod", keys, nil, nil); err != nil {
			t.Fatal(err)
		}
		if left := keysLeft(t, s, kindPurge); len(left) > 0 {
			t.Errorf("records are left: %v", left)
		}
	}
	left := keysLeft(t, s, kindTag)
	if len(left) != 3*160 || strings.HasPrefix(left[0], "deletions") {
		t.Errorf("%d entries of tags are left: %v", len(left), left[0])
	}
}
