package pebble

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// A folder of format 1 or 2 has no index of tags, one of format 3 has no correlation ids in it. When it is opened for
// the first time, each of its tenants gets a build: a record of the events still to be indexed. The store indexes them
// in the background, across restarts. Events that are written meanwhile are indexed in their own commit.

const (
	// buildEvents is how many events are indexed in one batch, which other writes wait for.
	buildEvents = 256
	// buildRetry is the pause after a batch that could not be written.
	buildRetry = time.Minute
)

// build is how far the index of a tenant's older events is.
type build struct {
	// reached is the position of the last event that is indexed, end that of the last one that is to be.
	reached, end j17.StreamID
	// done and total count them.
	done, total uint64
	// linking reports that the build is only of correlation ids: the index of all other tags is complete.
	linking bool
}

// linkingFormat is the first byte of the record of a build that is of correlation ids alone.
const linkingFormat = 2

const buildRecordBytes = 1 + 2*positionBytes + 2*8

func appendBuildRecord(dst []byte, s *build) []byte {
	format := byte(recordFormat)
	if s.linking {
		format = linkingFormat
	}
	dst = record.AppendPosition(record.AppendPosition(append(dst, format), s.reached), s.end)
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, s.done), s.total)
}

func parseBuildRecord(v []byte) (build, error) {
	if len(v) != buildRecordBytes || v[0] != recordFormat && v[0] != linkingFormat {
		return build{}, errFormat
	}
	reached, ok := record.ParsePosition(v[1:])
	end, ok2 := record.ParsePosition(v[1+positionBytes:])
	if !ok || !ok2 {
		return build{}, errFormat
	}
	linking := v[0] == linkingFormat
	v = v[1+2*positionBytes:]
	return build{
		linking: linking, reached: reached, end: end, done: binary.BigEndian.Uint64(v),
		total: binary.BigEndian.Uint64(v[8:]),
	}, nil
}

// getBuild returns the build of a tenant, nil when there is nothing to build.
func getBuild(from pebble.Reader, number uint32) (*build, error) {
	v, closer, err := from.Get(appendPrefix(nil, number, kindBuild))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fault("the build of an index", err)
	}
	state, err := parseBuildRecord(v)
	if err = errors.Join(err, closer.Close()); err != nil {
		return nil, corruption(err, "the build of tenant number %d", number)
	}
	return &state, nil
}

// indexed reports whether all events of the tenant are indexed by some tags.
func (r reader) indexed(tags []string) error {
	if !r.tagging.building && (!r.tagging.linking || !slices.ContainsFunc(tags, j17.IsCorrelationTag)) {
		return nil
	}
	state, err := getBuild(r.snapshot, r.tenant)
	if err != nil || state == nil {
		return err
	}
	return &store.IndexingError{Done: state.done, Total: state.total}
}

// tagBuilder brings folders to this format and indexes their older events by tags.
type tagBuilder struct {
	*core

	// builds are the tenants whose older events have to be indexed.
	builds []j17.Tenant
}

// upgrade makes a folder of an older format one of this format: all in one batch.
func (s *tagBuilder) upgrade(version uint32) (err error) {
	const tagged = 3 // the first format with an index of tags and numbers of changes
	b := s.db.NewBatch()
	defer func() { err = errors.Join(err, b.Close()) }()
	var change uint64
	for _, t := range s.inOrder() {
		if t.next.Events == 0 {
			continue
		}
		todo := build{end: t.last, total: t.next.Events}
		if version < tagged {
			change++
			t.change, t.next.change = change, change
			must(b.Set(appendPrefix(nil, t.number, kindState), appendStateRecord(nil, &t.next), nil))
		} else {
			unfinished, err := getBuild(s.db, t.number)
			if err != nil && !isDamage(err) {
				return err
			}
			todo.linking = unfinished == nil && err == nil // else the whole build starts again
		}
		must(b.Set(appendPrefix(nil, t.number, kindBuild), appendBuildRecord(nil, &todo), nil))
	}
	must(b.Set(appendPrefix(nil, storeNumber, kindFormat), appendNumber(nil, formatVersion), nil))
	return s.db.Apply(b, pebble.Sync)
}

// inOrder returns the tenants that hold something, in the order of their numbers.
func (s *core) inOrder() []*tenant {
	var list []*tenant
	for _, t := range s.tenants {
		if t.number != 0 {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b *tenant) int { return cmp.Compare(a.number, b.number) })
	return list
}

