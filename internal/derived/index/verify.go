package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// Difference is the first deviation of an index from what events give.
type Difference struct {
	// Row is the ID of the row, What a sentence about the difference.
	Row, What string
}

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
	// pause is called before each page. done counts the rows and entries compared.
	pause func(done uint64) error
	done  uint64
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
) (*Difference, error) {
	status, err := s.Status(ctx, t, id)
	if err != nil {
		return nil, err
	}
	b := work.New(ctx, math.MaxInt64) // no limit, but it takes turns with others
	slot, difference, err := s.verify(ctx, t, id, func(done uint64) error {
		if progress != nil {
			progress(done, max(status.Rows+status.Entries, done))
		}
		if !b.Spend(verifyPage * ofVerified) {
			return b.Err()
		}
		return ctx.Err()
	})
	found := difference
	if damage := damageOf(err); damage != nil {
		difference, found, err = &Difference{What: Unreadable}, &Difference{What: damage.Error()}, nil
	}
	if difference == nil || err != nil {
		return nil, err
	}
	return difference, s.replace(context.WithoutCancel(ctx), place{t, id}, slot, found)
}

// Unreadable is the text of the difference if data of an index cannot be read.
const Unreadable = "some of it can no longer be read, since its bytes on disk have changed; it is being rebuilt"

// damageOf returns the damage to the index itself in an error of a verification, nil for none.
func damageOf(err error) error {
	if damage, is := errors.AsType[*store.CorruptionError](err); is && !errors.Is(err, errEvents) {
		return damage
	}
	return nil
}

const (
	// scrubEvery is the interval between checks of all indexes unless the options set it, scrubPause the pause before
	// each page of them.
	scrubEvery = 6 * time.Hour
	scrubPause = 50 * time.Millisecond
)

// Run checks all indexes at intervals, slowly, until the context ends. An index that differs is taken out of use and
// rebuilt.
func (s *Service) Run(ctx context.Context) error {
	s.o.Worker.Every(ctx, worker.Loop{Name: "index_scrub", Do: func(ctx context.Context) error {
		if err := s.o.Clock.Wait(ctx, s.o.Clock.Now().Add(s.o.Scrub)); err != nil {
			return err
		}
		return s.scrub(ctx)
	}})
	return nil
}

