// Package store defines what the engine needs from storage: an atomic append with preconditions and side writes,
// ordered reads, work by due time. It is designed so that both an embedded key-value store and a PostgreSQL cluster can
// keep the promise: everything acknowledged is on disk, and nobody sees anything before that.
//
// The decisions behind it are in docs/internals/storage.md.
package store

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"j17"
)

// CommandID makes a command idempotent: the second append with the same id is not executed.
type CommandID [16]byte

// Append is one unit: events, preconditions and side writes that commit together or not at all.
type Append struct {
	// Command, if not nil, makes the unit idempotent.
	Command *Command
	Pre     []Pre
	Fences  []Fence
	// Unless names events that must not exist.
	Unless []Absent
	Events []NewEvent
	Side   []Side
	// Assign gives owners values of their own. It fails only if a proposed value belongs to another owner.
	Assign []Assignment
	// Timestamp is the Unix second for the unit's events. The store raises it to the latest one of the tenant's
	// events, so that time never runs backward in a feed.
	Timestamp int64
	// Decided reports that the unit was decided at Timestamp: if the store would have to raise it, the unit is refused
	// as TooEarly.
	Decided bool
	// After holds the indexes, from 0, of earlier units in the same call on whose events this one was decided: unless
	// this call commits all of them, the outcome is Conflict.
	After []int
	// Freeing marks a unit that makes room, or that has to be stored before something else can make room. It is
	// committed below the floor of free space too, as long as the store has some of its reserve left. Units that only
	// delete side items need no mark.
	Freeing bool
}

// Frees reports whether the unit is committed even when free space is below the floor.
func (a *Append) Frees() bool {
	if a.Freeing {
		return true
	}
	if len(a.Side) == 0 || len(a.Events) > 0 || len(a.Assign) > 0 || a.Command != nil {
		return false
	}
	for i := range a.Side {
		if a.Side[i].Op != Delete {
			return false
		}
	}
	return true
}

// Command identifies a unit for as long as it may be retried.
type Command struct {
	ID CommandID
	// Memo is kept with the result and returned with a duplicate.
	Memo []byte
	// Expires is when the id is forgotten; the zero time means never.
	Expires time.Time
}

// Pre is a precondition on the length of a stream and, with Looked, on its generation. The unit need not write to the
// stream.
type Pre struct {
	Key    j17.Key
	Length uint64
	// Looked reports that the unit was decided on the stream's events as of Generation: the precondition then holds
	// only as long as none of them is rewritten.
	Looked     bool
	Generation uint64
}

// Fence is a precondition on a side item, which the unit need not write: that it still has the revision it had when the
// unit was decided, or that it holds a value. Like the conditions of side writes it is tested on the state before the
// unit.
type Fence struct {
	Space Space
	Key   string
	// Rev is the item's; 0 when it must be absent.
	Rev uint64
	// ByValue reports that Value is compared and not Rev, as with IfValue.
	ByValue bool
	Value   string
}

// NewEvent is an event to be appended: the store adds position, version, timestamp and hashes.
type NewEvent struct {
	Key  j17.Key
	Type string
	// Data is a compact JSON value, Metadata a compact JSON object without "timestamp".
	Data     []byte
	Metadata []byte
	// Timestamp, if not nil, is used instead of the unit's (import of history).
	Timestamp *int64
	// Tags are what ReadTagged finds the event by, each once. One that begins with "actor:", "target:" or
	// "correlation=" is a tag that j17.MetadataTags makes of the metadata. An erased event has none.
	Tags []string
}

// Assignment gives an owner a value of its own, once and for all: an owner that has one keeps it. Values of counters
// follow each other without gaps, because a unit that is not committed takes none.
type Assignment struct {
	// Space holds the value under the owner's name.
	Space Space
	Owner string
	// Index holds the owner's name under the value.
	Index Space
	// Value is what an owner without a value gets. "" means the next number, from 1, of the counter that is the item
	// Counter of the index.
	Value   string
	Counter string
}

// Outcome is what became of a unit.
type Outcome uint8

