package listener

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// The side spaces of an environment. A track is a sequence of deliveries for each aggregate, made one after the other:
// the live one ("<listener>/"), a replay ("<listener>/<replay>"), or a single delivery that is sent again
// ("<listener>/<delivery>").
const (
	// stateSpace has the state of each listener under its name.
	stateSpace store.Space = "listener.states"
	// laneSpace has the ID of each aggregate's delivery under way, under "<track>/<key>". It is due for the next try;
	// during a try it is due when the process making the try must have failed. It is not due while its listener is
	// paused. A lane without an ID is one whose next event is being searched for: it is due when the search continues.
	laneSpace store.Space = "listener.lanes"
	// behindSpace has what waits behind a lane, under the same key.
	behindSpace store.Space = "listener.behind"
	// deliverySpace has the deliveries under their IDs.
	deliverySpace store.Space = "listener.deliveries"
	// listSpace has an item without a value for each ended delivery, under "<listener>/<status>/<order>".
	listSpace store.Space = "listener.lists"
	// logSpace has the tries of each delivery under "<key>/<order>": answers of endpoints may contain data of the
	// event.
	logSpace store.Space = "listener.logs"
	// failedSpace has the IDs of failed deliveries, under "<listener>/<position of the event>", until the event is
	// delivered after all.
	failedSpace store.Space = "listener.failed"
	// eventSpace has the IDs of deliveries under the positions of their events.
	eventSpace store.Space = "listener.events"
	// replaySpace has the replays under way under "<listener>/<replay>". They are due for their next page.
	replaySpace store.Space = "listener.replays"
	// noticeSpace has the pending notices to operators under the name of the listener. They are due at once.
	noticeSpace store.Space = "listener.notices"
)

// spaces returns the side spaces of deliveries.
func spaces() []store.Space {
	return []store.Space{
		stateSpace, laneSpace, behindSpace, deliverySpace, listSpace, logSpace, failedSpace, eventSpace, replaySpace,
		noticeSpace,
	}
}

// Status is the status of a listener.
type Status string

// The statuses of listeners.
const (
	Active Status = "active"
	Paused Status = "paused"
	// Disabled is the status after the endpoint has answered that it is gone for good.
	Disabled Status = "disabled"
)

// state is the stored state of a listener, which outlasts deployments.
type state struct {
	Status Status `json:"status"`
	Secret string `json:"secret"`
	// Previous is the previous secret, valid until PreviousUntil.
	Previous      string    `json:"previous,omitempty"`
	PreviousUntil time.Time `json:"previous_until,omitzero"`

	rev uint64
}

// fence holds as long as the state is not changed.
func (s *state) fence(name string) store.Fence {
	return store.Fence{Space: stateSpace, Key: name, Rev: s.rev}
}

// withoutSecrets returns the public part of a state, nil for none, for backups that are not encrypted. A listener
// restored from one gets a new secret.
func withoutSecrets(value []byte) []byte {
	st, err := store.Decode[state](stateSpace, &store.Item{Value: value})
	if err != nil {
		return nil
	}
	return put(stateSpace, "", state{Status: st.Status}, time.Time{}).Value
}

// DeliveryStatus is the status of a delivery.
type DeliveryStatus string

// The statuses of deliveries.
const (
	Pending   DeliveryStatus = "pending"
	Delivered DeliveryStatus = "delivered"
	Failed    DeliveryStatus = "failed"
)

// delivery is a stored message to a listener.
type delivery struct {
	ID       string         `json:"id"`
	Listener string         `json:"listener"`
	Track    string         `json:"track,omitempty"` // what follows the listener's name
	Status   DeliveryStatus `json:"status"`
	// Attempts counts the tries since the first one, or since a retry was requested.
	Attempts   int       `json:"attempts"`
	LastStatus int       `json:"last_status,omitempty"`
	LastError  string    `json:"last_error,omitempty"`
	Next       time.Time `json:"next,omitzero"`
	// The fields from here on never change. Format and Source determine the message.
	StreamID j17.StreamID `json:"stream_id"`
	Key      string       `json:"key"`
	Type     string       `json:"type"`
	Version  uint64       `json:"version"`
	Created  int64        `json:"created"` // Unix nanoseconds
	Format   string       `json:"format,omitempty"`
	Source   string       `json:"source,omitempty"`
	// Again reports that the event may have failed before, in this delivery or in another one.
	Again bool `json:"again,omitempty"`
}

