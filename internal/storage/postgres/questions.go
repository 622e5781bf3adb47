package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// questions are look-ups that are made together, in one round trip. They refer to tenants by name, which the statements
// resolve.
type questions struct {
	states   stateQuestions
	heads    headQuestions
	items    itemQuestions
	commands commandQuestions
	matches  []matchQuestion
	pages    []pageQuestion

	// asOfOne reports whether all answers are as of one moment.
	asOfOne bool
	// again reports whether the rows of tenants are read once more behind the heads, into after.
	again bool
	after stateQuestions
	// commits reports whether the round trip ends with a commit of its own.
	commits bool
}

// stateQuestions ask for the rows of tenants. rows has those of the tenants that exist.
type stateQuestions struct {
	names [][]byte
	rows  map[j17.Tenant]*tenantRow
}

// add asks for the row of a tenant.
func (q *stateQuestions) add(t j17.Tenant) {
	if _, asked := q.rows[t]; asked {
		return
	}
	if q.rows == nil {
		q.rows = map[j17.Tenant]*tenantRow{}
	}
	q.rows[t] = nil
	q.names = append(q.names, []byte(t))
}

// scan reads the rows.
func (q *stateQuestions) scan(rows pgx.Rows) error {
	for t := range q.rows {
		q.rows[t] = nil // an earlier attempt may have found it
	}
	list, err := pgx.CollectRows(rows, readState)
	for i := range list {
		q.rows[j17.Tenant(list[i].name)] = &list[i]
	}
	return err
}

// headQuestions ask for the heads of streams.
type headQuestions struct {
	names, streams [][]byte
	heads          []store.Head
}

// add asks for a head, and returns the index of the answer.
func (q *headQuestions) add(t j17.Tenant, key j17.Key) int {
	q.names, q.streams = append(q.names, []byte(t)), append(q.streams, record.Stream(key))
	return len(q.names) - 1
}

// addAll asks for several heads, and returns the indexes of the answers, -1 for a key that no stream can have.
func (q *headQuestions) addAll(t j17.Tenant, keys []j17.Key) (places []int) {
	places = make([]int, len(keys))
	for i, key := range keys {
		if places[i] = -1; canExist(key) {
			places[i] = q.add(t, key)
		}
	}
	return places
}

// at returns the answers at some indexes, with the zero Head for -1.
func (q *headQuestions) at(places []int) []store.Head {
	heads := make([]store.Head, len(places))
	for i, place := range places {
		if place >= 0 {
			heads[i] = q.heads[place]
		}
	}
	return heads
}

// headColumns are the columns that a head is read from.
const headColumns = `e.version, e.chain, e.ms, e.n, e.first_time, e.time, e.generation, e.present`

const selectHeads = `SELECT u.i, ` + headColumns + `
FROM unnest($1::bytea[], $2::bytea[]) WITH ORDINALITY u (name, stream, i) JOIN names nm ON nm.name = u.name,
LATERAL (
	SELECT * FROM events e WHERE e.t = nm.t AND e.stream = u.stream AND e.kind = 0 ORDER BY e.version DESC LIMIT 1
) e`

// scan reads the heads. Streams without events have no row.
func (q *headQuestions) scan(rows pgx.Rows) error {
	q.heads = make([]store.Head, len(q.streams))
	var at, version, seq, generation int64
	var chain, present []byte
	var h store.Head
	_, err := pgx.ForEachRow(
		rows, []any{&at, &version, &chain, &h.Last.Ms, &seq, &h.FirstTime, &h.LastTime, &generation, &present},
		func() error {
			h.Length, h.Generation, h.Last.Seq = uint64(version), uint64(generation), uint32(seq)
			copy(h.Chain[:], chain)
			h.Present = [32]byte{}
			copy(h.Present[:], present)
			q.heads[at-1] = h
			return nil
		},
	)
	return err
}

// itemQuestions ask for side items.
type itemQuestions struct {
	names, keys [][]byte
	spaces      []int16
	whole       []bool
	items       []storedItem
}

