package store

import (
	"context"
	"iter"
	"time"

	"j17"
)

// Store is an event store. All methods are safe for concurrent use. Only who opens it holds the whole: others are given
// the roles that they need, so that what a package cannot do is seen in its types.
type Store interface {
	Engine

	// An engine need not play these: see Whole.
	BulkWrites
	Compaction
	Scrubbing
	Footprint
	Memory
}

// Engine is the roles that every engine plays.
type Engine interface {
	Events
	Aggregates
	Feed
	Sides
	Emptying
	Moments
	Tenants
	Archives
	Erasure
	Retagging
	Health

	// Close waits for running calls and releases the store. It does not wait for iterations: they end with ErrClosed at
	// their next step.
	Close() error

	// Shutdown is Close with an end: when ctx ends it waits no longer for a disk that does not answer. Everything
	// acknowledged is on disk and another process can open the store, but the memory of this one stays in use.
	Shutdown(ctx context.Context) error
}

// Events is the role of a caller that writes events. The engine has it, for nothing else may decide what happened in an
// environment, and the control plane for what happens to itself, in the System tenant.
type Events interface {
	// Append commits units. Units are independent: each is all or nothing by itself, and results are in the
	// units' order. It returns only when every committed unit is durable. A non-nil error concerns the whole
	// call: nothing is known about its units unless the error says so (ErrFull, ErrBusy, ErrClock and
	// ErrClosed: nothing was written; ErrUnknown: a retry with the same CommandID is safe).
	Append(ctx context.Context, t j17.Tenant, units []Append) ([]Result, error)

	// Command returns the result of the command with that id, or nil when there is none or it has expired.
	Command(ctx context.Context, t j17.Tenant, id CommandID) (*Result, error)

	// ForgetCommands removes the results of commands that have written events of parts of streams, so that nothing is
	// left that was made of them. Of a command that expires it is remembered until then that it was carried out: its
	// result has no events and no memo. What it costs depends on the events and on the commands that are remembered.
	ForgetCommands(ctx context.Context, t j17.Tenant, of []StreamPart) error
}

// Aggregates is the role of a caller that reads the events of single aggregates.
type Aggregates interface {
	// Heads returns the durable head of each stream; the zero Head for a stream without events.
	Heads(ctx context.Context, t j17.Tenant, keys []j17.Key) ([]Head, error)

	// ReadStream yields the durable events of one stream with from <= Version <= to in order of version; to 0 means the
	// head. An event and its bytes are valid until the next step of the iteration. It reads by pages of some 256 KiB:
	// between two steps it holds nothing of the store but a copy, so that a slow reader is in nobody's way. A tenant
	// that is removed meanwhile is ErrNotFound.
	ReadStream(ctx context.Context, t j17.Tenant, key j17.Key, from, to uint64) iter.Seq2[*j17.Event, error]

	// ReadStreams yields the first durable events of each of several streams, at most so many of each, one stream after
	// the other. It is ReadStream for callers that do not know how long streams are, at the cost of reading the short
	// ones: a caller that asks for one event more than it takes sees which are longer. Nothing compares what it yields
	// with the heads, so that a stream without its last events would pass for a shorter one. Each key is given once;
	// those in the order of types and ids cost least.
	ReadStreams(ctx context.Context, t j17.Tenant, keys []j17.Key, most uint64) iter.Seq2[*j17.Event, error]

	// VersionAfter returns the version of the first event of the stream whose StreamID is greater than after;
	// length+1 when there is none.
	VersionAfter(ctx context.Context, t j17.Tenant, key j17.Key, after j17.StreamID) (uint64, error)

	// Streams returns up to limit ids of streams of one aggregate type in byte order, greater than after.
	Streams(ctx context.Context, t j17.Tenant, aggregateType, after string, limit int) ([]string, error)
}

