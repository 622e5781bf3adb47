package erasure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// The side spaces of the package. None of them holds data of events.
const (
	// rows has the record of each tombstone, under its handle.
	rows store.Space = "erasure.tombstones"
	// lists has the tombstones in the order of their creation: all of them, and those of each status.
	lists store.Space = "erasure.lists"
	// aggregates has, under the key of an aggregate, the handle of its last tombstone that was not cancelled.
	aggregates store.Space = "erasure.aggregates"
	// reached has the streams that a tombstone reaches, under its handle and their keys.
	reached store.Space = "erasure.streams"
	// executions has the tombstones that are being executed, due for the worker.
	executions store.Space = "erasure.executions"
	// certificates has the certificates of completed tombstones.
	certificates store.Space = "erasure.certificates"
)

// Status is the status of a tombstone.
type Status string

// The statuses.
const (
	Pending   Status = "pending"
	Executing Status = "executing"
	Completed Status = "completed"
	Cancelled Status = "cancelled"
)

// Statuses lists all of them.
func Statuses() []Status { return []Status{Pending, Executing, Completed, Cancelled} }

// phase is the current phase of an execution.
type phase string

const (
	rooting    phase = "root"
	finding    phase = "find"
	rewriting  phase = "rewrite"
	purging    phase = "purge"
	certifying phase = "certify"
)

// row is the record of a tombstone.
type row struct {
	id  string
	rev uint64

	Key          string          `json:"key"`
	Status       Status          `json:"status"`
	LegalBasis   *string         `json:"legal_basis,omitempty"`
	RequestID    *string         `json:"request_id,omitempty"`
	RequestedBy  json.RawMessage `json:"requested_by,omitempty"`
	CreatedAt    time.Time       `json:"created_at"`
	ExecutableAt time.Time       `json:"executable_at"`
	Forced       bool            `json:"forced,omitempty"`

	// Before is the completed tombstone of the same aggregate that this one follows. It becomes the last one again if
	// this one is cancelled.
	Before string `json:"before,omitempty"`
	// By is the actor who has requested the execution, until the audit log has it.
	By string `json:"by,omitempty"`
	// Phase is the phase of the execution, Cursor its progress in it: the key of the last stream that is done. Role and
	// Looked are the progress of the search.
	Phase  phase  `json:"phase,omitempty"`
	Cursor string `json:"cursor,omitempty"`
	Role   int    `json:"role,omitempty"`
	Looked string `json:"looked,omitempty"`
	// Note is the position under which rewritten streams are being released; "" otherwise.
	Note string `json:"note,omitempty"`
	// StartedAt is when the execution began, Root and Size the head of the environment's log at that time.
	StartedAt   time.Time `json:"started_at,omitzero"`
	CompletedAt time.Time `json:"completed_at,omitzero"`
	Root        string    `json:"root,omitempty"`
	Size        uint64    `json:"size,omitempty"`
	// Found is how many events the streams had when they were found.
	Found uint64 `json:"found,omitempty"`
	// Streams is how many streams were found, Done how many of them the phase has finished, Events how many events they
	// have.
	Streams uint64 `json:"streams,omitempty"`
	Done    uint64 `json:"done,omitempty"`
	Events  uint64 `json:"events,omitempty"`
	// Released is how many of the rewritten streams were released by all parts, ReleasedTo the key of the last one of
	// them.
	Released   uint64 `json:"released,omitempty"`
	ReleasedTo string `json:"released_to,omitempty"`
	// Purge is the request to the store by which the old bytes are removed, while it is not done. Purged is the
	// evidence of the removal.
	Purge  string        `json:"purge,omitempty"`
	Purged *store.Purged `json:"purged,omitempty"`
	// AffectedRoot is that of the tree over all streams, if there are too many to list.
	AffectedRoot string `json:"affected_root,omitempty"`
}

// aggregate returns the key of the aggregate that is erased.
func (r *row) aggregate() j17.Key {
	key, _ := j17.ParseKey(r.Key) // it was made from one
	return key
}

// value is the stored form.
func (r *row) value() []byte {
	raw, _ := json.Marshal(r) // texts, times and numbers, and JSON that was read as such: it cannot fail
	return raw
}

