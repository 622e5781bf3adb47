package postgres

import (
	"context"
	"iter"

	"j17"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// feeds is the store in the role of store.Feed.
type feeds struct{ *core }

const (
	afterPosition = ` e WHERE e.t = ` + ofTenant + ` AND (e.ms, e.n) > ($2, $3)`
	inOrder       = `e.ms, e.n`

	selectEvents = pageOf + inOrder + pageFrom + ` FROM events` + afterPosition + ` AND e.kind = 0
			ORDER BY e.ms, e.n LIMIT $4` + pageEnd + inOrder
	selectChanges = pageOf + inOrder + pageFrom + ` FROM events` + afterPosition + `
			ORDER BY e.ms, e.n LIMIT $4` + pageEnd + inOrder

	// selectNames has the same columns as the others, but raw for notes only.
	selectNames = `SELECT e.t, e.ms, e.n, coalesce(e.version, 0), e.stream, NULL::bytea, 0::bigint, NULL::bytea, NULL::bytea,
	0, 0, CASE WHEN e.kind <> 0 THEN e.raw END FROM events` + afterPosition + ` ORDER BY e.ms, e.n LIMIT $4`
)

// ReadFeed is part of store.Feed.
func (f *feeds) ReadFeed(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[*j17.Event, error] {
	return store.Sequence(func(yield func(*j17.Event) bool) error {
		return f.readFeed(ctx, f.pager(t, "the feed"), selectEvents, after, limit, func(e *pageEntry) (bool, error) {
			return yield(&e.Event), nil
		})
	})
}

// ReadChanges is part of store.Feed.
func (f *feeds) ReadChanges(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	return store.Sequence(func(yield func(store.Entry) bool) error {
		return f.readFeed(ctx, f.pager(t, "the feed"), selectChanges, after, limit, func(e *pageEntry) (bool, error) {
			tags, err := record.ParseTags(e.tags)
			if err != nil {
				return false, corruption(err, "the tags of the event at %s of tenant %s", e.StreamID, t)
			}
			return yield(e.entry(tags)), nil
		})
	})
}

// entry returns an event with its tags, or a note, as an entry of a feed.
func (e *pageEntry) entry(tags []string) store.Entry {
	if e.note != nil {
		return store.Entry{Note: e.note}
	}
	return store.Entry{Event: &e.Event, Tags: tags}
}

// ReadNames is part of store.Feed.
func (f *feeds) ReadNames(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	return store.Sequence(func(yield func(store.Entry) bool) error {
		p := f.pager(t, "the names of events")
		p.namesOnly, p.rows = true, mostRows
		return f.readFeed(ctx, p, selectNames, after, limit, func(e *pageEntry) (bool, error) {
			return yield(e.entry(nil)), nil
		})
	})
}

// readFeed yields up to limit entries of a feed after a position, which a statement selects page by page.
func (f *feeds) readFeed(
	ctx context.Context, p *pager, sql string, after j17.StreamID, limit int, yield func(e *pageEntry) (bool, error),
) error {
	if err := f.admits(p.tenant); err != nil {
		return err
	}
	name, stopped := []byte(p.tenant), false
	for p.more = true; p.more && limit > 0 && !stopped; {
		rows := min(p.rows, limit)
		err := p.fill(
			ctx, statement{selectNumber, []any{name}}, nil,
			statement{sql, []any{name, after.Ms, int64(after.Seq), rows}}, rows,
		)
		if err != nil {
			return err
		}
		err = p.each(ctx, func(e *pageEntry) (bool, error) {
			limit--
			after = e.StreamID
			more, err := yield(e)
			stopped = !more
			return more, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
