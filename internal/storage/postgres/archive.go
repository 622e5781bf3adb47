package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

const (
	// An archive has its items and commands from a snapshot. One that is open for longer than spoolAfter copies them to
	// a file, and lets go of the snapshot; it has until longestArchive for that, since the server keeps all old
	// versions of rows while the snapshot is open.
	spoolAfter     = time.Minute
	longestArchive = 10 * time.Minute
)

// archive is a store.Archive. Events need no snapshot: those up to a position do not change, unless they are rewritten,
// which ends the archive.
type archive struct {
	*core

	name     j17.Tenant
	position j17.StreamID
	extent   store.Extent
	// number is that of the tenant, 0 if it holds nothing, and ver the version of its row.
	number int32
	ver    int64
	// rest, if not nil, is called between pages of events. See store.Archive.
	rest func(bytes int) error
	// late spools the archive when it is due, once.
	late    *time.Timer
	spooled sync.Once

	// over reports that the archive has ended.
	over atomic.Bool
	mu   sync.Mutex
	// reason is why it has ended, nil if it has not.
	reason error
	// from is where items and commands are.
	from itemSource
}

// itemSource is where an archive has its items and commands: a snapshot, or a spool.
type itemSource interface {
	// spacesOf returns the spaces that have items, in the order of their names.
	spacesOf() ([]store.Space, error)
	// storedItems returns items of a space in a range, as they are stored, and whether there may be more behind them.
	storedItems(space store.Space, keys store.Range) (items []namedItem, more bool, err error)
	// storedCommands is storedItems for the records of commands behind an id. Their keys are the ids.
	storedCommands(after string) (commands []namedItem, more bool, err error)
	Close()
}

// bulk is the store in the role of store.Archives.
type bulk struct {
	*core

	moments *moments
	// spoolAfter is the constant of that name but in tests.
	spoolAfter time.Duration
}

// Archive is part of store.Archives.
func (b *bulk) Archive(ctx context.Context, t j17.Tenant) (store.Archive, error) {
	s, err := b.moments.snapshot(ctx, t, longestArchive)
	if err != nil {
		return nil, err
	}
	a := &archive{core: b.core, name: t, position: s.Position(), from: s}
	if s.row != nil {
		a.number, a.ver = s.row.t, s.row.ver
		if a.extent, err = s.extent(); err != nil {
			s.Close()
			return nil, err
		}
	}
	//nolint:forbidigo // what a snapshot costs does not depend on the store's clock
	a.late = time.AfterFunc(b.spoolAfter, func() { a.spooled.Do(func() { a.spool(s) }) })
	b.mu.Lock()
	b.archives[a] = true
	b.mu.Unlock()
	return a, nil
}

// extent returns how many events there are, and the position of the last one.
func (s *snapshot) extent() (extent store.Extent, err error) {
	extent.Events, extent.Life = uint64(s.row.events), uint64(s.row.t)
	err = s.use("the extent of a tenant", func(ctx context.Context, conn reading) error {
		rows, err := conn.Query(
			ctx, `SELECT ms, n FROM events WHERE t = $1 AND kind = 0 ORDER BY ms DESC, n DESC LIMIT 1`, s.row.t,
		)
		if err != nil {
			return err
		}
		var seq int64
		_, err = pgx.ForEachRow(rows, []any{&extent.Last.Ms, &seq}, func() error { return nil })
		extent.Last.Seq = uint32(seq)
		return err
	})
	return extent, err
}

// endArchives ends the archives whose tenants have changed since the archives began: they may show what is erased. The
// others let go of their snapshots as soon as they can.
func (c *core) endArchives(ctx context.Context) error {
	c.mu.Lock()
	open := map[int32][]*archive{}
	for a := range c.archives {
		open[a.number] = append(open[a.number], a)
	}
	c.mu.Unlock()
	delete(open, 0)
	if len(open) == 0 {
		return nil
	}
	var numbers []int32
	for t := range open {
		numbers = append(numbers, t)
	}
	versions := map[int32]int64{}
	err := c.read(ctx, "the tenants of archives", func(conn reading) error {
		rows, err := conn.Query(
			ctx, `SELECT x.t, x.ver FROM tenants x JOIN names nm ON nm.t = x.t WHERE x.t = ANY($1)`, numbers,
		)
		if err != nil {
			return err
		}
		var t int32
		var ver int64
		_, err = pgx.ForEachRow(rows, []any{&t, &ver}, func() error {
			versions[t] = ver
			return nil
		})
		return err
	})
	for t, list := range open {
		for _, a := range list {
			if ver, there := versions[t]; err != nil || !there || ver != a.ver {
				a.end(store.ErrEnded)
				continue
			}
			a.late.Reset(0)
		}
	}
	return err
}

