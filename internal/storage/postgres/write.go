package postgres

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// writes are the rows that a batch writes. One statement takes all of them, with an array for each column.
type writes struct {
	tenants  tenantColumns
	named    []tenantName
	unnamed  []int32
	events   eventColumns
	tags     tagColumns
	items    map[writtenItem]*itemWrite
	commands map[writtenCommand]*commandWrite
	cleared  []clearedRange
	stored   storedChanges
	// loaded, if not nil, is the tenant that becomes that of a load.
	loaded *loadedTenant
	// more are further parts of the statement.
	more []statement
	// bytes is about the size of all of it.
	bytes int
}

type (
	// tenantName is the name of a new tenant.
	tenantName struct {
		name   []byte
		number int32
		tenant *tenant
	}
	writtenItem struct {
		t     int32
		space store.Space
		key   string
	}
	itemWrite struct {
		tenant *tenant
		unit.Meta

		claimed int64
		value   []byte
		sealed  bool
		// unseen reports whether it was written whatever was there before.
		unseen bool
	}
	writtenCommand struct {
		t  int32
		id store.CommandID
	}
	commandWrite struct {
		expires int64
		result  []byte
	}
	// clearedRange is a range of keys whose items up to a revision are removed; to is nil for an open end.
	clearedRange struct {
		t        int32
		space    int16
		from, to []byte
		rev      int64
	}
	// loadedTenant is what a tenant was before it was loaded, with the version and term of its row. Its number is 0 if
	// it held nothing. due reports that items with due times were loaded.
	loadedTenant struct {
		was       unit.State
		ver, term int64
		due       bool
	}
	statement struct {
		sql       string
		arguments []any
	}
)

// reset empties the writes.
func (w *writes) reset() {
	*w = writes{items: map[writtenItem]*itemWrite{}, commands: map[writtenCommand]*commandWrite{}}
}

// tenantColumns are the rows of tenants that a batch changes.
type tenantColumns struct {
	t                                       []int32
	ver, term, ms, n, events, rev, lastTime []int64
}

// eventColumns are rows of events.
type eventColumns struct {
	t                                           []int32
	ms, n, version, time, firstTime, generation []int64
	stream, typ, chain, present, tags, raw      [][]byte
	dataAt, metadataAt                          []int32
}

// tagColumns are rows of tags.
type tagColumns struct {
	t     []int32
	tag   [][]byte
	ms, n []int64
}

// add adds a tag of the event at a position.
func (c *tagColumns) add(t int32, tag string, id j17.StreamID) {
	c.t, c.tag = append(c.t, t), append(c.tag, tagID(tag))
	c.ms, c.n = append(c.ms, id.Ms), append(c.n, int64(id.Seq))
}

// event adds an event.
func (w *writes) event(t int32, e *unit.Event) {
	c := &w.events
	c.t, c.ms, c.n = append(c.t, t), append(c.ms, e.ID.Ms), append(c.n, int64(e.ID.Seq))
	c.version, c.time = append(c.version, int64(e.Version)), append(c.time, e.Timestamp)
	c.firstTime = append(c.firstTime, e.Head.FirstTime)
	c.generation = append(c.generation, int64(e.Head.Generation))
	c.stream, c.typ = append(c.stream, record.Stream(e.Key)), append(c.typ, []byte(e.Type))
	c.chain = append(c.chain, bytes.Clone(e.Head.Chain[:]))
	var present []byte
	if e.Head.Generation > 0 {
		present = bytes.Clone(e.Head.Present[:])
	}
	c.present = append(c.present, present)
	c.tags = append(c.tags, record.AppendTags(nil, e.Tags))
	c.raw = append(c.raw, bytes.Clone(e.LeafInput[1:]))
	c.dataAt, c.metadataAt = append(c.dataAt, int32(e.Layout.Data)), append(c.metadataAt, int32(e.Layout.Metadata))
	for _, tag := range e.Tags {
		w.tags.add(t, tag, e.ID)
		w.bytes += tagRowBytes
	}
	w.bytes += len(e.LeafInput) + eventRowBytes
}

// The overhead of rows, about, in bytes.
const (
	eventRowBytes = 200
	tagRowBytes   = 40
	itemRowBytes  = 60
)

// tagID returns the id of a tag in rows.
func tagID(tag string) []byte {
	id := record.IDOfTag(tag)
	return id[:]
}

// item adds the change of an item. Of several changes of an item, the last one is written.
func (w *writes) item(t *tenant, c *unit.ItemChange, value []byte, sealed bool) {
	w.items[writtenItem{int32(t.next.Number), c.Space, c.Key}] = &itemWrite{
		tenant: t, Meta: c.Is, claimed: c.Claimed, value: value, sealed: sealed, unseen: c.Unseen,
	}
	w.bytes += len(c.Key) + len(value) + itemRowBytes
}

