package feed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// Subscribe creates a subscription. An existing one stays as it is. Names are side keys without '/'.
func (s *Subscriptions) Subscribe(ctx context.Context, t j17.Tenant, kind, name string, from Start) error {
	if name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("the subscription of kind %s cannot be named %q: a name is not empty and has no '/'", kind, name)
	}
	key := subscriptionKey(kind, name)
	for {
		_, err := s.o.Store.Get(ctx, t, subscriptions, key)
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		// Marks of an earlier subscription of the name would be taken for its own.
		if err = s.clearMarks(ctx, t, key); conflicts(err) {
			continue
		}
		if err != nil {
			return err
		}
		at, err := s.begin(ctx, t, from)
		if err != nil {
			return err
		}
		c := checkpoint{state: at, ID: rand.Text(), Origin: at.Count, Checked: at.Count}
		side := store.Side{Op: store.Put, Space: subscriptions, Key: key, Value: c.encode(), Cond: store.IfAbsent}
		if done, err := s.writeAndAsk(ctx, t, side, at.mark(key)); done || err != nil {
			return err
		}
	}
}

// begin returns the state with which a subscription begins.
func (s *Subscriptions) begin(ctx context.Context, t j17.Tenant, from Start) (at state, err error) {
	if !from.end && from.after.IsZero() {
		return at, nil
	}
	extent, err := s.o.Store.Extent(ctx, t)
	if err != nil {
		return at, err
	}
	at.After, at.Count = extent.Last, extent.Events
	if from.end || from.after.Compare(extent.Last) >= 0 {
		return at, nil
	}
	at.After = from.after
	for e, err := range s.o.Store.ReadFeed(ctx, t, from.after, int(extent.Events)) {
		if err != nil {
			return at, err
		}
		if e.StreamID.Compare(extent.Last) > 0 {
			break
		}
		at.Count--
	}
	return at, nil
}

// Unsubscribe removes a subscription; it does nothing if there is none.
func (s *Subscriptions) Unsubscribe(ctx context.Context, t j17.Tenant, kind, name string) error {
	key := subscriptionKey(kind, name)
	for {
		done, err := s.writeAndAsk(ctx, t, store.Side{Op: store.Delete, Space: subscriptions, Key: key})
		if err != nil {
			return err
		}
		if done {
			break
		}
	}

	// Its marks are obsolete. On a conflict, another process has created a subscription of that name, and has cleared
	// them.
	if err := s.clearMarks(ctx, t, key); !conflicts(err) {
		return err
	}
	return nil
}

// clearMarks removes the marks of a subscription that does not exist; it fails with a *store.SideConflict if it exists.
func (s *Subscriptions) clearMarks(ctx context.Context, t j17.Tenant, key string) error {
	const page = 1000
	for keys := store.Prefix(key + "/"); ; {
		items, err := s.o.Store.Scan(ctx, t, marks, keys, page)
		if err != nil {
			return err
		}
		sides := make([]store.Side, len(items))
		for i := range items {
			sides[i] = store.Side{Op: store.Delete, Space: marks, Key: items[i].Key}
		}
		if len(items) > 0 {
			if err := s.o.Store.Write(ctx, t, sides, store.Fence{Space: subscriptions, Key: key}); err != nil {
				return err
			}
		}
		if len(items) < page {
			return nil
		}
	}
}

// conflicts reports whether a concurrent write was faster.
func conflicts(err error) bool {
	_, is := errors.AsType[*store.SideConflict](err)
	return is
}

// Pause stops the handing out of events until Resume. Once it has returned, no call of the handler begins, and no Done
// commits. store.ErrNotFound means that there is no such subscription.
func (s *Subscriptions) Pause(ctx context.Context, t j17.Tenant, kind, name string) error {
	return s.change(ctx, t, kind, name, func(c *checkpoint) { c.Paused = true })
}

// Resume continues a paused subscription where it was paused, and ends a pause after failures.
func (s *Subscriptions) Resume(ctx context.Context, t j17.Tenant, kind, name string) error {
	return s.change(ctx, t, kind, name, func(c *checkpoint) {
		c.Paused, c.Failures, c.Error, c.RetryAt = false, 0, "", time.Time{}
	})
}