// scrub checks all indexes whose definitions are known here.
func (s *Service) scrub(ctx context.Context) error {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.known))
	s.mu.Unlock()
	var errs []error
	for _, at := range all {
		slot, difference, err := s.verify(ctx, at.tenant, at.name, func(uint64) error {
			return s.o.Clock.Wait(ctx, s.o.Clock.Now().Add(scrubPause))
		})
		damage := damageOf(err)
		_, notReady := errors.AsType[*NotReadyError](err)
		switch {
		case damage != nil:
			difference, err = &Difference{What: damage.Error()}, nil
		case notReady || errors.Is(err, store.ErrNotFound):
			continue
		}
		if difference != nil {
			err = s.replace(ctx, at, slot, difference)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// replace drops a slot because of a difference, and begins to rebuild the index. If the slot has been dropped already,
// it does nothing and logs nothing.
func (s *Service) replace(ctx context.Context, of place, slot string, what *Difference) error {
	dropped, err := s.rebuild(ctx, of.tenant, of.name, slot)
	if dropped || err != nil {
		s.counts.differences.Add(1)
		s.o.Logger.LogAttrs(ctx, slog.LevelError, "an index differs from the events: it is no longer read, and is rebuilt",
			slog.String("tenant", string(of.tenant)), slog.String("index", of.name), slog.String("row", what.Row),
			slog.String("what", what.What))
	}
	s.waiters.wake(of.tenant, slot)
	return err
}

// errEvents marks errors in computing rows. They are no fault of the index, which could not be rebuilt either.
var errEvents = errors.New("rows cannot be computed from events")

// errMoved makes a verification begin again.
var errMoved = errors.New("another build of the index serves by now")

// verify is Verify, and also returns the slot that it compared.
func (s *Service) verify(
	ctx context.Context, t j17.Tenant, id string, pause func(done uint64) error,
) (slot string, _ *Difference, _ error) {
	for {
		d := s.knows(t, id)
		if d == nil {
			return "", nil, store.ErrNotFound
		}
		h, err := s.head(ctx, t, id)
		if err != nil {
			return "", nil, err
		}
		v := &verification{s: s, t: t, d: d, slot: h.Serving, pause: pause}
		difference, err := v.rows(ctx)
		if err == nil && difference == nil {
			difference, err = v.owners(ctx, entrySpace)
		}
		if err == nil && difference == nil {
			difference, err = v.owners(ctx, sourceSpace)
		}
		if !errors.Is(err, errMoved) {
			return v.slot, difference, err
		}
	}
}

// view opens a view of the compared slot, at a position or a later one.
func (v *verification) view(ctx context.Context, p j17.StreamID) (*View, error) {
	if err := v.pause(v.done); err != nil {
		return nil, err
	}
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

// rows compares all aggregates and all records, in the order of IDs.
func (v *verification) rows(ctx context.Context) (*Difference, error) {
	for after := ""; ; {
		last, difference, err := v.page(ctx, after)
		if err != nil || difference != nil || last == "" {
			return difference, err
		}
		after = last
	}
}

// page compares the rows after an ID, and returns the last one compared, "" at the end. It ends early after a row that
// it had to compare again.
func (v *verification) page(ctx context.Context, after string) (last string, difference *Difference, err error) {
	view, err := v.view(ctx, j17.StreamID{})
	if err != nil {
		return "", nil, err
	}
	defer view.Close()

	// The records and the aggregates, up to the last ID that both pages cover.
	ids, err := v.s.o.Store.Streams(ctx, v.t, v.d.Type, after, verifyPage)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", errEvents, err)
	}
	prefix := v.slot + "/"
	keys := store.Prefix(prefix)
	if after != "" {
		keys = keys.After(prefix + after)
	}
	items, err := view.moment.Scan(rowSpace, keys, verifyPage)
	if err != nil {
		return "", nil, err
	}
	upTo := beyond
	if len(ids) == verifyPage {
		upTo = ids[len(ids)-1]
	}
	records := map[string]*record{}
	for i := range items {
		id := items[i].Key[len(prefix):]
		if records[id], err = parseRecord(items[i].Value); err != nil {
			return "", &Difference{Row: id, What: "what is kept of the row cannot be read"}, nil
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
			return "", nil, fmt.Errorf("%w: %w", errEvents, err)
		}
		for i := range rows {
			id := rows[i].ID
			what, err := view.compare(&rows[i], records[id])
			if err != nil {
				return "", nil, err
			}
			v.done++
			if what != "" {
				view.Close()
				difference, err := v.again(ctx, id)
				return id, difference, err
			}
		}
	}
	if upTo == beyond {
		return "", nil, nil
	}
	return upTo, nil, nil
}

// again repeats the comparison of a row that differs. The first comparison computed the row from the events as they are
// now; if some were rewritten and the index has not handled that yet, the index shows the old ones. So again waits for
// the index, until nothing is rewritten during a comparison.
func (v *verification) again(ctx context.Context, id string) (*Difference, error) {
	for {
		rewrites := v.s.o.Store.Rewrites()
		what, err := v.once(ctx, id)
		if err != nil || what == "" {
			return nil, err
		}
		if v.s.o.Store.Rewrites() == rewrites {
			return &Difference{Row: id, What: what}, nil
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
		return "", fmt.Errorf("%w: %w", errEvents, err)
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
func (v *verification) owners(ctx context.Context, space store.Space) (*Difference, error) {
	prefix := v.slot + "/"
	for keys := store.Prefix(prefix); ; {
		last, difference, err := v.ownersOf(ctx, space, keys)
		if err != nil || difference != nil || last == "" {
			return difference, err
		}
		keys = keys.After(last)
	}
}

// ownersOf checks a page of entries, and returns its last key, "" at the end.
func (v *verification) ownersOf(
	ctx context.Context, space store.Space, keys store.Range,
) (last string, difference *Difference, err error) {
	view, err := v.view(ctx, j17.StreamID{})
	if err != nil {
		return "", nil, err
	}
	defer view.Close()
	items, err := view.moment.Scan(space, keys, verifyPage)
	if err != nil {
		return "", nil, err
	}
	for i := range items {
		last = items[i].Key
		text, id := last[len(v.slot)+1:], idOf([]byte(last))
		text = strings.TrimSuffix(text, end+id)
		rec, err := readRecord(view.moment.Get, v.slot, id)
		if err != nil {
			return "", nil, err
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
			return "", &Difference{Row: id, What: fmt.Sprintf("the index has something in %s that is none of the row's", space)}, nil
		}
	}
	if space == entrySpace {
		v.done += uint64(len(items))
	}
	if len(items) < verifyPage {
		last = ""
	}
	return last, nil, nil
}
