package postgres_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/postgres"
	"j17/internal/storage/postgres/pgtest"
	"j17/internal/storage/store"
)

// rounds returns how many rounds a test of faults has: few unless J17_SOAK is set.
func rounds(few, all int) int {
	if os.Getenv("J17_SOAK") != "" {
		return all
	}
	return few
}

// load writes units to a few tenants and reads from them, in several goroutines, until it is stopped. It records what
// callers are told, and compares that with what is stored in the end.
//
// Each unit has three events in three streams, a side item and perhaps a command. One without a command is not retried
// when its outcome is not known.
type load struct {
	t       *testing.T
	tenants []j17.Tenant
	stopped context.Context //nolint:containedctx // ends with the load
	stop    context.CancelFunc
	working sync.WaitGroup
	store   atomic.Pointer[postgres.Store]

	mu   sync.Mutex
	cond sync.Cond
	// units are all units, by their numbers from 1 on.
	units []*written
	// acknowledged has the acknowledged length of each stream; busy and unknown count errors.
	acknowledged  map[streamOf]uint64
	busy, unknown int
	// full counts refusals for lack of disk space.
	full int
	// acked is how many units were acknowledged, last when the last one was. slowest is the longest call.
	acked   int
	last    time.Time
	slowest time.Duration
	// looked is how many reads have succeeded.
	looked int
	// found are the units that check has found.
	found map[int]bool
}

type streamOf struct {
	tenant j17.Tenant
	key    j17.Key
}

// written is a unit, with what its caller was told.
type written struct {
	tenant j17.Tenant
	number int
	again  bool // it has a command, and is written until its outcome is known
	told   fate
	result store.Result
}

// fate is what a caller knows of a unit.
type fate int

const (
	unanswered fate = iota // it has no answer
	stored                 // it was committed
	untouched              // nothing was written
	unknown                // either
)

// newLoad returns a load on a store, which has not begun yet.
func newLoad(t *testing.T, s *postgres.Store) *load {
	t.Helper()
	l := &load{t: t, acknowledged: map[streamOf]uint64{}, tenants: []j17.Tenant{"a/prod", "a/test", "b/prod"}}
	l.cond.L = &l.mu
	l.stopped, l.stop = context.WithCancel(t.Context())
	l.store.Store(s)
	t.Cleanup(func() { l.end() })
	return l
}

// start begins to write and to read.
func (l *load) start(writers, readers int) {
	for range writers {
		l.working.Go(func() {
			for l.stopped.Err() == nil {
				l.write(l.begin())
			}
		})
	}
	for i := range readers {
		l.working.Go(func() { l.read(l.tenants[i%len(l.tenants)]) })
	}
}

// end stops the load and waits for all answers.
func (l *load) end() {
	l.stop()
	l.working.Wait()
}

// begin adds and returns a new unit.
func (l *load) begin() *written {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.units) + 1
	w := &written{tenant: l.tenants[n%len(l.tenants)], number: n, again: n%4 != 0}
	l.units = append(l.units, w)
	return w
}

// keys returns the streams of the unit.
func (w *written) keys() []j17.Key {
	return []j17.Key{
		{Type: "order", ID: "all"}, {Type: "order", ID: itoa(w.number % 7)}, {Type: "user", ID: itoa(w.number % 5)},
	}
}

func (w *written) unit() store.Append {
	u := store.Append{Side: []store.Side{{
		Op: store.Put, Space: "notes", Key: fmt.Sprint(w.number), Value: fmt.Append(nil, w.number),
	}}}
	if w.again {
		u.Command = &store.Command{Memo: []byte("memo")}
		binary.BigEndian.PutUint64(u.Command.ID[:], uint64(w.number))
	}
	for _, key := range w.keys() {
		u.Events = append(u.Events, store.NewEvent{
			Key: key, Type: "was_changed", Data: fmt.Appendf(nil, `{"unit":%d}`, w.number), Metadata: []byte(`{}`),
		})
	}
	return u
}

