package store

import (
	"context"
	"iter"
	"strconv"

	"j17"
)

// Archives is the role of a caller that copies tenants as a whole.
type Archives interface {
	// Archive shows everything of a tenant as of one moment, for as long as it takes to copy it. It is to be closed. It
	// holds up no erasure: Purge, of whatever tenant, ends it if anything of its tenant has changed since, and Close of
	// the store does. A tenant without events has one as well.
	Archive(ctx context.Context, t j17.Tenant) (Archive, error)

	// Load begins to fill a tenant that has no events: else it is ErrNotEmpty. It may have side items. Nothing of a
	// load is seen before its Commit, and nothing is left of it after its Discard or a crash.
	Load(ctx context.Context, t j17.Tenant) (Load, error)
}

// Archive is a Moment whose content can be read as a whole. When it is ended by an erasure, each method, and each
// iteration at its next step, is ErrEnded: what was read may hold data that has to be forgotten, and the copy has to
// start again.
type Archive interface {
	Moment

	// Extent tells how many events there are and where the last one is, whatever notes follow it.
	Extent() Extent

	// Changes yields the events and notes of the feed with positions greater than after, in their order.
	Changes(ctx context.Context, after j17.StreamID) iter.Seq2[Archived, error]

	// Rest sets a function that read-ahead for Changes calls after each small part, with the size of that in bytes,
	// while nothing of the store is held: so it may wait. Several may call it at a time. Its error ends the iteration.
	// It is set before Changes is called.
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
	// Tags are those that the event's metadata do not tell.
	Tags []string
	Note *Note
}

// ArchivedItem is a side item. It is valid until the next step of the iteration.
type ArchivedItem struct {
	Space Space
	Item

	// Entries, if not "", asks a Load to make the item's entries of its value, as Side.Entries does. An archive has
	// entries as items of their own.
	Entries Space
}

// ArchivedCommand is the result of a command.
type ArchivedCommand struct {
	Command

	// Timestamp is that of the events. The first of them is at First, the others follow; Lengths has the length of its
	// stream for each.
	Timestamp int64
	First     j17.StreamID
	Lengths   []uint64
}

// Load fills a tenant. It is for one goroutine. Memory is bounded, however much is loaded. After an error nothing but
// Discard is of use.
type Load interface {
	// Event adds an event, whose position is greater than those of all events and notes before it. It is copied. What
	// is wrong with it is a *LoadError, now or at Commit. It returns the leaf hash that a tree over the feed has of it.
	Event(e LoadedEvent) (leaf [32]byte, err error)

	// Note adds a note: the streams that it names have the generations that it gives them.
	Note(n Note) error

	// Item adds a side item, in whatever order. Its revision is kept; 0 asks for one. Of those with the same name the
	// last one counts, and it takes the place of one that is there.
	Item(i ArchivedItem) error

	// Withdraw takes back the item of that name that was added before, if there is one. What the tenant has under it
	// stays.
	Withdraw(n ItemName) error

	// Command adds the result of a command.
	Command(c ArchivedCommand) error

	// Commit checks what was added and makes all of it durable and seen at once, with what the tenant has, if the
	// fences hold at that moment: else it is a *SideConflict. It is ErrNotEmpty when the tenant has got events
	// meanwhile, and ErrOvertaken when it was removed or too much of what it has was changed while that was copied.
	Commit(ctx context.Context, fences ...Fence) error

	// Discard removes what was added, unless it was committed. It can be called at any time, and more than once.
	Discard()
}

// LoadedEvent is an event that is loaded.
type LoadedEvent struct {
	// Event has its position, key, type, timestamp, and canonical bytes with the views into them. Kept is what it
	// keeps. Version is the one that follows in its stream, or 0, which stands for that.
	*j17.Event

	// Tags are those that the metadata do not tell. Others are passed over.
	Tags []string

	// Chain, if not nil, is what the chain of the stream has to be with the event, over the bytes that its events have
	// (Head.Now).
	Chain *[32]byte

	// Line is how an error names the event.
	Line int
}

// LoadError tells which event cannot be loaded.
type LoadError struct {
	// Line is that of the LoadedEvent.
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
