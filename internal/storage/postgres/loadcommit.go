package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"j17/internal/storage/queue"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// A load keeps the side items and commands that its tenant has. They are copied while writes to the tenant go on. Lanes
// record what changes meanwhile, and the load catches up with that when it is committed.

// followed is what of a tenant has changed since a load began to copy it. It is guarded by core.mu.
type followed struct {
	// number is the tenant's, 0 if it held nothing, ver its version at the beginning, batches how many came since.
	number       int32
	ver, batches int64
	items        map[writtenItem]bool
	commands     map[store.CommandID]bool
	// lost reports whether too many items or commands have changed, or a whole range of items.
	lost bool
}

const (
	// mostChanged bounds the changes of a tenant while a load copies it: one batch has to apply all of them.
	mostChanged = 10_000
	// mostCopies bounds how often a tenant's items are copied because too many of them changed meanwhile.
	mostCopies = 4
)

// noteFollowed records what a committed batch has changed of a tenant, for a load that follows it.
func (c *core) noteFollowed(w *writes, t *tenant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	number := int32(t.next.Number)
	f := c.followed[number]
	if f == nil {
		return
	}
	f.batches++
	f.lost = f.lost || w.drops(t) || len(w.cleared)+len(w.more) > 0
	for k := range w.items {
		if k.t == number {
			f.items[k] = true
		}
	}
	for k := range w.commands {
		if k.t == number {
			f.commands[k.id] = true
		}
	}
	f.lost = f.lost || len(f.items)+len(f.commands) > mostChanged
}

// follow begins to record the changes of the load's tenant.
func (l *loading) follow(ctx context.Context) error {
	return l.queue.DoFor(ctx, l.name, queue.Ordinary, func(*batch) error {
		t := l.tenant(l.name)
		if err := withoutEvents(t); err != nil {
			return err
		}
		l.state.Rev = max(l.state.Rev, t.next.Rev)
		f := &followed{items: map[writtenItem]bool{}, commands: map[store.CommandID]bool{}}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.followed = f; t.named {
			f.number, f.ver = int32(t.next.Number), t.ver
			l.core.followed[f.number] = f
		}
		return nil
	})
}

// unfollow ends the recording of changes.
func (c *core) unfollow(f *followed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f != nil && c.followed[f.number] == f {
		delete(c.followed, f.number)
	}
}

// Commit is part of store.Load.
func (l *loading) Commit(ctx context.Context, fences ...store.Fence) error {
	if l.err != nil {
		return l.err
	}
	if err := (&store.Append{Fences: fences}).Validate(); err != nil {
		return err
	}
	if err := l.commit(ctx, fences); err != nil {
		return l.fail(err)
	}
	l.end()
	return nil
}

