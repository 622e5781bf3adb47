package postgres

import (
	"maps"
	"slices"
	"sync"
)

// capture collects the keys of the rows that lanes write while a cell is written anew, so that these rows are copied
// again. Lanes name them before they send a batch, and say when they know what has become of it: until then the rows
// may not be visible yet.
//
// What others write is found out by the versions of tenants. If a tenant has a version that no lane of this store has
// made, all its rows are copied again.
type capture struct {
	mu sync.Mutex
	// base has the versions that tenants of the cell had when their rows began to be copied. A tenant with a number up
	// to highest that it does not have is in another cell, or is being loaded. It is nil until the versions are known.
	base    map[int32]int64
	highest int32
	tenants map[int32]*captured
	// rows are those of batches whose outcome is known, pending those of others.
	rows    capturedRows
	pending map[[16]byte]capturedRows
}

// capturedRows are keys of rows, by the table.
type capturedRows [cellTableCount]map[rowKey]bool

func newCapturedRows() (rows capturedRows) {
	for i := range rows {
		rows[i] = map[rowKey]bool{}
	}
	return rows
}

// captured is what is known of the writes to a tenant: lanes have made the versions from first to ver, and the next one
// if batch was committed.
type captured struct {
	first, ver int64
	batch      [16]byte
	// unnamed reports that rows were written whose keys are not known.
	unnamed bool
}

// rowKey is the key of a row. See cellTable for what text, x and y are.
type rowKey struct {
	t    int32
	text string
	x, y int64
}

func newCapture() *capture {
	return &capture{
		tenants: map[int32]*captured{}, rows: newCapturedRows(), pending: map[[16]byte]capturedRows{},
	}
}

// note takes down what a batch writes, before it is sent.
func (c *capture) note(of *core, w *writes, batch [16]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()

	// The tenants, and whether all rows are known. Rows that other stores sweep are copied no more.
	unnamed := len(w.more) > 0 || of.o.Shared && len(w.cleared)+len(w.unnamed) > 0
	concerned := false
	for i, t := range w.tenants.t {
		if _, is := c.base[t]; c.base != nil && !is && t <= c.highest {
			continue
		}
		concerned = true
		ver := w.tenants.ver[i]
		known := c.tenants[t]
		if known == nil {
			known = &captured{first: ver, ver: ver}
			c.tenants[t] = known
		}
		known.unnamed = known.unnamed || unnamed || known.ver != ver
		known.ver, known.batch = ver, batch
	}
	if !concerned || unnamed {
		return
	}

	// The rows.
	rows := newCapturedRows()
	c.pending[batch] = rows
	events, tags, items, commands := rows[eventRows], rows[tagRows], rows[itemRows], rows[commandRows]
	for i, t := range w.events.t {
		events[rowKey{t: t, x: w.events.ms[i], y: w.events.n[i]}] = true
	}
	for i, t := range w.tags.t {
		tags[rowKey{t: t, text: string(w.tags.tag[i]), x: w.tags.ms[i], y: w.tags.n[i]}] = true
	}
	for k := range w.items {
		if number, known := of.spaces.known(k.space); known {
			items[rowKey{t: k.t, text: k.key, x: int64(number)}] = true
		}
	}
	for k := range w.commands {
		commands[rowKey{t: k.t, text: string(k.id[:])}] = true
	}
	w.stored.keys(events, tags, commands)
}

// settled takes down that the outcome of a batch is known.
func (c *capture) settled(batch [16]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, keys := range c.pending[batch] {
		maps.Copy(c.rows[i], keys)
	}
	delete(c.pending, batch)
}

// written takes down that a tenant has a version that a lane has made.
func (c *capture) written(t int32, ver int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.tenants[t]; known != nil {
		known.ver = ver
	}
}

// begin sets the versions at the beginning.
func (c *capture) begin(states []cellTenant, highest int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.highest = map[int32]int64{}, highest
	for i := range states {
		if s := &states[i]; !s.loading {
			c.base[s.t] = s.ver
		}
	}
}

// cellTenant is the version of a tenant, and the batch that has made it.
type cellTenant struct {
	t     int32
	ver   int64
	batch []byte
	// loading reports that it is being loaded: its rows are not there yet, and versions say nothing.
	loading bool
}

// others returns the tenants to which others have written, of those that have these versions now, and takes their
// present versions for those from which on everything is known.
func (c *capture) others(states []cellTenant) (list []int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range states {
		s := &states[i]
		base, copied := c.base[s.t]
		known := c.tenants[s.t]
		switch {
		case s.loading:
		case known == nil && copied && s.ver == base:
		case known != nil && !known.unnamed && known.first <= base &&
			(s.ver == known.ver || s.ver == known.ver+1 && string(s.batch) == string(known.batch[:])):
		default:
			c.base[s.t] = s.ver
			delete(c.tenants, s.t)
			list = append(list, s.t)
		}
	}
	return list
}

// forget makes others return a tenant again.
func (c *capture) forget(t int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.base, t)
}

// count returns how many rows are to be copied again.
func (c *capture) count() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, keys := range c.rows {
		n += len(keys)
	}
	return n
}

// take returns the rows of a table that are to be copied again, and forgets them. With pending it also returns those of
// batches whose outcome is not known, and keeps them.
func (c *capture) take(table int, pending bool) []rowKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := slices.Collect(maps.Keys(c.rows[table]))
	c.rows[table] = map[rowKey]bool{}
	if pending {
		for _, rows := range c.pending {
			list = slices.AppendSeq(list, maps.Keys(rows[table]))
		}
	}
	return list
}