// The outcomes.
const (
	// Committed: the unit is durable.
	Committed Outcome = iota + 1
	// Conflict: a precondition or a side condition did not hold; nothing was written.
	Conflict
	// Duplicate: the command was committed before; the result is that of the first time.
	Duplicate
	// TooEarly: the unit was decided at a time before the tenant's latest event; nothing was written. Result.Timestamp
	// is the time to decide again for.
	TooEarly
)

// Result is the outcome of one unit.
type Result struct {
	Outcome Outcome
	// IDs and Lengths are the position and the resulting stream length of each event of the unit (Committed,
	// Duplicate).
	IDs     []j17.StreamID
	Lengths []uint64
	// Assigned is the value that the owner of each assignment has (Committed).
	Assigned []string
	// Timestamp is the Unix second that the events carry, or that of the tenant's latest event (TooEarly).
	Timestamp int64
	// Memo is that of the first command (Duplicate).
	Memo []byte
	// Matched reports that an event exists which Unless rules out (Conflict).
	Matched bool
	// Streams lists every failed precondition, Sides every fence and then every side condition that failed (Conflict).
	Streams []StreamConflict
	Sides   []SideConflict
}

// StreamConflict is a precondition that did not hold.
type StreamConflict struct {
	Key      j17.Key
	Expected uint64
	Actual   uint64
}

// Head is what is known about a stream without reading it.
type Head struct {
	Length uint64
	// Chain is h(Length): h(0) is zero, h(n) = SHA-256(h(n-1) || leaf(n)), leaf(n) = SHA-256(0x00 || bytes of event n).
	Chain [32]byte
	Last  j17.StreamID
	// FirstTime and LastTime are the timestamps of the first and last event in Unix seconds.
	FirstTime int64
	LastTime  int64
	// Generation is how often events of the stream were rewritten. Anything derived from an earlier generation is
	// outdated.
	Generation uint64
	// Present is the chain over the present bytes of the events; zero while Rewriting, and while Generation is 0, since
	// it is Chain then.
	Present [32]byte
}

// Rewriting reports whether the stream is being rewritten in parts. Until the last part there is no chain over the
// present bytes.
func (h Head) Rewriting() bool { return h.Generation > 0 && h.Present == [32]byte{} }

// Now returns the chain over the present bytes of the events.
func (h Head) Now() [32]byte {
	if h.Generation > 0 {
		return h.Present
	}
	return h.Chain
}

// Rewrite is what one call of Erasure.Rewrite replaces, with its conditions and side writes.
type Rewrite struct {
	Streams []RewrittenStream
	Pre     []Pre
	Fences  []Fence
	Side    []Side
}

// RewrittenStream is the new content of some events of a stream.
type RewrittenStream struct {
	Key    j17.Key
	Events []Rewritten
	// More reports that other parts follow. The chain over the present bytes is computed with the last part, so that a
	// long stream is not read again for each one.
	More bool
	// From, if the caller knows it, is that chain up to a version before Events.
	From PresentChain
}

// PresentChain is the chain over the bytes that the first Version events of a stream have now.
type PresentChain struct {
	Version uint64
	Chain   [32]byte
}

// Entry is an element of the feed: an event or a note.
type Entry struct {
	// Event is valid until the next step of the iteration; nil for a note.
	Event *j17.Event
	// Tags are those of the event that do not come from its metadata.
	Tags []string
	Note *Note
}

// StreamPart is the events of a stream up to a position.
type StreamPart struct {
	Key  j17.Key
	UpTo j17.StreamID
}

// Note is the entry of the feed that reports that earlier events were rewritten.
type Note struct {
	Position j17.StreamID
	Streams  []Generation
}

// Generation is the generation that a stream has since a note.
type Generation struct {
	Key    j17.Key
	Number uint64
}

// Declared is a side space as the package that owns it declares it.
type Declared struct {
	Space Space
	// OfStreams reports that items hold data of streams: each item that of the stream whose key is the item's key, or
	// the part of it before the first '/'.
	OfStreams bool
	// Whole reports that items hold data of streams but their keys do not say of which: Purge treats the space as a
	// whole.
	Whole bool
}

