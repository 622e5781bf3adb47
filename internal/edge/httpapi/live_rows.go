package httpapi

import (
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"j17"
	"j17/internal/base/value"
)

// rowSet is what is kept of the rows of a list that a client has: enough to see what has changed. All streams that have
// got the same rows share it.
type rowSet struct{ rows []liveRow }

// liveRow is what is kept of a row.
type liveRow struct {
	// geo is the place that distinguishes rows of one aggregate, "" where there is nothing to distinguish them by.
	id, geo string
	digest  [12]byte
}

// liveList is all rows of a live list as of a position.
type liveList struct {
	rowSet

	// data returns the data to send for the row with a number.
	data func(n int) ([][]byte, error)
	// whole reports that there are no more rows. early reports that there may be more, which would take too much to
	// find.
	whole, early bool

	mu sync.Mutex
	// since has, for each earlier set of rows, the events that turn it into this list.
	since map[*rowSet][]liveEvent
}

// newLiveRows returns the view of rows that are read by a function.
func newLiveRows(c *call, less string, of func(context.Context) (*liveState, error)) *liveRows {
	return &liveRows{of: of, less: less, compared: &c.api.streams.passes.compared}
}

// add adds a row. Rows whose data differ have different marks.
func (l *liveList) add(id, geo string, mark []byte) {
	sum := sha256.Sum256(mark)
	l.rows = append(l.rows, liveRow{strings.Clone(id), geo, [12]byte(sum[:12])})
}

// eventsSince returns the events that turn what a client has, nil for nothing, into this list. They are made once for
// all clients that have the same; compared counts the rows that this takes.
func (l *liveList) eventsSince(had *rowSet, compared *atomic.Uint64) ([]liveEvent, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if events, known := l.since[had]; known {
		return events, nil
	}
	var before []liveRow
	if had != nil {
		before = had.rows
	}
	compared.Add(uint64(max(len(before), len(l.rows))))
	events, err := l.compare(before)
	if err != nil {
		return nil, err
	}
	if l.since == nil {
		l.since = map[*rowSet][]liveEvent{}
	}
	l.since[had] = events
	return events, nil
}

// compare returns the rows that have gone, and those that are new or have changed. An aggregate with several places has
// a row for each: when one of its places has gone, all its rows go, and the remaining ones come again.
func (l *liveList) compare(before []liveRow) (events []liveEvent, err error) {
	had, now := map[string][]liveRow{}, map[string][]liveRow{}
	for _, row := range before {
		had[row.id] = append(had[row.id], row)
	}
	for _, row := range l.rows {
		now[row.id] = append(now[row.id], row)
	}
	gone := map[string]bool{}
	for id, before := range had {
		after := now[id]
		changes := len(before) == 1 && len(after) == 1 // where nothing distinguishes rows, this is the same one
		gone[id] = len(before) > len(after) || slices.ContainsFunc(before, func(was liveRow) bool {
			return !slices.ContainsFunc(
				after, func(is liveRow) bool { return was == is || was.geo == is.geo && (is.geo != "" || changes) },
			)
		})
	}
	for _, id := range slices.Sorted(maps.Keys(had)) {
		if gone[id] {
			events = append(events, liveEvent{"gone", [][]byte{append(value.AppendString([]byte(`{"id":`), id), '}')}})
		}
	}
	for n, row := range l.rows {
		if !gone[row.id] && slices.Contains(had[row.id], row) {
			continue
		}
		data, err := l.data(n)
		if err != nil {
			return nil, err
		}
		events = append(events, liveEvent{"row", data})
	}
	return events, nil
}

const (
	// maxLiveRows is how many rows a live list may have.
	maxLiveRows = 1000
	// longerLooks is how many times as much work as for a page may be done for a live list that follows a place: it has
	// to be found as a whole.
	longerLooks = 4
)

// liveRows are rows that come, change and go.
type liveRows struct {
	of func(ctx context.Context) (*liveState, error)
	// less says how to ask for fewer rows.
	less string
	// compared counts the rows that were compared with earlier ones.
	compared *atomic.Uint64
	// sent are those that the client has, nil at first.
	sent *rowSet
}

func (l *liveRows) read(ctx context.Context) (*liveState, error) {
	state, err := l.of(ctx)
	if err != nil {
		return nil, err
	}
	switch list := state.list; {
	case list.early:
		return nil, j17.Errorf(j17.CodeProjectionLimit, "Too many places would have to be compared to follow what is asked for: ask for a smaller radius or area.")
	case !list.whole:
		e := j17.Errorf(j17.CodeProjectionLimit, "The list has more rows than can be followed, %d of 8 MiB together. %s", maxLiveRows, l.less)
		e.Details = map[string]int{"limit": maxLiveRows}
		return nil, e
	}
	return state, nil
}

func (l *liveRows) show(state *liveState) ([]liveEvent, error) {
	events, err := state.list.eventsSince(l.sent, l.compared)
	if err != nil {
		return nil, err
	}
	if l.sent == nil {
		events = append(slices.Clip(events), liveEvent{"ready", [][]byte{[]byte("{}")}})
	}
	l.sent = &state.list.rowSet
	return events, nil
}