func (l *loading) commit(ctx context.Context, fences []store.Fence) error {
	for _, step := range []func() error{
		func() error { return l.writeEvents(0) }, func() error { return l.writeOthers(0) }, l.written,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	for copies := 1; ; copies++ {
		if err := l.follow(ctx); err != nil {
			return err
		}
		err := l.takeOver(ctx)
		again := false
		if err == nil {
			again, err = l.list(ctx, fences, copies == mostCopies)
		}
		l.unfollow(l.followed)
		if err != nil || !again {
			return err
		}
		if err := l.clearCopied(ctx); err != nil {
			return err
		}
	}
}

const (
	itemNames = `t, space, key, rev, expires, due, claimed, holder, sealed, sum, value`

	// takeItems copies a page of the items of a tenant into a load, except those that the load has. Such an item gets
	// another revision if it has that of the tenant's item.
	takeItems = `WITH page AS (
		SELECT i.* FROM items i WHERE i.t = $1 AND (i.space, i.key) > ($5, $6) AND ` + itemLives + `
		ORDER BY i.space, i.key LIMIT 5000
	), h AS (SELECT t FROM unnamed WHERE t = $2 AND owner = $3 FOR SHARE), taken AS (
		INSERT INTO items AS x (` + itemNames + `) SELECT h.t, p.space, p.key, p.rev, p.expires, p.due, p.claimed,
			p.holder, p.sealed, p.sum, p.value FROM page p, h
		ON CONFLICT (t, space, key) DO UPDATE SET rev = $4 WHERE x.rev = excluded.rev
	) SELECT space, key FROM page OFFSET 4999`
	takeCommands = `WITH page AS (
		SELECT * FROM commands WHERE t = $1 AND id > $4 ORDER BY id LIMIT 5000
	), h AS (SELECT t FROM unnamed WHERE t = $2 AND owner = $3 FOR SHARE), taken AS (
		INSERT INTO commands (t, id, expires, result) SELECT h.t, p.id, p.expires, p.result FROM page p, h
		ON CONFLICT DO NOTHING
	) SELECT id FROM page OFFSET 4999`
)

// takeOver copies the tenant's items and commands, except those that were loaded.
func (l *loading) takeOver(ctx context.Context) error {
	old := l.followed.number
	if old == 0 {
		return nil
	}
	err := l.pages(
		ctx, "what a load keeps", takeItems, old, l.number, l.holder(), int64(l.state.NextRev()), noSpace, []byte{},
	)
	if err != nil {
		return err
	}
	return l.pages(ctx, "what a load keeps", takeCommands, old, l.number, l.holder(), []byte{})
}

// clearCopied removes the copied items, which have lower revisions than the loaded ones, and all commands.
func (l *loading) clearCopied(ctx context.Context) error {
	err := l.execute(
		ctx, "what a load keeps", `DELETE FROM items WHERE t = $1 AND rev <= $2`, l.number, int64(l.state.Given),
	)
	if err != nil {
		return err
	}
	return l.execute(ctx, "what a load keeps", `DELETE FROM commands WHERE t = $1`, l.number)
}

// list gives the tenant the number of the load. again reports whether too much has changed to catch up with, so that
// items and commands have to be copied again; that is an error if it is the last time.
func (l *loading) list(ctx context.Context, fences []store.Fence, last bool) (again bool, err error) {
	u := &store.Append{Fences: fences}
	err = l.queue.DoFor(ctx, l.name, queue.Ordinary, func(b *batch) error {
		// Check the preconditions.
		t := l.tenant(l.name)
		if err := withoutEvents(t); err != nil {
			return err
		}
		if err := errors.Join(b.need(t, u), b.read()); err != nil {
			return err
		}
		var r store.Result
		if err := b.units.Check(t, u, &r); err != nil {
			return err
		}
		if len(r.Sides) > 0 {
			return &r.Sides[0]
		}
		var err error
		if again, err = l.catchUp(b, t, last); err != nil || again {
			return err
		}

		// The name and the state.
		var ver int64
		err = b.lane.conn.QueryRow(l.ending, selectLoad, l.number, l.holder()).Scan(&ver)
		if errors.Is(err, pgx.ErrNoRows) {
			return errLoadLost
		}
		if err != nil {
			return b.lane.failed("a load", err)
		}
		b.list(t, l, ver)
		return nil
	})
	return again, err
}

const (
	selectLoad = `SELECT x.ver FROM tenants x, unnamed u WHERE x.t = $1 AND u.t = x.t AND u.owner = $2`
	// moveName makes a name refer to a load. The rows of the previous number are deleted later.
	moveName = `mv AS (
		UPDATE names x SET t = ? WHERE x.t = ? AND (SELECT count(*) FROM h) = 2 RETURNING x.t
	), rm AS (
		INSERT INTO unnamed (t) SELECT ?::int FROM mv
	), ld AS (
		DELETE FROM unnamed u USING mv WHERE u.t = mv.t
	)`
	nameLoad = `ld AS (DELETE FROM unnamed u USING h WHERE u.t = h.t)`
)

// list gives a tenant the state of a load whose row has the version ver.
func (b *batch) list(t *tenant, l *loading, ver int64) {
	b.w.loaded = &loadedTenant{due: l.due}
	if t.named {
		b.w.loaded.was, b.w.loaded.ver, b.w.loaded.term = t.next, t.ver, t.term
		b.w.more = append(b.w.more, statement{moveName, []any{l.number, int32(t.next.Number), int32(t.next.Number)}})
	} else {
		b.w.more = append(b.w.more, statement{sql: nameLoad})
	}
	s := &l.state
	t.ver, t.term = ver, 0
	t.next = unit.State{
		Name: t.name, Number: uint32(l.number), Last: s.Last, LastTime: s.LastTime, Events: s.Events,
		Rev: max(t.next.Rev, s.Rev),
	}
	b.units.Touch(t)
}

// overtaken returns the error of a load that cannot catch up with the changes of its tenant.
func (l *loading) overtaken() error { return fmt.Errorf("tenant %s: %w", l.name, store.ErrOvertaken) }

const (
	selectCopied = `SELECT
		EXISTS (
			SELECT 1 FROM unnest($2::smallint[], $3::bytea[]) u (space, key),
			LATERAL (SELECT 1 FROM items i WHERE i.t = $1 AND i.space = u.space AND i.key = u.key AND i.rev <= $4 LIMIT 1) i
		), EXISTS (
			SELECT 1 FROM unnest($5::bytea[]) u (id), LATERAL (SELECT 1 FROM commands c WHERE c.t = $1 AND c.id = u.id LIMIT 1) c
		)`
	deleteChangedItems = `DELETE FROM items x USING unnest($1::int[], $2::smallint[], $3::bytea[]) u (t, space, key)
	WHERE x.t = u.t AND x.space = u.space AND x.key = u.key AND x.rev <= $4`
	insertChangedItems = `WITH h AS (SELECT t FROM unnamed WHERE t = $2 AND owner = $3 FOR SHARE)
	INSERT INTO items (` + itemNames + `) SELECT h.t, i.space, i.key, i.rev, i.expires, i.due, i.claimed, i.holder, i.sealed,
		i.sum, i.value FROM h, unnest($4::smallint[], $5::bytea[]) u (space, key),
	LATERAL (SELECT * FROM items i WHERE i.t = $1 AND i.space = u.space AND i.key = u.key LIMIT 1) i
	WHERE ` + itemLives + ` ON CONFLICT DO NOTHING`
	deleteChangedCommands = `DELETE FROM commands x USING unnest($1::int[], $2::bytea[]) u (t, id)
	WHERE x.t = u.t AND x.id = u.id`
	insertChangedCommands = `WITH h AS (SELECT t FROM unnamed WHERE t = $2 AND owner = $3 FOR SHARE)
	INSERT INTO commands (t, id, expires, result) SELECT h.t, c.id, c.expires, c.result FROM h, unnest($4::bytea[]) u (id),
	LATERAL (SELECT * FROM commands c WHERE c.t = $1 AND c.id = u.id LIMIT 1) c ON CONFLICT DO NOTHING`
)

// catchUp copies the tenant's items and commands that have changed since they were copied. again reports whether all of
// them have to be copied again. That is an error if it is the last time, or if what was copied cannot be told from what
// was loaded.
func (l *loading) catchUp(b *batch, t *tenant, last bool) (again bool, err error) {
	// The copy must be that of this tenant, and lanes must have recorded all changes.
	f, number := l.followed, int32(0)
	if t.named {
		number = int32(t.next.Number)
	}
	if f.number != 0 && f.number != number || number > l.number {
		// The numbers of a name must ascend, so that other stores know which one is the latest.
		return false, l.overtaken()
	}
	l.mu.Lock()
	complete := f.number == number && !f.lost && (number == 0 || t.ver == f.ver+f.batches)
	changed := changedNames{spaces: []int16{}, keys: [][]byte{}, ids: [][]byte{}}
	for k := range f.items {
		if space, known := l.spaces.known(k.space); known {
			changed.t = append(changed.t, l.number)
			changed.spaces, changed.keys = append(changed.spaces, space), append(changed.keys, []byte(k.key))
		}
	}
	for id := range f.commands {
		changed.ofIDs, changed.ids = append(changed.ofIDs, l.number), append(changed.ids, id[:])
	}
	l.mu.Unlock()
	switch {
	case !complete && (last || f.number != 0 && (l.state.Revised || l.commands)):
		return false, l.overtaken()
	case !complete:
		return true, nil
	case len(changed.keys)+len(changed.ids) == 0:
		return false, nil
	}
	err = l.copyChanged(b.lane.conn, &changed)
	if err == nil || errors.Is(err, store.ErrOvertaken) {
		return false, err
	}
	return false, b.lane.failed("what has changed during a load", err)
}

// changedNames are the names of what has changed, each with the number of the load.
type changedNames struct {
	t      []int32
	spaces []int16
	keys   [][]byte
	ofIDs  []int32
	ids    [][]byte
}

// copyChanged copies items and commands again.
func (l *loading) copyChanged(conn *pgx.Conn, c *changedNames) error {
	given := int64(l.state.Given)
	if l.state.Revised || l.commands {
		var items, commands bool
		err := conn.QueryRow(
			l.ending, selectCopied, l.number, c.spaces, c.keys, given, c.ids,
		).Scan(&items, &commands)
		if err == nil && (items && l.state.Revised || commands && l.commands) {
			err = l.overtaken() // they may have been loaded
		}
		if err != nil {
			return err
		}
	}
	old := l.followed.number
	send := &pgx.Batch{}
	send.Queue(deleteChangedItems, c.t, c.spaces, c.keys, given)
	send.Queue(insertChangedItems, old, l.number, l.holder(), c.spaces, c.keys)
	send.Queue(deleteChangedCommands, c.ofIDs, c.ids)
	send.Queue(insertChangedCommands, old, l.number, l.holder(), c.ids)
	return conn.SendBatch(l.ending, send).Close()
}
