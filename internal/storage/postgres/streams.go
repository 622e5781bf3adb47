package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"j17"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// streams is the store in the role of store.Aggregates, except for heads.
type streams struct{ *core }

// errGap is the cause of a CorruptionError for a missing event.
var errGap = errors.New("an event is missing")

const (
	// selectLength selects the number of a tenant and the length of one of its streams.
	selectLength = `SELECT nm.t, coalesce((
	SELECT e.version FROM events e WHERE e.t = nm.t AND e.kind = 0 AND e.stream = $2 ORDER BY e.version DESC LIMIT 1
), 0) FROM names nm WHERE nm.name = $1`

	selectStream = pageOf + `e.version` + pageFrom + ` FROM events e
			WHERE e.t = ` + ofTenant + ` AND e.kind = 0 AND e.stream = $2 AND e.version >= $3 AND e.version <= $4
			ORDER BY e.version LIMIT $5` + pageEnd + `e.version`
)

// ReadStream is part of store.Aggregates.
func (s *streams) ReadStream(
	ctx context.Context, t j17.Tenant, key j17.Key, from, to uint64,
) iter.Seq2[*j17.Event, error] {
	return store.Sequence(func(yield func(*j17.Event) bool) error {
		return s.readStream(ctx, t, key, from, to, yield)
	})
}

func (s *streams) readStream(
	ctx context.Context, t j17.Tenant, key j17.Key, from, to uint64, yield func(*j17.Event) bool,
) error {
	if err := s.admits(t); err != nil {
		return err
	}
	if !canExist(key) {
		return nil
	}
	name, stream := []byte(t), record.Stream(key)
	p := s.pager(t, key.String())
	version, again := max(from, 1), false
	if to == 0 {
		to = math.MaxInt64
	}
	for version <= to {
		// A page. Events that are appended while the stream is read are left out.
		var length int64
		limit := int(min(uint64(p.rows), to-version+1))
		err := p.fill(
			ctx, statement{selectLength, []any{name, stream}}, []any{&length},
			statement{selectStream, []any{name, stream, signed(version), signed(to), limit}}, limit,
		)
		if err != nil {
			return err
		}
		to = min(to, uint64(length))

		// Its events. A missing one is asked for once more: the tenant may have been removed.
		before, stopped := version, false
		err = p.each(ctx, func(e *pageEntry) (bool, error) {
			if e.Version != version || version > to {
				return false, nil
			}
			version++
			stopped = !yield(&e.Event)
			return !stopped, nil
		})
		switch missing := version == before && version <= to && !p.outdated; {
		case err != nil || stopped:
			return err
		case missing && again:
			return corruption(errGap, "%s version %d of tenant %s", key, version, t)
		default:
			again = missing
		}
	}
	return nil
}

// signed returns a version as the database stores it, at most the greatest int64.
func signed(version uint64) int64 { return int64(min(version, math.MaxInt64)) }

// selectStreams selects the first events of several streams; of the first stream, those from a version on.
const selectStreams = pageOf + `e.i, e.version` + pageFrom + `, u.i FROM unnest($2::bytea[]) WITH ORDINALITY u (stream, i),
			LATERAL (
				SELECT * FROM events e WHERE e.t = ` + ofTenant + ` AND e.kind = 0 AND e.stream = u.stream
				AND e.version >= CASE WHEN u.i = 1 THEN $3::bigint ELSE 1 END AND e.version <= $4
				ORDER BY e.version LIMIT $4
			) e ORDER BY u.i, e.version LIMIT $5` + pageEnd + `e.i, e.version`

// ReadStreams is part of store.Aggregates.
func (s *streams) ReadStreams(
	ctx context.Context, t j17.Tenant, keys []j17.Key, most uint64,
) iter.Seq2[*j17.Event, error] {
	return store.Sequence(func(yield func(*j17.Event) bool) error { return s.readStreams(ctx, t, keys, most, yield) })
}

// streamsAtOnce is how many streams one page can ask for.
const streamsAtOnce = 256

