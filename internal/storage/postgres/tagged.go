package postgres

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"

	"j17"
	"j17/internal/storage/store"
)

// A read by tags iterates over the rows of one tag, and looks each of them up among those of the other tags.
const (
	// mostTagSteps bounds the steps (rows that are looked at) of a page, firstTagSteps those of the first page.
	mostTagSteps  = 4096
	firstTagSteps = 512

	// selectRarest selects the tag with the fewest events after a position. It looks at the first 64 of each; if all
	// tags have so many, it selects the one whose 64 events reach farthest.
	selectRarest = `SELECT u.tag FROM unnest($2::bytea[]) u (tag), LATERAL (
	SELECT count(*) AS events, max(g.ms) AS ms FROM (
		SELECT g.ms FROM tags g WHERE g.t = ` + ofTenant + ` AND g.tag = u.tag AND (g.ms, g.n) > ($3, $4)
		ORDER BY g.ms, g.n LIMIT 64
	) g
) z ORDER BY z.events, z.ms DESC LIMIT 1`

	// rowsOfTag selects rows of a tag of a tenant, numbered from 1.
	rowsOfTag = `(
			SELECT g.*, row_number() OVER (ORDER BY g.ms, g.n) AS i FROM (
				SELECT g.t, g.ms, g.n FROM tags g
				WHERE g.t = ` + ofTenant + ` AND g.tag = $2 AND (g.ms, g.n) > ($3, $4) ORDER BY g.ms, g.n LIMIT $5
			) g
		)`

	// selectTagEnd selects the number of a tenant and the end of its feed, and the number and position of the last of
	// rowsOfTag, zero if there is none.
	selectTagEnd = `SELECT x.t, x.ms, x.n, coalesce(l.i, 0), coalesce(l.ms, 0), coalesce(l.n, 0)
FROM names nm JOIN tenants x ON x.t = nm.t LEFT JOIN LATERAL (
	SELECT g.i, g.ms, g.n FROM ` + rowsOfTag + ` g ORDER BY g.i DESC LIMIT 1
) l ON true WHERE nm.name = $1`

	// selectTagged selects the events that rowsOfTag refer to, if they have all other tags and one of the types, with
	// the numbers of the rows.
	selectTagged = `SELECT ` + pageFields + `, e.i FROM (
		SELECT e.*, sum(coalesce(length(e.raw), 0)) OVER (ORDER BY e.ms, e.n ROWS UNBOUNDED PRECEDING)
			- coalesce(length(e.raw), 0) AS before FROM (
			SELECT g.t, g.ms, g.n, e.version, e.stream, e.type, e.time, e.kept, e.tags, e.data_at, e.metadata_at, e.raw, g.i
			FROM ` + rowsOfTag + ` g LEFT JOIN events e ON e.t = ` + ofTenant + ` AND e.ms = g.ms AND e.n = g.n
			WHERE NOT EXISTS (
				SELECT 1 FROM unnest($7::bytea[]) o (tag) WHERE ` + lacksTag + `
			) AND (cardinality($8::bytea[]) = 0 OR e.raw IS NULL OR EXISTS (
				SELECT 1 FROM unnest($8::bytea[], $9::bytea[]) p (aggregate, type) WHERE ` + ofPattern + `
			)) ORDER BY g.ms, g.n LIMIT $6` + pageEnd + inOrder
)

// ReadTagged is part of store.Feed.
func (f *feeds) ReadTagged(
	ctx context.Context, t j17.Tenant, of store.Tagged, after j17.StreamID, limit int,
	looked func(steps int, upTo j17.StreamID) (more bool),
) iter.Seq2[*j17.Event, error] {
	return store.Sequence(func(yield func(*j17.Event) bool) error {
		if err := f.admits(t); err != nil {
			return err
		}
		if len(of.Tags) == 0 {
			return fmt.Errorf("%w: no tags to read events by", store.ErrInvalid)
		}
		w := newTagWalk(f.core, t, &of, after)
		if looked == nil {
			looked = func(int, j17.StreamID) bool { return true }
		}
		return w.read(ctx, limit, looked, yield)
	})
}

