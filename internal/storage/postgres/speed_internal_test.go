package postgres

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"j17"
	"j17/internal/storage/postgres/pgtest"
	"j17/internal/storage/store"
)

// speed is the result of one way of writing.
type speed struct {
	// rate is in commits per second; node and server are the microseconds of processor time per commit, of this process
	// and of the server's processes.
	rate, node, server float64
}

// comparison is two ways of writing, and the least ratio of their rates.
type comparison struct {
	what  string
	least float64
	a, b  func(t *testing.T) speed
}

// TestSpeed compares ways of writing, alternating on one machine, and prints a table: "make bench-postgres" runs it. No
// result is a failure, since other load on the machine changes the numbers.
func TestSpeed(t *testing.T) {
	if os.Getenv("J17_BENCH") == "" {
		t.Skip("NOT TESTED: it measures, and is run by make bench-postgres")
	}
	rounds, err := strconv.Atoi(os.Getenv("ROUNDS"))
	if err != nil {
		rounds = 3
	}
	single := pgtest.Start(t)
	quorum := pgtest.StartCluster(t, 3)
	on := func(s *pgtest.Server) *speedBench { return &speedBench{server: s} }
	comparisons := []comparison{
		{"64 callers to a bare loop, batches of 32", 0.8, on(single).callers(1, plain), on(single).bare(32)},
		{"64 environments to one call a commit", 1.8, on(single).callers(64, plain), on(single).oneCall(64)},
		{"100 environments to one", 0.8, on(single).callers(100, plain), on(single).callers(1, plain)},
		{
			"with command, tag, condition, number, due item", 0.4, on(single).callers(1, full),
			on(single).callers(1, plain),
		},
	}
	comparisons = append(comparisons, comparison{
		"quorum 2 of 3 to a single server", 0.5, on(quorum.Primary()).callers(1, plain),
		on(single).callers(1, plain),
	})

	table := tabwriter.NewWriter(t.Output(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "3 events in 3 streams\tratio\tat least\tcommits/s\tto\tµs node\tserver\tto node\tserver")
	for _, c := range comparisons {
		var ratios []float64
		var as, bs []speed
		for range rounds {
			a, b := c.a(t), c.b(t)
			as, bs, ratios = append(as, a), append(bs, b), append(ratios, a.rate/b.rate)
		}
		slices.Sort(ratios)
		a, b := median(as), median(bs)
		_, _ = fmt.Fprintf(
			table, "%s\t%.2f\t%.2f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\n", c.what, ratios[len(ratios)/2], c.least, a.rate,
			b.rate, a.node, a.server, b.node, b.server,
		)
	}
	_ = table.Flush()
}

func median(of []speed) speed {
	slices.SortFunc(of, func(x, y speed) int { return int(x.rate - y.rate) })
	return of[len(of)/2]
}

// speedBench writes to a server.
type speedBench struct{ server *pgtest.Server }

// speedTime is about the duration of one round.
const speedTime = 2 * time.Second

// speedCallers is how many callers write concurrently.
const speedCallers = 64

func (s *speedBench) options(t *testing.T) Options {
	t.Helper()
	return Options{
		Address: s.server.Address(), Plain: true, AllowSingle: true, Schema: s.server.Schema(t),
		Connections: LeastConnections,
	}
}

// measure measures do, which writes until ctx ends and counts its commits in n.
func (s *speedBench) measure(t *testing.T, do func(ctx context.Context, n *atomic.Int64)) speed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), speedTime)
	defer cancel()
	var n atomic.Int64
	node, server, begun := ownTime(), s.server.Processor(t), time.Now()
	do(ctx, &n)
	commits := float64(n.Load())
	return speed{
		rate: commits / time.Since(begun).Seconds(), node: micros(ownTime()-node) / commits,
		server: micros(s.server.Processor(t)-server) / commits,
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// ownTime returns the processor time of this process.
func ownTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// plain returns a unit of three events in three streams.
func plain(n int64) store.Append {
	var u store.Append
	for k := range 3 {
		u.Events = append(u.Events, store.NewEvent{
			Key: j17.Key{Type: "order", ID: fmt.Sprint(n%500, "-", k)}, Type: "was_changed",
			Data:     []byte(`{"amount":17,"text":"some text of a usual length that events have"}`),
			Metadata: []byte(`{"actor":{"type":"user","id":"u1"}}`),
		})
	}
	return u
}

// full returns a unit as plain does, with everything else that a unit may have.
func full(n int64) store.Append {
	u := plain(n)
	u.Command = &store.Command{Memo: []byte("memo")}
	copy(u.Command.ID[:], fmt.Sprintf("%016d", n))
	u.Events[0].Tags = []string{fmt.Sprint("course:", n%500)}
	u.Side = []store.Side{
		{Op: store.Put, Space: "once", Key: strconv.FormatInt(n, 10), Value: []byte("v"), Cond: store.IfAbsent},
		{
			Op: store.Put, Space: "work", Key: strconv.FormatInt(n, 10), Value: []byte("v"),
			Due: time.Now().Add(time.Hour),
		},
	}
	u.Assign = []store.Assignment{{
		Space: "numbers", Owner: strconv.FormatInt(n, 10), Index: "owners", Counter: "counter",
	}}
	return u
}

// callers returns a measurement of speedCallers callers that write to a store.
func (s *speedBench) callers(environments int, unit func(n int64) store.Append) func(t *testing.T) speed {
	return func(t *testing.T) speed {
		t.Helper()
		st, err := Open(t.Context(), s.options(t))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = st.Close() }()
		var next atomic.Int64
		return s.measure(t, func(ctx context.Context, n *atomic.Int64) {
			var wg sync.WaitGroup
			for c := range speedCallers {
				wg.Go(func() {
					for ctx.Err() == nil {
						_, err := st.Append(
							t.Context(), j17.Tenant(fmt.Sprint("t", c%environments)), []store.Append{unit(next.Add(1))},
						)
						if err != nil {
							t.Error(err)
							return
						}
						n.Add(1)
					}
				})
			}
			wg.Wait()
		})
	}
}

