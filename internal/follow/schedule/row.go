package schedule

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// row is the record of a scheduled event. Its stored form is the position of the event that scheduled it, a line with
// the members below as JSON, and the data.
type row struct {
	// by is the aggregate that scheduled it, id the event's own ID: they are in the key of the item.
	by, id string
	at     j17.StreamID
	data   []byte
	// rev is the revision of its item, 0 if it is not stored yet.
	rev uint64

	// N numbers the events scheduled by one event.
	N         int    `json:"n"`
	ByEvent   string `json:"by_event"`
	FireAt    int64  `json:"fire_at"`
	CreatedAt int64  `json:"created_at"`
	Type      string `json:"type"`
	ID        string `json:"id"`
	Event     string `json:"event"`
	// Generation is that of the data, 0 for the first one.
	Generation    int              `json:"generation,omitempty"`
	CancelOn      []wire.EventName `json:"cancel_on,omitempty"`
	CorrelationID string           `json:"correlation_id,omitempty"`
	// Depth is the depth of the command that writes the event.
	Depth     int    `json:"depth,omitempty"`
	Attempts  int    `json:"attempts,omitempty"`
	LastError string `json:"last_error,omitempty"`
	// LastCode is the code of that error, FailedAt its time.
	LastCode j17.Code `json:"last_code,omitempty"`
	FailedAt int64    `json:"failed_at,omitempty"`
}

// key returns the key of the row's item.
func (r *row) key() string { return r.by + "/" + r.id }

// suffix returns what follows the position of the scheduling event in keys that have the order of scheduling.
func suffix(n int) string { return fmt.Sprintf(".%05d", n) }

// order returns the key of the event in the list of its status.
func (r *row) order() string { return store.StampedKey(r.at, suffix(r.N)) }

// value returns the stored form of the row without the position.
func (r *row) value() []byte {
	head, _ := json.Marshal(r) // numbers and text: it cannot fail
	return append(append(head, '\n'), r.data...)
}

// put returns the write of an existing row, on the condition that it has not changed since it was read: one that was
// erased meanwhile must not come back.
func (r *row) put() store.Side {
	return store.Side{
		Op: store.Put, Space: rows, Key: r.key(), Value: append(store.AppendStamp(nil, r.at), r.value()...),
		Cond: store.IfRev, Rev: r.rev,
	}
}

// readRow decodes the item of a row.
func readRow(item *store.Item) (*row, error) {
	key := item.Key
	r := &row{rev: item.Rev}
	var ok bool
	if r.by, r.id, ok = cutLast(key); !ok {
		return nil, damaged(key, errors.New("the key names no event"))
	}
	at, rest, err := store.ReadStamp(item.Value)
	if err != nil {
		return nil, err
	}
	head, data, ok := bytes.Cut(rest, []byte("\n"))
	if !ok {
		return nil, damaged(key, errors.New("it has no data"))
	}
	if err := json.Unmarshal(head, r); err != nil {
		return nil, damaged(key, err)
	}
	r.at, r.data = at, data
	return r, nil
}

// cutLast splits the key of a row into the aggregate's key and the event's ID.
func cutLast(key string) (by, id string, ok bool) {
	i := strings.LastIndexByte(key, '/')
	if i < 0 {
		return "", "", false
	}
	return key[:i], key[i+1:], true
}

func damaged(key string, err error) error {
	return &store.CorruptionError{Where: "the scheduled event " + key, Err: err}
}

