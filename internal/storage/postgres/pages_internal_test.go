package postgres

import (
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"testing"

	"j17"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

const (
	shop  j17.Tenant = "shop/prod"
	large            = 100 << 10 // three of these fill a page
)

func order(id string) j17.Key { return j17.Key{Type: "order", ID: id} }

// write appends n events of about size bytes to a stream, all with the tag "all".
func write(t *testing.T, s *Store, key j17.Key, n, size int) store.Result {
	t.Helper()
	data := fmt.Appendf(nil, `"%s"`, strings.Repeat("x", size))
	var events []store.NewEvent
	for range n {
		events = append(events, store.NewEvent{
			Key: key, Type: "was_changed", Data: data, Metadata: []byte(`{}`), Tags: []string{"all"},
		})
	}
	results, err := s.Append(t.Context(), shop, []store.Append{{Events: events}})
	if err != nil || results[0].Outcome != store.Committed {
		t.Fatal(results, err)
	}
	return results[0]
}

// readings returns iterators for all ways of reading events.
func readings(t *testing.T, s *Store, key j17.Key) map[string]iter.Seq2[*j17.Event, error] {
	t.Helper()
	ctx, none := t.Context(), j17.StreamID{}
	return map[string]iter.Seq2[*j17.Event, error]{
		"ReadStream":  s.ReadStream(ctx, shop, key, 1, 0),
		"ReadStreams": s.ReadStreams(ctx, shop, []j17.Key{key}, 1000),
		"ReadFeed":    s.ReadFeed(ctx, shop, none, 1000),
		"ReadChanges": eventsOf(s.ReadChanges(ctx, shop, none, 1000)),
		"ReadTagged":  s.ReadTagged(ctx, shop, store.Tagged{Tags: []string{"all"}}, none, 1000, nil),
	}
}

func eventsOf(entries iter.Seq2[store.Entry, error]) iter.Seq2[*j17.Event, error] {
	return func(yield func(*j17.Event, error) bool) {
		for e, err := range entries {
			if !yield(e.Event, err) {
				return
			}
		}
	}
}

// damage executes a statement on the tables, bypassing the store.
func damage(t *testing.T, s *Store, sql string, args ...any) {
	t.Helper()
	tag, err := s.pool.Exec(t.Context(), sql, args...)
	if err != nil || tag.RowsAffected() == 0 {
		t.Fatal(tag, err)
	}
}

// TestDamageIsTold damages one event of a stream in several ways: readers get all events before it, and then an error.
func TestDamageIsTold(t *testing.T) {
	t.Parallel()
	const whole, damaged = 10, 7
	for name, sql := range map[string]string{
		"position":      `UPDATE events SET raw = set_byte(raw, 19, 48 + (get_byte(raw, 19) - 47) % 10) WHERE version = $1`,
		"key":           `UPDATE events SET raw = decode(replace(encode(raw, 'hex'), encode('order:a', 'hex'), encode('order:b', 'hex')), 'hex') WHERE version = $1`,
		"type":          `UPDATE events SET type = 'was_removed' WHERE version = $1`,
		"timestamp":     `UPDATE events SET time = time + 1 WHERE version = $1`,
		"cut short":     `UPDATE events SET raw = substring(raw FROM 1 FOR length(raw) - 1) WHERE version = $1`,
		"places":        `UPDATE events SET data_at = data_at + 1 WHERE version = $1`,
		"no places":     `UPDATE events SET metadata_at = NULL WHERE version = $1`,
		"leaf":          `UPDATE events SET kept = 'short' WHERE version = $1`,
		"not there":     `DELETE FROM events WHERE version = $1`,
		"other version": `UPDATE events SET version = 100 WHERE version = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openOnServer(t)
			write(t, s, order("a"), whole, 10)
			damage(t, s, sql, damaged)
			for of, events := range readings(t, s, order("a")) {
				if name == "not there" && (of == "ReadFeed" || of == "ReadChanges") ||
					name == "other version" && !strings.HasPrefix(of, "ReadStream") {
					continue // a feed does not show that an event is missing
				}
				n := 0
				var last error
				for _, err := range events {
					if last = err; err == nil {
						n++
					}
				}
				if _, is := errors.AsType[*store.CorruptionError](last); !is || n != damaged-1 {
					t.Errorf("%s: %d events, then %v", of, n, last)
				}
			}
			if name == "not there" {
				_, err := s.VersionAfter(t.Context(), shop, order("a"), j17.StreamID{Ms: 1})
				if _, is := errors.AsType[*store.CorruptionError](err); err != nil && !is {
					t.Errorf("VersionAfter: %v", err)
				}
			}
		})
	}
}

// TestRemovedUnderReaders removes a tenant, and creates another one of its name, while its events are read.
func TestRemovedUnderReaders(t *testing.T) {
	t.Parallel()
	for _, anew := range []bool{false, true} {
		s := openOnServer(t)
		write(t, s, order("a"), 1, large)
		all := readings(t, s, order("a"))
		for name := range all {
			write(t, s, order("a"), 9, large)
			n := 0
			var last error
			for _, err := range readings(t, s, order("a"))[name] {
				if last = err; err != nil {
					break
				}
				if n++; n > 1 {
					continue
				}
				if err := s.DropTenant(t.Context(), shop); err != nil {
					t.Fatal(err)
				}
				if anew {
					write(t, s, order("a"), 9, large)
				}
			}
			if !errors.Is(last, store.ErrNotFound) || n < 2 || n > 4 {
				t.Errorf("%s: %d events, then %v, want ErrNotFound", name, n, last)
			}
		}
	}
}

// TestErasedUnderReaders replaces an event while those before it are read: the erased content is not handed out.
func TestErasedUnderReaders(t *testing.T) {
	t.Parallel()
	s := openOnServer(t)
	result := write(t, s, order("a"), 10, 10)
	for i, name := range []string{"ReadStream", "ReadStreams", "ReadFeed", "ReadChanges", "ReadTagged"} {
		n := 0
		for e, err := range readings(t, s, order("a"))[name] {
			if err != nil {
				t.Fatal(name, err)
			}
			if n++; e.Version != uint64(n) {
				t.Fatalf("%s: version %d where %d is due", name, e.Version, n)
			}
			if want := fmt.Sprint(i); n == 8 && string(e.Data) != want {
				t.Errorf("%s: %s, want %s", name, e.Data, want)
			}
			if n != 3 {
				continue
			}
			raw, at := j17.AppendEvent(
				nil, result.IDs[7], order("a"), "was_erased", fmt.Append(nil, i), []byte(`{}`), result.Timestamp,
			)
			damage(
				t, s, `UPDATE events SET raw = $1, type = 'was_erased', data_at = $2, metadata_at = $3 WHERE version = 8`,
				raw, at.Data, at.Metadata,
			)
			s.rewrites.Add(1)
		}
		if n != 10 {
			t.Errorf("%s: %d events", name, n)
		}
	}
}

// TestReadersHoldNothing checks that no connection is held between two steps of iterations over several pages.
func TestReadersHoldNothing(t *testing.T) {
	t.Parallel()
	s := openOnServer(t)
	write(t, s, order("a"), 10, large)
	all := readings(t, s, order("a"))
	all["ReadNames"] = eventsOf(s.ReadNames(t.Context(), shop, j17.StreamID{}, 1000))
	for name, events := range all {
		n := 0
		for _, err := range events {
			if err != nil {
				t.Fatal(name, err)
			}
			if held := heldConnections(t, s); held != 0 {
				t.Fatalf("%s holds %d connections", name, held)
			}
			n++
		}
		if n != 10 {
			t.Errorf("%s: %d events", name, n)
		}
	}
}

// heldConnections returns how many connections of the pool are in use and stay so. What the store does in the
// background has one for a moment.
func heldConnections(t *testing.T, s *Store) (held int32) {
	t.Helper()
	for range 100 {
		if held = s.pool.Stat().AcquiredConns(); held == 0 {
			break
		}
		if _, err := s.pool.Exec(t.Context(), "SELECT 1"); err != nil {
			t.Fatal(err)
		}
	}
	return held
}

// TestPlans checks the server's plans for the statements of readers: each reads only the partition of its tenant, in
// the order of an index.
func TestPlans(t *testing.T) {
	t.Parallel()
	s := openOnServer(t)
	write(t, s, order("a"), 100, 10)
	for i := range 100 {
		write(t, s, order(fmt.Sprint(i)), 2, 10)
	}
	name, stream, tag := []byte(shop), record.Stream(order("a")), tagID("all")
	none, many := [][]byte{}, [][]byte{tagID("all"), tagID("other")}
	pattern := [][]byte{[]byte("order\x00")}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			if _, err := s.pool.Exec(t.Context(), `ANALYZE`); err != nil {
				t.Fatal(err)
			}
		}
		for what, st := range map[string]statement{
			"length":    {selectLength, []any{name, stream}},
			"stream":    {selectStream, []any{name, stream, 1, 100, 50}},
			"streams":   {selectStreams, []any{name, [][]byte{stream, record.Stream(order("7"))}, 1, 50, 90}},
			"after":     {selectVersionAfter, []any{name, stream, 1, 0}},
			"ids":       {selectIDs, []any{name, []byte("order\x00"), []byte("order\x01"), 10}},
			"events":    {selectEvents, []any{name, 0, 0, 50}},
			"changes":   {selectChanges, []any{name, 0, 0, 50}},
			"names":     {selectNames, []any{name, 0, 0, 50}},
			"rarest":    {selectRarest, []any{name, many, 0, 0}},
			"tag end":   {selectTagEnd, []any{name, tag, 0, 0, 100}},
			"tagged":    {selectTagged, []any{name, tag, 0, 0, 100, 50, none, none, none}},
			"match":     {selectMatch, []any{name, tag, 0, 0, many[1:], pattern, [][]byte{{}}}},
			"all types": {selectMatch, []any{name, tag, 0, 0, none, pattern, [][]byte{[]byte("other")}}},
			"all tags":  {selectTagged, []any{name, tag, 0, 0, 100, 50, many[:1], pattern, [][]byte{{}}}},
		} {
			got := plan(t, s, st.sql, st.arguments...)
			for _, bad := range []string{"Seq Scan", "Bitmap", "Hash", "hashed", "Merge Join", "Memoize"} {
				if strings.Contains(got, bad) {
					t.Errorf("%s: there is a %s:\n%s", what, bad, got)
				}
			}
			if sorts := strings.Count(got, "->  Sort ("); sorts > 1 ||
				sorts == 1 && !slices.Contains([]string{"after", "rarest", "tag end"}, what) {
				t.Errorf("%s: %d sorts:\n%s", what, sorts, got)
			}
			partitions := regexp.MustCompile(
				`(?m) on (events_\d|tags_\d) .*\(actual`,
			).FindAllStringSubmatch(got, -1)
			of := map[string]bool{}
			for _, p := range partitions {
				of[p[1][strings.IndexByte(p[1], '_'):]] = true
			}
			if len(of) != 1 {
				t.Errorf("%s: it looks into %d partitions:\n%s", what, len(of), got)
			}
		}
	}
}