// load reads a tombstone. It is CodeNotFound if there is none.
func (s *Service) load(ctx context.Context, t j17.Tenant, id string) (*row, error) {
	item, err := s.o.Store.Get(ctx, t, rows, id)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrLimit) {
		return nil, j17.Errorf(j17.CodeNotFound, "There is no tombstone %s in this environment. GET tombstones lists them.", j17.Printable(id))
	}
	if err != nil {
		return nil, err
	}
	r := &row{id: id, rev: item.Rev}
	if err := json.Unmarshal(item.Value, r); err != nil {
		return nil, damaged(id, err)
	}
	return r, nil
}

func damaged(id string, err error) error {
	return &store.CorruptionError{Where: "the tombstone " + id, Err: err}
}

// Keys in lists have the time of creation in nanoseconds, so that the newest come last.
const allOf = "all"

func listed(of string, r *row) string {
	return fmt.Sprintf("%s/%019d/%s", of, r.CreatedAt.UnixNano(), r.id)
}

// list returns the writes that list a new tombstone.
func (r *row) list() []store.Side {
	return []store.Side{
		{Op: store.Put, Space: lists, Key: listed(allOf, r)},
		{Op: store.Put, Space: lists, Key: listed(string(r.Status), r)},
	}
}

// become changes the status of the tombstone, and returns the writes that list it under the new one.
func (r *row) become(next Status) []store.Side {
	gone := store.Side{Op: store.Delete, Space: lists, Key: listed(string(r.Status), r)}
	r.Status = next
	return []store.Side{gone, {Op: store.Put, Space: lists, Key: listed(string(next), r)}}
}

// entry is a stream that a tombstone reaches.
type entry struct {
	key j17.Key

	// Events is how many of its events are done. Done reports that all of them are.
	Events uint64 `json:"events,omitempty"`
	Done   bool   `json:"done,omitempty"`
	// Chain is that of the done events before their replacement, Present that of their replacements, First that of
	// their original contents; Before and After are the trees over the first two.
	Chain   hash `json:"chain,omitzero"`
	Present hash `json:"present,omitzero"`
	First   hash `json:"first,omitzero"`
	Before  tree `json:"before,omitzero"`
	After   tree `json:"after,omitzero"`
	// Last is the position of the last done event, Seen the end of the feed just before it was replaced. Entries of
	// older versions have neither.
	Last string `json:"last,omitempty"`
	Seen string `json:"seen,omitempty"`
}

// end returns up to where the stream is erased; all is used if the entry does not have that.
func (e *entry) end(all j17.StreamID) (end part.End, err error) {
	if e.Last == "" && e.Events > 0 {
		return part.End{Own: all, Others: all}, nil
	}
	if e.Last != "" {
		if end.Own, err = j17.ParseStreamID(e.Last); err != nil {
			return end, err
		}
	}
	end.Others, err = j17.ParseStreamID(e.Seen)
	return end, err
}

// reachedKey is the key of a stream's entry.
func reachedKey(id string, key j17.Key) string { return id + "/" + key.String() }

// put writes an entry.
func (e *entry) put(id string) store.Side {
	raw, _ := json.Marshal(e) // numbers and texts: it cannot fail
	return store.Side{Op: store.Put, Space: reached, Key: reachedKey(id, e.key), Value: raw}
}

// readEntry decodes an item.
func readEntry(item *store.Item) (*entry, error) {
	e := &entry{}
	_, name, _ := strings.Cut(item.Key, "/")
	var ok bool
	if e.key, ok = j17.ParseKey(name); !ok {
		return nil, damaged(item.Key, errors.New("it names no stream"))
	}
	if err := json.Unmarshal(item.Value, e); err != nil {
		return nil, damaged(item.Key, err)
	}
	return e, nil
}

