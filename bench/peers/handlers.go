package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

// event is the body of a request: what is stored, member by member. No schema is checked.
type event struct {
	Data     json.RawMessage `json:"data"`
	Metadata json.RawMessage `json:"metadata"`
}

// appender stores one event at the end of a stream, and returns what the reply says about it.
type appender func(ctx context.Context, stream, kind string, e event) (map[string]any, error)

var errTaken = errors.New("another event has become the next of this stream")

// serveEvents answers POST /TYPE/ID/EVENT with 201 when the event is stored.
func serveEvents(address string, add appender) error {
	server := &http.Server{
		Addr: address, ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
			var e event
			err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&e)
			if err != nil || len(parts) != 3 || r.Method != http.MethodPost {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			reply, err := add(r.Context(), parts[0]+":"+parts[1], parts[2], e)
			switch {
			case errors.Is(err, errTaken):
				w.WriteHeader(http.StatusConflict)
				return
			case err != nil:
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			w.Header()["Content-Type"] = []string{"application/json"}
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(reply) // the client may have left
		}),
	}
	return server.ListenAndServe()
}

// serveRedis puts each stream into a stream of Redis, which numbers the entries.
func serveRedis(address, database string) error {
	client := redis.NewClient(&redis.Options{Addr: database, PoolSize: 64})
	return serveEvents(address, func(ctx context.Context, stream, kind string, e event) (map[string]any, error) {
		id, err := client.XAdd(ctx, &redis.XAddArgs{
			Stream: stream, Values: []any{"type", kind, "data", []byte(e.Data), "metadata", []byte(e.Metadata)},
		}).Result()
		return map[string]any{"ok": true, "stream_id": id}, err
	})
}

// servePostgres puts events into a table that it makes. A stream has each version once. With oneStatement the version
// is found by the statement that inserts, otherwise in a transaction.
func servePostgres(ctx context.Context, address, database, table string, oneStatement bool) error {
	settings, err := pgxpool.ParseConfig(database)
	if err != nil {
		return err
	}
	settings.MaxConns = 32
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS `+table+` (
		position bigserial PRIMARY KEY, stream text NOT NULL, version bigint NOT NULL, type text NOT NULL,
		data jsonb NOT NULL, metadata jsonb NOT NULL, created timestamptz NOT NULL DEFAULT now(), UNIQUE (stream, version))`); err != nil {
		return err
	}
	add := func(ctx context.Context, stream, kind string, e event) (version int64, err error) {
		err = pool.QueryRow(ctx, `INSERT INTO `+table+` (stream, version, type, data, metadata)
			SELECT $1, coalesce(max(version), 0) + 1, $2, $3, $4 FROM `+table+` WHERE stream = $1 RETURNING version`,
			stream, kind, e.Data, e.Metadata).Scan(&version)
		return version, err
	}
	if !oneStatement {
		add = func(ctx context.Context, stream, kind string, e event) (version int64, err error) {
			err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if err := tx.QueryRow(ctx, `SELECT coalesce(max(version), 0) + 1 FROM `+table+` WHERE stream = $1`, stream).Scan(&version); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, `INSERT INTO `+table+` (stream, version, type, data, metadata) VALUES ($1, $2, $3, $4, $5)`,
					stream, version, kind, e.Data, e.Metadata)
				return err
			})
			return version, err
		}
	}
	return serveEvents(address, func(ctx context.Context, stream, kind string, e event) (map[string]any, error) {
		version, err := add(ctx, stream, kind, e)
		if failed := new(pgconn.PgError); errors.As(err, &failed) && failed.Code == "23505" { // unique_violation
			err = errTaken
		}
		return map[string]any{"ok": true, "length": version}, err
	})
}
