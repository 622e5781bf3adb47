package pebble

import (
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
)

// TestPanicsOfParts lets work that is divided, or done ahead, panic on goroutines of its own: whoever waits for it is
// told, be it by an error or by a panic, and the process goes on.
func TestPanicsOfParts(t *testing.T) {
	t.Parallel()
	fault := func() *workFolder {
		return &workFolder{fs: vfs.NewMem(), path: "work", check: func() error { panic("a fault") }}
	}
	told := func(name string, do func() error) {
		t.Helper()
		defer func() {
			if v := recover(); v != nil {
				t.Errorf("%s: whoever waits panics with %v", name, v)
			}
		}()
		if err := do(); err == nil || !strings.Contains(err.Error(), "panic: ") {
			t.Errorf("%s: whoever waits is told %v", name, err)
		}
	}
	told("a sorter", func() error {
		s := newSorter(fault(), 1)
		for range 3 {
			if err := s.add([]byte("key")); err != nil {
				return err
			}
		}
		return s.settle()
	})
	told("a writer of tables", func() error {
		w := &tableWriter{folder: fault()}
		for range 4 * pageBytes / 1000 {
			//nolint:errorlint // it is not wrapped
			if err := w.set([]byte("a key"), make([]byte, 1000)); err != nil && err != errTables {
				return err
			}
		}
		return w.close()
	})
	told("tables of a load", func() error {
		l := &loading{folder: fault(), store: &bulk{core: &core{}}}
		for _, s := range []**sorter{&l.events, &l.tags, &l.feed, &l.items, &l.there} {
			*s = newSorter(l.folder, 1<<20)
		}
		_ = l.tags.add([]byte("a key"))
		_ = l.tags.settle()
		_, _, err := l.tables(t.Context())
		return err
	})

	panics := func(name string, do func()) {
		t.Helper()
		defer func() {
			if err, _ := recover().(error); err == nil || !strings.HasPrefix(err.Error(), "panic: ") {
				t.Errorf("%s: whoever waits has %v", name, err)
			}
		}()
		do()
	}
	panics("a window", func() { _ = (&filling{window: &window{}}).read(make([]uint32, dividedFrom), 2) })
	if runtime.GOMAXPROCS(0) == 1 {
		return // who reads a page reads all of it then
	}
	panics("a page", func() {
		g := gathering{lookup: &lookup{}, refs: []gathered{{value: []byte("v")}}}
		for range dividedFrom {
			g.refs = append(g.refs, gathered{key: []byte("a key of an event")})
		}
		_ = g.fetch(1 << 20)
	})
}

// TestAPanicEndsAFilter lets the making of a filter panic: it is logged, and the next one can be made.
func TestAPanicEndsAFilter(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	name := j17.Tenant("ins_1/prod")
	s := &filters{core: &core{
		logger:  slog.New(slog.NewTextHandler(&log, nil)),
		tenants: map[j17.Tenant]*tenant{name: {number: 1, events: minFiltered}},
	}}

	// While older events are being indexed none is made: it would not have their tags.
	s.tenants[name].building = 1
	s.filterTags(name)
	s.background.Wait()
	if log.Len() > 0 {
		t.Errorf("a filter was made over half of an index; the log has %q", log.String())
	}
	s.tenants[name].building = 0
	s.filterTags(name)
	s.background.Wait()
	if s.making || !strings.Contains(log.String(), "panic: ") {
		t.Errorf("a filter is being made: %t; the log has %q", s.making, log.String())
	}
}
