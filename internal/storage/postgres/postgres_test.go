package postgres_test

import (
	"log/slog"
	"testing"

	"j17/internal/storage/postgres"
)

// open opens a store, on a single server too, that the caller closes.
func open(tb testing.TB, o postgres.Options) *postgres.Store {
	tb.Helper()
	o.AllowSingle = true
	return openStrictly(tb, o)
}

// openStrictly opens a store that the caller closes.
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