// write writes a unit. It retries a unit with a command until its outcome is known.
func (l *load) write(w *written) {
	for doubtful := false; ; {
		begun := time.Now()
		results, err := l.store.Load().Append(context.WithoutCancel(l.t.Context()), w.tenant, []store.Append{w.unit()})
		l.mu.Lock()
		l.slowest = max(l.slowest, time.Since(begun))
		switch {
		case err == nil && results[0].Outcome == store.Committed:
			l.ack(w, results[0])
		case err == nil && results[0].Outcome == store.Duplicate && doubtful:
			l.ack(w, results[0])
		case err == nil:
			l.t.Errorf("unit %d was told %+v", w.number, results[0])
		case errors.Is(err, store.ErrUnknown):
			l.unknown++
			doubtful, w.told = true, unknown
		case errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrFull):
			if errors.Is(err, store.ErrFull) {
				l.full++
			} else {
				l.busy++
			}
			if !doubtful {
				w.told = untouched
			}
		case errors.Is(err, store.ErrClosed):
			if !doubtful {
				w.told = untouched
			}
		default:
			l.t.Errorf("unit %d: %v", w.number, err)
		}
		l.cond.Broadcast()
		told := w.told
		l.mu.Unlock()
		if told != untouched && told != unknown || !w.again || l.stopped.Err() != nil {
			return
		}
		pause(l.stopped, 20*time.Millisecond)
	}
}

// pause waits for a duration by the machine's clock, as the store does too.
func pause(ctx context.Context, d time.Duration) {
	_ = clock.System{}.Wait(ctx, clock.System{}.Now().Add(d))
}

// ack records that a unit is stored. The caller holds mu.
func (l *load) ack(w *written, r store.Result) {
	w.told, w.result = stored, r
	l.acked++
	l.last = time.Now()
	for i, key := range w.keys() {
		s := streamOf{w.tenant, key}
		l.acknowledged[s] = max(l.acknowledged[s], r.Lengths[i])
	}
}

// read reads heads repeatedly. What was acknowledged before a read must be visible, and nothing that was visible may
// disappear.
func (l *load) read(tenant j17.Tenant) {
	keys := slices.Concat((&written{number: 1}).keys(), (&written{number: 2}).keys())
	seen := map[j17.Key]uint64{}
	for l.stopped.Err() == nil {
		l.mu.Lock()
		acknowledged := maps.Clone(l.acknowledged)
		l.mu.Unlock()
		heads, err := l.store.Load().Heads(l.stopped, tenant, keys)
		switch {
		case l.stopped.Err() != nil || errors.Is(err, store.ErrClosed):
		case errors.Is(err, store.ErrBusy):
			pause(l.stopped, 20*time.Millisecond)
		case err != nil:
			l.t.Errorf("heads: %v", err)
			return
		default:
			for i, key := range keys {
				if heads[i].Length < max(seen[key], acknowledged[streamOf{tenant, key}]) {
					l.t.Errorf("%s of %s has %d events, after %d were seen and %d acknowledged", key, tenant,
						heads[i].Length, seen[key], acknowledged[streamOf{tenant, key}])
				}
				seen[key] = heads[i].Length
			}
			l.mu.Lock()
			l.looked++
			l.cond.Broadcast()
			l.mu.Unlock()
		}
	}
}

// await waits until is returns true. It is called after each answer to a caller.
func (l *load) await(what string, is func() bool) {
	l.t.Helper()
	late := time.AfterFunc(time.Minute, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.cond.Broadcast()
	})
	defer late.Stop()
	begun := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !is() {
		if time.Since(begun) >= time.Minute {
			l.t.Fatalf("%s: not within a minute", what)
		}
		l.cond.Wait()
	}
}

// more waits until n more units are acknowledged.
func (l *load) more(n int) {
	l.t.Helper()
	l.mu.Lock()
	want := l.acked + n
	l.mu.Unlock()
	l.await(fmt.Sprintf("%d further units", n), func() bool { return l.acked >= want })
}

// counts returns how many units were acknowledged, how many calls were told that nothing was written, and how many that
// the outcome is not known.
func (l *load) counts() (acked, busy, unknown int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked, l.busy, l.unknown
}

// row is an event as it is stored.
type row struct {
	position j17.StreamID
	raw      []byte
	chain    [32]byte
}

// check ends the load, and compares what a server holds with what callers were told: acknowledged units are stored
// once, in order, with the acknowledged positions and versions; nothing of refused ones is stored. It returns how many
// units are stored.
func (l *load) check(s *pgtest.Server) (units int) {
	l.t.Helper()
	l.end()
	conn, err := pgx.Connect(l.t.Context(), s.Superuser())
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(l.t.Context())) }()
	if _, err := conn.Exec(l.t.Context(), "SET search_path = "+postgres.DefaultSchema); err != nil {
		l.t.Fatal(err)
	}
	there := map[int]bool{}
	for _, tenant := range l.tenants {
		maps.Copy(there, l.checkTenant(conn, tenant))
	}
	l.found = there

	// What callers were told.
	for _, w := range l.units {
		switch {
		case w.told == stored && !there[w.number]:
			l.t.Errorf("unit %d was acknowledged and is not there", w.number)
		case w.told == untouched && there[w.number]:
			l.t.Errorf("unit %d is there, and its caller was told that nothing was written", w.number)
		case w.told == unanswered:
			l.t.Errorf("unit %d has no answer", w.number)
		}
	}
	return len(there)
}