// Feed is the role of a caller that reads what happened in a tenant, in its order.
type Feed interface {
	// ReadFeed yields up to limit durable events of the tenant in order of StreamID, greater than after. No event ever
	// appears before one that was yielded already. An event is valid until the next step, and what ReadStream says of
	// slow readers holds here too.
	ReadFeed(ctx context.Context, t j17.Tenant, after j17.StreamID, limit int) iter.Seq2[*j17.Event, error]

	// ReadTagged is ReadFeed for the events that have all of some tags, and one of some types. What it costs depends on
	// the events that have the rarest of the tags, not on the feed. It is an *IndexingError while older events are not
	// indexed yet.
	//
	// Tags that seldom meet, or seldom with a type, may cost much without an event. looked, if not nil, is called with
	// how many steps were taken, some thousand at a time and what is left at the end, and up to which position
	// everything was looked at and handed out, which is zero where that is not known. A step is to find a place of the
	// index, or to look at the type of an event. Where looked reports false the reading ends.
	ReadTagged(
		ctx context.Context, t j17.Tenant, of Tagged, after j17.StreamID, limit int,
		looked func(steps int, upTo j17.StreamID) (more bool),
	) iter.Seq2[*j17.Event, error]

	// ReadChanges is ReadFeed with the notes about rewritten events between the events. Code that keeps derived data
	// reads these.
	ReadChanges(ctx context.Context, t j17.Tenant, after j17.StreamID, limit int) iter.Seq2[Entry, error]

	// ReadNames is ReadChanges for those who only want to know what has changed. Of an event it tells the Key, the
	// Version and the StreamID; it costs a small part of reading the events.
	ReadNames(ctx context.Context, t j17.Tenant, after j17.StreamID, limit int) iter.Seq2[Entry, error]

	// ReadLeaves yields the leaf hashes of the events that ReadFeed yields. Those of events that were written lately
	// are in memory.
	ReadLeaves(ctx context.Context, t j17.Tenant, after j17.StreamID, limit int) iter.Seq2[Leaf, error]

	// ReadOthers returns the leaf hashes of up to limit events that follow a position one after the other, as far as
	// none of them is of an aggregate of one of some types. more reports that something else follows, or may. It looks
	// at what is in memory only, and returns nothing where that does not begin at the position or where a note stands
	// behind it.
	ReadOthers(t j17.Tenant, after j17.StreamID, types []string, limit int) (leaves []Leaf, more bool)

	// CountRecent counts the events behind a position that are of an aggregate of one of some types. last is where the
	// last one of them is, upTo where the last of all events is, which are after where there are none. It looks at what
	// is in memory only, and is not ok where that does not begin at the position or where a note stands behind it. Now
	// and then an event of another type is counted as well.
	CountRecent(t j17.Tenant, after j17.StreamID, types []string) (n uint64, last, upTo j17.StreamID, ok bool)

	// Changed returns up to limit tenants whose feeds have changed later than since, in the order of their last
	// changes. What it costs does not depend on tenants that have not changed.
	Changed(ctx context.Context, since uint64, limit int) ([]Change, error)

	// AwaitChange blocks until the feed of any tenant has changed later than since.
	AwaitChange(ctx context.Context, since uint64) error

	// AwaitFeed blocks until the feed has an event, or a note, greater than after.
	AwaitFeed(ctx context.Context, t j17.Tenant, after j17.StreamID) error

	// Rewrites returns how often events of any tenant were rewritten since the store was opened. It has grown before
	// Rewrite returns: who keeps copies of events asks before it hands one out, and what was copied at another count is
	// outdated.
	Rewrites() uint64

	// Extent returns how many events the tenant holds and where its last event or note is, both as of one moment; the
	// zero Extent for a tenant without events. A caller that hands out all events can compare.
	Extent(ctx context.Context, t j17.Tenant) (Extent, error)
}

