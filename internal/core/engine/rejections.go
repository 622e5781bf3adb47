package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/panics"
	"j17/internal/core/decider"
	"j17/internal/storage/store"
)

// failedImplications is the space of the latest rejections of writes because of an implied event, the newest first.
const failedImplications store.Space = "implication.failed"

const (
	// keptFailures is how many rejections of a tenant are shown; some more are kept until trim removes them. failureAge
	// is how long they are kept.
	keptFailures = 100
	failureAge   = 7 * 24 * time.Hour
)

// failureLog stores rejections in the background, in one write at a time for each tenant. Of the rejections that arrive
// during a write, the latest keptFailures wait for the next one.
type failureLog struct {
	store  Storage
	clock  clock.Clock
	logger *slog.Logger
	// numbered counts the rejections that were kept.
	numbered atomic.Uint32

	mu      sync.Mutex
	waiting map[j17.Tenant][]store.Side
	writing map[j17.Tenant]bool
}

func newFailureLog(st Storage, c clock.Clock, logger *slog.Logger) *failureLog {
	return &failureLog{
		store: st, clock: c, logger: logger, waiting: map[j17.Tenant][]store.Side{}, writing: map[j17.Tenant]bool{},
	}
}

// keep has a rejection stored in the background. An error is only logged.
func (l *failureLog) keep(ctx context.Context, t j17.Tenant, f *decider.ImplicationFailure) {
	now := l.clock.Now()
	raw, err := json.Marshal(f)
	if err != nil {
		return // it holds strings and numbers only
	}
	key := fmt.Sprintf("%019d-%s", math.MaxInt64-now.UnixNano(), j17.StreamID{Seq: l.numbered.Add(1)})
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := append(l.waiting[t], store.Side{
		Op: store.Put, Space: failedImplications, Key: key, Value: raw, Expires: now.Add(failureAge),
	})
	l.waiting[t] = waiting[max(0, len(waiting)-keptFailures):]
	if !l.writing[t] {
		l.writing[t] = true
		go l.writeAll(ctx, t)
	}
}

// writeAll stores a tenant's waiting rejections until there are none.
func (l *failureLog) writeAll(ctx context.Context, t j17.Tenant) {
	for written := 0; ; {
		l.mu.Lock()
		some := slices.Clone(l.waiting[t])
		if len(some) == 0 {
			delete(l.waiting, t)
			delete(l.writing, t)
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		err := panics.Caught(func() error {
			err := l.store.Write(ctx, t, some)
			if written += len(some); err == nil &&
				(written >= keptFailures/4 || l.numbered.Load()%(keptFailures/4) == 0) {
				written = 0
				err = l.trim(ctx, t)
			}
			return err
		})
		if err != nil {
			l.logger.LogAttrs(
				ctx, slog.LevelWarn, "rejections could not be kept", slog.String("tenant", string(t)),
				slog.Any("error", err),
			)
		}
		l.mu.Lock()
		l.waiting[t] = slices.DeleteFunc(l.waiting[t], func(s store.Side) bool {
			return slices.ContainsFunc(some, func(w store.Side) bool { return w.Key == s.Key })
		})
		l.mu.Unlock()
	}
}

// unwritten returns a tenant's rejections that are not stored yet.
func (l *failureLog) unwritten(t j17.Tenant) []store.Item {
	l.mu.Lock()
	defer l.mu.Unlock()
	var items []store.Item
	for _, s := range l.waiting[t] {
		items = append(items, store.Item{Key: s.Key, Value: s.Value})
	}
	return items
}

// trim removes all but the latest rejections.
func (l *failureLog) trim(ctx context.Context, t j17.Tenant) error {
	items, err := l.store.Scan(ctx, t, failedImplications, store.Range{}, 2*keptFailures)
	if err != nil || len(items) <= keptFailures {
		return err
	}
	var side []store.Side
	for _, item := range items[keptFailures:] {
		side = append(side, store.Side{Op: store.Delete, Space: failedImplications, Key: item.Key})
	}
	return l.store.Write(ctx, t, side)
}

// list returns up to limit of a tenant's latest rejections, the newest first, after the first offset of them, and
// whether there are more.
func (l *failureLog) list(
	ctx context.Context, t j17.Tenant, offset, limit int,
) (found []decider.ImplicationFailure, more bool, err error) {
	items := l.unwritten(t)
	stored, err := l.store.Scan(ctx, t, failedImplications, store.Range{}, keptFailures)
	if err != nil {
		return nil, false, store.UserError(err)
	}
	items = append(items, stored...)
	slices.SortFunc(items, func(a, b store.Item) int { return strings.Compare(a.Key, b.Key) })
	items = slices.CompactFunc(items, func(a, b store.Item) bool { return a.Key == b.Key })
	items = items[:min(len(items), keptFailures)]
	for i := offset; i < len(items); i++ {
		if len(found) == limit {
			return found, true, nil
		}
		var f decider.ImplicationFailure
		if err := json.Unmarshal(items[i].Value, &f); err != nil {
			return nil, false, store.UserError(&store.CorruptionError{Where: "a kept rejection", Err: err})
		}
		found = append(found, f)
	}
	return found, false, nil
}

// ImplicationFailures returns up to limit of a tenant's latest rejections, the newest first, after the first offset of
// them, and whether there are more.
func (e *Engine) ImplicationFailures(
	ctx context.Context, t j17.Tenant, offset, limit int,
) (list []decider.ImplicationFailure, more bool, err error) {
	return e.failed.list(ctx, t, offset, limit)
}

// erase removes the rejections that have an event of one of the aggregates as their trigger or in their chain.
func (l *failureLog) erase(ctx context.Context, t j17.Tenant, keys []j17.Key) error {
	gone := make(map[string]bool, len(keys))
	for _, key := range keys {
		gone[key.String()] = true
	}
	of := func(raw []byte) (bool, error) {
		var f decider.ImplicationFailure
		if err := json.Unmarshal(raw, &f); err != nil {
			return false, &store.CorruptionError{Where: string(failedImplications), Err: err}
		}
		return gone[f.Trigger.Key] || slices.ContainsFunc(f.Chain, func(of decider.Link) bool { return gone[of.Key] }),
			nil
	}

	const page = 1000
	for keys := (store.Range{}); ; {
		items, err := l.store.Scan(ctx, t, failedImplications, keys, page)
		if err != nil {
			return err
		}
		var sides []store.Side
		for _, it := range items {
			keys = keys.After(it.Key)
			is, err := of(it.Value)
			if err != nil {
				return err
			}
			if is {
				sides = append(sides, store.Side{Op: store.Delete, Space: failedImplications, Key: it.Key})
			}
		}
		if len(sides) > 0 {
			if err := l.store.Write(ctx, t, sides); err != nil {
				return err
			}
		}
		if len(items) < page {
			return nil
		}
	}
}
