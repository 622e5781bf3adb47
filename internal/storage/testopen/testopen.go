// Package testopen opens stores for the tests of other packages. The variable J17_TEST_STORE chooses the engine: with
// postgres, the tests run on their own PostgreSQL server, otherwise on the embedded store in memory.
package testopen

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17/internal/base/clock"
	"j17/internal/storage/pebble"
	"j17/internal/storage/postgres"
	"j17/internal/storage/postgres/pgtest"
	"j17/internal/storage/store"
)

// OnPostgres reports whether the tests run on PostgreSQL.
func OnPostgres() bool { return os.Getenv("J17_TEST_STORE") == "postgres" } //nolint:forbidigo // tests only

// patience is how long a store may take to close.
const patience = 5 * time.Minute

// Data is what a store holds, whether it is open or not.
type Data struct {
	disk   vfs.FS
	folder string
	server *pgtest.Server
	schema string
	// last is the store that was opened last.
	last store.Engine
}

// Bubble is synctest.Test for tests that open stores in their bubble: the server, which outlives the test, is started
// outside.
func Bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if OnPostgres() {
		pgtest.Shared(t)
	}
	synctest.Test(t, test)
}

// NewData returns empty data.
func NewData(tb testing.TB) *Data {
	tb.Helper()
	if !OnPostgres() {
		return Embedded(vfs.NewCrashableMem())
	}
	server := pgtest.Shared(tb)
	return &Data{server: server, schema: server.Schema(tb)}
}

// Embedded returns data of the embedded store, whatever the variable says: for tests of what happens on its disk.
func Embedded(disk vfs.FS) *Data { return &Data{disk: disk, folder: "data"} }

// Disk is the file system of an embedded store, whose folder is "data".
func (d *Data) Disk() vfs.FS { return d.disk }

// OnDisk returns empty data for benchmarks: those of the embedded store are in a folder.
func OnDisk(tb testing.TB) *Data {
	tb.Helper()
	if OnPostgres() {
		return NewData(tb)
	}
	return &Data{disk: vfs.Default, folder: tb.TempDir()}
}

// Open opens a store on the data, and first closes the one that it opened before. The store is closed when the test
// ends.
func (d *Data) Open(tb testing.TB, c clock.Clock) store.Store {
	tb.Helper()
	if d.last != nil {
		shut(tb, d.last)
	}
	s, err := d.engine(tb, c)
	if err != nil {
		tb.Fatal(err)
	}
	d.last = s
	tb.Cleanup(func() { shut(tb, s) })
	return store.Whole(s)
}

// shut closes a store, if it is not closed yet.
func shut(tb testing.TB, s store.Engine) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), patience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		tb.Errorf("close the store: %v", err)
	}
	if ctx.Err() != nil {
		panic("what the test has opened in its store is still open") // a bubble would never end
	}
}

func (d *Data) engine(tb testing.TB, c clock.Clock) (store.Engine, error) {
	tb.Helper()
	if d.server == nil {
		return pebble.Open(pebble.Options{Dir: d.folder, FS: d.disk, Clock: c})
	}
	return postgres.Open(tb.Context(), postgres.Options{
		Address: d.server.Address(), Plain: true, AllowSingle: true, Schema: d.schema, Clock: c,
		Connections: postgres.LeastConnections, Logger: slog.New(slog.DiscardHandler),
	})
}

// Crashed returns the data as they are found if the process, or the machine of an embedded store, ends at this moment.
// The store that is open on them must no longer be used, but may be closed.
func (d *Data) Crashed(tb testing.TB) *Data {
	tb.Helper()
	if disk, is := d.disk.(*vfs.MemFS); is {
		return Embedded(disk.CrashClone(vfs.CrashCloneCfg{}))
	}
	if d.server == nil {
		tb.Fatal("crashes of the embedded store need data in memory")
	}
	shut(tb, d.last) // so that code that still has it changes nothing
	return d
}

// Open opens a store on empty data, which is closed when the test ends.
func Open(tb testing.TB, c clock.Clock) store.Store {
	tb.Helper()
	return NewData(tb).Open(tb, c)
}