// Sides is the role of a caller that keeps anything but events: side items, and work by the time it is due.
type Sides interface {
	// Get returns one side item; ErrNotFound when there is none or it has expired.
	Get(ctx context.Context, t j17.Tenant, space Space, key string) (Item, error)

	// GetEach passes the live side items of a space that have some keys, which ascend: the place of each among the
	// keys, and its value, which is valid until do returns. It is as of one moment, and ends with the first error of
	// do. The nearer the keys stand to each other the less each of them costs; where many other items are between them,
	// Get is cheaper.
	GetEach(ctx context.Context, t j17.Tenant, space Space, keys []string, do func(i int, value []byte) error) error

	// Scan returns up to limit live side items of a space whose keys are in a range, in byte order of their keys.
	Scan(ctx context.Context, t j17.Tenant, space Space, keys Range, limit int) ([]Item, error)

	// Count returns how many live side items of a space have keys in a range, up to limit.
	Count(ctx context.Context, t j17.Tenant, space Space, keys Range, limit int) (int, error)

	// Write applies side writes, all or nothing. It returns a *SideConflict when a fence or a condition does not hold.
	Write(ctx context.Context, t j17.Tenant, side []Side, fences ...Fence) error

	// WriteFreeing is Write for side writes that make room, or have to be stored before something else can
	// (Append.Freeing).
	WriteFreeing(ctx context.Context, t j17.Tenant, side []Side, fences ...Fence) error

	// Clear removes all items of a space whose keys are in a range, all of which were written as Side.Plain says. What
	// it costs does not depend on how many there are. It goes on below the floor of free space.
	Clear(ctx context.Context, t j17.Tenant, space Space, keys Range) error

	// ClaimDue leases items whose Due has come, earliest first: their Due moves to now plus the lease, which is at most
	// MaxLease, and their Rev changes. The Rev is the fencing token: finish with a Side on IfRev, in the same commit as
	// the work's events if it has any. A claim that is not finished comes up again after the lease: at least once.
	// Values and times are those that the items have after the claim.
	ClaimDue(ctx context.Context, t j17.Tenant, c Claim) ([]Item, error)

	// NextDue returns when the next live item of a space is due, over all tenants; the zero time when none has a due
	// time. What NextDue, DueTenants and AwaitDue cost does not depend on tenants without due items. Items that are
	// damaged are passed over and logged, here and by ClaimDue, and so are tenants that have no others: they hold up
	// nobody else.
	NextDue(ctx context.Context, space Space) (time.Time, error)

	// DueTenants returns up to limit tenants that have due items in a space, the longest waiting ones first.
	DueTenants(ctx context.Context, space Space, limit int) ([]j17.Tenant, error)

	// CountDue returns how many live items of a space of one tenant are due before a moment, up to limit, and when the
	// first item of all is due, the zero time for never. What it costs depends on limit. Items that are damaged do not
	// count.
	CountDue(
		ctx context.Context, t j17.Tenant, space Space, before time.Time, limit int,
	) (n int, first time.Time, err error)

	// AwaitDue blocks until a live item of a space is due before a moment, in whatever tenant; for the zero time until
	// one has a due time at all.
	AwaitDue(ctx context.Context, space Space, before time.Time) error
}

// BulkWrites is the role of a caller that writes so many items at a time that it is cheaper to sort them first than to
// have the store do it.
type BulkWrites interface {
	// BulkWrite begins to gather plain items of a tenant; ErrNotFound for one that holds nothing.
	BulkWrite(ctx context.Context, t j17.Tenant) (BulkWrite, error)
}

// BulkWrite is many plain items (Side.Plain) that are taken in together. It takes a bounded amount of memory, and room
// on disk beside the store. It leaves room for those who write meanwhile: its methods return ErrFull before other
// writes are refused for want of space. A Purge of the tenant ends it: from then on its methods return ErrEnded.
type BulkWrite interface {
	// Put adds an item. Of several with one name the last one counts.
	Put(space Space, key string, value []byte) error

	// Write makes the items durable, and then commits side writes that say so. Where a fence or a condition does not
	// hold it returns a *SideConflict, and nothing was written. After other errors, after a crash, and where an engine
	// writes the items in parts and a fence ceases to hold meanwhile, items may be there without the side writes. It
	// ends the bulk write.
	Write(ctx context.Context, side []Side, fences ...Fence) error

	// Discard ends the bulk write, and nothing is left of it. After Write it does nothing.
	Discard()
}

// Emptying is the role of a caller that rebuilds data derived from events.
type Emptying interface {
	// Empty removes all items of some spaces, items with entries where the space of these is one of them too, and
	// applies side writes to other spaces, all or nothing. No item that it removes has a time. It returns a
	// *SideConflict when a fence or a condition does not hold. It looks at nothing that it removes, so that damage is
	// in nobody's way, and what it costs does not depend on how much that is. It goes on below the floor of free space.
	Empty(ctx context.Context, t j17.Tenant, spaces []Space, side []Side, fences ...Fence) error
}

// Compaction is the role of a caller that does a lot of work for which somebody waits.
type Compaction interface {
	// DeferCompaction pauses work that can wait, such as merging what is stored, until done is called, as far and as
	// long as the store can put it off. Several may defer it at a time; done may be called again.
	DeferCompaction() (done func())
}

// Moments is the role of a caller that reads several things as of one moment.
type Moments interface {
	// Moment shows a tenant as it is now, however much is written meanwhile. It is to be closed, and soon: as long as
	// it is open the store keeps on disk what it shows. A tenant without events has one as well.
	Moment(ctx context.Context, t j17.Tenant) (Moment, error)
}

// Moment is what a tenant holds as of one position of its feed. It is safe for concurrent use.
type Moment interface {
	// Position is that of the feed's last event or note, zero before the first.
	Position() j17.StreamID

	// Heads returns the head of each stream; the zero Head for a stream without events.
	Heads(keys []j17.Key) ([]Head, error)

	// Get, Scan and Count are those of Sides.
	Get(space Space, key string) (Item, error)
	Scan(space Space, keys Range, limit int) ([]Item, error)
	Count(space Space, keys Range, limit int) (int, error)

	// Each passes the live side items of a space whose keys are in a range, in byte order of their keys, until do
	// reports false. What it passes is valid until do returns.
	Each(space Space, keys Range, do func(key, value []byte) bool) error

	// Close releases it.
	Close()
}

// Tenants is the role of a caller that handles tenants as a whole.
type Tenants interface {
	// Tenants lists the tenants that were written to and not dropped since, in byte order.
	Tenants(ctx context.Context) ([]j17.Tenant, error)

	// DropTenant removes everything of one tenant.
	DropTenant(ctx context.Context, t j17.Tenant) error
}

// Erasure is the role of a caller that removes data which has to be forgotten.
type Erasure interface {
	// Rewrite replaces events, for erasure only: all of it, with its side writes, or nothing. From its return on no
	// reader gets to see what was replaced, however slow he is. Version, position and timestamp stay; each rewritten
	// event keeps the leaf hash of what it had at first, so that the chain and every proof given out before still
	// verify, and loses its tags. Each stream gets its next generation, and the feed a note about all of them, whose
	// position is the result's only one. A Conflict tells which precondition, fence or condition did not hold;
	// ErrNotFound that a version is missing.
	Rewrite(ctx context.Context, t j17.Tenant, r Rewrite) (Result, error)

	// Purge returns when nothing that streams have lost by Rewrite, nor what the given spaces have lost that held data
	// of them, nor what some items by name have lost, can be found in the store's files any longer. What that takes
	// each engine says; it can be repeated. It ends the tenant's bulk writes, and archives of tenants that have changed
	// since these began.
	Purge(ctx context.Context, t j17.Tenant, keys []j17.Key, spaces []Declared, items []ItemName) error
}

// Retagging is the role of a caller that gives stored events other tags than those that they were written with.
type Retagging interface {
	// Retag gives events the tags that are named, in place of all that do not come from their metadata: one whose tags
	// are such already is left as it is, and so is an erased one, which has none. It is all or nothing, and a
	// *SideConflict where a fence does not hold. The bytes, hashes and positions of events stay.
	Retag(ctx context.Context, t j17.Tenant, events []Retagged, fences ...Fence) error
}

// Retagged is an event that gets other tags.
type Retagged struct {
	Key     j17.Key
	Version uint64
	// Tags are those that the metadata do not tell. Others are passed over.
	Tags []string
}

// Scrubbing is the role of a caller that looks for damage in stored data.
type Scrubbing interface {
	// CheckTables reads files with data again from disk, whatever is in memory, in an order that stays: those after one
	// of them ("" for all), until it has read most bytes. It compares their content with its checksums. Files that are
	// made meanwhile come last.
	CheckTables(ctx context.Context, after string, most int64) (TablesChecked, error)
}

// TablesChecked describes files that were compared with their checksums.
type TablesChecked struct {
	// Last is the last one of them; More reports that there are others behind it.
	Last string
	More bool
	// Tables and Bytes are how many they were.
	Tables int
	Bytes  int64
	// Damaged has an error for each that is not as it was written.
	Damaged []*CorruptionError
}

// Health is the role of a caller that looks after the store itself.
type Health interface {
	// ReleaseClaims gives back the claims of processes that have ended, and returns how many: their items are due again
	// when they were before. It is called before any work begins on a store that was opened. Where only one process can
	// have a store open these are all claims; where several can, a store has to know which of them live. What it costs
	// does not depend on items that are due later than any lease ends.
	ReleaseClaims(ctx context.Context) (int, error)

	// Barrier returns nil when every write that was called before is decided: it is durable and can be seen, or will
	// never be. A caller that got ErrUnknown reads after it what has become of the write. ErrFull and ErrBusy mean that
	// a write is still on its way and that Barrier has to be called again; after ErrFailed only a restart clears that
	// up. It is never refused for want of space alone.
	Barrier(ctx context.Context) error

	// Status tells what is accepted and how much room there is. It costs next to nothing.
	Status() Status
}

// Footprint is the role of who measures what the store takes.
type Footprint interface {
	// DiskBytes returns what the store occupies on disk, 0 where that is not known. It looks at every file.
	DiskBytes() uint64

	// FilterBytes returns the memory in which the store keeps which tags and streams there are, beside what it has
	// stored of them.
	FilterBytes() uint64
}

// Memory is the role of who removes from memory what was erased.
type Memory interface {
	// Forget overwrites the memory of the store that holds what is not stored any more.
	Forget(ctx context.Context) error
}
