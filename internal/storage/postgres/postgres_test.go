package postgres_test

import (
	"log/slog"
	"testing"

	"j17/internal/storage/postgres"
)

// open opens a store, which may be on a single server. The caller closes it.
func open(tb testing.TB, o postgres.Options) *postgres.Store {
	tb.Helper()
	o.AllowSingle = true
	return openStrictly(tb, o)
}

// openStrictly opens a store with the options as they are. The caller closes it.
func openStrictly(tb testing.TB, o postgres.Options) *postgres.Store {
	tb.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	s, err := postgres.Open(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}
