// Package testopen opens stores for the tests of other packages. The variable J17_TEST_STORE chooses the engine: with
// postgres, the tests run on a server of PostgreSQL of their own, otherwise on the embedded store in memory. Tests of
// what only the embedded store has open it themselves.
package testopen

import (
	"log/slog"
	"os"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17/internal/base/clock"
	"j17/internal/storage/pebble"
	"j17/internal/storage/postgres"
	"j17/internal/storage/postgres/pgtest"
	"j17/internal/storage/store"
)

// OnPostgres reports whether the tests run on PostgreSQL.
func OnPostgres() bool { return os.Getenv("J17_TEST_STORE") == "postgres" } //nolint:forbidigo // tests only

// Data is what a store holds, whether it is open or not.
type Data struct {
	disk   *vfs.MemFS
	server *pgtest.Server
	schema string
}

// NewData returns empty data.
func NewData(tb testing.TB) *Data {
	tb.Helper()
	if !OnPostgres() {
		return &Data{disk: vfs.NewCrashableMem()}
	}
	server := pgtest.Shared(tb)
	return &Data{server: server, schema: server.Schema(tb)}
}

// Open opens a store on the data, which the caller closes. One at a time is open.
func (d *Data) Open(tb testing.TB, c clock.Clock) store.Store {
	tb.Helper()
	if d.server == nil {
		s, err := pebble.Open(pebble.Options{Dir: "data", FS: d.disk, Clock: c})
		if err != nil {
			tb.Fatal(err)
		}
		return s
	}
	s, err := postgres.Open(tb.Context(), postgres.Options{
		Address: d.server.Address(), Plain: true, AllowSingle: true, Schema: d.schema, Clock: c,
		Connections: postgres.LeastConnections, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return store.Whole(s)
}

// Crashed returns the data as they are found if the process, or the machine of an embedded store, ends at this moment.
// The store that is open on them must not be used any more.
func (d *Data) Crashed() *Data {
	if d.server != nil {
		return d
	}
	return &Data{disk: d.disk.CrashClone(vfs.CrashCloneCfg{})}
}

// Open opens a store on empty data, which is closed when the test ends.
func Open(tb testing.TB, c clock.Clock) store.Store {
	tb.Helper()
	s := NewData(tb).Open(tb, c)
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close the store: %v", err)
		}
	})
	return s
}