// bare returns a measurement of statements that were composed before, with some units each.
func (s *speedBench) bare(units int) func(t *testing.T) speed {
	return func(t *testing.T) speed {
		t.Helper()
		st, err := Open(t.Context(), s.options(t))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = st.Close() }()
		if _, err := st.Append(t.Context(), "t", []store.Append{plain(0)}); err != nil {
			t.Fatal(err)
		}
		l := newLane(st.core, laneCount)
		if err := l.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer l.hangUp()
		prepared := l.statements(t, st.tenant("t"), units)
		return s.measure(t, func(ctx context.Context, n *atomic.Int64) {
			for _, p := range prepared {
				if ctx.Err() != nil {
					return
				}
				rows, err := l.conn.Query(t.Context(), p.sql, p.arguments...)
				if err == nil {
					_, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int32])
				}
				if err != nil {
					t.Error(err)
					return
				}
				n.Add(int64(units))
			}
		})
	}
}

// statements returns the statements of many consecutive batches.
func (l *lane) statements(t *testing.T, tn *tenant, units int) (list []statement) {
	t.Helper()
	const batches = 1500
	b := l.batch
	for i := range batches {
		b.reset()
		for k := range units {
			u, r := plain(int64(i*units+k)), store.Result{}
			if err := b.units.Decide(tn, &u, &r); err != nil {
				t.Fatal(err)
			}
		}
		l.batches++
		b.w.collectTenants(b)
		s := &text{}
		b.w.compose(s, l, b)
		list = append(list, statement{s.sql(&l.texts), s.arguments})
		b.publish(nil)
	}
	return list
}

// oneCall returns a measurement of one commit per unit, which locks the tenant's row, reads the heads, and writes.
func (s *speedBench) oneCall(environments int) func(t *testing.T) speed {
	return func(t *testing.T) speed {
		t.Helper()
		st, err := Open(t.Context(), s.options(t))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = st.Close() }()
		numbers := make([]int32, environments)
		for e := range environments {
			name := j17.Tenant(fmt.Sprint("t", e))
			if _, err := st.Append(t.Context(), name, []store.Append{plain(0)}); err != nil {
				t.Fatal(err)
			}
			numbers[e] = int32(st.tenant(name).next.Number)
		}
		var next atomic.Int64
		return s.measure(t, func(ctx context.Context, n *atomic.Int64) {
			var wg sync.WaitGroup
			for c := range environments {
				wg.Go(func() {
					for ctx.Err() == nil {
						if err := lockReadWrite(t.Context(), st.pool, numbers[c], plain(next.Add(1))); err != nil {
							t.Error(err)
							return
						}
						n.Add(1)
					}
				})
			}
			wg.Wait()
		})
	}
}

// lockReadWrite executes one unit in its own transaction.
func lockReadWrite(ctx context.Context, pool *pgxpool.Pool, t int32, u store.Append) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var ver, ms, n int64
		err := tx.QueryRow(ctx, `SELECT ver, ms, n FROM tenants WHERE t = $1 FOR UPDATE`, t).Scan(&ver, &ms, &n)
		if err != nil {
			return err
		}
		var streams [][]byte
		for i := range u.Events {
			streams = append(streams, []byte(u.Events[i].Key.Type+"\x00"+u.Events[i].Key.ID))
		}
		rows, err := tx.Query(
			ctx, `SELECT u.stream, coalesce(e.version, 0) FROM unnest($1::bytea[]) u (stream) LEFT JOIN LATERAL (
				SELECT * FROM events e WHERE e.t = $2 AND e.stream = u.stream AND e.kind = 0 ORDER BY version DESC LIMIT 1
			) e ON true`, streams, t,
		)
		if err != nil {
			return err
		}
		versions := map[string]int64{}
		var stream []byte
		var version int64
		_, err = pgx.ForEachRow(rows, []any{&stream, &version}, func() error {
			versions[string(stream)] = version
			return nil
		})
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		for i := range u.Events {
			e := &u.Events[i]
			b.Queue(
				`INSERT INTO events (t, ms, n, kind, stream, version, type, time, first_time, generation, chain, raw)
				VALUES ($1, $2, $3, 0, $4, $5, $6, 0, 0, 0, $7, $8)`, t, ms, n+int64(i)+1, streams[i],
				versions[string(streams[i])]+1, []byte(e.Type), make([]byte, 32), append(e.Data, make([]byte, 150)...),
			)
		}
		b.Queue(`UPDATE tenants SET ver = ver + 1, n = n + 3 WHERE t = $1`, t)
		return tx.SendBatch(ctx, b).Close()
	})
}