// load reads the row with a key, nil if it is gone.
func (s *Service) load(ctx context.Context, t j17.Tenant, key string) (*row, error) {
	item, err := s.Store.Get(ctx, t, rows, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return readRow(&item)
}

// list returns the write that lists an event under a status in which it does not wait. As in all list items, the
// position of the scheduling event precedes the value.
func (s *Service) list(status Status, at j17.StreamID, n int, key string) store.Side {
	side := store.Side{
		Op: store.Put, Space: status.space(), Key: store.StampedKey(at, suffix(n)),
		Value: append(store.AppendStamp(nil, at), key...),
	}
	if status != DeadLetter {
		side.Due = s.forgottenAt()
	}
	return side
}

// rowOf returns the key of the row of a list item.
func rowOf(value []byte) (string, error) {
	_, value, err := worker.ReadAttempts(value)
	if err != nil {
		return "", err
	}
	_, value, err = store.ReadStamp(value)
	return string(value), err
}

// forgottenAt returns when an event that ends now is removed. It is rounded to hours, so that removals are few.
func (s *Service) forgottenAt() time.Time {
	return s.Clock.Now().Add(keptFor + time.Hour).Truncate(time.Hour)
}

// add returns the write that changes a counter of pending events.
func add(key string, n, most int64) store.Side {
	return store.Side{Op: store.Add, Space: counts, Key: key, Value: strconv.AppendInt(nil, n, 10), Most: most}
}

// over returns the writes that end the waiting of an event, except its removal from the pending list.
func (r *row) over() []store.Side {
	sides := []store.Side{add(r.by, -1, 0), add(total, -1, 0)}
	for _, on := range r.CancelOn {
		sides = append(sides, store.Side{Op: store.Delete, Space: waiting, Key: prefixOf(on) + r.id})
	}
	return sides
}

// prefixOf returns the prefix of the keys of the events that an event cancels. It is also the key of the item that
// changes whenever another event begins to wait.
func prefixOf(on wire.EventName) string {
	return on.AggregateType + ":" + on.ID + "/" + on.EventType + "/"
}

// waiter is an item in the list of the events that an event cancels: the place of the scheduled event. Its key contains
// the position of the event that scheduled it.
type waiter struct {
	N   int    `json:"n"`
	Row string `json:"row"`

	at j17.StreamID
}

// await returns the writes that make an event wait for those that cancel it, without the positions in front of their
// values, and those that record that another event waits.
func (r *row) await(now time.Time) (items, notes []store.Side) {
	value, _ := json.Marshal(waiter{N: r.N, Row: r.key()}) // numbers and text
	for _, on := range r.CancelOn {
		items = append(items, store.Side{Op: store.Put, Space: waiting, Key: prefixOf(on) + r.id, Value: value})
		notes = append(notes, store.Side{Op: store.Put, Space: waiting, Key: prefixOf(on), Expires: now.Add(noteAge)})
	}
	return items, notes
}

// noteAge is how long an item is kept that records that another event waits: longer than anything is under way.
const noteAge = time.Hour

// readWaiter decodes an item in the list of the events that an event cancels.
func readWaiter(item *store.Item) (*waiter, error) {
	w := &waiter{}
	at, rest, err := store.ReadStamp(item.Value)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(rest, w); err != nil {
		return nil, damaged(item.Key, err)
	}
	w.at = at
	return w, nil
}

// named returns the stored form of an awaited event.
func named(a decider.Awaited) wire.EventName {
	return wire.EventName{AggregateType: a.Key.Type, ID: a.Key.ID, EventType: a.Type}
}

// later returns the row in the form of a command's outlook, under an ID.
func (r *row) later(id string) part.Later {
	by, _ := j17.ParseKey(r.by)
	l := part.Later{
		ID: id, Key: j17.Key{Type: r.Type, ID: r.ID}, Type: r.Event, JSON: r.data, FireAt: r.FireAt, By: by,
		ByType: r.ByEvent,
	}
	for _, on := range r.CancelOn {
		l.CancelOn = append(l.CancelOn, decider.Awaited{
			Key: j17.Key{Type: on.AggregateType, ID: on.ID}, Type: on.EventType,
		})
	}
	return l
}

// shown returns the row in the form of the API.
func (r *row) shown(status Status) wire.Scheduled {
	out := wire.Scheduled{
		ScheduledID: r.id, Status: string(status), FireAt: rfc3339(r.FireAt), CreatedAt: rfc3339(r.CreatedAt),
		Emit: wire.Emit{
			EventName: wire.EventName{AggregateType: r.Type, ID: r.ID, EventType: r.Event}, Data: r.data,
		},
		CancelOn: r.CancelOn, ImpliedBy: wire.Cause{Key: r.by, EventType: r.ByEvent}, Attempts: r.Attempts,
	}
	if out.CancelOn == nil {
		out.CancelOn = []wire.EventName{}
	}
	if r.LastError != "" {
		out.LastError = &r.LastError
	}
	return out
}

func rfc3339(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }
