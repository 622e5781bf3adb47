package control

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// The log of a registry is a stream of the System tenant: each entry has an action, its actor and the changed items,
// and is part of the commit of that change. The audit log is read from it; replicas, and the memories of other servers
// of the same store, follow it, each from the version that it has reached. It names items without their values, so that
// no secret stays in it; its readers read the items as they are now. Records that concern an instance are in a stream
// of that instance as well, for its audit log.

// journal writes and reads the log.
type journal struct {
	store Storage
	clock clock.Clock
}

// logKey is the stream of all entries.
func logKey() j17.Key { return j17.Key{Type: "registry", ID: "log"} }

// instanceLogKey is the stream of the records of an instance.
func instanceLogKey(instance string) j17.Key { return j17.Key{Type: "registry", ID: instance} }

// The types of the log's events: with an audit record, and without one.
const (
	recordedType = "was_recorded"
	changedType  = "was_changed"
)

// entry is the data of an event of the log.
type entry struct {
	Record *Record `json:"record,omitempty"`
	// Changes are items without their values.
	Changes []Change `json:"changes,omitempty"`
}

// place is a place in the log: the number of entries up to it, and the position of the last one.
type place struct {
	version uint64
	id      j17.StreamID
}

// at is an entry at its place.
type at struct {
	place
	entry
	// timestamp is that of the event, in Unix seconds; it is later than the record's if the entry was stored late.
	timestamp int64
}

// logUnit returns the unit that commits side writes with their entry in the log. rec may be nil; changes are those of
// environments, which are not among the side writes.
func (r *journal) logUnit(rec *Record, side []store.Side, changes ...Change) (store.Append, error) {
	e := entry{Record: rec, Changes: changes}
	for i := range side {
		if replicated(Change{Space: side[i].Space, Key: side[i].Key}) {
			e.Changes = append(e.Changes, Change{Space: side[i].Space, Key: side[i].Key})
		}
	}
	unit := store.Append{Side: side, Timestamp: r.clock.Now().Unix()}
	var err error
	unit.Events, err = e.events(nil)
	return unit, err
}

// events returns the events of an entry, none if it is empty. The log's own is the last one, so that no later position
// of the feed belongs to the same commit. A nil timestamp is that of the commit.
func (e *entry) events(timestamp *int64) ([]store.NewEvent, error) {
	event := func(key j17.Key, typ string, e *entry) (store.NewEvent, error) {
		data, err := json.Marshal(e)
		if err != nil {
			return store.NewEvent{}, internal(err)
		}
		return store.NewEvent{Key: key, Type: typ, Data: data, Metadata: []byte("{}"), Timestamp: timestamp}, nil
	}
	typ := changedType
	var all []store.NewEvent
	switch {
	case e.Record != nil:
		typ = recordedType
		if e.Record.Instance == "" {
			break
		}
		ev, err := event(instanceLogKey(e.Record.Instance), typ, &entry{Record: e.Record})
		if err != nil {
			return nil, err
		}
		all = append(all, ev)
	case len(e.Changes) == 0:
		return nil, nil
	}
	ev, err := event(logKey(), typ, e)
	return append(all, ev), err
}

// append commits a unit to the System tenant. A failed condition is returned as *store.SideConflict.
func (r *journal) append(ctx context.Context, unit store.Append) (store.Result, error) {
	results, err := r.store.Append(ctx, j17.System, []store.Append{unit})
	switch {
	case err != nil:
		return store.Result{}, err
	case results[0].Outcome == store.Conflict:
		return store.Result{}, &results[0].Sides[0]
	default:
		return results[0], nil
	}
}

// logEnd returns the current end of the log.
func (r *journal) logEnd(ctx context.Context) (place, error) {
	heads, err := r.store.Heads(ctx, j17.System, []j17.Key{logKey()})
	if err != nil {
		return place{}, failure(err)
	}
	return place{heads[0].Length, heads[0].Last}, nil
}

// maxLogPage is the number of entries read at once.
const maxLogPage = 500

