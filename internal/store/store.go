// Package store states what the engine needs from storage: an atomic append with preconditions and side writes,
// ordered reads, work by due time. It is cut so that an embedded key-value store and a PostgreSQL cluster can
// both keep the promise: what was acknowledged is on disk, and nothing is seen by anyone before that.
package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"j17"
)

// Store is an event store. All methods are safe for concurrent use.
type Store interface {
	// Append commits units. Units are independent: each is all or nothing by itself, and results stand in the
	// units' order. It returns only when every committed unit is durable. A non-nil error concerns the whole
	// call: nothing is known about its units unless the error says so (ErrFull, ErrBusy, ErrClock and
	// ErrClosed: nothing was written; ErrUnknown: a retry with the same CommandID is safe).
	Append(ctx context.Context, t j17.Tenant, units []Append) ([]Result, error)

	// Command returns the result of the command with that id, or nil when there is none or it has expired.
	Command(ctx context.Context, t j17.Tenant, id CommandID) (*Result, error)

	// Heads returns the durable head of each stream; the zero Head for a stream without events.
	Heads(ctx context.Context, t j17.Tenant, keys []j17.Key) ([]Head, error)

	// ReadStream yields the durable events of one stream with from <= Version <= to in order of version; to 0
	// means the head. An event and its bytes are valid until the next step of the iteration.
	ReadStream(ctx context.Context, t j17.Tenant, key j17.Key, from, to uint64) iter.Seq2[*j17.Event, error]

	// VersionAfter returns the version of the first event of the stream whose StreamID is greater than after;
	// length+1 when there is none.
	VersionAfter(ctx context.Context, t j17.Tenant, key j17.Key, after j17.StreamID) (uint64, error)

	// Streams returns up to limit ids of streams of one aggregate type in byte order, greater than after.
	Streams(ctx context.Context, t j17.Tenant, aggregateType, after string, limit int) ([]string, error)

	// ReadFeed yields up to limit durable events of the tenant in order of StreamID, greater than after. No
	// event ever appears before one that was yielded already. An event is valid until the next step.
	ReadFeed(ctx context.Context, t j17.Tenant, after j17.StreamID, limit int) iter.Seq2[*j17.Event, error]

	// AwaitFeed blocks until the feed has an event greater than after.
	AwaitFeed(ctx context.Context, t j17.Tenant, after j17.StreamID) error

	// Rewrite replaces the type, data and metadata of events of one stream, for erasure only. Version, position and
	// timestamp stay; each rewritten event keeps the leaf hash of what it replaced, so that the chain and every proof
	// given out before still verify. The old bytes are gone from disk when it returns; it waits for readers that began
	// before. All or nothing, with the limits of a unit; ErrNotFound when there is no such version.
	Rewrite(ctx context.Context, t j17.Tenant, key j17.Key, events []Rewritten) error

	// Get returns one side item; ErrNotFound when there is none or it has expired.
	Get(ctx context.Context, t j17.Tenant, space Space, key string) (Item, error)

	// Scan returns up to limit live side items of a space whose keys are in a range, in byte order of their keys.
	Scan(ctx context.Context, t j17.Tenant, space Space, keys Range, limit int) ([]Item, error)

	// Write applies side writes, all or nothing. It returns a *SideConflict when a fence or a condition does not hold.
	Write(ctx context.Context, t j17.Tenant, side []Side, fences ...Fence) error

	// ClaimDue leases up to limit items of a space whose Due has come, earliest first: their Due moves to now plus
	// lease and their Rev changes. The Rev is the fencing token: finish with a Side on IfRev, in the same commit as
	// the work's events if it has any. A claim that is not finished comes up again after the lease: at least once.
	// Values and times are those that the items have after the claim.
	ClaimDue(ctx context.Context, t j17.Tenant, space Space, limit int, lease time.Duration) ([]Item, error)

	// Tenants lists the tenants that were written to and not dropped since, in byte order.
	Tenants(ctx context.Context) ([]j17.Tenant, error)
	// ExportTenant writes everything of one tenant as of one moment; docs/storage-format.md describes the lines. It
	// verifies what it writes. ErrNotFound when Tenants does not list the tenant.
	ExportTenant(ctx context.Context, t j17.Tenant, w io.Writer) error
	// ImportTenant reads what ExportTenant wrote into a tenant that Tenants does not list (else ErrNotEmpty) and verifies
	// counts, order, hashes and chains. It is all or nothing: what does not verify is an *ImportError and leaves no trace.
	ImportTenant(ctx context.Context, t j17.Tenant, r io.Reader) error
	// DropTenant removes everything of one tenant.
	DropTenant(ctx context.Context, t j17.Tenant) error

	// Extent tells how many events the tenant holds and where the last one is, both as of one moment; the zero Extent for a
	// tenant without events. Who hands out all events can compare.
	Extent(ctx context.Context, t j17.Tenant) (Extent, error)

	// Barrier returns nil when every write that was called before is decided: it is durable and can be seen, or will never
	// be. Whoever was told ErrUnknown reads after it what has become of the write. ErrFull and ErrBusy mean that a write is
	// still on its way and that Barrier has to be called again; after ErrFailed only a restart tells. It is never refused for
	// want of space alone.
	Barrier(ctx context.Context) error

	// Status tells what is accepted and how much room there is. It costs next to nothing.
	Status() Status

	// DiskBytes returns what the store occupies. It looks at every file.
	DiskBytes() uint64

	// Close waits for running calls and releases the store. Iterations end with ErrClosed at their next step, and Close waits
	// for that step.
	Close() error

	// Shutdown is Close with an end: when ctx ends it waits no longer for iterations that take no step. Everything
	// acknowledged is on disk and another process can open the store, but the memory of this one stays in use.
	Shutdown(ctx context.Context) error
}

