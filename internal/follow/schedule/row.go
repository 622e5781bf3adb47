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

// row is what is known of a scheduled event. Its stored form is the position of the event that scheduled it, the
// members below as JSON, and behind the end of the line the data.
type row struct {
	// by is the aggregate that scheduled it, id the event's own: they are in the key of the item.
	by, id string
	at     j17.StreamID
	data   []byte
	// rev is that of its item, 0 for one that is not stored yet.
	rev uint64

	// N numbers what one event has scheduled.
	N             int              `json:"n"`
	ByEvent       string           `json:"by_event"`
	FireAt        int64            `json:"fire_at"`
	CreatedAt     int64            `json:"created_at"`
	Type          string           `json:"type"`
	ID            string           `json:"id"`
	Event         string           `json:"event"`
	CancelOn      []wire.EventName `json:"cancel_on,omitempty"`
	CorrelationID string           `json:"correlation_id,omitempty"`
	// Depth is that of the command that writes the event.
	Depth     int    `json:"depth,omitempty"`
	Attempts  int    `json:"attempts,omitempty"`
	LastError string `json:"last_error,omitempty"`
	// LastCode is the code of that error, FailedAt when it was.
	LastCode j17.Code `json:"last_code,omitempty"`
	FailedAt int64    `json:"failed_at,omitempty"`
}

// key is that of the row's item.
func (r *row) key() string { return r.by + "/" + r.id }

// suffix stands behind the position of the scheduling event in the keys of items that have the order of scheduling.
func suffix(n int) string { return fmt.Sprintf(".%05d", n) }

// order is the key under which the event stands among those with its status.
func (r *row) order() string { return store.StampedKey(r.at, suffix(r.N)) }

// value is the stored form of the row without the position.
func (r *row) value() []byte {
	head, _ := json.Marshal(r) // numbers and text: it cannot fail
	return append(append(head, '\n'), r.data...)
}

// put writes a row that is there already, unless it has changed since it was read: one that was erased meanwhile must
// not come back.
func (r *row) put() store.Side {
	return store.Side{
		Op: store.Put, Space: rows, Key: r.key(), Value: append(store.AppendStamp(nil, r.at), r.value()...),
		Cond: store.IfRev, Rev: r.rev,
	}
}

// readRow takes the item of a row apart.
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

// cutLast cuts the key of a row into the aggregate's and the event's id.
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

// load reads the row with a key, nil where it is gone.
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

// list is the write that puts an event among those with a status that it does not wait in. In front of the value stands
// the position of the event that scheduled it, as in all of these items.
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

// rowOf returns the key of the row of an item in the space of a status.
func rowOf(value []byte) (string, error) {
	_, value, err := worker.ReadAttempts(value)
	if err != nil {
		return "", err
	}
	_, value, err = store.ReadStamp(value)
	return string(value), err
}

// forgottenAt is when an event is forgotten that is over now. Whole hours make for few rounds.
func (s *Service) forgottenAt() time.Time {
	return s.Clock.Now().Add(keptFor + time.Hour).Truncate(time.Hour)
}

// add is the write that changes how many events are pending.
func add(key string, n, most int64) store.Side {
	return store.Side{Op: store.Add, Space: counts, Key: key, Value: strconv.AppendInt(nil, n, 10), Most: most}
}

// over are the writes that end the waiting of an event, without the one that takes it from among the pending ones.
func (r *row) over() []store.Side {
	sides := []store.Side{add(r.by, -1, 0), add(total, -1, 0)}
	for _, on := range r.CancelOn {
		sides = append(sides, store.Side{Op: store.Delete, Space: waiting, Key: prefixOf(on) + r.id})
	}
	return sides
}

// prefixOf begins the keys of what an event cancels. It is the key of the item that changes whenever there is more.
func prefixOf(on wire.EventName) string {
	return on.AggregateType + ":" + on.ID + "/" + on.EventType + "/"
}

// waiter is an entry in the list of what an event cancels: where the scheduled event is. The key begins with the
// position of the event that scheduled it.
type waiter struct {
	N   int    `json:"n"`
	Row string `json:"row"`

	at j17.StreamID
}

// await are the writes that make an event wait for those that cancel it, without the positions in front of their
// values, and those that note that there is more.
func (r *row) await(now time.Time) (items, notes []store.Side) {
	value, _ := json.Marshal(waiter{N: r.N, Row: r.key()}) // numbers and text
	for _, on := range r.CancelOn {
		items = append(items, store.Side{Op: store.Put, Space: waiting, Key: prefixOf(on) + r.id, Value: value})
		notes = append(notes, store.Side{Op: store.Put, Space: waiting, Key: prefixOf(on), Expires: now.Add(noteAge)})
	}
	return items, notes
}

// noteAge is how long an item is kept that says that more wait: longer than anything is under way.
const noteAge = time.Hour

// readWaiter takes an item of what an event cancels apart.
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

// named is an awaited event as it is stored.
func named(a decider.Awaited) wire.EventName {
	return wire.EventName{AggregateType: a.Key.Type, ID: a.Key.ID, EventType: a.Type}
}

// later is a row as the outlook on a command shows it, which calls it by an id.
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

// shown is a row as people see it.
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
