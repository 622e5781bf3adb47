// Package store states what the engine needs from storage: an atomic append with preconditions and side writes,
// ordered reads, work by due time. It is cut so that an embedded key-value store and a PostgreSQL cluster can
// both keep the promise: what was acknowledged is on disk, and nothing is seen by anyone before that.
package store

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"j17"
)

// Tenant names one isolated data set: an environment of an instance, or the system's own. At most 64 bytes.
type Tenant string

// System is the tenant of the control plane.
const System Tenant = "system"

// TenantOf returns the tenant of one environment of an instance, named by its handle.
func TenantOf(instance string, env j17.Environment) Tenant {
	return Tenant(instance + "/" + string(env))
}

// Store is an event store. All methods are safe for concurrent use.
type Store interface {
	// Append commits units. Units are independent: each is all or nothing by itself, and results stand in the
	// units' order. It returns only when every committed unit is durable. A non-nil error concerns the whole
	// call: nothing is known about its units unless the error says so (ErrFull and ErrClosed: nothing was
	// written; ErrUnknown: a retry with the same CommandID is safe).
	Append(ctx context.Context, t Tenant, units []Append) ([]Result, error)

	// Command returns the result of the command with that id, or nil when there is none or it has expired.
	Command(ctx context.Context, t Tenant, id CommandID) (*Result, error)

	// Heads returns the durable head of each stream; the zero Head for a stream without events.
	Heads(ctx context.Context, t Tenant, keys []j17.Key) ([]Head, error)

	// ReadStream yields the durable events of one stream with from <= Version <= to in order of version; to 0
	// means the head. The bytes of an event are valid until the next step of the iteration.
	ReadStream(ctx context.Context, t Tenant, key j17.Key, from, to uint64) iter.Seq2[*j17.Event, error]

	// VersionAfter returns the version of the first event of the stream whose StreamID is greater than after;
	// length+1 when there is none.
	VersionAfter(ctx context.Context, t Tenant, key j17.Key, after j17.StreamID) (uint64, error)

	// Streams returns up to limit ids of streams of one aggregate type in byte order, greater than after.
	Streams(ctx context.Context, t Tenant, aggregateType, after string, limit int) ([]string, error)

	// ReadFeed yields up to limit durable events of the tenant in order of StreamID, greater than after. No
	// event ever appears before one that was yielded already.
	ReadFeed(ctx context.Context, t Tenant, after j17.StreamID, limit int) iter.Seq2[*j17.Event, error]

	// AwaitFeed blocks until the feed has an event greater than after.
	AwaitFeed(ctx context.Context, t Tenant, after j17.StreamID) error

	// Rewrite replaces the type, data and metadata of events of one stream, for erasure only. Version, position and
	// timestamp stay; each rewritten event keeps the leaf hash of what it replaced, so that the chain and every proof
	// given out before still verify. The old bytes are gone from disk when it returns.
	Rewrite(ctx context.Context, t Tenant, key j17.Key, events []Rewritten) error

	// Get returns one side item; ErrNotFound when there is none or it has expired.
	Get(ctx context.Context, t Tenant, space Space, key string) (Item, error)

	// Scan returns up to limit live side items of a space in byte order of their keys, which start with prefix
	// and are greater than after.
	Scan(ctx context.Context, t Tenant, space Space, prefix, after string, limit int) ([]Item, error)

	// Write applies side writes, all or nothing. It returns a *SideConflict when a condition does not hold.
	Write(ctx context.Context, t Tenant, side []Side) error

	// ClaimDue leases up to limit items of a space whose Due has come, earliest first: their Due moves to now plus
	// lease and their Rev changes. The Rev is the fencing token: finish with a Side on IfRev, in the same commit as
	// the work's events if it has any. A claim that is not finished comes up again after the lease: at least once.
	ClaimDue(ctx context.Context, t Tenant, space Space, limit int, lease time.Duration) ([]Item, error)

	// Tenants lists the tenants that hold anything, in byte order.
	Tenants(ctx context.Context) ([]Tenant, error)
	// ExportTenant writes everything of one tenant as of one moment; docs/storage-format.md describes the lines.
	ExportTenant(ctx context.Context, t Tenant, w io.Writer) error
	// ImportTenant reads what ExportTenant wrote into an empty tenant and verifies its chains.
	ImportTenant(ctx context.Context, t Tenant, r io.Reader) error
	// DropTenant removes everything of one tenant.
	DropTenant(ctx context.Context, t Tenant) error

	// Status tells whether writes are accepted and how much room there is.
	Status() Status

	// Close waits for running calls and releases the store.
	Close() error
}

// CommandID makes a command idempotent: the second append with the same id is not executed.
type CommandID [16]byte

// Append is one unit: events, preconditions and side writes that commit together or not at all.
type Append struct {
	// Command, if not nil, makes the unit idempotent.
	Command *Command
	Pre     []Pre
	Events  []NewEvent
	Side    []Side
	// Timestamp is the Unix second for the unit's events. The store raises it to that of the tenant's last event,
	// so that time never runs backward in a feed.
	Timestamp int64
}

// Command identifies a unit for as long as a retry of it may come.
type Command struct {
	ID CommandID
	// Memo is kept with the result and returned with a duplicate.
	Memo    []byte
	Expires time.Time
}

// Pre is a precondition on the length of a stream. The stream need not be written by the unit.
type Pre struct {
	Key    j17.Key
	Length uint64
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
)

// Result is the outcome of one unit.
type Result struct {
	Outcome Outcome
	// IDs and Lengths tell position and resulting stream length for each event of the unit (Committed, Duplicate).
	IDs     []j17.StreamID
	Lengths []uint64
	// Timestamp is the Unix second that the events carry.
	Timestamp int64
	// Memo is that of the first command (Duplicate).
	Memo []byte
	// Streams lists every failed precondition, Sides every failed side condition (Conflict).
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

// Item is one side item.
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

// SideOp tells what a side write does.
type SideOp uint8

// The side operations.
const (
	// Put writes Value, Expires and Due.
	Put SideOp = iota + 1
	// Delete removes the item; removing what is not there is no fault.
	Delete
	// Check writes nothing and only tests the condition.
	Check
)

// Cond is a condition on a side item.
type Cond uint8

// The conditions. An expired item counts as absent.
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

// SideConflict is a side condition that did not hold.
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

// Status is the state of a store.
type Status struct {
	// Writable is false while free space is below the floor or after a fault that only a restart clears.
	Writable bool
	// Reason says why not.
	Reason string
	// FreeBytes is the free space of the volume, 0 where unknown.
	FreeBytes uint64
	// DiskBytes is what the store occupies.
	DiskBytes uint64
}

// Errors that concern a whole call.
var (
	ErrNotFound = errors.New("store: not found")
	ErrClosed   = errors.New("store: closed")
	// ErrFull: free space is below the floor. Nothing was written.
	ErrFull = errors.New("store: free disk space is below the floor")
	// ErrUnknown: the write may or may not be durable.
	ErrUnknown = errors.New("store: the outcome of the write is unknown")
	// ErrLimit: a unit exceeds a limit of the store. Nothing was written.
	ErrLimit = errors.New("store: limit exceeded")
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

// Limits of every store.
const (
	// MaxUnitEvents is the number of events one unit may append.
	MaxUnitEvents = 20_000
	// MaxUnitBytes bounds the events and side values of one unit.
	MaxUnitBytes = 64 << 20
)
