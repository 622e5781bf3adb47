package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"j17"
	"j17/internal/derived/build"
	"j17/internal/storage/store"
)

// verifyPage is how many rows, or entries, are compared as of one position.
const verifyPage = 256

// ofVerified is the approximate cost of comparing one of them, in units of work.
const ofVerified = 1 << 11

// verification compares an index with what events give.
type verification struct {
	s    *Service
	t    j17.Tenant
	d    *Definition
	slot string
}

// Verify computes all rows again and compares them with the index: each expected row with its record and all of its
// entries, and all entries with the rows that they belong to. Events written meanwhile do not matter, because each page
// is compared as of one position. Nor do rewritten events: a row that differs is compared again when the index has
// handled them. Verify returns the first difference, nil if there is none; unreadable data of the index are a
// difference without a row. An index that differs is taken out of use and rebuilt. progress, if not nil, is called with
// the number of rows and entries compared, and about how many there are. The error is a *NotReadyError if the index is
// too far behind to be compared.
func (s *Service) Verify(
	ctx context.Context, t j17.Tenant, id string, progress func(done, total uint64),
) (*build.Difference, error) {
	status, err := s.Status(ctx, t, id)
	if err != nil {
		return nil, err
	}
	difference, err := s.verify(ctx, t, id, build.InTurns(ctx, ofVerified, func(done uint64) {
		if progress != nil {
			progress(done, max(status.Rows+status.Entries, done))
		}
	}))
	if difference != nil && difference.Unreadable {
		difference.What = Unreadable
	}
	return difference, err
}

// Unreadable is the text of the difference if data of an index cannot be read.
const Unreadable = "some of it can no longer be read, since its bytes on disk have changed; it is being rebuilt"

// Run checks all indexes at intervals, slowly, until the context ends. An index that differs is taken out of use and
// rebuilt.
func (s *Service) Run(ctx context.Context) error {
	return s.o.Build.Scrub(ctx, s.o.Clock, "index_scrub", s.o.Scrub, s.scrub)
}