// command adds the result of a command.
func (w *writes) command(t int32, c *unit.CommandRecord) {
	result := record.AppendCommand(nil, c.Expires, c.Result, c.Memo)
	w.commands[writtenCommand{t, c.ID}] = &commandWrite{c.Expires, result}
	w.bytes += len(result) + itemRowBytes
}

// changes reports whether the batch changes a tenant.
func (w *writes) changes(t *tenant) bool { return slices.Contains(w.tenants.t, int32(t.next.Number)) }

// clears reports whether the batch removes a range of a tenant's items.
func (w *writes) clears(t *tenant) bool {
	return slices.ContainsFunc(w.cleared, func(r clearedRange) bool { return r.t == int32(t.next.Number) })
}

// hasDue reports whether the batch writes items with a due time.
func (w *writes) hasDue() bool {
	if w.loaded != nil && w.loaded.due {
		return true
	}
	for _, i := range w.items {
		if i.Due != 0 {
			return true
		}
	}
	return false
}

// drops reports whether the batch removes a tenant.
func (w *writes) drops(t *tenant) bool { return slices.Contains(w.unnamed, int32(t.next.Number)) }

// cacheItems puts the written items into the cache, and removes those that are sealed or too large for it, or that no
// decision reads, of which there are many when lists are built.
func (w *writes) cacheItems(c *cache, stale map[*tenant]bool) {
	for k, i := range w.items {
		if stale[i.tenant] {
			continue
		}
		if i.unseen || i.sealed || len(i.value) > unit.MaxValue {
			c.forgetItem(i.tenant, k.space, k.key)
			continue
		}
		item := unit.Item{Meta: i.Meta}
		if i.Rev != 0 {
			item.Value = append([]byte{}, i.value...)
		}
		c.putItem(i.tenant, k.space, strings.Clone(k.key), item)
	}
}

// run sends the statement of the batch and returns the numbers of the tenants that had not changed since they were
// read. Of these, the ones that the batch changes are written; the others were only read for its decisions.
func (w *writes) run(l *lane, b *batch) (written map[int32]bool, err error) {
	w.collectTenants(b)
	if c := l.capture.Load(); c != nil {
		c.note(l.core, w, b.id)
	}
	text := &text{}
	w.compose(text, l, b)
	send := &pgx.Batch{}
	written = map[int32]bool{}
	note := func(rows pgx.Rows) error {
		list, err := pgx.CollectRows(rows, pgx.RowTo[int32])
		for _, t := range list {
			written[t] = true
		}
		return err
	}
	if len(w.tenants.t) > 0 {
		send.Queue(text.sql(&l.texts), text.arguments...).Query(note)
	}
	var t []int32
	var ver []int64
	for tn := range b.decided {
		if tn.named && !w.changes(tn) {
			t, ver = append(t, int32(tn.next.Number)), append(ver, tn.ver)
		}
	}
	if len(t) > 0 {
		send.Queue(unchanged, t, ver).Query(note)
	}
	if len(w.tenants.t) == 0 && l.o.Reads == ReadQuorum {
		send.Queue(proof)
	}
	return written, l.conn.SendBatch(l.ending, send).Close()
}

const unchanged = `SELECT x.t FROM tenants x, unnest($1::int[], $2::bigint[]) u (t, ver) WHERE x.t = u.t AND x.ver = u.ver`

// collectTenants collects the rows of the tenants that the batch changes, in the order in which all writers lock them.
func (w *writes) collectTenants(b *batch) {
	type row struct {
		*unit.State
		ver, term int64
	}
	var list []row
	for _, t := range b.units.Tenants() {
		list = append(list, row{&t.next, t.ver, t.term})
		if !t.named && !w.drops(t) {
			w.named = append(w.named, tenantName{[]byte(t.name), int32(t.next.Number), t})
		}
	}
	if l := w.loaded; l != nil && l.was.Number != 0 {
		list = append(list, row{&l.was, l.ver, l.term})
	}
	slices.SortFunc(list, func(x, y row) int { return cmp.Compare(x.Number, y.Number) })
	c := &w.tenants
	for _, s := range list {
		c.t, c.ver, c.term = append(c.t, int32(s.Number)), append(c.ver, s.ver), append(c.term, s.term)
		c.ms, c.n = append(c.ms, s.Last.Ms), append(c.n, int64(s.Last.Seq))
		c.events, c.rev = append(c.events, int64(s.Events)), append(c.rev, int64(s.Rev))
		c.lastTime = append(c.lastTime, s.LastTime)
	}
}

// text is a statement that is composed of parts, with the arguments of each.
type text struct {
	parts     []string
	arguments []any
}