// CommandID makes a command idempotent: the second append with the same id is not executed.
type CommandID [16]byte

// Append is one unit: events, preconditions and side writes that commit together or not at all.
type Append struct {
	// Command, if not nil, makes the unit idempotent.
	Command *Command
	Pre     []Pre
	Fences  []Fence
	Events  []NewEvent
	Side    []Side
	// Assign gives owners values of their own. It can only fail where a proposed value belongs to another owner.
	Assign []Assignment
	// Timestamp is the Unix second for the unit's events. The store raises it to the latest one of the tenant's
	// events, so that time never runs backward in a feed.
	Timestamp int64
	// Decided tells that the unit was decided at Timestamp: it is not written with another one, but refused as TooEarly.
	Decided bool
	// After numbers units before this one in the same call, from 0, on whose events this one was decided: unless all of
	// them are committed by this call, it is a Conflict.
	After []int
	// Freeing marks a unit that makes room, or that has to be stored before something else can make room. It is committed
	// below the floor of free space too, as long as the store has some of its reserve left. Units that do nothing but delete
	// side items need no mark.
	Freeing bool
}

// Frees reports whether the unit is committed when free space is below the floor.
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

// WriteFreeing is Store.Write for side writes that make room, or have to be stored before something else can (Append.Freeing).
func WriteFreeing(ctx context.Context, st Store, t j17.Tenant, side []Side) error {
	results, err := st.Append(ctx, t, []Append{{Side: side, Freeing: true}})
	if err != nil {
		return err
	}
	if results[0].Outcome == Conflict {
		return &results[0].Sides[0]
	}
	return nil
}

// Command identifies a unit for as long as a retry of it may come.
type Command struct {
	ID CommandID
	// Memo is kept with the result and returned with a duplicate.
	Memo []byte
	// Expires is when the id is forgotten; the zero time means never.
	Expires time.Time
}

// Pre is a precondition on the length of a stream. The stream need not be written by the unit.
type Pre struct {
	Key    j17.Key
	Length uint64
}

// Fence is a precondition on a side item, which the unit need not write: that it has the revision it had when the unit was
// decided. Like the conditions of side writes it is tested on what was there before the unit.
type Fence struct {
	Space Space
	Key   string
	// Rev is the item's; 0 when it must be absent.
	Rev uint64
}

// NewEvent is an event to be appended: the store adds position, version, timestamp and hashes.
type NewEvent struct {
	Key  j17.Key
	Type string
	// Data is a compact JSON value, Metadata a compact JSON object without "timestamp".
	Data     []byte
	Metadata []byte
	// Timestamp, if not 0, is kept instead of the unit's (import of history).
	Timestamp int64
}

// Assignment gives an owner a value of its own, once for all: an owner that has one keeps it. Values of counters follow
// each other without gaps, because a unit that is not committed takes none.
type Assignment struct {
	// Space holds the value under the owner's name.
	Space Space
	Owner string
	// Index holds the owner's name under the value.
	Index Space
	// Value is what an owner without a value gets. "" means the next number, from 1, of the counter that is the item Counter
	// of the index.
	Value   string
	Counter string
}

