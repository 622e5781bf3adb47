package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/postgres"
	"j17/internal/storage/store"
)

// TestCluster runs what needs the databases one after the other, since they take long to start.
func TestCluster(t *testing.T) {
	begun := time.Now()
	m := startDatabases(t)
	t.Logf("the databases are up after %s", time.Since(begun))
	t.Run("Nodes", m.nodes)
	t.Run("Failover", m.failover)
}

// failover kills the primary while events are written: everything that was acknowledged is there once and in its
// order, writes go on by themselves, and the old primary comes back as a standby. In soaks its machine is lost, and not
// PostgreSQL alone.
func (m *machines) failover(t *testing.T) {
	s := m.openStore(t)
	old := m.members(t)["leader"].Name
	timeline := m.members(t)["leader"].Timeline
	m.leads(t, old)

	w := write(t, s, 4)
	w.await(t, 20)
	begun := time.Now()
	if os.Getenv("J17_SOAK") == "" {
		m.killPostgres(t, old)
	} else {
		m.kill9(t, old, "etcd")
		m.kill9(t, old, "patroni")
		m.killPostgres(t, old)
	}
	w.await(t, 20)
	t.Logf("writes went on after %s", time.Since(begun))
	members := m.members(t)
	primary := members["leader"]
	if primary.Name == old || primary.Timeline <= timeline {
		t.Errorf("the primary is %s as before", old)
	}
	m.leads(t, primary.Name)

	if os.Getenv("J17_SOAK") != "" {
		m.startEtcd(t, old)
		m.startPatroni(t, old)
	}
	if again := m.awaitCluster(t); again != primary.Name {
		t.Errorf("%s has become primary", again)
	}
	t.Logf("the old primary is back after %s", time.Since(begun))
	w.await(t, 20)
	w.check(t)
}

// address is that of the store as j17.json has it.
func (m *machines) address(t *testing.T) string {
	t.Helper()
	var settings struct{ Store string }
	if err := json.Unmarshal([]byte(m.place(t, "j17.json", "j17-1")), &settings); err != nil {
		t.Fatal(err)
	}
	return settings.Store + "&sslmode=verify-full" // as for other machines
}

// openStore opens a store on servers whose settings are all as they should be.
func (m *machines) openStore(t *testing.T) *postgres.Store {
	t.Helper()
	m.certify(t, "j17-1", "etc/j17")
	o := postgres.Options{
		Address: m.address(t), Password: password, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	report, err := postgres.Check(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.Text != "" {
			t.Error(f.Text)
		}
	}
	s, err := postgres.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// through returns an address that leads through the proxy.
func (m *machines) through(t *testing.T) string {
	t.Helper()
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword("j17", password), Host: m.at(t, "proxy", "5432"), Path: "/j17",
		RawQuery: "sslmode=verify-full&connect_timeout=5&sslrootcert=" + filepath.Join(m.folder, "certificates/ca.crt"),
	}
	return u.String()
}

// leads waits until the proxy leads to a machine.
func (m *machines) leads(t *testing.T, machine string) {
	t.Helper()
	await(t, "the proxy leads to "+machine, func() bool {
		conn, err := pgx.Connect(t.Context(), m.through(t))
		if err != nil {
			return false
		}
		defer func() { _ = conn.Close(t.Context()) }()
		var port string
		err = conn.QueryRow(t.Context(), "SELECT current_setting('port')").Scan(&port)
		return err == nil && port == strconv.Itoa(m.port(t, machine, "5432"))
	})
}

// killPostgres kills all processes of PostgreSQL on a machine at once.
func (m *machines) killPostgres(t *testing.T, machine string) {
	t.Helper()
	first, _, _ := strings.Cut(m.read(t, filepath.Join(machine, "var/lib/postgresql/15/j17/postmaster.pid")), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Error(err)
	}
	for child := range strings.FieldsSeq(string(children)) {
		if number, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(number, syscall.SIGKILL) // it may have ended
		}
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// writers append events, each to an aggregate of its own, one at a time.
type writers struct {
	store *postgres.Store
	stop  context.CancelFunc
	done  sync.WaitGroup
	// acknowledged counts the events of each that were.
	acknowledged []atomic.Int64
}

// tenant is whose events are written: one that no node has.
const tenant = j17.Tenant("orders/prod")

func aggregate(n int) j17.Key { return j17.Key{Type: "order", ID: strconv.Itoa(n)} }

// write begins to write.
func write(t *testing.T, s *postgres.Store, n int) *writers {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &writers{store: s, stop: stop, acknowledged: make([]atomic.Int64, n)}
	t.Cleanup(w.end)
	for i := range n {
		w.done.Go(func() { w.write(ctx, t, i) })
	}
	return w
}

func (w *writers) end() {
	w.stop()
	w.done.Wait()
}

// write writes until the context ends.
func (w *writers) write(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	unknown := false
	for ctx.Err() == nil {
		length := uint64(w.acknowledged[n].Load())
		results, err := w.store.Append(ctx, tenant, []store.Append{{
			Pre: []store.Pre{{Key: aggregate(n), Length: length}},
			Events: []store.NewEvent{{
				Key: aggregate(n), Type: "was_changed", Data: strconv.AppendUint(nil, length+1, 10),
				Metadata: []byte("{}"),
			}},
		}})
		switch {
		case err == nil && (results[0].Outcome == store.Committed || unknown && results[0].Outcome == store.Conflict):
			w.acknowledged[n].Add(1)
			unknown = false
		case err == nil:
			t.Errorf("event %d of %s: %+v", length+1, aggregate(n), results[0])
			return
		default:
			unknown = unknown || !errors.Is(err, store.ErrBusy)
			_ = clock.System{}.Wait(ctx, time.Now().Add(10*time.Millisecond)) // the loop ends
		}
	}
}

// await returns when each writer has written more events.
func (w *writers) await(t *testing.T, more int64) {
	t.Helper()
	for i := range w.acknowledged {
		had := w.acknowledged[i].Load()
		await(t, "writes go on", func() bool { return t.Failed() || w.acknowledged[i].Load() >= had+more })
	}
}

// check stops the writers, and compares what they know with what there is.
func (w *writers) check(t *testing.T) {
	t.Helper()
	w.end()
	n := int64(0)
	for i := range w.acknowledged {
		heads, err := w.store.Heads(t.Context(), tenant, []j17.Key{aggregate(i)})
		if err != nil {
			t.Fatal(err)
		}
		// The last one may have been given up before it was answered.
		length, known := int64(heads[0].Length), w.acknowledged[i].Load()
		if length < known || length > known+1 {
			t.Errorf("%s has %d events, and %d were acknowledged", aggregate(i), length, known)
		}
		n += length
	}
	if extent, err := w.store.Extent(t.Context(), tenant); err != nil || extent.Events != uint64(n) {
		t.Errorf("the aggregates have %d events, and there are %d, %v", n, extent.Events, err)
	}
}
