package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"j17"
	"j17/internal/spec/diag"
	"j17/internal/store"
)

// Link is one event of a chain of implications.
type Link struct {
	Key       string `json:"key"`
	EventType string `json:"event_type"`
}

// ImplicationFailure tells of a write that was rejected because of what it implied.
type ImplicationFailure struct {
	// At is the Unix second of the rejection.
	At int64 `json:"at"`
	// Trigger is the event that was written; Chain leads from it to the event that was refused.
	Trigger Link   `json:"trigger"`
	Chain   []Link `json:"chain"`
	// Pointer is the place of the implication in the spec.
	Pointer diag.Pointer `json:"pointer,omitempty"`
	Code    j17.Code     `json:"code"`
	Error   string       `json:"error"`
	Path    string       `json:"path,omitempty"`
}

// implicationDetails are the details of the error that rejects a write because of what it implied.
type implicationDetails struct {
	Chain   []Link       `json:"chain"`
	Pointer diag.Pointer `json:"pointer,omitempty"`
	// Cause is the code of the refused event's own error, Details are its details.
	Cause   j17.Code `json:"cause,omitempty"`
	Details any      `json:"details,omitempty"`
	Limit   int      `json:"limit,omitempty"`
}

// failedImplications is the space of the latest rejections, the newest first.
const failedImplications store.Space = "implication.failed"

const (
	// keptFailures is how many rejections are shown; some more are kept until the next clearing. failureAge is for how long.
	keptFailures = 100
	failureAge   = 7 * 24 * time.Hour
)

// chain leads from the command's own event to the event number i.
func (x *expansion) chain(i int) []Link {
	if i < 0 {
		return nil
	}
	o := &x.events[i]
	return append(x.chain(o.cause), Link{o.key.String(), o.name})
}

// refuse rejects the write because of the implied event o. Faults of the server and of custom code stay what they are.
func (s *scene) refuse(o *occurrence, err error) error {
	return s.reject(s.cause, &Link{o.key.Type + ":" + j17.Printable(o.key.ID), o.name}, o.at, err)
}

// refuseAt rejects the write because of an implication that has not got as far as to an event.
func (s *scene) refuseAt(at diag.Pointer, err error) error {
	return s.reject(s.cause, nil, at, err)
}

// reject rejects the write because of what event number i implies; refused is that, if it has got as far as to an event.
func (x *expansion) reject(i int, refused *Link, at diag.Pointer, err error) error {
	chain := x.chain(i)
	if refused != nil {
		chain = append(chain, *refused)
	}
	cause, ok := errors.AsType[*j17.Error](err)
	if !ok {
		return err
	}
	out := cause
	switch cause.Code { //nolint:exhaustive // all others are refusals
	case j17.CodeCustomCodeFailed:
	case j17.CodeCorruption, j17.CodeUnavailable, j17.CodeInternal, j17.CodeWorkLimit:
		return err
	default:
		last := chain[len(chain)-1]
		out = j17.Errorf(j17.CodeImplicationFailed, "Nothing was written, because an implied event was refused: %s. The chain is %s.",
			strings.TrimSuffix(cause.Message, "."), chainText(chain))
		if cause.Path != "" {
			out.Message = fmt.Sprintf("Nothing was written, because the implied event %s was refused at %s: %s. The chain is %s.",
				last.EventType, cause.Path, strings.TrimSuffix(cause.Message, "."), chainText(chain))
		}
		out.Path, out.Errors = cause.Path, cause.Errors
		out.Details = implicationDetails{Chain: chain, Pointer: at, Cause: cause.Code, Details: cause.Details}
	}
	x.failure = &ImplicationFailure{
		At: x.timestamp, Trigger: chain[0], Chain: chain, Pointer: at, Code: cause.Code, Error: cause.Message, Path: cause.Path,
	}
	return x.inOwn(out, i)
}

// tooMuch says of a budget that is used up, where nothing has said it yet, that the work for event number i took it up: for its
// handler, or for the implication at a place of the spec. Other errors are returned as they are.
func (x *expansion) tooMuch(err error, i int, what string, at diag.Pointer) error {
	cause, ok := errors.AsType[*j17.Error](err)
	if !ok || cause.Code != j17.CodeWorkLimit {
		return err
	}
	switch cause.Details.(type) {
	case nil, faultDetails:
	default: // it is said
		return x.inOwn(err, i)
	}
	chain := x.chain(i)
	last := chain[len(chain)-1]
	out := j17.Errorf(j17.CodeWorkLimit, "%s; it was used up by the event %s of %s, by %s at %s. Nothing was written.",
		strings.TrimSuffix(strings.TrimSuffix(cause.Message, " Nothing was changed."), "."), last.EventType, last.Key, what, at)
	out.Details = workDetails{Key: last.Key, EventType: last.EventType, Pointer: at, Chain: chain, Details: cause.Details}
	return x.inOwn(out.Because(cause), i)
}

