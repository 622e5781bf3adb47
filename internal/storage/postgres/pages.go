package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"j17"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

const (
	// firstEvents is how many events the first page of an iteration has at most. The limits of later pages depend on
	// the sizes of events, with leastEvents and mostRows as bounds. A page ends with the event at which it reaches
	// pageBytes, which pageEnd has as a literal.
	firstEvents = 512
	leastEvents = 32
	// cancelEvery is the number of events after which an iteration checks whether it was cancelled.
	cancelEvery = 1024
)

// The statement of a page limits rows in the inner query, and bytes in the outer one: lengths of values are known
// without reading the values, so that rows that do not fit cost little.
const (
	// eventFields are the columns of events that eventRow reads.
	eventFields = `e.t, e.ms, e.n, e.version, e.stream, e.type, e.time, e.kept, e.tags, e.data_at, e.metadata_at, e.raw`

	pageFields = `e.t, e.ms, e.n, coalesce(e.version, 0), e.stream, e.type, coalesce(e.time, 0), e.kept, e.tags,
	coalesce(e.data_at, 0), coalesce(e.metadata_at, 0), e.raw`

	pageOf = `SELECT ` + pageFields + ` FROM (
		SELECT e.*, sum(length(e.raw)) OVER (ORDER BY `
	pageFrom = ` ROWS UNBOUNDED PRECEDING) - length(e.raw) AS before FROM (
			SELECT ` + eventFields
	pageEnd = `
		) e
	) e WHERE e.before < 256 << 10 ORDER BY `

	// ofTenant is the number of the tenant that the first parameter names.
	ofTenant = `(SELECT t FROM names WHERE name = $1)`
)

// page is a copy of consecutive events of a stream or a feed. It holds nothing in the database, so readers may keep it
// indefinitely. An event that is erased meanwhile is never handed out: see asOf.
type page struct {
	entries []pageEntry
	values  []byte
	// bytes is the size of all values.
	bytes int
	// more reports whether there may be others after the last entry. outdated reports whether the rest of the page was
	// not handed out, since it may have been erased.
	more, outdated bool
	// damage, if not nil, is the error of the event after the last entry.
	damage error
	// asOf is the count of rewrites before the page was read.
	asOf uint64

	types  record.TypeNames
	stream []byte
	key    j17.Key
}

// pageEntry is an event or a note. The page owns the memory of its slices.
type pageEntry struct {
	j17.Event

	// tags are those that do not come from the metadata, in their stored form.
	tags []byte
	note *store.Note
	// row is the number of the row of tags by which the event was found.
	row int
}

// eventRow is a row of events. Its slices are valid until the next one is read. A note has no version.
type eventRow struct {
	t, dataAt, metadataAt          int32
	ms, n, version, time           int64
	row                            int
	stream, typ, kept, tags, value pgtype.DriverBytes
}

// targets returns pointers to scan the columns of a page into.
func (r *eventRow) targets() []any {
	return []any{
		&r.t, &r.ms, &r.n, &r.version, &r.stream, &r.typ, &r.time, &r.kept, &r.tags, &r.dataAt, &r.metadataAt, &r.value,
	}
}

// clear empties a page.
func (p *page) clear() {
	p.entries, p.values, p.bytes, p.more, p.outdated, p.damage = p.entries[:0], p.values[:0], 0, false, false, nil
}

// hold returns a copy of bytes that belongs to the page.
func (p *page) hold(b []byte) []byte {
	if b == nil {
		return nil
	}
	if cap(p.values)-len(p.values) < len(b) {
		// Entries keep the old memory alive.
		p.values = make([]byte, 0, max(len(b), min(2*cap(p.values), pageBytes/4)))
	}
	start := len(p.values)
	p.values = append(p.values, b...)
	return p.values[start:len(p.values):len(p.values)]
}

// add adds a row to the page, without its canonical bytes if namesOnly is set. The error is that of a damaged row.
func (p *page) add(r *eventRow, namesOnly bool) error {
	p.entries = append(p.entries, pageEntry{row: r.row})
	e := &p.entries[len(p.entries)-1]
	e.StreamID = j17.StreamID{Ms: r.ms, Seq: uint32(r.n)}
	p.bytes += len(r.value)
	if r.n < 0 || r.n > math.MaxUint32 || r.version < 0 {
		return record.ErrFormat
	}
	if r.version == 0 && r.value == nil {
		return errGap
	}
	if r.version == 0 {
		note, err := record.ParseNote(e.StreamID, r.value)
		e.note = note
		return err
	}

	if string(r.stream) != string(p.stream) || p.stream == nil {
		typ, id, ok := record.CutStream(r.stream)
		if !ok {
			return record.ErrFormat
		}
		p.stream = append(p.stream[:0], r.stream...)
		p.key = j17.Key{Type: p.types.Name(typ), ID: string(id)}
	}
	e.Key, e.Version = p.key, uint64(r.version)
	if namesOnly {
		return nil
	}
	e.Type, e.Timestamp, e.tags = p.types.Name(r.typ), r.time, p.hold(r.tags)
	if e.Kept = p.hold(r.kept); e.Kept != nil && len(e.Kept) != len(store.Leaf{}.Hash) {
		return record.ErrFormat
	}
	return e.SetRaw(p.hold(r.value), j17.Layout{Data: int(r.dataAt), Metadata: int(r.metadataAt)})
}