// add adds a part of the statement, in which each ? is the placeholder of the next argument.
func (s *text) add(part string, arguments ...any) {
	s.parts = append(s.parts, part)
	s.arguments = append(s.arguments, arguments...)
}

// sql returns the statement. texts caches composed statements.
func (s *text) sql(texts *sync.Map) string {
	raw := strings.Join(s.parts, ",\n") + "\nSELECT t FROM h"
	if known, is := texts.Load(raw); is {
		return known.(string) //nolint:errcheck,forcetypeassert // nothing else is in it
	}
	var b strings.Builder
	n := 0
	for part := range strings.SplitSeq(raw, "?") {
		if n > 0 {
			b.WriteString("$" + strconv.Itoa(n))
		}
		b.WriteString(part)
		n++
	}
	texts.Store(raw, b.String())
	return b.String()
}

const (
	// ofWritten selects the rows of the tenants whose compare-and-set succeeded. A search in an array is faster than a
	// join, for which hash joins are off.
	ofWritten = ` u.t = ANY (ARRAY(SELECT t FROM h))`

	updateTenants = `WITH h AS (
	UPDATE tenants x SET ver = x.ver + 1, batch = ?, ms = u.ms, n = u.n, events = u.events, rev = u.rev,
		last_time = u.last_time, lane = ?, lane_n = ?
	FROM unnest(?::int[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[])
		u (t, ver, term, ms, n, events, rev, last_time)
	WHERE x.t = u.t AND x.ver = u.ver AND x.term = u.term`
	returningTenants = ` RETURNING x.t
)`
	insertNames = `nm AS (
	INSERT INTO names (name, t) SELECT u.name, u.t FROM unnest(?::bytea[], ?::int[]) u (name, t) WHERE` + ofWritten + `
)`
	deleteNames = `un AS (
	DELETE FROM names x USING unnest(?::int[]) u (t) WHERE x.t = u.t AND` + ofWritten + `
	RETURNING x.t
), rm AS (
	INSERT INTO unnamed (t) SELECT t FROM un
)`
	insertEvents = `ev AS (
	INSERT INTO events (
		t, ms, n, kind, stream, version, type, time, first_time, generation, chain, present, tags, data_at, metadata_at, raw
	) SELECT u.t, u.ms, u.n, 0, u.stream, u.version, u.type, u.time, u.first_time, u.generation, u.chain, u.present,
		u.tags, u.data_at, u.metadata_at, u.raw
	FROM unnest(?::int[], ?::bigint[], ?::bigint[], ?::bytea[], ?::bigint[], ?::bytea[], ?::bigint[], ?::bigint[],
		?::bigint[], ?::bytea[], ?::bytea[], ?::bytea[], ?::int[], ?::int[], ?::bytea[])
		u (t, ms, n, stream, version, type, time, first_time, generation, chain, present, tags, data_at, metadata_at, raw)
	WHERE` + ofWritten + `
)`
	insertTags = `tg AS (
	INSERT INTO tags (t, tag, ms, n)
	SELECT u.t, u.tag, u.ms, u.n FROM unnest(?::int[], ?::bytea[], ?::bigint[], ?::bigint[]) u (t, tag, ms, n)
	WHERE` + ofWritten + `
)`
	deleteItems = `di AS (
	DELETE FROM items i USING unnest(?::int[], ?::smallint[], ?::bytea[]) u (t, space, key)
	WHERE i.t = u.t AND i.space = u.space AND i.key = u.key AND` + ofWritten + `
)`
	upsertItems = `it AS (
	INSERT INTO items AS i (t, space, key, rev, expires, due, claimed, holder, sealed, sum, value)
	SELECT u.t, u.space, u.key, u.rev, nullif(u.expires, 0), nullif(u.due, 0), nullif(u.claimed, 0),
		CASE WHEN u.claimed <> 0 THEN ?::bigint END, u.sealed, u.sum, u.value
	FROM unnest(?::int[], ?::smallint[], ?::bytea[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bool[],
		?::bigint[], ?::bytea[]) u (t, space, key, rev, expires, due, claimed, sealed, sum, value)
	WHERE` + ofWritten + `
	ON CONFLICT (t, space, key) DO UPDATE SET rev = excluded.rev, expires = excluded.expires, due = excluded.due,
		claimed = excluded.claimed, holder = excluded.holder, sealed = excluded.sealed, sum = excluded.sum,
		value = excluded.value
)`
	upsertCommands = `cm AS (
	INSERT INTO commands (t, id, expires, result)
	SELECT u.t, u.id, nullif(u.expires, 0), u.result
	FROM unnest(?::int[], ?::bytea[], ?::bigint[], ?::bytea[]) u (t, id, expires, result) WHERE` + ofWritten + `
	ON CONFLICT (t, id) DO UPDATE SET expires = excluded.expires, result = excluded.result
)`
	insertCleared = `cl AS (
	INSERT INTO cleared (t, space, from_key, to_key, rev)
	SELECT u.t, u.space, u.from_key, u.to_key, u.rev
	FROM unnest(?::int[], ?::smallint[], ?::bytea[], ?::bytea[], ?::bigint[]) u (t, space, from_key, to_key, rev)
	WHERE` + ofWritten + `
)`
)