// tagWalk reads the events that have all of some tags and one of some types.
type tagWalk struct {
	*pager

	name  []byte
	tags  [][]byte
	after j17.StreamID
	// aggregates and types are patterns of types.
	aggregates, types [][]byte
	// perRow is the most steps that a row of a tag takes, steps how many the next page may take.
	perRow, steps int
}

func newTagWalk(c *core, t j17.Tenant, of *store.Tagged, after j17.StreamID) *tagWalk {
	w := &tagWalk{
		pager: c.pager(t, "events by tags"), name: []byte(t), after: after, perRow: len(of.Tags), steps: firstTagSteps,
	}
	w.ofTag = true
	for _, tag := range of.Tags {
		w.tags = append(w.tags, tagID(tag))
	}
	if w.aggregates, w.types = patterns(of.Types); len(of.Types) > 0 {
		w.perRow++
	}
	return w
}

// read yields up to limit events, page by page.
func (w *tagWalk) read(
	ctx context.Context, limit int, looked func(steps int, upTo j17.StreamID) bool, yield func(*j17.Event) bool,
) error {
	for limit > 0 {
		// A page.
		rows := max(w.steps/w.perRow, 1)
		if w.perRow == 1 {
			rows = min(rows, limit)
		}
		end, err := w.next(ctx, rows, min(limit, mostRows))
		if err != nil || w.number == 0 {
			return err
		}
		stopped, passed := false, end.rows
		if w.more {
			passed = w.entries[len(w.entries)-1].row
		}
		if err := w.each(ctx, func(e *pageEntry) (bool, error) {
			limit--
			w.after = e.StreamID
			stopped = !yield(&e.Event)
			return !stopped, nil
		}); err != nil {
			return err
		}

		// The position reached: the last event, the last row of the tag that was looked at, or the end of the feed.
		complete := !stopped && !w.more && limit > 0
		last := complete && end.rows < rows
		switch {
		case last && end.feed.Compare(w.after) > 0:
			w.after = end.feed
		case complete && !last:
			w.after = end.row
		}
		upTo := w.after
		if stopped {
			upTo = j17.StreamID{} // the caller may not have taken the last event
		}
		if !looked(len(w.tags)+passed*w.perRow, upTo) || last || stopped {
			return nil
		}
		if w.steps *= 4; w.more {
			w.steps = passed * w.perRow * 5 / 4
		}
		w.steps = min(max(w.steps, leastEvents), mostTagSteps)
	}
	return nil
}

// tagEnd has the count and the last position of rows of a tag, and the end of the feed.
type tagEnd struct {
	rows      int
	row, feed j17.StreamID
}

// next fills the page with events from the next rows rows of the rarest tag.
func (w *tagWalk) next(ctx context.Context, rows, limit int) (end tagEnd, err error) {
	if err := w.rarestFirst(ctx); err != nil {
		return end, err
	}
	var rowSeq, feedSeq int64
	args := []any{w.name, w.tags[0], w.after.Ms, int64(w.after.Seq), rows}
	err = w.fill(
		ctx, statement{selectTagEnd, args}, []any{&end.feed.Ms, &feedSeq, &end.rows, &end.row.Ms, &rowSeq},
		statement{selectTagged, append(slices.Clip(args), limit, w.tags[1:], w.aggregates, w.types)}, limit,
	)
	end.feed.Seq, end.row.Seq = uint32(feedSeq), uint32(rowSeq)
	return end, err
}

// rarestFirst moves the tag that the fewest of the next events have to the front.
func (w *tagWalk) rarestFirst(ctx context.Context) error {
	if len(w.tags) == 1 {
		return nil
	}
	var rarest []byte
	err := w.core.read(ctx, w.what, func(conn reading) error {
		return conn.QueryRow(
			ctx, selectRarest, w.name, w.tags, w.after.Ms, int64(w.after.Seq),
		).Scan(&rarest)
	})
	if err != nil {
		return err
	}
	at := slices.IndexFunc(w.tags, func(tag []byte) bool { return bytes.Equal(tag, rarest) })
	w.tags[0], w.tags[at] = w.tags[at], w.tags[0]
	return nil
}