func (s *streams) readStreams(
	ctx context.Context, t j17.Tenant, keys []j17.Key, most uint64, yield func(*j17.Event) bool,
) error {
	if err := s.admits(t); err != nil {
		return err
	}
	for _, key := range keys {
		if err := store.ValidKey(key); err != nil {
			return fmt.Errorf("%w: the events of %s", store.ErrInvalid, key)
		}
	}
	name, version := []byte(t), uint64(1)
	p := s.pager(t, "streams")
	for len(keys) > 0 {
		// A page of the next streams, from a version of the first one on.
		some := keys[:min(len(keys), streamsAtOnce)]
		next := keys[len(some):]
		names := make([][]byte, len(some))
		for i, key := range some {
			names[i] = record.Stream(key)
		}
		err := p.fill(
			ctx, statement{selectNumber, []any{name}}, nil,
			statement{selectStreams, []any{name, names, signed(version), signed(most), p.rows}}, p.rows,
		)
		if err != nil || p.number == 0 {
			return err
		}

		// Its events: those of each stream have consecutive versions.
		stopped := false
		err = p.each(ctx, func(e *pageEntry) (bool, error) {
			for e.Key != keys[0] {
				keys, version = keys[1:], 1
			}
			if e.Version != version {
				return false, corruption(errGap, "%s version %d of tenant %s", e.Key, version, t)
			}
			version++
			stopped = !yield(&e.Event)
			return !stopped, nil
		})
		switch {
		case err != nil || stopped:
			return err
		case !p.more:
			// All of these streams were read to their ends, or up to most.
			keys, version = next, 1
		}
	}
	return nil
}

// selectVersionAfter finds the first event of a stream after a position by binary search, since positions ascend with
// versions. It yields no row for a tenant that holds nothing, and two different versions if it has met a gap.
const selectVersionAfter = `WITH RECURSIVE s (low, high) AS (
	SELECT 1::bigint, length + 1 FROM (` + selectLength + `) n (t, length)
UNION ALL
	SELECT CASE WHEN (e.ms, e.n) > ($3, $4) THEN s.low ELSE e.version + 1 END,
		CASE WHEN (e.ms, e.n) > ($3, $4) THEN e.version ELSE s.high END
	FROM s, LATERAL (
		SELECT e.version, e.ms, e.n FROM events e
		WHERE e.t = ` + ofTenant + ` AND e.kind = 0 AND e.stream = $2 AND e.version = (s.low + s.high) / 2 LIMIT 1
	) e WHERE s.low < s.high
)
SELECT low, high FROM s ORDER BY high - low LIMIT 1`

// VersionAfter is part of store.Aggregates.
func (s *streams) VersionAfter(ctx context.Context, t j17.Tenant, key j17.Key, after j17.StreamID) (uint64, error) {
	if err := s.admits(t); err != nil {
		return 0, err
	}
	if !canExist(key) {
		return 1, nil
	}
	low, high := uint64(1), uint64(1)
	err := s.read(ctx, key.String(), func(conn reading) error {
		low, high = 1, 1
		rows, err := conn.Query(
			ctx, selectVersionAfter, []byte(t), record.Stream(key), after.Ms, int64(after.Seq),
		)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, []any{&low, &high}, func() error { return nil })
		return err
	})
	if err == nil && low != high {
		err = corruption(errGap, "%s version %d of tenant %s", key, (low+high)/2, t)
	}
	return low, err
}

// selectIDs selects the streams of a type, by their first events.
const selectIDs = `SELECT e.stream FROM events e
WHERE e.t = ` + ofTenant + ` AND e.kind = 0 AND e.version = 1 AND e.stream > $2 AND e.stream < $3
ORDER BY e.stream LIMIT $4`

// Streams is part of store.Aggregates.
func (s *streams) Streams(
	ctx context.Context, t j17.Tenant, aggregateType, after string, limit int,
) (ids []string, err error) {
	if err := s.admits(t); err != nil {
		return nil, err
	}
	if limit <= 0 || strings.IndexByte(aggregateType+after, 0) >= 0 {
		return nil, nil
	}
	from, end := record.Stream(j17.Key{Type: aggregateType, ID: after}), append([]byte(aggregateType), 1)
	err = s.read(ctx, "the list of streams", func(conn reading) error {
		rows, err := conn.Query(ctx, selectIDs, []byte(t), from, end, limit)
		if err != nil {
			return err
		}
		ids = ids[:0]
		var stream pgtype.DriverBytes
		_, err = pgx.ForEachRow(rows, []any{&stream}, func() error {
			ids = append(ids, string(stream[len(aggregateType)+1:]))
			return nil
		})
		return err
	})
	return ids, err
}