// storedItem is a side item as it is stored, with a Rev of 0 for none. Its value is nil if it is longer than
// unit.MaxValue and was not asked for as a whole.
type storedItem struct {
	unit.Meta

	claimed int64
	sealed  bool
	value   []byte
}

// add asks for an item, and returns the index of the answer.
func (q *itemQuestions) add(t j17.Tenant, space int16, key string, whole bool) int {
	q.names, q.keys = append(q.names, []byte(t)), append(q.keys, []byte(key))
	q.spaces, q.whole = append(q.spaces, space), append(q.whole, whole)
	return len(q.names) - 1
}

// itemLives is the condition that an item i is not covered by a row of cleared.
const itemLives = `NOT EXISTS (
	SELECT 1 FROM cleared c WHERE c.t = i.t AND c.space = i.space AND c.rev >= i.rev AND c.from_key <= i.key
	AND (c.to_key IS NULL OR i.key < c.to_key)
)`

// itemColumns are the columns for storedItem.targets, except the value.
const itemColumns = `i.rev, coalesce(i.expires, 0), coalesce(i.due, 0), coalesce(i.claimed, 0), i.sealed, i.sum`

const selectItems = `SELECT u.i, ` + itemColumns + `,
	CASE WHEN u.whole OR length(i.value) <= 1024 THEN i.value END
FROM unnest($1::bytea[], $2::smallint[], $3::bytea[], $4::bool[]) WITH ORDINALITY u (name, space, key, whole, i)
JOIN names nm ON nm.name = u.name,
LATERAL (SELECT * FROM items i WHERE i.t = nm.t AND i.space = u.space AND i.key = u.key LIMIT 1) i WHERE ` + itemLives

// targets returns pointers to scan the columns of an item into.
func (i *storedItem) targets(rev, sum *int64) []any {
	return []any{rev, &i.Expires, &i.Due, &i.claimed, &i.sealed, sum, &i.value}
}

// scan reads the items.
func (q *itemQuestions) scan(rows pgx.Rows) error {
	q.items = make([]storedItem, len(q.names))
	var at, rev, sum int64
	var i storedItem
	_, err := pgx.ForEachRow(rows, append([]any{&at}, i.targets(&rev, &sum)...), func() error {
		i.Rev = uint64(rev)
		if i.value != nil && int64(sumOf(i.value)) != sum {
			return corruption(errSum, "side item %s of tenant %s", q.keys[at-1], q.names[at-1])
		}
		q.items[at-1] = i
		i.value = nil
		return nil
	})
	return err
}

// commandQuestions ask for the results of commands.
type commandQuestions struct {
	names, ids [][]byte
	results    [][]byte
	expires    []int64
}

// add asks for a command, and returns the index of the answer.
func (q *commandQuestions) add(t j17.Tenant, id store.CommandID) int {
	q.names, q.ids = append(q.names, []byte(t)), append(q.ids, id[:])
	return len(q.names) - 1
}

const selectCommands = `SELECT u.i, coalesce(c.expires, 0), c.result
FROM unnest($1::bytea[], $2::bytea[]) WITH ORDINALITY u (name, id, i) JOIN names nm ON nm.name = u.name,
LATERAL (SELECT * FROM commands c WHERE c.t = nm.t AND c.id = u.id LIMIT 1) c`

// scan reads the results.
func (q *commandQuestions) scan(rows pgx.Rows) error {
	q.results, q.expires = make([][]byte, len(q.names)), make([]int64, len(q.names))
	var at, expires int64
	var result []byte
	_, err := pgx.ForEachRow(rows, []any{&at, &expires, &result}, func() error {
		q.results[at-1], q.expires[at-1], result = result, expires, nil
		return nil
	})
	return err
}

// matchQuestion asks whether there is an event that a unit requires to be absent.
type matchQuestion struct {
	tenant j17.Tenant
	of     *store.Absent
	found  bool
}