// end ends the archive, unless it has ended.
func (a *archive) end(reason error) {
	a.core.mu.Lock()
	delete(a.archives, a)
	a.core.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reason == nil {
		a.reason = reason
		a.over.Store(true)
		a.late.Stop()
		a.from.Close()
	}
}

// Close is part of store.Moment.
func (a *archive) Close() { a.end(store.ErrClosed) }

// ended returns why the archive has ended, nil if it has not.
func (a *archive) ended() error {
	if a.isClosed() {
		return store.ErrClosed
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reason
}

// spool copies the items and commands to a file, which takes the place of the snapshot.
func (a *archive) spool(from *snapshot) {
	var spooled *spool
	err := panics.Logged(a.closing, a.logger, "copying the items of an archive", func() (err error) {
		spooled, err = spoolOf(from)
		return err
	})
	if err != nil {
		if a.ended() == nil {
			a.logger.WarnContext(
				a.closing, "the items of an archive could not be copied, so it ends", slog.Any("error", err),
			)
		}
		a.end(fmt.Errorf("copy the items of an archive to a file: %w", err))
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reason != nil {
		spooled.Close()
		return
	}
	a.from = spooled
	from.Close()
}

// use calls do with the source of items and commands, and again with the one that has taken its place meanwhile.
func (a *archive) use(do func(from itemSource) error) error {
	for {
		a.mu.Lock()
		reason, from := a.reason, a.from
		a.mu.Unlock()
		if reason != nil {
			return reason
		}
		err := do(from)
		if err == nil {
			return nil
		}
		a.mu.Lock()
		reason, replaced := a.reason, a.from != from
		a.mu.Unlock()
		switch {
		case reason != nil:
			return reason
		case !replaced:
			return err
		}
	}
}

// Position is part of store.Moment.
func (a *archive) Position() j17.StreamID { return a.position }

// Extent is part of store.Archive.
func (a *archive) Extent() store.Extent { return a.extent }

// Rest is part of store.Archive.
func (a *archive) Rest(after func(bytes int) error) { a.rest = after }

// archiveLasts reports, after events were read, whether they are those of the archive: nothing was rewritten behind its
// position, and the tenant was not removed.
const archiveLasts = `SELECT EXISTS (SELECT 1 FROM names WHERE t = $1)
AND NOT EXISTS (SELECT 1 FROM events WHERE t = $1 AND kind = 1 AND (ms, n) > ($2, $3))`

// readEvents reads events, and returns an error if they are not those that the archive shows.
func (a *archive) readEvents(ctx context.Context, what string, queue func(b *pgx.Batch)) error {
	if err := a.ended(); err != nil {
		return err
	}
	lasts := false
	err := a.read(ctx, what, func(conn reading) error {
		b := &pgx.Batch{}
		queue(b)
		b.Queue(archiveLasts, a.number, a.position.Ms, int64(a.position.Seq)).QueryRow(func(row pgx.Row) error {
			return row.Scan(&lasts)
		})
		return conn.SendBatch(ctx, b).Close()
	})
	if err == nil && !lasts {
		a.end(store.ErrEnded)
	}
	if reason := a.ended(); reason != nil {
		return reason
	}
	return err
}

const selectArchivedHeads = `SELECT u.i, ` + headColumns + ` FROM unnest($2::bytea[]) WITH ORDINALITY u (stream, i),
LATERAL (
	SELECT * FROM events e WHERE e.t = $1 AND e.stream = u.stream AND e.kind = 0 AND (e.ms, e.n) <= ($3, $4)
	ORDER BY e.version DESC LIMIT 1
) e`

// Heads is part of store.Moment.
func (a *archive) Heads(keys []j17.Key) ([]store.Head, error) {
	q := &headQuestions{}
	places := q.addAll(a.name, keys)
	if a.number == 0 || len(q.streams) == 0 {
		return make([]store.Head, len(keys)), a.ended()
	}
	err := a.readEvents(a.ending, "heads of streams", func(b *pgx.Batch) {
		b.Queue(
			selectArchivedHeads, a.number, q.streams, a.position.Ms, int64(a.position.Seq),
		).Query(q.scan)
	})
	if err != nil {
		return nil, err
	}
	return q.at(places), nil
}

const selectArchived = pageOf + inOrder + pageFrom + ` FROM events e WHERE e.t = $1 AND (e.ms, e.n) > ($2, $3)
			AND (e.ms, e.n) <= ($4, $5) ORDER BY e.ms, e.n LIMIT $6` + pageEnd + inOrder

// Changes is part of store.Archive.
func (a *archive) Changes(ctx context.Context, after j17.StreamID) iter.Seq2[store.Archived, error] {
	return store.Sequence(func(yield func(store.Archived) bool) error {
		if err := a.ended(); err != nil || a.number == 0 {
			return err
		}
		p, stopped := a.pager(a.name, "an archive"), false
		for p.more = true; p.more && !stopped; {
			if err := a.fill(ctx, p, after); err != nil {
				return err
			}
			if a.rest != nil {
				if err := a.rest(p.bytes); err != nil {
					return err
				}
			}
			err := p.each(ctx, func(e *pageEntry) (bool, error) {
				if a.over.Load() {
					return false, a.ended()
				}
				tags, err := record.ParseTags(e.tags)
				if err != nil {
					return false, corruption(err, "the tags of the event at %s of tenant %s", e.StreamID, a.name)
				}
				after = e.StreamID
				archived := store.Archived{Note: e.note}
				if e.note == nil {
					archived.Event, archived.Tags = &e.Event, tags
				}
				stopped = !yield(archived)
				return !stopped, nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// fill replaces a page by the events and notes behind a position.
func (a *archive) fill(ctx context.Context, p *pager, after j17.StreamID) error {
	p.asOf = p.rewritten()
	err := a.readEvents(ctx, p.what, func(b *pgx.Batch) {
		p.clear()
		b.Queue(
			selectArchived, a.number, after.Ms, int64(after.Seq), a.position.Ms, int64(a.position.Seq), p.rows,
		).Query(func(list pgx.Rows) error { return p.collect(list, a.number, nil) })
	})
	if err == nil {
		p.turn(p.rows)
	}
	return err
}

// open returns an item as callers see it. ok is false if it has expired.
func (a *archive) open(space store.Space, i *namedItem) (item store.Item, ok bool, err error) {
	if !i.Live(a.clock.Now().UnixNano()) {
		return store.Item{}, false, nil
	}
	item, err = a.itemOf(space, i.key, &i.storedItem)
	return item, true, err
}

// each calls do for items of a space in a range, until it returns false.
func (a *archive) each(space store.Space, keys store.Range, do func(item *store.Item) bool) error {
	for more := true; more; {
		var page []namedItem
		err := a.use(func(from itemSource) (err error) {
			page, more, err = from.storedItems(space, keys)
			return err
		})
		if err != nil {
			return err
		}
		for i := range page {
			if a.over.Load() {
				return a.ended()
			}
			item, ok, err := a.open(space, &page[i])
			if err != nil {
				return err
			}
			if ok && !do(&item) {
				return nil
			}
		}
		if len(page) > 0 {
			keys = keys.Beyond(page[len(page)-1].key)
		}
	}
	return nil
}

// Get is part of store.Moment.
func (a *archive) Get(space store.Space, key string) (item store.Item, err error) {
	err = store.ErrNotFound
	failed := a.each(space, store.Range{From: key, To: key + "\x00"}, func(one *store.Item) bool {
		item, err = *one, nil
		return false
	})
	if failed != nil {
		return store.Item{}, failed
	}
	return item, err
}

// Scan is part of store.Moment.
func (a *archive) Scan(space store.Space, keys store.Range, limit int) (items []store.Item, err error) {
	if limit <= 0 {
		return nil, a.ended()
	}
	err = a.each(space, keys, func(item *store.Item) bool {
		items = append(items, *item)
		return len(items) < limit
	})
	return items, err
}

// Count is part of store.Moment.
func (a *archive) Count(space store.Space, keys store.Range, limit int) (n int, err error) {
	items, err := a.Scan(space, keys, limit)
	return len(items), err
}

// Each is part of store.Moment.
func (a *archive) Each(space store.Space, keys store.Range, do func(key, value []byte) bool) error {
	return a.each(space, keys, func(item *store.Item) bool { return do([]byte(item.Key), item.Value) })
}

// Items is part of store.Archive.
func (a *archive) Items(ctx context.Context, after store.ItemName) iter.Seq2[store.ArchivedItem, error] {
	return store.Sequence(func(yield func(store.ArchivedItem) bool) error {
		var spaces []store.Space
		err := a.use(func(from itemSource) (err error) {
			spaces, err = from.spacesOf()
			return err
		})
		if err != nil {
			return err
		}
		n, stopped := uint64(0), false
		var failed error
		for _, space := range spaces {
			keys := store.Range{}
			switch {
			case space < after.Space:
				continue
			case space == after.Space:
				keys = keys.After(after.Key)
			}
			err := a.each(space, keys, func(item *store.Item) bool {
				n++
				if failed = a.interrupted(ctx, n); failed != nil {
					return false
				}
				stopped = !yield(store.ArchivedItem{Space: space, Item: *item})
				return !stopped
			})
			if err = errors.Join(err, failed); err != nil || stopped {
				return err
			}
		}
		return nil
	})
}

// Commands is part of store.Archive.
func (a *archive) Commands(ctx context.Context) iter.Seq2[store.ArchivedCommand, error] {
	return store.Sequence(func(yield func(store.ArchivedCommand) bool) error {
		now, n, last := a.clock.Now().UnixNano(), uint64(0), ""
		for more := true; more; {
			var page []namedItem
			err := a.use(func(from itemSource) (err error) {
				page, more, err = from.storedCommands(last)
				return err
			})
			if err != nil {
				return err
			}
			for i := range page {
				n++
				if err := a.interrupted(ctx, n); err != nil {
					return err
				}
				if a.over.Load() {
					return a.ended()
				}
				last = page[i].key
				c, expires, err := archivedCommand(last, page[i].value)
				if err != nil {
					return corruption(err, "command %x of tenant %s", last, a.name)
				}
				if (expires == 0 || expires > now) && !yield(c) {
					return nil
				}
			}
		}
		return nil
	})
}

// archivedCommand reads the record of a command, and when it expires.
func archivedCommand(id string, value []byte) (c store.ArchivedCommand, expires int64, err error) {
	result, expires, err := record.ParseCommand(value)
	if err == nil && len(id) != len(c.ID) {
		err = record.ErrFormat
	}
	if err != nil {
		return c, 0, err
	}
	c.Command = store.Command{ID: store.CommandID([]byte(id)), Memo: result.Memo, Expires: fromNanos(expires)}
	c.Timestamp, c.Lengths = result.Timestamp, result.Lengths
	if len(result.IDs) > 0 {
		c.First = result.IDs[0]
	}
	return c, expires, nil
}

const selectSpaces = `SELECT s.space, s.name FROM spaces s WHERE EXISTS (
	SELECT 1 FROM items i WHERE i.t = $1 AND i.space = s.space
)`

// spacesOf is part of itemSource.
func (s *snapshot) spacesOf() (spaces []store.Space, err error) {
	if s.row == nil {
		return nil, nil
	}
	err = s.use("the spaces of items", func(ctx context.Context, conn reading) error {
		spaces = nil
		rows, err := conn.Query(ctx, selectSpaces, s.row.t)
		if err != nil {
			return err
		}
		var number int16
		var name []byte
		_, err = pgx.ForEachRow(rows, []any{&number, &name}, func() error {
			spaces = append(spaces, store.Space(name))
			return nil
		})
		return err
	})
	slices.Sort(spaces)
	return spaces, err
}

// storedItems is part of itemSource.
func (s *snapshot) storedItems(space store.Space, keys store.Range) (items []namedItem, more bool, err error) {
	err = s.use("side items", func(ctx context.Context, conn reading) (err error) {
		items, more, err = s.pageOfItems(ctx, conn, s.name, space, keys, mostRows)
		return err
	})
	return items, more, err
}

const selectCommandPage = `SELECT id, result FROM (
	SELECT id, result, sum(length(result)) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) - length(result) AS before
	FROM commands WHERE t = $1 AND id > $2 ORDER BY id LIMIT $3
) p WHERE before < 256 << 10`

// storedCommands is part of itemSource.
func (s *snapshot) storedCommands(after string) (commands []namedItem, more bool, err error) {
	if s.row == nil {
		return nil, false, nil
	}
	err = s.use("commands", func(ctx context.Context, conn reading) error {
		commands = nil
		rows, err := conn.Query(ctx, selectCommandPage, s.row.t, []byte(after), mostRows)
		if err != nil {
			return err
		}
		size := 0
		var id, result []byte
		_, err = pgx.ForEachRow(rows, []any{&id, &result}, func() error {
			size += len(result)
			commands = append(commands, namedItem{key: string(id), storedItem: storedItem{value: result}})
			return nil
		})
		more = len(commands) == mostRows || size >= pageBytes
		return err
	})
	return commands, more, err
}