// scrub checks all indexes whose definitions are known here.
func (s *Service) scrub(ctx context.Context, pause build.Pause) error {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.known))
	s.mu.Unlock()
	var errs []error
	for _, at := range all {
		_, err := s.verify(ctx, at.tenant, at.name, pause)
		if _, notReady := errors.AsType[*NotReadyError](err); !notReady && !errors.Is(err, store.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// replace drops a slot because of a difference, and begins to rebuild the index. If the slot has been dropped already,
// it does nothing and logs nothing.
func (s *Service) replace(ctx context.Context, of place, slot string, what *build.Difference) error {
	dropped, err := s.rebuild(ctx, of.tenant, of.name, slot)
	if dropped || err != nil {
		s.counts.differences.Add(1)
		s.o.Logger.LogAttrs(ctx, slog.LevelError, "an index differs from the events: it is no longer read, and is rebuilt",
			slog.String("tenant", string(of.tenant)), slog.String("index", of.name), slog.String("row", what.ID),
			slog.String("what", what.What))
	}
	s.waiters.wake(of.tenant, slot)
	return err
}

// errMoved makes a verification begin again.
var errMoved = errors.New("another build of the index serves by now")

// verify compares the serving slot of an index with what events give, and replaces it if it differs.
func (s *Service) verify(
	ctx context.Context, t j17.Tenant, id string, pause build.Pause,
) (*build.Difference, error) {
	for {
		d := s.knows(t, id)
		if d == nil {
			return nil, store.ErrNotFound
		}
		h, err := s.head(ctx, t, id)
		if err != nil {
			return nil, err
		}
		v := &verification{s: s, t: t, d: d, slot: h.Serving}
		replace := func(ctx context.Context, found *build.Difference) error {
			return s.replace(ctx, place{t, id}, v.slot, found)
		}
		difference, err := build.Compare(ctx, pause, replace, v.rows, v.owners(entrySpace), v.owners(sourceSpace))
		if !errors.Is(err, errMoved) {
			return difference, err
		}
	}
}

// view opens a view of the compared slot, at a position or a later one.
func (v *verification) view(ctx context.Context, p j17.StreamID) (*View, error) {
	view, err := v.s.At(ctx, v.t, v.d.ID, p)
	if err != nil {
		return nil, err
	}
	if view.slot.name != v.slot {
		view.Close()
		return nil, errMoved
	}
	return view, nil
}

// rows compares the aggregates and the records after an ID, in the order of IDs. It ends early after a row that it had
// to compare again.
func (v *verification) rows(
	ctx context.Context, after string,
) (last string, n int, difference *build.Difference, err error) {
	view, err := v.view(ctx, j17.StreamID{})
	if err != nil {
		return "", 0, nil, err
	}
	defer view.Close()

	// The records and the aggregates, up to the last ID that both pages cover.
	ids, err := v.s.o.Store.Streams(ctx, v.t, v.d.Type, after, verifyPage)
	if err != nil {
		return "", 0, nil, build.EventsError(err)
	}
	prefix := v.slot + "/"
	items, err := view.moment.Scan(rowSpace, store.Prefix(prefix).After(prefix+after), verifyPage)
	if err != nil {
		return "", 0, nil, err
	}
	upTo := beyond
	if len(ids) == verifyPage {
		upTo = ids[len(ids)-1]
	}
	records := map[string]*record{}
	for i := range items {
		id := items[i].Key[len(prefix):]
		if records[id], err = parseRecord(items[i].Value); err != nil {
			return "", 0, &build.Difference{ID: id, What: "what is kept of the row cannot be read"}, nil
		}
		ids = append(ids, id)
	}
	if len(items) == verifyPage {
		upTo = min(upTo, items[len(items)-1].Key[len(prefix):])
	}
	slices.Sort(ids)
	ids = slices.DeleteFunc(slices.Compact(ids), func(id string) bool { return id > upTo })

	// Rows and records are compared.
	for some := range slices.Chunk(ids, slice) {
		rows, err := v.s.compute(ctx, v.t, v.d, view.at, some)
		if err != nil {
			return "", 0, nil, build.EventsError(err)
		}
		for i := range rows {
			id := rows[i].ID
			what, err := view.compare(&rows[i], records[id])
			if err != nil {
				return "", 0, nil, err
			}
			n++
			if what != "" {
				view.Close()
				difference, err := v.again(ctx, id)
				return id, n, difference, err
			}
		}
	}
	if upTo == beyond {
		upTo = ""
	}
	return upTo, n, nil, nil
}

// again repeats the comparison of a row that differs. The first comparison computed the row from the events as they are
// now; if some were rewritten and the index has not handled that yet, the index shows the old ones. So again waits for
// the index, until nothing is rewritten during a comparison.
func (v *verification) again(ctx context.Context, id string) (*build.Difference, error) {
	for {
		rewrites := v.s.o.Store.Rewrites()
		what, err := v.once(ctx, id)
		if err != nil || what == "" {
			return nil, err
		}
		if v.s.o.Store.Rewrites() == rewrites {
			return &build.Difference{ID: id, What: what}, nil
		}
	}
}

// once compares a row as of the present end of the feed, or later.
func (v *verification) once(ctx context.Context, id string) (what string, err error) {
	end, err := v.s.present(ctx, v.t)
	if err != nil {
		return "", err
	}
	view, err := v.view(ctx, end)
	if err != nil {
		return "", err
	}
	defer view.Close()
	rows, err := v.s.compute(ctx, v.t, v.d, view.at, []string{id})
	if err != nil {
		return "", build.EventsError(err)
	}
	have, err := readRecord(view.moment.Get, v.slot, id)
	if err != nil {
		return "", err
	}
	return view.compare(&rows[0], have)
}

// compare describes a difference between a row and what is stored of it, "" if there is none.
func (v *View) compare(row *Row, have *record) (what string, err error) {
	want := recordOf(row)
	if have == nil {
		have = &record{}
	}
	switch {
	case len(want.entries) > 0 && len(have.entries) == 0:
		return "the row is missing in the index", nil
	case len(want.entries) == 0 && len(have.entries) > 0:
		return "the index has a row that should not be there", nil
	case !slices.Equal(want.entries, have.entries):
		return "the entries that are kept of the row are not those of its present values", nil
	case !slices.Equal(want.names, have.names):
		return "what the row is made from is not what is kept of it", nil
	}
	for i := range want.entries {
		it, err := v.moment.Get(entrySpace, entryKey(v.slot.name, want.entries[i].text, row.ID))
		if errors.Is(err, store.ErrNotFound) {
			return "an entry of the row is missing", nil
		}
		if err != nil {
			return "", err
		}
		if !bytes.Equal(it.Value, want.value(i)) {
			return "an entry of the row has another value than it should have", nil
		}
	}
	for _, name := range want.names {
		_, err := v.moment.Get(sourceSpace, sourceKey(v.slot.name, name, row.ID))
		if errors.Is(err, store.ErrNotFound) {
			return "a note about what the row is made from is missing", nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

// owners checks that each entry, or note about a source, belongs to a row.
func (v *verification) owners(space store.Space) build.Pages {
	return func(ctx context.Context, after string) (last string, n int, _ *build.Difference, err error) {
		view, err := v.view(ctx, j17.StreamID{})
		if err != nil {
			return "", 0, nil, err
		}
		defer view.Close()
		prefix := v.slot + "/"
		items, err := view.moment.Scan(space, store.Prefix(prefix).After(after), verifyPage)
		if err != nil {
			return "", 0, nil, err
		}
		for i := range items {
			last = items[i].Key
			text, id := last[len(prefix):], idOf([]byte(last))
			text = strings.TrimSuffix(text, end+id)
			rec, err := readRecord(view.moment.Get, v.slot, id)
			if err != nil {
				return "", 0, nil, err
			}
			owned := false
			switch {
			case rec == nil:
			case space == entrySpace:
				owned = slices.ContainsFunc(rec.entries, func(e Entry) bool { return e.text == text })
			default:
				owned = slices.Contains(rec.names, text)
			}
			if !owned {
				return "", 0, &build.Difference{ID: id, What: fmt.Sprintf("the index has something in %s that is none of the row's", space)}, nil
			}
		}
		if space == entrySpace {
			n = len(items)
		}
		if len(items) < verifyPage {
			last = ""
		}
		return last, n, nil, nil
	}
}