// compose composes the statement.
func (w *writes) compose(s *text, l *lane, b *batch) {
	// The tenants, whose rows decide about all the others, and their names.
	c := &w.tenants
	update := []any{b.id[:], l.id, l.batches, c.t, c.ver, c.term, c.ms, c.n, c.events, c.rev, c.lastTime}
	fence := ""
	if n := l.o.Node; n != nil {
		fence, update = ofNode, append(update, n.Term())
	}
	s.add(updateTenants+fence+returningTenants, update...)
	if len(w.named) > 0 {
		var names [][]byte
		var t []int32
		for _, n := range w.named {
			names, t = append(names, n.name), append(t, n.number)
		}
		s.add(insertNames, names, t)
	}
	if len(w.unnamed) > 0 {
		s.add(deleteNames, w.unnamed)
	}

	// Events with their tags, items and commands.
	if e := &w.events; len(e.t) > 0 {
		s.add(
			insertEvents, e.t, e.ms, e.n, e.stream, e.version, e.typ, e.time, e.firstTime, e.generation, e.chain,
			e.present, e.tags, e.dataAt, e.metadataAt, e.raw,
		)
	}
	if g := &w.tags; len(g.t) > 0 {
		s.add(insertTags, g.t, g.tag, g.ms, g.n)
	}
	w.composeItems(s, l.core)
	w.composeCommands(s)

	// What covers or changes stored rows.
	if len(w.cleared) > 0 {
		var t []int32
		var spaces []int16
		var from, to [][]byte
		var rev []int64
		for _, r := range w.cleared {
			t, spaces, rev = append(t, r.t), append(spaces, r.space), append(rev, r.rev)
			from, to = append(from, r.from), append(to, r.to)
		}
		s.add(insertCleared, t, spaces, from, to, rev)
	}
	w.stored.compose(s)
	if w.stored.rewritten && l.o.Shared {
		s.add(countRewrite)
	}
	for _, more := range w.more {
		s.add(more.sql, more.arguments...)
	}
}

// composeCommands adds the commands that are written.
func (w *writes) composeCommands(s *text) {
	if len(w.commands) == 0 {
		return
	}
	var t []int32
	var ids, results [][]byte
	var expires []int64
	for k, c := range w.commands {
		t, ids = append(t, k.t), append(ids, bytes.Clone(k.id[:]))
		expires, results = append(expires, c.expires), append(results, c.result)
	}
	s.add(upsertCommands, t, ids, expires, results)
}

// composeItems adds the items that are written, and those that are removed.
func (w *writes) composeItems(s *text, of *core) {
	var put, gone struct {
		t                                []int32
		spaces                           []int16
		keys, values                     [][]byte
		rev, expires, due, claimed, sums []int64
		sealed                           []bool
	}
	for k, i := range w.items {
		number, known := of.spaces.known(k.space)
		switch {
		case i.Rev == 0 && !known:
			// Nothing was ever written to the space.
		case i.Rev == 0:
			gone.t, gone.spaces = append(gone.t, k.t), append(gone.spaces, number)
			gone.keys = append(gone.keys, []byte(k.key))
		default:
			put.t, put.spaces = append(put.t, k.t), append(put.spaces, number)
			put.keys = append(put.keys, []byte(k.key))
			put.rev, put.expires = append(put.rev, int64(i.Rev)), append(put.expires, i.Expires)
			put.due, put.claimed = append(put.due, i.Due), append(put.claimed, i.claimed)
			value := append([]byte{}, i.value...)
			put.sealed, put.values = append(put.sealed, i.sealed), append(put.values, value)
			put.sums = append(put.sums, int64(sumOf(value)))
		}
	}
	if len(gone.t) > 0 {
		s.add(deleteItems, gone.t, gone.spaces, gone.keys)
	}
	if len(put.t) > 0 {
		s.add(
			upsertItems, of.holder(), put.t, put.spaces, put.keys, put.rev, put.expires, put.due, put.claimed,
			put.sealed, put.sums, put.values,
		)
	}
}

// corruption returns the error of inconsistent stored data.
func corruption(err error, where string, args ...any) error {
	return &store.CorruptionError{Where: fmt.Sprintf(where, args...), Err: err}
}
