package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// A load is written under a new tenant number, which has no name until the load is committed. The table unnamed has the
// number, with the store as its owner. Every statement that adds to the load requires that row, so that nothing is
// added after the load was given up, by this store or by the next one.

const (
	// loadedAtOnce bounds the items and commands that one statement writes. loadedBytes bounds their size, and that of
	// the events that one transaction writes.
	loadedAtOnce = 5000
	loadedBytes  = 8 << 20
)

// loading is a store.Load. More can be added while what was added before is being written.
type loading struct {
	*core

	name   j17.Tenant
	number int32
	// err, if not nil, is the error that the load has failed with, or errLoadEnded.
	err error

	// bytes is loadedBytes, except in tests.
	bytes int
	state unit.Load
	told  unit.LoadedTags
	// What was added and not written yet: events and notes; items and commands; and the entries that items list.
	events  *loadedEvents
	others  writes
	entries map[writtenItem]listed
	// due reports whether there are items with due times, commands whether there are commands.
	due, commands bool

	// streams is owned by the goroutine that writes. It sends its error to writing, which is nil if there is none.
	streams loadedStreams
	writing chan error

	// followed, if not nil, has what has changed of the tenant since its items and commands began to be copied.
	followed *followed
}

// listed are the entries that an item lists, with their space.
type listed struct {
	space store.Space
	keys  []string
}

// errLoadEnded is the error of calls after the end of a load, errLoadLost that of a load that was removed.
var (
	errLoadEnded = errors.New("the load has ended")
	errLoadLost  = fmt.Errorf("%w: the load was removed", store.ErrBusy)
)

// newLoad creates the number of a load, with the store as its owner.
const newLoad = `WITH ` + nextNumber + `, x AS (` + insertTenant + `)
INSERT INTO unnamed (t, owner) SELECT t, $1 FROM x RETURNING t`