// entries returns up to limit streams that a tombstone reaches, in the order of their keys, after the key after.
func (s *Service) entries(ctx context.Context, t j17.Tenant, id, after string, limit int) ([]*entry, error) {
	keys := store.Prefix(id + "/")
	if after != "" {
		keys = keys.After(id + "/" + after)
	}
	items, err := s.o.Store.Scan(ctx, t, reached, keys, limit)
	if err != nil {
		return nil, err
	}
	all := make([]*entry, len(items))
	for i := range items {
		if all[i], err = readEntry(&items[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// shown is the stream as clients see it.
func (e *entry) shown() wire.AffectedStream {
	return wire.AffectedStream{
		Key: e.key.String(), EventCount: e.Events, Action: "tombstoned", RootBefore: e.Before.root().String(),
		RootAfter: e.After.root().String(),
	}
}

// maxListed is how many streams a tombstone shows.
const maxListed = 1000

// shown is a tombstone as clients see it, with its rewritten streams: its own aggregate first, the others in the order
// of their keys.
func (s *Service) shown(ctx context.Context, t j17.Tenant, r *row) (wire.Tombstone, error) {
	out := wire.Tombstone{
		ID: r.id, Key: r.Key, Status: string(r.Status), LegalBasis: r.LegalBasis, RequestID: r.RequestID,
		RequestedBy: r.RequestedBy,
		CreatedAt:   r.CreatedAt, ExecutableAt: r.ExecutableAt, Forced: r.Forced,
		AffectedStreams: []wire.AffectedStream{},
	}
	if r.RequestedBy == nil {
		out.RequestedBy = json.RawMessage("null")
	}
	if r.Root != "" {
		out.PreTombstoneRoot, out.PreTombstoneSize = &r.Root, &r.Size
	}

	// Its streams.
	switch r.Status {
	case Pending, Cancelled:
		return out, nil
	case Executing:
		if err := s.underWay(ctx, t, r, &out); err != nil {
			return out, err
		}
	case Completed:
		out.ExecutedAt, out.CompletedAt = &r.StartedAt, &r.CompletedAt
		if r.Streams > maxListed {
			out.AffectedCount, out.AffectedRoot = r.Streams, r.AffectedRoot
		}
	}
	streams, err := s.entries(ctx, t, r.id, "", maxListed)
	if err != nil {
		return out, err
	}
	for _, e := range streams {
		if e.Done {
			out.AffectedStreams = append(out.AffectedStreams, e.shown())
		}
	}
	return out, s.first(ctx, t, r, out.AffectedStreams)
}

// first moves the stream of the aggregate itself to the front. If it is done but not listed, it replaces the last one.
func (s *Service) first(ctx context.Context, t j17.Tenant, r *row, streams []wire.AffectedStream) error {
	if len(streams) == 0 {
		return nil
	}
	at := len(streams) - 1
	for i := range streams {
		if streams[i].Key == r.Key {
			at = i
		}
	}
	own := streams[at]
	if own.Key != r.Key {
		item, err := s.o.Store.Get(ctx, t, reached, reachedKey(r.id, r.aggregate()))
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		e, err := readEntry(&item)
		if err != nil {
			return err
		}
		if !e.Done {
			return nil
		}
		own = e.shown()
	}
	copy(streams[1:at+1], streams[:at])
	streams[0] = own
	return nil
}

// underWay adds the progress of an execution, and the error of its last try.
func (s *Service) underWay(ctx context.Context, t j17.Tenant, r *row, out *wire.Tombstone) error {
	events := r.Events
	if r.Phase == rewriting {
		// Progress within the streams since the last write of the row is in their entries.
		some, err := s.entries(ctx, t, r.id, r.Cursor, streamsAtOnce)
		if err != nil {
			return err
		}
		for _, e := range some {
			events += e.Events
		}
	}
	out.Progress = &wire.TombstoneProgress{
		Phase: string(r.Phase), Done: r.Done, Total: r.Streams, EventsDone: events, EventsTotal: max(r.Found, events),
	}
	if r.Purge != "" {
		p, err := s.o.Store.PurgeProgress(ctx, r.Purge)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if out.Progress.WaitsFor = p.Waits; !p.Until.IsZero() {
			out.Progress.Until = &p.Until
		}
	}
	_, tried, err := s.execution(ctx, t, r)
	if tried.Failed > 0 {
		out.Progress.Attempts, out.Error = tried.Failed, &tried.Error
	}
	return err
}

// execution returns the item by which a tombstone is executed, and its failed tries; zero ones if the execution was
// completed meanwhile.
func (s *Service) execution(
	ctx context.Context, t j17.Tenant, r *row,
) (item store.Item, tried worker.Attempts, err error) {
	item, err = s.o.Store.Get(ctx, t, executions, r.id)
	if errors.Is(err, store.ErrNotFound) {
		return item, tried, nil
	}
	if err != nil {
		return item, tried, err
	}
	if tried, _, err = worker.ReadAttempts(item.Value); err != nil {
		err = damaged(r.id, err)
	}
	return item, tried, err
}