// inOwn adds to an error which event of a batch it goes back to; i is the number of any event.
func (x *expansion) inOwn(err error, i int) error {
	if len(x.implied) > 1 {
		return j17.InEvent(err, x.events[i].own)
	}
	return err
}

// limit rejects the write because of an implied event that is one too many.
func (s *scene) limit(o *occurrence, what string, limit int) error {
	chain := append(s.chain(s.cause), Link{o.key.Type + ":" + j17.Printable(o.key.ID), o.name})
	s.failure = &ImplicationFailure{
		At: s.timestamp, Trigger: chain[0], Chain: chain, Pointer: o.at, Code: j17.CodeImplicationLimit, Error: what + ".",
	}
	err := j17.Errorf(j17.CodeImplicationLimit, "%s, so nothing was written. The chain is %s.", what, chainText(chain))
	err.Details = implicationDetails{Chain: chain, Pointer: o.at, Limit: limit}
	return s.inOwn(err, s.cause)
}

// chainText writes a chain as one line.
func chainText(chain []Link) string {
	var b strings.Builder
	for i, l := range chain {
		if i > 0 {
			b.WriteString(" → ")
		}
		b.WriteString(l.Key + " " + l.EventType)
	}
	return b.String()
}

// failureLog has the rejections that are not stored yet, by tenant. One write at a time stores those of a tenant: what comes
// meanwhile waits for the next one, and only the latest of it.
type failureLog struct {
	mu      sync.Mutex
	waiting map[j17.Tenant][]store.Side
	writing map[j17.Tenant]bool
}

// keepFailure stores a rejection for those who look into it later, soon. What goes wrong with that is logged, no more.
func (e *Engine) keepFailure(ctx context.Context, t j17.Tenant, f *ImplicationFailure) {
	now := e.clock.Now()
	raw, err := json.Marshal(f)
	if err != nil {
		return // it holds strings and numbers only
	}
	key := fmt.Sprintf("%019d-%s", math.MaxInt64-now.UnixNano(), j17.StreamID{Seq: e.failures.Add(1)})
	l := &e.failed
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := append(l.waiting[t], store.Side{Op: store.Put, Space: failedImplications, Key: key, Value: raw, Expires: now.Add(failureAge)})
	l.waiting[t] = waiting[max(0, len(waiting)-keptFailures):]
	if !l.writing[t] {
		l.writing[t] = true
		go e.writeFailures(ctx, t)
	}
}

// writeFailures stores a tenant's rejections until there are none.
func (e *Engine) writeFailures(ctx context.Context, t j17.Tenant) {
	l := &e.failed
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
		err := e.store.Write(ctx, t, some)
		if written += len(some); err == nil && (written >= keptFailures/4 || e.failures.Load()%(keptFailures/4) == 0) {
			written = 0
			err = e.forgetFailures(ctx, t)
		}
		if err != nil {
			e.logger.LogAttrs(ctx, slog.LevelWarn, "rejections could not be kept", slog.String("tenant", string(t)), slog.Any("error", err))
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

// forgetFailures removes all but the latest rejections.
func (e *Engine) forgetFailures(ctx context.Context, t j17.Tenant) error {
	items, err := e.store.Scan(ctx, t, failedImplications, store.Range{}, 2*keptFailures)
	if err != nil || len(items) <= keptFailures {
		return err
	}
	var side []store.Side
	for _, item := range items[keptFailures:] {
		side = append(side, store.Side{Op: store.Delete, Space: failedImplications, Key: item.Key})
	}
	return e.store.Write(ctx, t, side)
}

// ImplicationFailures returns up to limit of a tenant's latest rejections, the newest first, after the first offset of
// them, and whether there are more. The latest hundred are kept, for seven days.
func (e *Engine) ImplicationFailures(ctx context.Context, t j17.Tenant, offset, limit int) (list []ImplicationFailure, more bool, err error) {
	items := e.failed.unwritten(t)
	stored, err := e.store.Scan(ctx, t, failedImplications, store.Range{}, keptFailures)
	if err != nil {
		return nil, false, storage(err)
	}
	items = append(items, stored...)
	slices.SortFunc(items, func(a, b store.Item) int { return strings.Compare(a.Key, b.Key) })
	items = slices.CompactFunc(items, func(a, b store.Item) bool { return a.Key == b.Key })
	items = items[:min(len(items), keptFailures)]
	for i := offset; i < len(items); i++ {
		if len(list) == limit {
			return list, true, nil
		}
		var f ImplicationFailure
		if err := json.Unmarshal(items[i].Value, &f); err != nil {
			return nil, false, storage(&store.CorruptionError{Where: "a kept rejection", Err: err})
		}
		list = append(list, f)
	}
	return list, false, nil
}