// Load is part of store.Archives.
func (b *bulk) Load(ctx context.Context, name j17.Tenant) (store.Load, error) {
	if err := store.ValidTenant(name); err != nil {
		return nil, err
	}
	l := &loading{
		core: b.core, name: name, bytes: loadedBytes, events: &loadedEvents{}, entries: map[writtenItem]listed{},
		streams: loadedStreams{most: keptStreams},
	}
	l.others.reset()
	err := b.queue.DoFor(ctx, name, queue.Ordinary, func(*batch) error {
		t := b.tenant(name)
		l.state.Rev = t.next.Rev
		return withoutEvents(t)
	})
	if err != nil {
		return nil, err
	}
	if err := l.begin(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// begin gives the load its number. If a connection breaks meanwhile there may be several, of which the sweeper gives up
// those that are not in core.loads.
func (l *loading) begin(ctx context.Context) error {
	l.mu.Lock()
	l.beginning++
	l.mu.Unlock()
	err := l.read(ctx, "a load", func(conn reading) error {
		return conn.QueryRow(ctx, newLoad, l.holder()).Scan(&l.number)
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beginning--
	if err == nil {
		l.loads[l.number] = true
	}
	return err
}

// end records that the load has ended.
func (l *loading) end() {
	l.err = errLoadEnded
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.loads, l.number)
}

// withoutEvents returns an error if a tenant cannot be loaded.
func withoutEvents(t *tenant) error {
	if t.next.Events > 0 || !t.next.Last.IsZero() {
		return fmt.Errorf("tenant %s: %w", t.name, store.ErrNotEmpty)
	}
	return nil
}

// fail records an error, after which nothing can be added, and returns the first one.
func (l *loading) fail(err error) error {
	if err != nil && l.err == nil {
		l.err = l.unlessOver(err)
	}
	return l.err
}

// unlessOver returns err, or store.ErrClosed if the store is closed.
func (l *loading) unlessOver(err error) error {
	if l.isClosed() {
		return store.ErrClosed
	}
	return err
}

// write waits for the previous write, and begins the next one in a goroutine. It is called by one goroutine at a time.
func (l *loading) write(do func(ctx context.Context) error) error {
	if err := l.written(); err != nil {
		return err
	}
	if l.isClosed() {
		return store.ErrClosed
	}
	writing := make(chan error, 1)
	l.writing = writing
	l.working.Go(func() {
		writing <- panics.Caught(func() error { return do(l.closing) })
	})
	return nil
}

// written waits for the write in progress, and returns its error.
func (l *loading) written() error {
	if l.writing == nil {
		return nil
	}
	err := <-l.writing
	l.writing = nil
	return err
}

// Event is part of store.Load.
func (l *loading) Event(e store.LoadedEvent) (leaf [32]byte, err error) {
	if l.err != nil {
		return leaf, l.err
	}
	metadata, err := l.state.Event(&e)
	if err == nil {
		leaf, err = l.events.add(&e, metadata, &l.told)
	}
	if err != nil {
		return leaf, l.fail(&store.LoadError{Line: e.Line, Position: e.StreamID, Key: e.Key, Err: err})
	}
	l.state.Add(&e)
	if e.Kept != nil {
		leaf = [32]byte(e.Kept)
	}
	return leaf, l.fail(l.writeEvents(l.bytes))
}

// Note is part of store.Load.
func (l *loading) Note(n store.Note) error {
	if l.err != nil {
		return l.err
	}
	if err := l.state.Note(&n); err != nil {
		return l.fail(err)
	}
	l.events.addNote(&n)
	return l.fail(l.writeEvents(l.bytes))
}

// writeEvents begins to write the events and notes that were added, if they have at least some size in bytes.
func (l *loading) writeEvents(least int) error {
	if l.events.bytes < least || len(l.events.rows) == 0 {
		return nil
	}
	some := l.events
	l.events = &loadedEvents{}
	return l.write(func(ctx context.Context) error { return l.storeEvents(ctx, some) })
}

// Item is part of store.Load.
func (l *loading) Item(i store.ArchivedItem) error {
	if l.err != nil {
		return l.err
	}
	if err := l.state.Item(&i); err != nil {
		return l.fail(err)
	}
	name := writtenItem{l.number, i.Space, i.Key}
	delete(l.entries, name)
	if i.Entries != "" {
		keys, _, err := store.ReadEntries(i.Value)
		if err != nil {
			return l.fail(err)
		}
		l.entries[name] = listed{i.Entries, texts(keys)}
	}
	one := &itemWrite{Meta: unit.Meta{Rev: i.Rev, Expires: unit.Nanos(i.Expires), Due: unit.Nanos(i.Due)}}
	if one.sealed = l.sealing.Seals(i.Space, i.Value); one.sealed {
		one.value = l.sealing.Seal(i.Space, i.Key, i.Value)
	} else {
		one.value = bytes.Clone(i.Value)
	}
	l.due = l.due || one.Due != 0
	l.others.items[name] = one
	l.others.bytes += len(i.Key) + len(i.Value) + itemRowBytes
	return l.fail(l.writeOthers(loadedAtOnce))
}

func texts(list [][]byte) []string {
	texts := make([]string, len(list))
	for i := range list {
		texts[i] = string(list[i])
	}
	return texts
}

// Withdraw is part of store.Load.
func (l *loading) Withdraw(n store.ItemName, entries store.Space) error {
	if l.err != nil {
		return l.err
	}
	if err := l.state.Withdraw(n); err != nil {
		return l.fail(err)
	}
	name := writtenItem{l.number, n.Space, n.Key}
	delete(l.entries, name)
	if entries != "" {
		l.entries[name] = listed{space: entries}
	}
	l.others.items[name] = &itemWrite{}
	l.others.bytes += len(n.Key) + itemRowBytes
	return l.fail(l.writeOthers(loadedAtOnce))
}

// Command is part of store.Load.
func (l *loading) Command(c store.ArchivedCommand) error {
	if l.err != nil {
		return l.err
	}
	result, err := l.state.Command(&c)
	if err != nil {
		return l.fail(err)
	}
	l.commands = true
	l.others.commands[writtenCommand{l.number, c.ID}] = &commandWrite{unit.Nanos(c.Expires), result}
	l.others.bytes += len(result) + itemRowBytes
	return l.fail(l.writeOthers(loadedAtOnce))
}

// writeOthers begins to write the items and commands that were added, if they are at least so many or large enough.
func (l *loading) writeOthers(least int) error {
	n := len(l.others.items) + len(l.others.commands)
	if n == 0 || n < least && l.others.bytes < l.bytes {
		return nil
	}
	some, entries, rev := l.others, l.entries, uint64(0)
	if len(entries) > 0 {
		rev = l.state.NextRev()
	}
	l.others.reset()
	l.entries = map[writtenItem]listed{}
	return l.write(func(ctx context.Context) error {
		for name := range some.items {
			if err := l.spaces.give(ctx, name.space); err != nil {
				return err
			}
		}
		for _, list := range entries {
			if err := l.spaces.give(ctx, list.space); err != nil {
				return err
			}
		}
		return l.read(ctx, "what is loaded", func(conn reading) error {
			if err := l.deriveEntries(ctx, conn, &some, entries, rev); err != nil {
				return err
			}
			return l.storeOthers(ctx, conn, &some)
		})
	})
}

// ownLoad selects and locks the row with the owner of a load.
const ownLoad = `WITH h AS (SELECT t FROM unnamed WHERE t = ? AND owner = ? FOR SHARE)`

// storeOthers stores items and commands. The error is errLoadLost if the load was removed.
func (l *loading) storeOthers(ctx context.Context, conn reading, w *writes) error {
	text := &text{}
	text.add(ownLoad, l.number, l.holder())
	w.composeItems(text, l.core)
	w.composeCommands(text)
	var own int32
	err := conn.QueryRow(ctx, text.sql(&l.texts), text.arguments...).Scan(&own)
	if errors.Is(err, pgx.ErrNoRows) {
		return errLoadLost
	}
	return err
}

const selectListed = `SELECT u.i, i.sealed, i.value FROM unnest($2::smallint[], $3::bytea[]) WITH ORDINALITY u (space, key, i),
LATERAL (SELECT * FROM items i WHERE i.t = $1 AND i.space = u.space AND i.key = u.key LIMIT 1) i`

// deriveEntries adds to the writes the entries that items list now, with a revision, and the removals of those that
// they listed before.
func (l *loading) deriveEntries(
	ctx context.Context, conn reading, w *writes, entries map[writtenItem]listed, rev uint64,
) error {
	if len(entries) == 0 {
		return nil
	}
	names := slices.Collect(maps.Keys(entries))
	var spaces []int16
	var keys [][]byte
	for _, name := range names {
		number, _ := l.spaces.known(name.space)
		spaces, keys = append(spaces, number), append(keys, []byte(name.key))
	}
	rows, err := conn.Query(ctx, selectListed, l.number, spaces, keys)
	if err != nil {
		return err
	}
	var at int
	var sealed bool
	var value []byte
	_, err = pgx.ForEachRow(rows, []any{&at, &sealed, &value}, func() (err error) {
		name := names[at-1]
		if sealed {
			if value, err = l.sealing.Open(name.space, name.key, value); err != nil {
				return err
			}
		}
		had, _, err := store.ReadEntries(value)
		for _, key := range had {
			w.items[writtenItem{l.number, entries[name].space, string(key)}] = &itemWrite{}
		}
		value = nil
		return err
	})
	if err != nil {
		return err
	}
	for _, list := range entries {
		for _, key := range list.keys {
			w.items[writtenItem{l.number, list.space, key}] = &itemWrite{Meta: unit.Meta{Rev: rev}}
		}
	}
	return nil
}

// giveUpLoad leaves the rows of a load to the sweeper. Nothing can be added to it from then on.
const giveUpLoad = `WITH u AS (UPDATE unnamed SET owner = NULL WHERE t = $1 AND owner = $2 RETURNING t)
DELETE FROM tenants x USING u WHERE x.t = u.t`

// Discard is part of store.Load.
func (l *loading) Discard() {
	if errors.Is(l.err, errLoadEnded) {
		return
	}
	l.err = errLoadEnded
	_ = l.written() // its error no longer matters
	l.unfollow(l.followed)
	l.end()
	l.wakeSweeper()
}

// giveUpOrphans gives up the loads of this store that have ended, and those that nobody got.
func (s *sweeper) giveUpOrphans(ctx context.Context) error {
	numbers, err := s.numbers(ctx, `SELECT t FROM unnamed WHERE owner = $1`, s.holder())
	if err != nil {
		return err
	}
	s.mu.Lock()
	numbers = slices.DeleteFunc(numbers, func(t int32) bool { return s.beginning > 0 || s.loads[t] })
	s.mu.Unlock()
	for _, t := range numbers {
		if err := s.execute(ctx, "giving up a load", giveUpLoad, t, s.holder()); err != nil {
			return err
		}
	}
	return nil
}

// execute executes a statement and discards its rows.
func (c *core) execute(ctx context.Context, what, sql string, args ...any) error {
	return c.read(ctx, what, func(conn reading) error {
		rows, err := conn.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		rows.Close()
		return rows.Err()
	})
}

// giveUpLoads leaves the rows of the loads of other stores to the sweeper.
const giveUpLoads = `WITH u AS (UPDATE unnamed SET owner = NULL WHERE owner <> $1 RETURNING t)
DELETE FROM tenants x USING u WHERE x.t = u.t`

// endLoads gives up the loads of earlier stores, unless the schema is shared: loads of others may go on then.
func (b *bulk) endLoads(ctx context.Context) error {
	if b.o.Shared {
		return nil
	}
	return b.execute(ctx, "loads that have not ended", giveUpLoads, b.holder())
}