// HeldBy lists the side items that hold data of a stream.
func HeldBy(
	ctx context.Context, sides Sides, t j17.Tenant, spaces []Declared, key j17.Key,
) (held []ItemName, err error) {
	const page = 100
	for _, d := range spaces {
		for _, keys := range d.RangesOf(key) {
			for item, err := range Items(ctx, sides, t, d.Space, keys, page) {
				if err != nil {
					return nil, err
				}
				held = append(held, ItemName{Space: d.Space, Key: item.Key})
			}
		}
	}
	return held, nil
}

// Counter returns the value of an item that is written by Add, 0 if it is absent.
func Counter(ctx context.Context, sides Sides, t j17.Tenant, space Space, key string) (int64, error) {
	item, err := sides.Get(ctx, t, space, key)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(item.Value), 10, 64)
	if err != nil {
		return 0, &CorruptionError{Where: "the counter " + string(space) + "/" + key, Err: err}
	}
	return n, nil
}

// ItemName names a side item.
type ItemName struct {
	Space Space
	Key   string
}

// RangesOf returns the ranges of keys whose items hold data of a stream; none unless OfStreams.
func (d *Declared) RangesOf(key j17.Key) []Range {
	if !d.OfStreams {
		return nil
	}
	name := key.String()
	return []Range{{From: name, To: name + "\x00"}, Prefix(name + "/")}
}

// Rewritten is the new content of one event.
type Rewritten struct {
	Version  uint64
	Type     string
	Data     []byte
	Metadata []byte
}

// Space names a set of side items. Spaces are declared by the package that owns them.
type Space string

// Item is one side item. Its times have a resolution of one nanosecond and lie between 1970 and 2262.
type Item struct {
	Key   string
	Value []byte
	// Rev changes with every write of the item and is never used twice in a tenant.
	Rev uint64
	// Expires, if not zero, is when the item ceases to exist.
	Expires time.Time
	// Due, if not zero, is when ClaimDue hands the item out.
	Due time.Time
}

// MaxLease is the longest lease.
const MaxLease = time.Hour

// Claim specifies which due items of a tenant are leased.
type Claim struct {
	Space Space
	Limit int
	Lease time.Duration
	// Freeing marks a claim of work that makes room (Append.Freeing).
	Freeing bool
}

// Change is the latest change of a tenant's feed. Numbers ascend over all tenants, are never reused and survive
// restarts: a reader that has seen all changes up to a number continues after it.
type Change struct {
	Tenant j17.Tenant
	Number uint64
}

// Range is the keys from From on and before To, in byte order; the zero Range has all keys. Bounds need not be keys.
type Range struct {
	From string
	// To, if not "", is the first key that is no longer in the range.
	To string
	// Backward asks for the greatest keys first.
	Backward bool
}

// Prefix returns the range of the keys that start with prefix.
func Prefix(prefix string) Range {
	if prefix == "" {
		return Range{}
	}
	return Range{From: prefix, To: prefix + afterText}
}

// afterText sorts after all text: no UTF-8 text has this byte.
const afterText = "\xff"

// After returns the part of the range that is greater than key, all of it for "".
func (r Range) After(key string) Range {
	if key != "" {
		r.From = max(r.From, key+"\x00")
	}
	return r
}

// Beyond returns the part of the range that comes after key in the order of the range.
func (r Range) Beyond(key string) Range {
	if r.Backward {
		r.To = key
		return r
	}
	return r.After(key)
}

// SideOp is what a side write does.
type SideOp uint8

// The side operations.
const (
	// Put writes Value, Expires and Due.
	Put SideOp = iota + 1
	// Delete removes the item; it is no error if there is none.
	Delete
	// Raise makes an item that is a decimal number, such as the counter of an Assignment, at least Value.
	Raise
	// Add adds Value, a decimal number that may be negative, to an item that is a number, 0 where it is absent. An item
	// that comes to 0, or would fall below, is removed. If everything a unit adds to an item would bring it beyond
	// Most, the outcome is Conflict. This lets writers count exactly without a condition that the writes of others
	// would break. A unit writes such an item only by Add.
	Add
)