// readLog returns the entries of a stream of the log with from <= version <= to, at most maxLogPage of them.
func (r *journal) readLog(ctx context.Context, key j17.Key, from, to uint64) ([]at, error) {
	if to = min(to, from+maxLogPage-1); from < 1 || to < from {
		return nil, nil
	}
	all := make([]at, 0, to-from+1)
	for ev, err := range r.store.ReadStream(ctx, j17.System, key, from, to) {
		if err != nil {
			return nil, failure(err)
		}
		read := at{place: place{ev.Version, ev.StreamID}, timestamp: ev.Timestamp}
		if err := json.Unmarshal(ev.Data, &read.entry); err != nil {
			return nil, failure(&store.CorruptionError{
				Where: "the event " + ev.StreamID.String() + " of " + key.String(), Err: err,
			})
		}
		all = append(all, read)
	}
	return all, nil
}

// present returns an item as it is now, for a replica or a memory. A nil value means that it is gone.
func (r *journal) present(ctx context.Context, c Change) (Change, error) {
	t := c.Tenant
	if t == "" {
		t = j17.System
	}
	it, err := r.store.Get(ctx, t, c.Space, c.Key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return c, failure(err)
	}
	if err == nil {
		c.Value, c.Expires = it.Value, it.Expires
	}
	return c, nil
}

// catchUp brings the memory up to date with the changes of other servers of the same store, and notes the environments
// whose specs they have changed. The caller holds r.change.
func (r *items) catchUp(ctx context.Context) error {
	end, err := r.logEnd(ctx)
	if err != nil {
		return err
	}

	// A page of the log, with the current state of its items: it includes later changes of the same items.
	for seen := r.seen(); seen.version < end.version; seen = r.seen() {
		entries, err := r.readLog(ctx, logKey(), seen.version+1, end.version)
		if err != nil || len(entries) == 0 {
			return err
		}
		var changes []Change
		for _, e := range entries {
			for _, c := range e.Changes {
				if c, err = r.present(ctx, c); err != nil {
					return err
				}
				changes = append(changes, c)
			}
		}

		// Changes that memory cannot apply one by one need a reload.
		if !r.show(changes) {
			r.noteMoved(changes)
			return r.reload(ctx)
		}

		if slices.ContainsFunc(changes, func(c Change) bool { return c.Space == SecretSpace }) {
			if err := r.openSigningKeys(ctx); err != nil {
				return err
			}
		}

		r.see(entries[len(entries)-1].place)
		r.noteMoved(changes)
	}
	return nil
}

// seen returns how far the memory has followed the log.
func (r *memory) seen() place {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.read
}

func (r *memory) see(p place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = p
}

// seeOwn notes that the memory has the changes of a commit of this server, unless others have committed before it.
func (r *memory) seeOwn(res *store.Result) {
	n := len(res.IDs)
	if n == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if own := (place{res.Lengths[n-1], res.IDs[n-1]}); own.version == r.read.version+1 {
		r.read = own
	}
}

// noteMoved notifies the receiver of Moved of the environments among changes.
func (r *memory) noteMoved(changes []Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range changes {
		if c.Tenant != "" && c.Space == specHeadSpace {
			r.movedSpecs[c.Tenant] = true
		}
	}
	if len(r.movedSpecs) > 0 {
		select {
		case r.moved <- struct{}{}:
		default: // signalled already
		}
	}
}

// follow waits until the log is ahead of the memory, and catches up.
func (r *items) follow(ctx context.Context) error {
	if err := r.store.AwaitFeed(ctx, j17.System, r.seen().id); err != nil {
		return err
	}
	err := r.lock(ctx)
	if err == nil {
		r.change.release()
	}
	return err
}

// Moved is signalled when other servers of the same store have deployed. It is for one receiver, which then calls
// TakeMoved.
func (r *Specs) Moved() <-chan struct{} { return r.moved }

// Place is an environment of an instance.
type Place struct {
	Instance    string
	Environment j17.Environment
}

// TakeMoved returns the environments to which others have deployed since the last call.
func (r *Specs) TakeMoved() []Place {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Place
	for t := range r.movedSpecs {
		instance, env, _ := strings.Cut(string(t), "/")
		all = append(all, Place{instance, j17.Environment(env)})
	}
	clear(r.movedSpecs)
	return all
}
