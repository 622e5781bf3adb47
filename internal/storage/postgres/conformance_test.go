//go:build !race

package postgres_test

import (
	"os"
	"sync"
	"testing"

	"j17/internal/storage/postgres"
	"j17/internal/storage/postgres/pgtest"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	pgtest.Skip(t)
	storetest.Run(t, onServer(false))
}

// TestConformanceLong takes minutes: each look at what is stored is a trip to the server.
func TestConformanceLong(t *testing.T) {
	t.Parallel()
	if os.Getenv("J17_SOAK") == "" {
		t.Skip("NOT TESTED: it takes minutes, and is part of make soak")
	}
	pgtest.Skip(t)
	storetest.RunLong(t, onServer(false))
}

func TestBeside(t *testing.T) {
	t.Parallel()
	pgtest.Skip(t)
	storetest.RunBeside(t, onServer(true))
}

// onServer returns what opens stores for the suite. Each set of data is in a schema of its own.
func onServer(shared bool) func(t *testing.T, env storetest.Env) store.Store {
	var mu sync.Mutex
	schemas := map[string]string{}
	return func(t *testing.T, env storetest.Env) store.Store {
		t.Helper()
		server := pgtest.Shared(t)
		mu.Lock()
		if schemas[env.Data] == "" {
			schemas[env.Data] = server.Schema(t)
		}
		schema := schemas[env.Data]
		mu.Unlock()
		return store.Whole(open(t, postgres.Options{
			Address: server.Address(), Plain: true, Schema: schema, Clock: env.Clock,
			Connections: postgres.LeastConnections, Shared: shared,
		}))
	}
}