const selectMatch = `SELECT EXISTS (
	SELECT 1 FROM tags g WHERE g.t = ` + ofTenant + ` AND g.tag = $2 AND (g.ms, g.n) > ($3, $4)
	AND NOT EXISTS (SELECT 1 FROM unnest($5::bytea[]) o (tag) WHERE ` + lacksTag + `)
	AND (cardinality($6::bytea[]) = 0 OR (
		SELECT 1 FROM events e WHERE e.t = ` + ofTenant + ` AND e.ms = g.ms AND e.n = g.n
		AND EXISTS (SELECT 1 FROM unnest($6::bytea[], $7::bytea[]) p (aggregate, type) WHERE ` + ofPattern + `) LIMIT 1
	) IS NOT NULL)
)`

// lacksTag is the condition that the event of a row g of tags does not have the tag o. It is not written as NOT EXISTS:
// the planner may read all tags of the tenant for that, instead of looking up each.
const lacksTag = `(
	SELECT 1 FROM tags h WHERE h.t = ` + ofTenant + ` AND h.tag = o.tag AND h.ms = g.ms AND h.n = g.n LIMIT 1
) IS NULL`

// ofPattern is the condition that an event e matches a pattern p of types.
const ofPattern = `substring(e.stream FROM 1 FOR length(p.aggregate)) = p.aggregate AND (p.type = '' OR p.type = e.type)`

// arguments returns the arguments of selectMatch.
func (q *matchQuestion) arguments() []any {
	others := make([][]byte, 0, len(q.of.Tags))
	for _, tag := range q.of.Tags[1:] {
		others = append(others, tagID(tag))
	}
	aggregates, types := patterns(q.of.Types)
	return []any{
		[]byte(q.tenant), tagID(q.of.Tags[0]), q.of.After.Ms, int64(q.of.After.Seq), others, aggregates, types,
	}
}

// patterns returns patterns of types as prefixes of streams and types of events; an empty type matches any.
func patterns(of []store.TypePattern) (aggregates, types [][]byte) {
	aggregates, types = make([][]byte, len(of)), make([][]byte, len(of))
	for i, p := range of {
		aggregates[i], types[i] = append([]byte(p.Aggregate), 0), []byte(p.Event)
	}
	return aggregates, types
}

// pageQuestion asks for side items of a space whose keys are in a range.
type pageQuestion struct {
	itemQuery

	space store.Space
	limit int
	items []namedItem
	more  bool
}

// scan reads the items.
func (q *pageQuestion) scan(rows pgx.Rows) (err error) {
	var size int
	q.items, size, err = collectItems(rows, q.space)
	q.more = len(q.items) == q.limit || size >= pageBytes
	return err
}

// empty reports whether nothing is asked.
func (q *questions) empty() bool {
	return len(q.states.names)+len(q.heads.names)+len(q.items.names)+len(q.commands.names)+len(q.matches) == 0
}

// ask asks all questions in one round trip, after executing some statements.
func (q *questions) ask(ctx context.Context, conn reading, after ...string) error {
	b := &pgx.Batch{}
	for _, sql := range after {
		b.Queue(sql)
	}
	if q.asOfOne {
		b.Queue(beginSnapshot)
		b.Queue(holdCells)
	}
	if len(q.states.names) > 0 {
		b.Queue(selectStates, q.states.names).Query(q.states.scan)
	}
	if h := &q.heads; len(h.names) > 0 {
		b.Queue(selectHeads, h.names, h.streams).Query(h.scan)
		if q.again {
			q.after = stateQuestions{rows: map[j17.Tenant]*tenantRow{}}
			b.Queue(selectStates, q.states.names).Query(q.after.scan)
		}
	}
	if i := &q.items; len(i.names) > 0 {
		b.Queue(selectItems, i.names, i.spaces, i.keys, i.whole).Query(i.scan)
	}
	if c := &q.commands; len(c.names) > 0 {
		b.Queue(selectCommands, c.names, c.ids).Query(c.scan)
	}
	for i := range q.matches {
		m := &q.matches[i]
		b.Queue(selectMatch, m.arguments()...).QueryRow(func(row pgx.Row) error { return row.Scan(&m.found) })
	}
	for i := range q.pages {
		p := &q.pages[i]
		b.Queue(p.page(p.limit), p.args...).Query(p.scan)
	}
	if q.asOfOne {
		b.Queue(endSnapshot)
	}
	if q.commits {
		b.Queue(proof)
	}
	return conn.SendBatch(ctx, b).Close()
}