// checkTenant compares the rows of a tenant with each other and with what callers were told, and returns the units that
// are stored.
func (l *load) checkTenant(conn *pgx.Conn, tenant j17.Tenant) map[int]bool {
	l.t.Helper()
	ctx := l.t.Context()
	var t int32
	var events, ms, n int64
	err := conn.QueryRow(
		ctx, "SELECT x.t, x.events, x.ms, x.n FROM tenants x JOIN names nm ON nm.t = x.t WHERE nm.name = $1", []byte(tenant),
	).Scan(&t, &events, &ms, &n)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		l.t.Fatal(err)
	}

	// Read the events in the order of their positions.
	rows, err := conn.Query(ctx, "SELECT ms, n, stream, version, chain, raw FROM events WHERE t = $1 ORDER BY ms, n", t)
	if err != nil {
		l.t.Fatal(err)
	}
	streams, positions := map[string][]row{}, map[int][]j17.StreamID{}
	var last j17.StreamID
	var seq, version, count int64
	var stream, chain, raw []byte
	_, err = pgx.ForEachRow(rows, []any{&last.Ms, &seq, &stream, &version, &chain, &raw}, func() error {
		count++
		last.Seq = uint32(seq)
		one := row{position: last, raw: slices.Clone(raw)}
		copy(one.chain[:], chain)
		streams[string(stream)] = append(streams[string(stream)], one)
		if int(version) != len(streams[string(stream)]) {
			return fmt.Errorf("%s: version %d is the %dth", last, version, len(streams[string(stream)]))
		}
		var event struct{ Data struct{ Unit int } }
		if err := json.Unmarshal(raw, &event); err != nil {
			return err
		}
		positions[event.Data.Unit] = append(positions[event.Data.Unit], last)
		return nil
	})
	if err != nil {
		l.t.Fatalf("events of %s: %v", tenant, err)
	}
	if count != events || last != (j17.StreamID{Ms: ms, Seq: uint32(n)}) {
		l.t.Errorf("%s has %d events up to %s, its row says %d up to %d-%d", tenant, count, last, events, ms, n)
	}
	for name, list := range streams {
		var before [32]byte
		for _, one := range list {
			leaf := sha256.Sum256(append([]byte{0}, one.raw...))
			if before = sha256.Sum256(append(before[:], leaf[:]...)); before != one.chain {
				l.t.Errorf("%q of %s: the chain does not verify at %s", name, tenant, one.position)
				break
			}
		}
	}

	// Each unit is stored completely, as its caller was told.
	notes, err := conn.Query(ctx, "SELECT key FROM items WHERE t = $1", t)
	if err != nil {
		l.t.Fatal(err)
	}
	keys, err := pgx.CollectRows(notes, pgx.RowTo[[]byte])
	if err != nil {
		l.t.Fatal(err)
	}
	items, units := map[string]bool{}, map[int]bool{}
	for _, key := range keys {
		items[string(key)] = true
	}
	for number, at := range positions {
		units[number] = true
		w := l.units[number-1]
		if w.tenant != tenant || len(at) != len(w.keys()) || !items[fmt.Sprint(number)] {
			l.t.Errorf("unit %d of %s is there with %d events, and an item: %v", number, w.tenant, len(at), items[fmt.Sprint(number)])
		}
		if w.told == stored && !slices.Equal(at, w.result.IDs) {
			l.t.Errorf("unit %d was told %v and is at %v", number, w.result.IDs, at)
		}
	}
	if len(items) != len(units) {
		l.t.Errorf("%s has %d units and %d items", tenant, len(units), len(items))
	}
	return units
}

func itoa(n int) string { return strconv.Itoa(n) }

// commits reports whether a server acknowledges a commit while ctx lasts.
func commits(ctx context.Context, t *testing.T, s *pgtest.Server) bool {
	t.Helper()
	conn, err := pgx.Connect(ctx, s.Superuser())
	if err != nil {
		t.Errorf("the server is not there: %v", err)
		return false
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS j17_commits (n int)")
	return err == nil
}
