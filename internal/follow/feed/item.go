package feed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// The spaces of subscriptions. None of their items holds data of streams.
const (
	// subscriptions holds the checkpoints under "kind/name".
	subscriptions store.Space = "feed.subscriptions"
	// marks has the running hash at each multiple of markEvery, and at the subscription's beginning, under
	// "kind/name/number", where number is the number of events as 16 hexadecimal digits.
	marks store.Space = "feed.marks"
	// leases has one item for each tenant that has, or had, subscriptions. It is due when the tenant has to be looked
	// at: when its lease ends, when a pause after a failure ends, or on request.
	leases store.Space = "feed.leases"
)

// leaseKey is the key of the item in leases.
const leaseKey = "lease"

// markEvery is the number of events between two marks.
const markEvery = 1024

// state is the progress of a subscription: the position of the last event that it passed, the number of events up to
// there, and the hash over their leaves from where it began: h(0) is zero, h(n) = SHA-256(h(n-1) || leaf(n)).
type state struct {
	After j17.StreamID
	Count uint64
	Hash  [sha256.Size]byte
}

// pass adds an event.
func (s *state) pass(at j17.StreamID, leaf [sha256.Size]byte) {
	s.After, s.Count, s.Hash = at, s.Count+1, j17.Link(s.Hash, leaf)
}

// checkpoint is the stored record of a subscription.
type checkpoint struct {
	state
	// ID distinguishes the subscription from earlier ones of its name.
	ID string
	// Origin is the Count with which it began.
	Origin uint64
	// Checked is the greatest mark up to which all stretches matched the feed.
	Checked  uint64
	Paused   bool
	Failures int
	Error    string
	RetryAt  time.Time
}

// stored is the encoding of checkpoints and marks in items.
type stored struct {
	After    string    `json:"after"`
	Count    uint64    `json:"count"`
	Hash     string    `json:"hash"`
	ID       string    `json:"id,omitempty"`
	Origin   uint64    `json:"origin,omitempty"`
	Checked  uint64    `json:"checked,omitempty"`
	Paused   bool      `json:"paused,omitempty"`
	Failures int       `json:"failures,omitempty"`
	Error    string    `json:"error,omitempty"`
	RetryAt  time.Time `json:"retry_at,omitzero"`
}

// maxError bounds the text of a stored error.
const maxError = 1000

func (c *checkpoint) encode() []byte {
	text := c.Error
	if len(text) > maxError {
		text = text[:maxError]
	}
	b, _ := json.Marshal(stored{
		c.After.String(), c.Count, hex.EncodeToString(c.Hash[:]), c.ID, c.Origin, c.Checked, c.Paused, c.Failures, text,
		c.RetryAt,
	}) // numbers, text and a time: it cannot fail
	return b
}

func parseCheckpoint(key string, value []byte) (c checkpoint, err error) {
	var s stored
	if err := json.Unmarshal(value, &s); err != nil {
		return c, fmt.Errorf("the checkpoint of the subscription %s cannot be read: %w", key, err)
	}
	after, err := parsePosition(s.After)
	hash, failed := hex.DecodeString(s.Hash)
	if err = errors.Join(err, failed); err != nil || len(hash) != sha256.Size {
		return c, fmt.Errorf("the checkpoint of the subscription %s cannot be read: %w", key, err)
	}
	return checkpoint{
		state{after, s.Count, [sha256.Size]byte(hash)},
		s.ID, s.Origin, s.Checked, s.Paused, s.Failures, s.Error,
		s.RetryAt,
	}, nil
}

// parsePosition parses a position, which may be the one before all events.
func parsePosition(text string) (j17.StreamID, error) {
	if text == (j17.StreamID{}).String() {
		return j17.StreamID{}, nil
	}
	return j17.ParseStreamID(text)
}

// subscriptionKey returns the key of a subscription's item.
func subscriptionKey(kind, name string) string { return kind + "/" + name }

// markKey returns the key of a subscription's mark.
func markKey(key string, count uint64) string { return fmt.Sprintf("%s/%016x", key, count) }

// mark returns the write of a mark.
func (s *state) mark(key string) store.Side {
	c := checkpoint{state: *s}
	return store.Side{Op: store.Put, Space: marks, Key: markKey(key, s.Count), Value: c.encode()}
}

// lease is the item that records which set works on a tenant.
type lease struct {
	// Holder is the set that has the lease, "" if none; Term counts how often it was taken.
	Holder string `json:"holder,omitempty"`
	Term   uint64 `json:"term"`
	// Until is when it ends.
	Until time.Time `json:"until,omitzero"`

	rev uint64
	due time.Time
}

// put returns the write of a lease, on the condition that it was not written since it was read. due is when the tenant
// has to be looked at.
func (l *lease) put(due time.Time) store.Side {
	b, _ := json.Marshal(l) // numbers, text and a time: it cannot fail
	return store.Side{Op: store.Put, Space: leases, Key: leaseKey, Value: b, Due: due}.On(l.rev)
}

// readLease returns a tenant's lease; its revision is 0 if there is none.
func (s *Subscriptions) readLease(ctx context.Context, t j17.Tenant) (lease, error) {
	it, err := s.o.Store.Get(ctx, t, leases, leaseKey)
	if errors.Is(err, store.ErrNotFound) {
		return lease{}, nil
	}
	if err != nil {
		return lease{}, err
	}
	l := lease{rev: it.Rev, due: it.Due}
	if err := json.Unmarshal(it.Value, &l); err != nil {
		return lease{}, fmt.Errorf("the lease of the tenant %s cannot be read: %w", t, err)
	}
	return l, nil
}

// heldByOther reports whether another set has the lease. A lease that ends later than any lease can is ignored: the
// clock has been set back since.
func (s *Subscriptions) heldByOther(l *lease) bool {
	now := s.o.Clock.Now()
	return !s.o.Sole && l.Holder != "" && l.Holder != s.id && now.Before(l.Until) &&
		!l.Until.After(now.Add(2*s.o.Lease))
}

// item is a stored subscription.
type item struct {
	key string
	checkpoint
	rev uint64
}

// scan returns the subscriptions of a tenant whose keys begin with a prefix.
func (s *Subscriptions) scan(ctx context.Context, t j17.Tenant, prefix string) (all []item, err error) {
	const page = 1000
	for it, err := range store.Items(ctx, s.o.Store, t, subscriptions, store.Prefix(prefix), page) {
		if err != nil {
			return nil, err
		}
		c, err := parseCheckpoint(it.Key, it.Value)
		if err != nil {
			return nil, err
		}
		all = append(all, item{it.Key, c, it.Rev})
	}
	return all, nil
}

// get returns a subscription; store.ErrNotFound if there is none.
func (s *Subscriptions) get(ctx context.Context, t j17.Tenant, key string) (item, error) {
	it, err := s.o.Store.Get(ctx, t, subscriptions, key)
	if err != nil {
		return item{}, err
	}
	c, err := parseCheckpoint(key, it.Value)
	return item{key, c, it.Rev}, err
}