// Outcome tells what became of a unit.
type Outcome uint8

// The outcomes.
const (
	// Committed: the unit is durable.
	Committed Outcome = iota + 1
	// Conflict: a precondition or a side condition did not hold; nothing was written.
	Conflict
	// Duplicate: the command was committed before; the result is that of the first time.
	Duplicate
	// TooEarly: the unit was decided at a time before the tenant's latest event; nothing was written. Result.Timestamp is
	// the time to decide anew for.
	TooEarly
)

// Result is the outcome of one unit.
type Result struct {
	Outcome Outcome
	// IDs and Lengths tell position and resulting stream length for each event of the unit (Committed, Duplicate).
	IDs     []j17.StreamID
	Lengths []uint64
	// Assigned tells for each assignment which value the owner has (Committed).
	Assigned []string
	// Timestamp is the Unix second that the events carry, or that of the tenant's latest event (TooEarly).
	Timestamp int64
	// Memo is that of the first command (Duplicate).
	Memo []byte
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
	// First and LastTime are the timestamps of the first and last event in Unix seconds.
	FirstTime int64
	LastTime  int64
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

// Range is the keys from From on and before To, in byte order; the zero Range has all keys. Bounds need not be keys.
type Range struct {
	From string
	// To, if not "", is the first key that is not in the range any more.
	To string
}

// Prefix returns the range of the keys that start with prefix.
func Prefix(prefix string) Range {
	if prefix == "" {
		return Range{}
	}
	return Range{From: prefix, To: prefix + afterText}
}

// afterText is greater than all text: it is no byte of UTF-8.
const afterText = "\xff"

// After returns the part of the range that is greater than key, all of it for "".
func (r Range) After(key string) Range {
	if key != "" {
		r.From = max(r.From, key+"\x00")
	}
	return r
}

// SideOp tells what a side write does.
type SideOp uint8

// The side operations.
const (
	// Put writes Value, Expires and Due.
	Put SideOp = iota + 1
	// Delete removes the item; removing what is not there is no fault.
	Delete
	// Raise makes an item that is a decimal number, such as the counter of an Assignment, at least Value.
	Raise
)

// Cond is a condition on a side item.
type Cond uint8

// The conditions. They are tested on what was there before the unit, and an expired item counts as absent (Rev 0).
// The writes of a unit then apply in their order.
const (
	Always Cond = iota
	IfAbsent
	IfRev
)

// Side is one write of a side item.
type Side struct {
	Op      SideOp
	Space   Space
	Key     string
	Value   []byte
	Expires time.Time
	Due     time.Time
	Cond    Cond
	// Rev is compared when Cond is IfRev.
	Rev uint64
}

// SideConflict is a fence or a side condition that did not hold.
type SideConflict struct {
	Space Space
	Key   string
	// Rev is the item's present one; 0 when it is absent.
	Rev uint64
}

// Error describes the conflict.
func (c *SideConflict) Error() string {
	return "side item " + string(c.Space) + "/" + c.Key + " has changed"
}

// Extent is how far the events of a tenant reach.
type Extent struct {
	// Events is the number of events.
	Events uint64
	// Last is the position of the last one.
	Last j17.StreamID
}

// Status is the state of a store.
type Status struct {
	// Readable is false when the store is closed.
	Readable bool
	// Writable is false while free space is below the floor, while the clock is not believed, and after a fault that only a
	// restart clears.
	Writable bool
	// Reason says why not.
	Reason string
	// FreeBytes is the free space of the volume, 0 where unknown.
	FreeBytes uint64
}

// Errors that concern a whole call.
var (
	ErrNotFound = errors.New("store: not found")
	ErrClosed   = errors.New("store: closed")
	// ErrFull: free space is below the floor. Nothing was written.
	ErrFull = errors.New("store: free disk space is below the floor")
	// ErrBusy: the store lacks something that comes back by itself, such as file descriptors. Nothing was written, and the
	// same call is worth another try.
	ErrBusy = errors.New("store: busy, try again")
	// ErrClock: the clock has jumped, and what it shows is not believed. Nothing was written; reads go on.
	ErrClock = errors.New("store: the clock has jumped")
	// ErrUnknown: the write may or may not be durable.
	ErrUnknown = errors.New("store: the outcome of the write is unknown")
	// ErrFailed: an earlier write failed in a way that only a restart clears. Nothing was written; reads go on.
	ErrFailed = errors.New("store: writes have stopped after a fault")
	// ErrLimit: a unit exceeds a limit of the store. Nothing was written.
	ErrLimit = errors.New("store: limit exceeded")
	// ErrInvalid: an argument has not the form that the types of this package ask for. Nothing was written.
	ErrInvalid = errors.New("store: invalid argument")
	// ErrNotEmpty: an import found data.
	ErrNotEmpty = errors.New("store: tenant is not empty")
)

// CorruptionError reports stored data that contradicts itself. It is never served.
type CorruptionError struct {
	Where string
	Err   error
}

// Error describes the corruption.
func (e *CorruptionError) Error() string {
	return "store: corruption in " + e.Where + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *CorruptionError) Unwrap() error { return e.Err }

// ImportError tells why a file is no export of a tenant, or is a damaged one.
type ImportError struct {
	// Line counts from 1.
	Line int
	Err  error
}

// Error describes the fault.
func (e *ImportError) Error() string {
	return "line " + strconv.Itoa(e.Line) + " of the export: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *ImportError) Unwrap() error { return e.Err }

// Limits of every store. Names (tenants, aggregate types and ids, event types, spaces, side keys) are valid UTF-8
// without NUL.
const (
	// MaxTenantBytes is the length of a tenant's name.
	MaxTenantBytes = 64
	// MaxNameBytes is the length of every other name.
	MaxNameBytes = 1024
	// MaxUnitEvents is the number of events one unit may append.
	MaxUnitEvents = 20_000
	// MaxUnitAssignments is the number of assignments of one unit.
	MaxUnitAssignments = 1000
	// MaxUnitBytes bounds the events, the side values and the memo of one unit.
	MaxUnitBytes = 64 << 20
)

// Validate checks the form and the limits of the unit. What it reports is ErrInvalid or ErrLimit.
func (a *Append) Validate() error {
	if len(a.Events) > MaxUnitEvents {
		return fmt.Errorf("%w: %d events in one unit, %d are allowed", ErrLimit, len(a.Events), MaxUnitEvents)
	}
	if len(a.Assign) > MaxUnitAssignments {
		return fmt.Errorf("%w: %d assignments in one unit, %d are allowed", ErrLimit, len(a.Assign), MaxUnitAssignments)
	}
	size := 0
	if a.Command != nil {
		size += len(a.Command.Memo)
		if err := validTime("expiry of the command", a.Command.Expires); err != nil {
			return err
		}
	}
	for i := range a.Pre {
		if err := ValidKey(a.Pre[i].Key); err != nil {
			return err
		}
	}
	for i := range a.Fences {
		if err := a.Fences[i].validate(); err != nil {
			return fmt.Errorf("fence %d: %w", i, err)
		}
	}
	for i := range a.Events {
		e := &a.Events[i]
		if err := e.validate(); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		size += len(e.Type) + len(e.Data) + len(e.Metadata)
	}
	for i := range a.Side {
		s := &a.Side[i]
		if err := s.validate(); err != nil {
			return fmt.Errorf("side write %d: %w", i, err)
		}
		size += len(s.Key) + len(s.Value)
	}
	for i := range a.Assign {
		if err := a.Assign[i].validate(); err != nil {
			return fmt.Errorf("assignment %d: %w", i, err)
		}
		size += len(a.Assign[i].Owner) + len(a.Assign[i].Value)
		for j := range i {
			if p, q := &a.Assign[j], &a.Assign[i]; p.Value != "" && p.Value == q.Value && p.Index == q.Index {
				return fmt.Errorf("%w: assignment %d proposes the same value as assignment %d", ErrInvalid, i, j)
			}
		}
	}
	if size > MaxUnitBytes {
		return fmt.Errorf("%w: %d bytes in one unit, %d are allowed", ErrLimit, size, MaxUnitBytes)
	}
	return nil
}

// ValidTenant checks the form and the length of a tenant's name. What it reports is ErrInvalid or ErrLimit.
func ValidTenant(t j17.Tenant) error {
	if len(t) > MaxTenantBytes {
		return fmt.Errorf("%w: a tenant's name of %d bytes, %d are allowed", ErrLimit, len(t), MaxTenantBytes)
	}
	return validName("tenant", string(t))
}

// ValidKey checks the form and the length of a stream's key. What it reports is ErrInvalid or ErrLimit.
func ValidKey(k j17.Key) error {
	if err := validPlain("aggregate type", k.Type); err != nil {
		return err
	}
	if strings.IndexByte(k.Type, ':') >= 0 {
		return fmt.Errorf("%w: the aggregate type %q has a colon", ErrInvalid, k.Type)
	}
	return validPlain("aggregate id", k.ID)
}

func (e *NewEvent) validate() error {
	if err := ValidKey(e.Key); err != nil {
		return err
	}
	return validContent(e.Type, e.Data, e.Metadata)
}

// ValidateRewrite checks the form and the limits of what Rewrite takes. What it reports is ErrInvalid or ErrLimit.
func ValidateRewrite(events []Rewritten) error {
	if len(events) > MaxUnitEvents {
		return fmt.Errorf("%w: %d events to rewrite, %d are allowed at a time", ErrLimit, len(events), MaxUnitEvents)
	}
	size := 0
	for i := range events {
		r := &events[i]
		if err := validContent(r.Type, r.Data, r.Metadata); err != nil {
			return fmt.Errorf("version %d: %w", r.Version, err)
		}
		size += len(r.Type) + len(r.Data) + len(r.Metadata)
	}
	if size > MaxUnitBytes {
		return fmt.Errorf("%w: %d bytes to rewrite, %d are allowed at a time", ErrLimit, size, MaxUnitBytes)
	}
	return nil
}

func validContent(typ string, data, metadata []byte) error {
	if err := validPlain("event type", typ); err != nil {
		return err
	}
	if len(data) == 0 || bytes.IndexByte(data, '\n') >= 0 {
		return fmt.Errorf("%w: the data of an event is no compact JSON value", ErrInvalid)
	}
	n := len(metadata)
	if n < len("{}") || metadata[0] != '{' || metadata[n-1] != '}' || bytes.IndexByte(metadata, '\n') >= 0 {
		return fmt.Errorf("%w: the metadata of an event is no compact JSON object", ErrInvalid)
	}
	return nil
}

func (s *Side) validate() error {
	if s.Op < Put || s.Op > Raise {
		return fmt.Errorf("%w: unknown side operation %d", ErrInvalid, s.Op)
	}
	if s.Op == Raise {
		if _, err := strconv.ParseUint(string(s.Value), 10, 63); err != nil {
			return fmt.Errorf("%w: a number to raise to: %q", ErrInvalid, s.Value)
		}
	}
	if s.Cond > IfRev {
		return fmt.Errorf("%w: unknown condition %d", ErrInvalid, s.Cond)
	}
	if err := validItem(s.Space, s.Key); err != nil {
		return err
	}
	if err := validTime("expiry of the item", s.Expires); err != nil {
		return err
	}
	return validTime("due time of the item", s.Due)
}

func (f *Fence) validate() error { return validItem(f.Space, f.Key) }

func validItem(space Space, key string) error {
	if err := validName("space", string(space)); err != nil {
		return err
	}
	return validName("side key", key)
}

func (a *Assignment) validate() error {
	if (a.Value == "") == (a.Counter == "") {
		return fmt.Errorf("%w: an assignment needs either a value or a counter", ErrInvalid)
	}
	if err := validName("space", string(a.Space)); err != nil {
		return err
	}
	if err := validName("index", string(a.Index)); err != nil {
		return err
	}
	if err := validName("owner", a.Owner); err != nil {
		return err
	}
	return validName("value or counter", a.Value+a.Counter)
}

// validTime checks that Unix nanoseconds can hold t.
func validTime(what string, t time.Time) error {
	if !t.IsZero() && (t.Unix() < 1 || t.Year() > 2261) {
		return fmt.Errorf("%w: the %s, %s, is not between the years 1970 and 2262", ErrInvalid, what, t)
	}
	return nil
}

func validName(what, s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%w: the %s is empty", ErrInvalid, what)
	case len(s) > MaxNameBytes:
		return fmt.Errorf("%w: the %s has %d bytes, %d are allowed", ErrLimit, what, len(s), MaxNameBytes)
	case strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s):
		return fmt.Errorf("%w: the %s %q is no UTF-8 text without NUL", ErrInvalid, what, s)
	default:
		return nil
	}
}

// validPlain checks a name that stands in canonical bytes as it is.
func validPlain(what, s string) error {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			return fmt.Errorf("%w: the %s %q has a character that JSON escapes", ErrInvalid, what, s)
		}
	}
	return validName(what, s)
}