// change changes the stored record of a subscription and tells the holder of the tenant.
func (s *Subscriptions) change(ctx context.Context, t j17.Tenant, kind, name string, with func(*checkpoint)) error {
	for {
		it, err := s.get(ctx, t, subscriptionKey(kind, name))
		if err != nil {
			return err
		}
		with(&it.checkpoint)
		side := store.Side{
			Op: store.Put, Space: subscriptions, Key: it.key, Value: it.encode(), Cond: store.IfRev, Rev: it.rev,
		}
		if done, err := s.writeAndAsk(ctx, t, side); done || err != nil {
			return err
		}
	}
}

// Wake ends the pause of a subscription whose handler has returned Later or an error.
func (s *Subscriptions) Wake(ctx context.Context, t j17.Tenant, kind, name string) error {
	if s.wake(t, subscriptionKey(kind, name)) {
		return nil
	}
	return s.change(ctx, t, kind, name, func(c *checkpoint) { c.RetryAt = time.Time{} })
}

// wake ends the pause of a subscription if this set holds the tenant, and reports whether it does.
func (s *Subscriptions) wake(t j17.Tenant, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[t]
	return h != nil && h.wake(key)
}

// writeAndAsk commits writes and asks the set that has the tenant, or may take it, to look at its subscriptions. It
// reports false if another writer was faster.
func (s *Subscriptions) writeAndAsk(ctx context.Context, t j17.Tenant, sides ...store.Side) (done bool, err error) {
	l, err := s.readLease(ctx, t)
	if err != nil {
		return false, err
	}
	err = s.o.Store.Write(ctx, t, append(sides, l.put(s.o.Clock.Now())))
	if _, conflict := errors.AsType[*store.SideConflict](err); conflict {
		return false, nil
	}
	return err == nil, err
}

// Status returns the progress of a subscription; store.ErrNotFound if there is none.
func (s *Subscriptions) Status(ctx context.Context, t j17.Tenant, kind, name string) (Status, error) {
	it, err := s.get(ctx, t, subscriptionKey(kind, name))
	if err != nil {
		return Status{}, err
	}
	extent, err := s.o.Store.Extent(ctx, t)
	return s.status(t, &it, extent), err
}

// StoredIn names the side item that a subscription is stored in, for callers that read it together with other things.
func StoredIn(kind, name string) store.ItemName {
	return store.ItemName{Space: subscriptions, Key: subscriptionKey(kind, name)}
}

// After returns the position up to which a subscription has handled the feed, from the item that it is stored in and
// from what the set knows beyond that. It is zero for the zero item.
func (s *Subscriptions) After(t j17.Tenant, stored *store.Item) (j17.StreamID, error) {
	if stored.Rev == 0 {
		return j17.StreamID{}, nil
	}
	c, err := parseCheckpoint(stored.Key, stored.Value)
	if err != nil {
		return j17.StreamID{}, err
	}
	return s.status(t, &item{stored.Key, c, stored.Rev}, store.Extent{}).After, nil
}

// List returns the progress of the subscriptions of a kind, in the order of their names.
func (s *Subscriptions) List(ctx context.Context, t j17.Tenant, kind string) ([]Status, error) {
	items, err := s.scan(ctx, t, kind+"/")
	if err != nil || len(items) == 0 {
		return nil, err
	}
	extent, err := s.o.Store.Extent(ctx, t)
	list := make([]Status, len(items))
	for i := range items {
		list[i] = s.status(t, &items[i], extent)
	}
	return list, err
}

// status combines the stored record with what the set knows beyond that, for tenants that it holds.
func (s *Subscriptions) status(t j17.Tenant, it *item, extent store.Extent) Status {
	s.mu.Lock()
	h := s.held[t]
	s.mu.Unlock()
	if h != nil {
		h.beyond(it)
	}
	c := &it.checkpoint
	_, name, _ := strings.Cut(it.key, "/")
	status := Status{
		Name: name, Paused: c.Paused, After: c.After, Count: c.Count, Failures: c.Failures, Error: c.Error,
		RetryAt: c.RetryAt, Checked: c.Checked,
	}
	if extent.Events > c.Count {
		status.Lag = extent.Events - c.Count
	}
	return status
}