// Cond is a condition on a side item.
type Cond uint8

// The conditions. They are tested on the state before the unit, in which an expired item is absent (Rev 0). The writes
// of a unit then apply in order.
const (
	Always Cond = iota
	IfAbsent
	IfRev
	// IfValue holds if the item's value is Was, whoever wrote it and however often: a unit can thus be decided on the
	// result of another one that is not stored yet. An absent item has the empty value.
	IfValue
)

// Side is one write of a side item.
type Side struct {
	Op      SideOp
	Space   Space
	Key     string
	Value   []byte
	Expires time.Time
	Due     time.Time
	// Claimed, if not zero, makes the Due of a Put the end of a lease of the writer, as after ClaimDue; it is when the
	// item was due before, at most MaxLease earlier than Due.
	Claimed time.Time
	Cond    Cond
	// Rev is compared when Cond is IfRev.
	Rev uint64
	// Was is compared when Cond is IfValue. It has at most MaxNameBytes.
	Was string
	// Stamps holds the indexes, from 0, of events of the unit whose positions the store puts in front of the Value of a
	// Put; ReadStamp removes them again.
	Stamps []int
	// StampKey puts the position of the first of Stamps in front of the Key too, as StampedKey does, so that such items
	// are in the order of events. They must be new: the write has no condition.
	StampKey bool
	// Most, if not 0, bounds what an Add may bring its item to. An Add of a negative number is never refused.
	Most int64
	// Entries, if not "", is the space of the item's entries, whose keys its Value begins with (AppendEntries): items
	// without a value that are there as long as the item lists them. A Put writes those that are new and removes those
	// that are no longer listed, a Delete removes all of them, whatever the item was before: writers need not read
	// first, and so do not conflict. Such an item is always written with the same Entries and never expires; nothing
	// else writes its entries or has a condition on them.
	Entries Space
	// Stream, if not 0, is the number, from 1, of an event of the unit to whose stream the item belongs: the item is
	// only ever written together with events of that stream, or after them. If the unit begins the stream the item must
	// be new, so the store need not look for it.
	Stream int
	// Plain marks a Put or a Delete of an item that has no times and no entries, is only ever written with Plain, and
	// has no conditions on it. Such a write need not read what was there before.
	Plain bool
}

// SideConflict is a fence or a side condition that did not hold.
type SideConflict struct {
	Space Space
	Key   string
	// Rev is the item's present revision; 0 when it is absent.
	Rev uint64
	// Full reports that an Add would have brought the item beyond its bound.
	Full bool
}

// Error describes the conflict.
func (c *SideConflict) Error() string {
	if c.Full {
		return "side item " + string(c.Space) + "/" + c.Key + " is at its bound"
	}
	return "side item " + string(c.Space) + "/" + c.Key + " has changed"
}

// Leaf is the leaf hash of the event at a position: the hash of its original bytes, whatever was erased since.
type Leaf struct {
	Position j17.StreamID
	Hash     [32]byte
}

// Extent is how far the events of a tenant reach.
type Extent struct {
	// Events is the number of events.
	Events uint64
	// Last is the position of the last event, or of what the method says.
	Last j17.StreamID
	// Life identifies the tenant's content under its name: it changes when the tenant is removed and created again, or
	// is loaded, and is 0 while the tenant holds nothing.
	Life uint64
}

// Status is the state of a store.
type Status struct {
	// Readable is false when the store is closed.
	Readable bool
	// Writable is false while free space is below the floor, while the clock is not trusted, and after a fault that
	// only a restart clears.
	Writable bool
	// Reason says why Readable or Writable is false.
	Reason string
	// FreeBytes is the free space of the volume, 0 where unknown.
	FreeBytes uint64
	// Replication is nil for a store on a disk of this machine.
	Replication *Replication
}

// Replication describes how stored data are kept on more than one machine.
type Replication struct {
	Mode ReplicationMode
	// Standbys counts those that commits wait for, LagBytes is how many bytes of the log the last of them is behind.
	Standbys int
	LagBytes int64
	// Async reports that, with its settings, the server can lose what it has acknowledged.
	Async bool
}

