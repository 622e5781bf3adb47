package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/storage/leaves"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// tenant is what the store keeps in memory for a tenant.
type tenant struct {
	name j17.Tenant

	// The lane that works on the tenant owns these. next is its state after everything that was decided, was the stored
	// state. known reports whether the row was read, and named whether the table names has the tenant.
	next, was    unit.State
	ver, term    int64
	known, named bool
	// reserved is the number for a tenant that was never written to, 0 for none.
	reserved uint32
	// epoch is part of the cache keys of the tenant. It changes when others have written to the tenant.
	epoch uint32

	// added are the leaf hashes of the events that the present batch adds.
	added []leaves.Leaf

	// These are guarded by core.mu. last is the position of the last committed event, life the tenant's number at that
	// time, and number that of the latest change; changed, if not nil, is closed at the next change.
	last    j17.StreamID
	life    uint32
	number  uint64
	changed chan struct{}
	leaves  leaves.Kept
}

// Now returns the state of the tenant after everything that was decided.
func (t *tenant) Now() *unit.State { return &t.next }

// forget makes the next batch read the tenant's row again, and invalidates what is cached of it. A reserved number is
// dropped: others may have written to its row.
func (t *tenant) forget() {
	t.known, t.reserved = false, 0
	t.epoch++
}

// tenant returns what is kept of a tenant, and creates that if necessary.
func (c *core) tenant(name j17.Tenant) *tenant {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tenants[name]
	if t == nil {
		t = &tenant{name: name}
		c.tenants[name] = t
	}
	return t
}

// directory is the store in the role of store.Tenants.
type directory struct{ *core }

// Tenants is part of store.Tenants.
func (d *directory) Tenants(ctx context.Context) (names []j17.Tenant, err error) {
	err = d.read(ctx, "the names of tenants", func(conn reading) error {
		rows, err := conn.Query(ctx, `SELECT name FROM names ORDER BY name`)
		if err != nil {
			return err
		}
		raw, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		names = make([]j17.Tenant, len(raw))
		for i := range raw {
			names[i] = j17.Tenant(raw[i])
		}
		return err
	})
	return names, err
}

// DropTenant is part of store.Tenants. It removes the name; the rows are deleted later.
func (d *directory) DropTenant(ctx context.Context, name j17.Tenant) error {
	if err := store.ValidTenant(name); err != nil {
		return err
	}
	return d.queue.DoFor(ctx, name, queue.Freeing, func(b *batch) error {
		t := d.tenant(name)
		if err := b.lane.readStates(t); err != nil || !t.named {
			return err
		}
		b.units.Touch(t)
		b.w.unnamed = append(b.w.unnamed, int32(t.next.Number))
		return nil
	})
}

// readState reads the row of a tenant.
func readState(row pgx.CollectableRow) (s tenantRow, err error) {
	err = row.Scan(&s.name, &s.t, &s.ver, &s.term, &s.last.Ms, &s.seq, &s.events, &s.rev, &s.lastTime)
	s.last.Seq = uint32(s.seq)
	return s, err
}

// tenantRow is the row of a tenant.
type tenantRow struct {
	name      []byte
	t         int32
	ver, term int64
	last      j17.StreamID
	seq       int64
	events    int64
	rev       int64
	lastTime  int64
}

const selectStates = `SELECT nm.name, x.t, x.ver, x.term, x.ms, x.n, x.events, x.rev, x.last_time
FROM names nm JOIN tenants x ON x.t = nm.t WHERE nm.name = ANY($1)`

// take sets the state to that of the row, nil for a tenant without one. It invalidates what is cached if others have
// written to the tenant.
func (t *tenant) take(row *tenantRow) {
	if row == nil {
		if t.named || t.known {
			t.epoch++
		}
		t.named, t.known, t.ver, t.term = false, true, 0, 0
		t.next = unit.State{Name: t.name, Number: t.reserved}
		t.was = t.next
		return
	}
	t.reserved = 0
	if !t.named || uint32(row.t) != t.was.Number || row.ver != t.ver {
		t.epoch++
	}
	t.named, t.known, t.ver, t.term = true, true, row.ver, row.term
	t.next = unit.State{
		Name: t.name, Number: uint32(row.t), Last: row.last, LastTime: row.lastTime, Rev: uint64(row.rev),
		Events: uint64(row.events),
	}
	t.was = t.next
}

const (
	// nextNumber allocates the number of a new tenant, which is never reused.
	nextNumber = `m AS (
	UPDATE meta SET value = convert_to((convert_from(value, 'UTF8')::int + 1)::text, 'UTF8') WHERE key = 'tenants'
	RETURNING convert_from(value, 'UTF8')::int AS t
)`
	insertTenant = `INSERT INTO tenants (t, ver, term, ms, n, last_time, events, rev, lane, lane_n)
SELECT t, 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM m RETURNING t`
	newNumber = `WITH ` + nextNumber + ` ` + insertTenant
)

// number assigns a number to a tenant if it has none.
func (l *lane) number(t *tenant) error {
	if t.next.Number != 0 {
		return nil
	}
	var number int32
	err := l.conn.QueryRow(l.core.ending, newNumber).Scan(&number)
	if err != nil {
		return l.failed("the number of a tenant", err)
	}
	t.reserved, t.next.Number, t.was.Number = uint32(number), uint32(number), uint32(number)
	return nil
}