// findBuilds returns the tenants that have something to build.
func (s *tagBuilder) findBuilds() ([]j17.Tenant, error) {
	var names []j17.Tenant
	for _, t := range s.inOrder() {
		state, err := getBuild(s.db, t.number)
		if err != nil && !isDamage(err) {
			return nil, err
		}
		if state != nil || err != nil {
			names = append(names, t.name) // damage is reported by the build
			if state != nil && state.linking {
				t.linking = t.number
			} else {
				t.building = t.number
			}
		}
	}
	return names, nil
}

// buildLoop runs the builds of the tenants, and ends. A tenant with damage is tried again after all others.
func (s *tagBuilder) buildLoop(names []j17.Tenant) {
	left := names
	for len(left) > 0 {
		var damaged []j17.Tenant
		for i, name := range left {
			whole, err := s.buildTenant(name, len(left)-i)
			if err != nil {
				return
			}
			if !whole {
				damaged = append(damaged, name)
			}
		}
		if left = damaged; len(left) > 0 && s.clock.Wait(s.life, s.clock.Now().Add(buildRetry)) != nil {
			return
		}
	}
	if len(names) > 0 {
		s.logger.Info("all older events are indexed by their tags", slog.Int("tenants", len(names)))
	}
}

// buildTenant runs the build of a tenant, and reports whether it is complete: it stops at damage. An error means that
// the store closes.
func (s *tagBuilder) buildTenant(name j17.Tenant, left int) (whole bool, err error) {
	for {
		state, err := s.buildSome(s.life, name)
		if s.life.Err() != nil {
			return false, s.life.Err()
		}
		if err != nil {
			s.logger.Warn("older events could not be indexed by their tags, it is tried again",
				slog.String("tenant", string(name)), slog.Any("error", err))
			if isDamage(err) {
				return false, nil
			}
			if err := s.clock.Wait(s.life, s.clock.Now().Add(buildRetry)); err != nil {
				return false, err
			}
			continue
		}
		if state == nil {
			return true, nil
		}
		if state.done%(100*buildEvents) < buildEvents {
			s.logger.Info("older events are being indexed by their tags", slog.String("tenant", string(name)),
				slog.Uint64("done", state.done), slog.Uint64("total", state.total), slog.Int("tenants_left", left))
		}
	}
}

// buildSome indexes the next events of a tenant and returns how far it is, nil when nothing is left.
func (s *tagBuilder) buildSome(ctx context.Context, name j17.Tenant) (state *build, err error) {
	err = s.queue.Do(ctx, queue.Ordinary, func(b *batch) error {
		t := b.tenant(name)
		if state, err = getBuild(s.db, t.next.Number); err != nil || state == nil {
			return err
		}
		if err := b.index(t, state); err != nil {
			return err
		}
		key := appendPrefix(b.key[:0], t.next.Number, kindBuild)
		if state.reached.Compare(state.end) < 0 {
			b.put(key, appendBuildRecord(b.value[:0], state))
			return nil
		}
		b.remove(key)
		state, b.built = nil, t
		return nil
	})
	return state, err
}

// index stages the index of the next events of a build.
func (b *batch) index(t *tenant, state *build) (err error) {
	l, err := newLookup(b.store.db, t.next.Number, &record.TypeNames{})
	if err != nil {
		return err
	}
	defer l.close(&err)

	// Each run of the feed is indexed completely, so that a build can continue after any of them.
	begun := state.done
	var record eventRecord
	for ok := l.feed.SeekGE(appendFeedKey(nil, t.next.Number, state.reached.Next())); ; ok = l.feed.Next() {
		if !ok {
			state.reached = state.end
			return l.feed.Error()
		}

		// What was committed after the build began is indexed already.
		last, err := l.open()
		if err != nil {
			return l.fault(err, state.reached)
		}
		if last.Compare(state.end) > 0 {
			state.reached = state.end
			return nil
		}

		// The tags of the run's events.
		for i := range l.run {
			v, err := l.find(i)
			if err == nil {
				err = record.parse(v)
			}
			var tags []string
			if err == nil {
				tags, err = record.allTags()
			}
			if state.linking {
				tags = slices.DeleteFunc(tags, func(tag string) bool { return !j17.IsCorrelationTag(tag) })
			}
			if err != nil {
				return l.fault(err, last)
			}
			b.tags.add(tags)
			state.done++
		}

		// A part is enough for one commit; the caller comes back for the next.
		b.tags.write(b.writes, t.next.Number, last)
		state.reached = last
		if state.done-begun >= buildEvents || b.writes.Len() >= maxBatchBytes {
			return nil
		}
	}
}