// pager reads events of a tenant, page by page.
type pager struct {
	*core
	page

	// what describes what is read, for messages.
	what   string
	tenant j17.Tenant
	// namesOnly reports whether rows have no canonical bytes.
	namesOnly bool
	// ofTag reports whether rows also have the number of a row of tags.
	ofTag bool
	// number is the tenant's number, 0 for one that holds nothing. It is known from the first page on.
	number int32
	begun  bool
	// rows is how many rows the next page has at most.
	rows int
	// handed is the number of entries that were handed out.
	handed uint64
}

func (c *core) pager(t j17.Tenant, what string) *pager {
	return &pager{core: c, tenant: t, what: what, rows: firstEvents}
}

const selectNumber = `SELECT t FROM names WHERE name = $1`

// fill replaces the page by the rows of a statement, at most limit. In the same round trip it first executes another
// statement, whose only row begins with the tenant's number and is read into targets. The error is store.ErrNotFound if
// the tenant was removed since the first page, even if there is another one of that name.
func (p *pager) fill(ctx context.Context, first statement, targets []any, rows statement, limit int) error {
	p.asOf = p.rewritten()
	var number int32
	removed := false
	err := p.read(ctx, p.what, func(conn reading) error {
		p.clear()
		number, removed = 0, false
		b := &pgx.Batch{}
		b.Queue(first.sql, first.arguments...).QueryRow(func(row pgx.Row) error {
			err := row.Scan(append([]any{&number}, targets...)...)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		})
		b.Queue(rows.sql, rows.arguments...).Query(func(list pgx.Rows) error {
			// A tenant that is made between the two statements held nothing when it was asked for.
			return p.collect(list, number, func() { removed = removed || number != 0 })
		})
		return conn.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return err
	}
	if removed = removed || p.begun && number != p.number; removed {
		return fmt.Errorf("tenant %s was removed while it was read: %w", p.tenant, store.ErrNotFound)
	}
	p.number, p.begun = number, true
	p.turn(limit)
	return nil
}

// collect adds rows to the page, and calls other for those that are not of a tenant with a number.
func (p *pager) collect(list pgx.Rows, number int32, other func()) error {
	var r eventRow
	columns := r.targets()
	if p.ofTag {
		columns = append(columns, &r.row)
	}
	_, err := pgx.ForEachRow(list, columns, func() error {
		switch {
		case r.t != number:
			other()
		case p.damage == nil:
			p.damage = p.add(&r, p.namesOnly)
		}
		return nil
	})
	return err
}

// turn completes a page with rows up to a limit, and says how many the next one may have.
func (p *pager) turn(limit int) {
	p.more = len(p.entries) >= limit || p.bytes >= pageBytes
	if n := len(p.entries); n > 0 && p.bytes > 0 {
		p.rows = min(max(pageBytes/(p.bytes/n+1)*5/4, leastEvents), mostRows)
	}
	if p.damage != nil {
		// It is returned after all entries before it were handed out.
		last := p.entries[len(p.entries)-1].StreamID
		p.damage = corruption(p.damage, "the event at %s of tenant %s", last, p.tenant)
		p.entries = p.entries[:len(p.entries)-1]
	}
}

// interrupted returns an error if an iteration has to end before its nth step: the store closes, or ctx has ended.
func (c *core) interrupted(ctx context.Context, n uint64) error {
	if c.isClosed() {
		return store.ErrClosed
	}
	if n%cancelEvery == 0 {
		return ctx.Err()
	}
	return nil
}

// each hands out the entries of the page until yield returns false. If the rest of the page may have been erased it
// leaves that out and marks the page as outdated.
func (p *pager) each(ctx context.Context, yield func(e *pageEntry) (bool, error)) error {
	for i := range p.entries {
		if p.rewritten() != p.asOf {
			// A small page is more likely to be handed out before the next erasure.
			p.more, p.outdated, p.rows = true, true, leastEvents
			return nil
		}
		if err := p.interrupted(ctx, p.handed); err != nil {
			return err
		}
		p.handed++
		more, err := yield(&p.entries[i])
		if err != nil || !more {
			return err
		}
	}
	return p.damage
}
