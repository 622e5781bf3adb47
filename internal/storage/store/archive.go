package store

import (
	"context"
	"iter"
	"strconv"

	"j17"
)

// Archives is the role of a caller that copies tenants as a whole.
type Archives interface {
	// Archive returns a view of a whole tenant as of one moment, for as long as it takes to copy it. It must be closed.
	// It does not delay erasures: a Purge of any tenant ends it if anything of its own tenant has changed since, and so
	// does Close of the store. A tenant without events has one too.
	Archive(ctx context.Context, t j17.Tenant) (Archive, error)

	// Load begins to fill a tenant. The error is ErrNotEmpty if the tenant has events; it may have side items. Nothing
	// of a load is visible before its Commit, and nothing is left of it after its Discard or a crash.
	Load(ctx context.Context, t j17.Tenant) (Load, error)
}

// Archive is a Moment whose content can be read as a whole. After an erasure has ended it, methods return ErrEnded, and
// so do iterations at their next step: the copy may hold data that was erased, and has to start again.
type Archive interface {
	Moment

	// Extent returns how many events there are and the position of the last one, whatever notes follow it.
	Extent() Extent

	// Changes yields the events and notes of the feed with positions greater than after, in order.
	Changes(ctx context.Context, after j17.StreamID) iter.Seq2[Archived, error]

	// Rest sets a function that the read-ahead of Changes calls after each small part, with its size in bytes. It may
	// block, since no resource of the store is held then, and must be safe for concurrent use. Its error ends the
	// iteration. Rest is called before Changes.
	Rest(after func(bytes int) error)

	// Items yields all live side items whose names are greater than after, in the byte order of their spaces and then
	// of their keys.
	Items(ctx context.Context, after ItemName) iter.Seq2[ArchivedItem, error]

	// Commands yields the results of all commands that have not expired, in the order of their ids.
	Commands(ctx context.Context) iter.Seq2[ArchivedCommand, error]
}

// Archived is an element of a tenant's feed: an event or a note. It is valid until the next step of the iteration.
type Archived struct {
	Event *j17.Event
	// Tags are those that do not come from the event's metadata.
	Tags []string
	Note *Note
}

// ArchivedItem is a side item. It is valid until the next step of the iteration.
type ArchivedItem struct {
	Space Space
	Item

	// Entries, if not "", makes a Load write the item's entries from its value, as Side.Entries does. An archive has
	// entries as separate items.
	Entries Space
}

// ArchivedCommand is the result of a command.
type ArchivedCommand struct {
	Command

	// Timestamp is that of the events. The first one is at First, the others follow; Lengths has for each event the
	// resulting length of its stream.
	Timestamp int64
	First     j17.StreamID
	Lengths   []uint64
}

// Load fills a tenant. It is for one goroutine. It uses bounded memory, however much is loaded. After an error only
// Discard may be called.
type Load interface {
	// Event adds an event, whose position must be greater than those of all events and notes before it. The event is
	// copied. If it is invalid the error is a *LoadError, now or at Commit. Event returns the leaf hash that a tree
	// over the feed has for it.
	Event(e LoadedEvent) (leaf [32]byte, err error)

	// Note adds a note, which gives the streams that it names their generations.
	Note(n Note) error

	// Item adds a side item; items may come in any order. Its revision is kept; 0 asks for a new one. Of items with the
	// same name the last one counts, and it replaces one that the tenant has.
	Item(i ArchivedItem) error

	// Withdraw removes an item that was added to the load before, if there is one, and its entries in the space
	// entries, "" if it has none. An item of that name that the tenant already has stays.
	Withdraw(n ItemName, entries Space) error

	// Command adds the result of a command.
	Command(c ArchivedCommand) error

	// Commit checks everything added and makes it durable and visible at once, together with what the tenant has. The
	// error is a *SideConflict if the fences do not hold at that moment, ErrNotEmpty if the tenant has got events
	// meanwhile, and ErrOvertaken if it was removed or too much of its data changed while that was copied.
	Commit(ctx context.Context, fences ...Fence) error

	// Discard removes what was added, unless it was committed. It can be called at any time, and more than once.
	Discard()
}

// LoadedEvent is an event that is loaded.
type LoadedEvent struct {
	// Event has position, key, type, timestamp, Kept, and canonical bytes with the views into them. Version is the next
	// one in its stream, or 0, which means the same.
	*j17.Event

	// Tags are those that do not come from the metadata. Others are ignored.
	Tags []string

	// Chain, if not nil, is the expected chain of the stream up to the event, over the present bytes of its events
	// (Head.Now).
	Chain *[32]byte

	// Line names the event in errors.
	Line int
}

// LoadError names an event that cannot be loaded.
type LoadError struct {
	// Line is the Line of the LoadedEvent.
	Line     int
	Position j17.StreamID
	Key      j17.Key
	Err      error
}

// Error describes the fault.
func (e *LoadError) Error() string {
	return "line " + strconv.Itoa(e.Line) + ": the event " + e.Position.String() + " of " + e.Key.String() +
		" cannot be loaded: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *LoadError) Unwrap() error { return e.Err }