// lane returns the key of the delivery's lane.
func (d *delivery) lane() string { return laneKey(d.Listener, d.Track, d.Key) }

func laneKey(listener, track, key string) string { return listener + "/" + track + "/" + key }

// order returns the place of a delivery in lists, which begin with the newest one.
func (d *delivery) order() string {
	const digits = 19
	inverse := strconv.FormatInt(int64(^uint64(0)>>1)-d.Created, 10)
	return strings.Repeat("0", digits-len(inverse)) + inverse + "-" + d.ID
}

// idOf returns the ID of the delivery at a place in a list.
func idOf(order string) string {
	_, id, _ := strings.Cut(order, "-")
	return id
}

func (d *delivery) listKey(of DeliveryStatus) string {
	return d.Listener + "/" + string(of) + "/" + d.order()
}

func (d *delivery) logKey() string { return d.Key + "/" + d.order() }

func (d *delivery) failedKey() string { return d.Listener + "/" + place(d.StreamID) }

// place returns a position in a form that sorts like positions.
func place(id j17.StreamID) string { return fmt.Sprintf("%013d-%010d", id.Ms, id.Seq) }

// positionOf returns the position at a place.
func positionOf(place string) (id j17.StreamID, err error) {
	ms, seq, _ := strings.Cut(place, "-")
	id.Ms, err = strconv.ParseInt(ms, 10, 64)
	n, failed := strconv.ParseUint(seq, 10, 32)
	if err = errors.Join(err, failed); err != nil {
		return id, &store.CorruptionError{Where: string(failedSpace) + "/" + place, Err: err}
	}
	id.Seq = uint32(n)
	return id, nil
}

// parsedKey returns the key of the delivery's aggregate.
func (d *delivery) parsedKey() j17.Key {
	key, _ := j17.ParseKey(d.Key) // it was made of one
	return key
}

// behind records which events of an aggregate wait for the delivery under way.
type behind struct {
	// Last is the version of the last waiting event; the selected events between the delivery's own and this one wait
	// too.
	Last uint64 `json:"last,omitempty"`
	// From is the first version that was not looked at yet, 0 for the one after the delivery's own.
	From uint64 `json:"from,omitempty"`
	// Listed are the versions that wait, instead of those up to Last.
	Listed []uint64 `json:"listed,omitempty"`
}

// try is one try of a delivery.
type try struct {
	At       time.Time `json:"at"`
	Status   int       `json:"status,omitempty"`
	Millis   float64   `json:"ms"`
	Error    string    `json:"error,omitempty"`
	Response string    `json:"response,omitempty"`
}

// replay is a replay under way.
type replay struct {
	// After is the position reached, Until the position where the replay ends.
	After j17.StreamID `json:"after"`
	Until j17.StreamID `json:"until"`
	// OnlyFailed leaves out events that were delivered to the listener.
	OnlyFailed bool `json:"only_failed,omitempty"`
}

// notice is a message to operators.
type notice struct {
	Delivery string `json:"delivery"`
}

// How long ended deliveries are kept.
const (
	keepDelivered = 7 * 24 * time.Hour
	keepFailed    = 30 * 24 * time.Hour
)

// expires returns when an ended delivery is removed.
func expires(s DeliveryStatus, now time.Time) time.Time {
	switch s {
	case Delivered:
		return now.Add(keepDelivered)
	case Failed:
		return now.Add(keepFailed)
	case Pending:
	}
	return time.Time{}
}

// put returns the write of an item.
func put(space store.Space, key string, v any, expires time.Time) store.Side {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Errorf("a record of a listener is no JSON: %w", err)) // they consist of text and numbers
	}
	return store.Side{Op: store.Put, Space: space, Key: key, Value: raw, Expires: expires}
}

// remove returns the write that removes an item.
func remove(space store.Space, key string) store.Side {
	return store.Side{Op: store.Delete, Space: space, Key: key}
}

// read reads an item. It returns store.ErrNotFound unchanged.
func read[T any](
	ctx context.Context, st store.Sides, t j17.Tenant, space store.Space, key string,
) (v T, rev uint64, err error) {
	it, err := st.Get(ctx, t, space, key)
	if err != nil {
		return v, 0, err
	}
	v, err = store.Decode[T](space, &it)
	return v, it.Rev, err
}

// overtaken reports whether a write was refused by a condition on one of the spaces of this package: the state that it
// rests on has changed.
func overtaken(err error) bool {
	conflict, ok := errors.AsType[*store.SideConflict](err)
	return ok && slices.Contains(spaces(), conflict.Space)
}