// ReplicationMode is whether commits wait for a second machine.
type ReplicationMode string

// The modes: commits wait for a standby, or there is one machine only.
const (
	Quorum ReplicationMode = "quorum"
	Single ReplicationMode = "single"
)

// Errors that concern a whole call.
var (
	ErrNotFound = errors.New("store: not found")
	ErrClosed   = errors.New("store: closed")
	// ErrFull: free space is below the floor. Nothing was written.
	ErrFull = errors.New("store: free disk space is below the floor")
	// ErrBusy: the store lacks something that comes back by itself, such as file descriptors. Nothing was written, and
	// the same call is worth another try.
	ErrBusy = errors.New("store: busy, try again")
	// ErrClock: the clock has jumped and is not trusted. Nothing was written; reads go on.
	ErrClock = errors.New("store: the clock has jumped")
	// ErrUnknown: the write may or may not be durable.
	ErrUnknown = errors.New("store: the outcome of the write is unknown")
	// ErrFailed: an earlier write failed in a way that only a restart clears. Nothing was written; reads go on.
	ErrFailed = errors.New("store: writes have stopped after a fault")
	// ErrLimit: a unit exceeds a limit of the store. Nothing was written.
	ErrLimit = errors.New("store: limit exceeded")
	// ErrInvalid: an argument does not have the form that the types of this package require. Nothing was written.
	ErrInvalid = errors.New("store: invalid argument")
	// ErrIndexing: the index of tags is not complete yet. See IndexingError.
	ErrIndexing = errors.New("store: the index of tags is being built, try again")
	// ErrSealed: a value was sealed with the key of another data folder.
	ErrSealed = errors.New("store: the value is sealed with another key: put the key file of this data folder back")
	// ErrNotEmpty: a load found events.
	ErrNotEmpty = errors.New("store: tenant is not empty")
	// ErrOvertaken: a load found that too much of the tenant's data had changed while it was committed.
	ErrOvertaken = errors.New("store: tenant has changed too much meanwhile")
	// ErrEnded: something that an archive shows was erased, or a moment was open for longer than the store keeps what
	// it shows. Reading has to start again with a new one.
	ErrEnded = errors.New("store: what was read has ended, start again")
)

// LackError is ErrBusy with what the store lacks, in the words of operators.
type LackError struct {
	Of string
	// Why, if not "", is for the log.
	Why string
}

// Error describes what is missing.
func (e *LackError) Error() string {
	return ErrBusy.Error() + ": there is a lack of " + e.Of + strings.TrimSuffix(": "+e.Why, ": ")
}

// Unwrap returns ErrBusy.
func (e *LackError) Unwrap() error { return ErrBusy }

// What a store may lack.
const (
	OfDescriptors = "file descriptors"
	OfConnections = "connections to its database"
	OfDatabase    = "its database"
)

// Lacking returns what an ErrBusy says that the store lacks.
func Lacking(err error) string {
	if lack, ok := errors.AsType[*LackError](err); ok {
		return lack.Of
	}
	return "something"
}

// IndexingError is ErrIndexing with its progress. The events of a folder that an older version has written are indexed
// in the background.
type IndexingError struct {
	Done, Total uint64
}

// Error describes how far the index is.
func (e *IndexingError) Error() string {
	return ErrIndexing.Error() + ": " + strconv.FormatUint(e.Done, 10) + " of " + strconv.FormatUint(e.Total, 10) +
		" events are done"
}

// Unwrap returns ErrIndexing.
func (e *IndexingError) Unwrap() error { return ErrIndexing }

// CorruptionError reports stored data that contradicts itself. It is never served.
type CorruptionError struct {
	Where string
	// Item is the damaged side item if a write has met one; otherwise it is empty.
	Item ItemName
	Err  error
}

// Error describes the corruption.
func (e *CorruptionError) Error() string {
	return "store: corruption in " + e.Where + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *CorruptionError) Unwrap() error { return e.Err }
