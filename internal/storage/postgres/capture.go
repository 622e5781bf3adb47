package postgres

import (
	"maps"
	"slices"
	"sync"
)

// capture collects the keys of the rows that lanes write while a cell is rewritten, so that these rows are copied
// again. Lanes report them before they send a batch, and report when its outcome is known: until then the rows may not
// be visible yet.
//
// Writes of other stores are detected by the versions of tenants. If a tenant has a version that no lane of this store
// has written, all its rows are copied again.
type capture struct {
	mu sync.Mutex
	// base has the version of each tenant of the cell when the copying of its rows began. A missing tenant with a
	// number up to highest is in another cell or is being loaded. base is nil until the versions are known.
	base    map[int32]int64
	highest int32
	tenants map[int32]*captured
	// rows are the rows of batches whose outcome is known, pending those of the others, by the ids of batches.
	rows    capturedRows
	pending map[[16]byte]capturedRows
}

// capturedRows are keys of rows, by table.
type capturedRows [cellTableCount]map[rowKey]bool

func newCapturedRows() (rows capturedRows) {
	for i := range rows {
		rows[i] = map[rowKey]bool{}
	}
	return rows
}

// captured is what is known of the writes to a tenant: lanes have written the versions after first up to ver, and the
// next one if batch was committed.
type captured struct {
	first, ver int64
	batch      [16]byte
	// unnamed reports whether rows were written whose keys are not known.
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

// note records what a batch writes. It is called before the batch is sent.
func (c *capture) note(of *core, w *writes, batch [16]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()

	// The tenants, and whether all rows are known. The keys of rows that other stores sweep are not.
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

// settled records that the outcome of a batch is known.
func (c *capture) settled(batch [16]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, keys := range c.pending[batch] {
		maps.Copy(c.rows[i], keys)
	}
	delete(c.pending, batch)
}

// written records the version of a tenant that a lane has committed.
func (c *capture) written(t int32, ver int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.tenants[t]; known != nil {
		known.ver = ver
	}
}

// begin sets the versions of tenants when copying begins.
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

// cellTenant is the version of a tenant, and the id of the batch that has written it.
type cellTenant struct {
	t     int32
	ver   int64
	batch []byte
	// loading reports whether the tenant is being loaded: its rows are incomplete, and its version does not count them.
	loading bool
}

// others returns which of the tenants other stores have written to, given the present states. All later writes to the
// returned ones are tracked from these states on.
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

// forget makes the next call of others return a tenant again.
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

// take returns the rows of a table that are to be copied again, and forgets them. With pending it also returns the rows
// of batches whose outcome is not known, but keeps these.
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
