package store

import (
	"context"
	"iter"
	"time"

	"j17"
)

// Store is an event store. All methods are safe for concurrent use. Only the code that opens a store holds all of it.
// Other packages are given the roles they need, so their types show what they cannot do.
type Store interface {
	Engine

	// An engine need not implement these: see Whole.
	BulkWrites
	PurgeRequests
	Compaction
	Scrubbing
	Footprint
	Monitoring
	Memory
}

// Engine has the roles that every engine implements.
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

	// Shutdown is Close, except that it stops waiting for a disk that does not answer when ctx ends. Everything
	// acknowledged is then on disk and another process can open the store, but this store's memory stays in use.
	Shutdown(ctx context.Context) error
}

// Events is the role of a caller that writes events. The engine has it, since nothing else may decide what happened in
// an environment, and so has the control plane, for its own events in the System tenant.
type Events interface {
	// Append commits units. Units are independent: each is all or nothing by itself, and results are in the
	// units' order. It returns only when every committed unit is durable. A non-nil error concerns the whole
	// call: nothing is known about its units unless the error says so (ErrFull, ErrBusy, ErrClock and
	// ErrClosed: nothing was written; ErrUnknown: a retry with the same CommandID is safe).
	Append(ctx context.Context, t j17.Tenant, units []Append) ([]Result, error)

	// Command returns the result of the command with that id, or nil when there is none or it has expired.
	Command(ctx context.Context, t j17.Tenant, id CommandID) (*Result, error)

	// ForgetCommands removes the results of commands that have written events of parts of streams, so that nothing made
	// from those events is left. A command that expires is still remembered as carried out until then, with a result
	// that has no events and no memo. The cost depends on the number of events and of remembered commands.
	ForgetCommands(ctx context.Context, t j17.Tenant, of []StreamPart) error
}

// Aggregates is the role of a caller that reads the events of single aggregates.
type Aggregates interface {
	// Heads returns the durable head of each stream; the zero Head for a stream without events.
	Heads(ctx context.Context, t j17.Tenant, keys []j17.Key) ([]Head, error)

	// ReadStream yields the durable events of one stream with from <= Version <= to in order of version; to 0 means the
	// head. An event and its bytes are valid until the next step of the iteration. It reads pages of about 256 KiB and
	// holds only a copy between two steps, so a slow reader blocks nobody. It yields ErrNotFound if the tenant is
	// removed meanwhile.
	ReadStream(ctx context.Context, t j17.Tenant, key j17.Key, from, to uint64) iter.Seq2[*j17.Event, error]

	// ReadStreams yields up to most of the first durable events of each of several streams, one stream after the other.
	// It is for callers that do not know how long the streams are: by asking for one event more than they want they
	// learn which are longer. The events are not compared with the heads, so a stream that has lost its last events
	// would pass for a shorter one. Each key is given once; keys in the order of types and ids cost least.
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

	// ReadTagged is ReadFeed for the events that have all of some tags, and one of some types. The cost depends on how
	// many events have the rarest of the tags, not on the length of the feed. The error is an *IndexingError while
	// older events are not indexed yet.
	//
	// Tags that seldom occur together, or seldom with a type, may cost much and yield nothing. looked, if not nil, is
	// called after every few thousand steps and at the end, with the number of steps since the last call and the
	// position up to which everything has been examined and handed out, zero if that is not known. A step is a look-up
	// in the index or a look at the type of an event. Reading ends when looked returns false.
	ReadTagged(
		ctx context.Context, t j17.Tenant, of Tagged, after j17.StreamID, limit int,
		looked func(steps int, upTo j17.StreamID) (more bool),
	) iter.Seq2[*j17.Event, error]

	// ReadChanges is ReadFeed with the notes about rewritten events between the events. Code that keeps derived data
	// reads these.
	ReadChanges(ctx context.Context, t j17.Tenant, after j17.StreamID, limit int) iter.Seq2[Entry, error]

	// ReadNames is ReadChanges for callers that only need to know what has changed. Events have only Key, Version and
	// StreamID; it costs a small part of reading the whole events.
	ReadNames(ctx context.Context, t j17.Tenant, after j17.StreamID, limit int) iter.Seq2[Entry, error]

	// ReadLeaves yields the leaf hashes of the events that ReadFeed yields. Those of recent events are in memory.
	ReadLeaves(ctx context.Context, t j17.Tenant, after j17.StreamID, limit int) iter.Seq2[Leaf, error]

	// ReadOthers returns the leaf hashes of up to limit consecutive events after a position, ending before the first
	// event of an aggregate of one of the types. more reports that something else follows or may follow. It looks only
	// at memory, and returns nothing if that does not begin at the position or has a note after it.
	ReadOthers(t j17.Tenant, after j17.StreamID, types []string, limit int) (leaves []Leaf, more bool)

	// CountRecent counts the events after a position that belong to an aggregate of one of the types. last is the
	// position of the last one counted, upTo that of the last event of any type; each is after if there is none. It
	// looks only at memory, and ok is false if that does not begin at the position or has a note after it. It may
	// occasionally count an event of another type.
	CountRecent(t j17.Tenant, after j17.StreamID, types []string) (n uint64, last, upTo j17.StreamID, ok bool)

	// Changed returns up to limit tenants whose feeds have changed later than since, in the order of their last
	// changes; what other stores on the same data have changed is in the order in which it was found. If since is from
	// before the store was opened, tenants that have not changed may be named again, and those that changed before are
	// in any order. The cost does not depend on tenants that have not changed.
	Changed(ctx context.Context, since uint64, limit int) ([]Change, error)

	// AwaitChange blocks until the feed of any tenant has changed later than since.
	AwaitChange(ctx context.Context, since uint64) error

	// AwaitFeed blocks until the feed has an event, or a note, greater than after.
	AwaitFeed(ctx context.Context, t j17.Tenant, after j17.StreamID) error

	// Rewrites returns how often events of any tenant were rewritten since the store was opened. It has grown before
	// Rewrite returns: a caller that keeps copies of events checks it before handing one out, and discards copies made
	// at another count. It grows without a rewrite too where others may have rewritten events and it cannot be known.
	Rewrites() uint64

	// Extent returns how many events the tenant holds and where its last event or note is, both as of one moment; the
	// zero Extent for a tenant without events. A caller that hands out all events can check them against it.
	Extent(ctx context.Context, t j17.Tenant) (Extent, error)
}

// Sides is the role of a caller that keeps anything but events: side items, and work by the time it is due.
type Sides interface {
	// Get returns one side item; ErrNotFound when there is none or it has expired.
	Get(ctx context.Context, t j17.Tenant, space Space, key string) (Item, error)

	// GetEach calls do for each live side item of a space that has one of the keys, which must ascend, with the index
	// of the key and the value, which is valid until do returns. It reads as of one moment and ends with the first
	// error of do. Keys close to each other cost less; if many other items lie between them, Get is cheaper.
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

	// Clear removes all items of a space whose keys are in a range, all of which were written with Side.Plain. The cost
	// does not depend on how many there are. It works below the floor of free space too.
	Clear(ctx context.Context, t j17.Tenant, space Space, keys Range) error

	// ClaimDue leases items whose Due has come, earliest first: their Due moves to now plus the lease, which is at most
	// MaxLease, and their Rev changes. The Rev is the fencing token: finish the work with a Side on IfRev, in the same
	// commit as its events if it has any. A claim that is not finished is handed out again after the lease, so work is
	// done at least once. Values and times are those after the claim.
	ClaimDue(ctx context.Context, t j17.Tenant, c Claim) ([]Item, error)

	// NextDue returns when the next live item of a space is due, over all tenants; the zero time when none has a due
	// time. What NextDue, DueTenants and AwaitDue cost does not depend on tenants without due items. NextDue and
	// ClaimDue skip and log damaged items, and tenants that have only damaged ones, so that these hold up nobody else.
	NextDue(ctx context.Context, space Space) (time.Time, error)

	// DueTenants returns up to limit tenants that have due items in a space, the longest waiting ones first.
	DueTenants(ctx context.Context, space Space, limit int) ([]j17.Tenant, error)

	// CountDue returns how many live items of a space of one tenant are due before a moment, up to limit, and when the
	// tenant's first item is due, the zero time for never. The cost depends on limit. Damaged items do not count.
	CountDue(
		ctx context.Context, t j17.Tenant, space Space, before time.Time, limit int,
	) (n int, first time.Time, err error)

	// AwaitDue blocks until a live item of a space is due before a moment, in any tenant; for the zero time it blocks
	// until an item has a due time at all.
	AwaitDue(ctx context.Context, space Space, before time.Time) error
}

// BulkWrites is the role of a caller that writes so many items at a time that sorting them first is cheaper than
// writing them unsorted.
type BulkWrites interface {
	// BulkWrite begins to collect plain items of a tenant; ErrNotFound for a tenant that holds nothing.
	BulkWrite(ctx context.Context, t j17.Tenant) (BulkWrite, error)
}

// BulkWrite collects many plain items (Side.Plain) that the store takes in together. It uses a bounded amount of
// memory, and disk space beside the store. It leaves space for other writers: its methods return ErrFull before other
// writes are refused for lack of space. A Purge of the tenant ends it: its methods then return ErrEnded.
type BulkWrite interface {
	// Put adds an item. If several have the same name, the last one counts.
	Put(space Space, key string, value []byte) error

	// Write makes the items durable, and then commits side writes that record it. If a fence or a condition does not
	// hold it returns a *SideConflict and nothing was written. After other errors, after a crash, or if an engine
	// writes the items in parts and a fence ceases to hold meanwhile, items may be stored without the side writes. It
	// ends the bulk write.
	Write(ctx context.Context, side []Side, fences ...Fence) error

	// Discard ends the bulk write and removes everything it holds. After Write it does nothing.
	Discard()
}

// Emptying is the role of a caller that rebuilds data derived from events.
type Emptying interface {
	// Empty removes all items of the spaces and applies side writes to other spaces, all or nothing. Items with entries
	// are removed only together with the space of their entries, and no item removed has a time. It returns a
	// *SideConflict when a fence or a condition does not hold. It does not read what it removes, so damaged items do
	// not stop it, and the cost does not depend on how much there is. It works below the floor of free space too.
	Empty(ctx context.Context, t j17.Tenant, spaces []Space, side []Side, fences ...Fence) error
}

// Compaction is the role of a caller that does a lot of work that somebody is waiting for.
type Compaction interface {
	// DeferCompaction pauses work that can wait, such as merging what is stored, until done is called, as far and as
	// long as the store can put it off. Several callers may defer it at the same time; done may be called more than
	// once.
	DeferCompaction() (done func())
}

// Moments is the role of a caller that reads several things as of one moment.
type Moments interface {
	// Moment returns a view of a tenant as it is now, whatever is written later. It must be closed, and soon: while it
	// is open the store keeps on disk what it shows. A store may bound how many are open: callers that have waited in
	// vain get ErrBusy. It may bound for how long: methods then return ErrEnded. A tenant without events has one too.
	Moment(ctx context.Context, t j17.Tenant) (Moment, error)

	// ReadTogether reads several things of a tenant as of one moment, which includes everything acknowledged before the
	// call. Nothing stays open. If the store is on another machine it takes one round trip, which concurrent calls
	// share unless they ask for pages. Damage to one of the things is the error of all.
	ReadTogether(ctx context.Context, t j17.Tenant, what Wanted) (Found, error)
}

// Wanted says what Moments.ReadTogether reads.
type Wanted struct {
	Items []ItemName
	Heads []j17.Key
	Pages []Page
}

// Page is the first Limit live side items of a space whose keys are in a range, or fewer if these are large.
type Page struct {
	Space Space
	Keys  Range
	Limit int
}

// PageBytes is the size of keys and values at which a Page ends.
const PageBytes = 256 << 10

// Found is what Moments.ReadTogether has read, in the order in which it was asked for.
type Found struct {
	// Position is that of the feed's last event or note, zero before the first.
	Position j17.StreamID
	// Items has the zero Item for one that does not exist or has expired, Heads the zero Head for a stream without
	// events.
	Items []Item
	Heads []Head
	Pages []FoundPage
}

// FoundPage is a page of side items in the order of its range. More reports that the range may have others.
type FoundPage struct {
	Items []Item
	More  bool
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

	// Each calls do for the live side items of a space whose keys are in a range, in byte order of their keys, until do
	// returns false. Key and value are valid until do returns.
	Each(space Space, keys Range, do func(key, value []byte) bool) error

	// Close releases the moment.
	Close()
}

// Tenants is the role of a caller that handles tenants as a whole.
type Tenants interface {
	// Tenants lists the tenants that were written to and have not been dropped since, in byte order.
	Tenants(ctx context.Context) ([]j17.Tenant, error)

	// DropTenant removes everything of one tenant.
	DropTenant(ctx context.Context, t j17.Tenant) error
}

// Erasure is the role of a caller that removes data for good.
type Erasure interface {
	// Rewrite replaces events, for erasure only: all of it, with its side writes, or nothing. Once it has returned no
	// reader sees the replaced content, however slow the reader is. Version, position and timestamp stay; each
	// rewritten event keeps the leaf hash of its first content, so that the chain and every proof given out before
	// still verify, and loses its tags. Each stream gets its next generation, and the feed a note about all of them,
	// whose position is the only one in the result. A Conflict says which precondition, fence or condition did not
	// hold; ErrNotFound means that a version is missing.
	Rewrite(ctx context.Context, t j17.Tenant, r Rewrite) (Result, error)

	// Purge returns when the store's files no longer contain what the streams have lost by Rewrite, what the given
	// spaces have lost of their data, or what the named items have lost. Each engine documents how, and says what it
	// has looked at; a Purge can be repeated. It ends the tenant's bulk writes, and the archives of tenants that have
	// changed since the archive began.
	Purge(
		ctx context.Context, t j17.Tenant, keys []j17.Key, spaces []Declared, items []ItemName,
	) (Purged, error)
}

// PurgeRequests is the role of a caller that can wait for a Purge, with engines that remove old bytes at times of their
// own, so that erasures share the work. A request outlives the process that has made it.
type PurgeRequests interface {
	// RequestPurge asks for what Purge does, for everything that a tenant has lost so far, and returns the name of the
	// request. The name is "" if there is nothing to wait for, always so of an engine without such times: Purge then
	// begins at once.
	RequestPurge(ctx context.Context, t j17.Tenant) (request string, err error)

	// PurgeProgress returns how far a request is; ErrNotFound if the store has no such request, as after data were
	// moved to another store.
	PurgeProgress(ctx context.Context, request string) (PurgeProgress, error)

	// AwaitPurge returns when a request is done. It returns earlier, without an error, if the request has to wait for
	// the time PurgeProgress.Until, or if ctx ends.
	AwaitPurge(ctx context.Context, request string) (PurgeProgress, error)
}

// PurgeProgress is how far a removal of old bytes is.
type PurgeProgress struct {
	Done bool
	// Waits is what it waits for or is doing, "" if it is done. Until, if not zero, is the latest time at which it
	// begins.
	Waits string
	Until time.Time
	// Purged describes what was done.
	Purged Purged
}

// Purged is the evidence of a removal of old bytes, for callers that have to prove it. The texts are sentences for
// people.
type Purged struct {
	// Method says how the bytes were removed. LSN is the place in the server's log of changes before which nothing is
	// left, "" for an engine without a server.
	Method string `json:"method"`
	LSN    string `json:"lsn,omitempty"`
	// Servers are those whose log was examined. Unseen says what could not be examined, and why.
	Servers []string `json:"servers,omitempty"`
	Unseen  []string `json:"unseen,omitempty"`
	// Remains says which copies of the store's files may still have the bytes.
	Remains string `json:"remains"`
}

// Retagging is the role of a caller that changes the tags of stored events.
type Retagging interface {
	// Retag replaces all tags of events that do not come from their metadata. Events that have the given tags already
	// are left alone, and so are erased ones, which have none. It is all or nothing, and returns a *SideConflict if a
	// fence does not hold. The bytes, hashes and positions of events stay.
	Retag(ctx context.Context, t j17.Tenant, events []Retagged, fences ...Fence) error
}

// Retagged is an event with its new tags.
type Retagged struct {
	Key     j17.Key
	Version uint64
	// Tags are those that do not come from the metadata. Others are ignored.
	Tags []string
}

// Scrubbing is the role of a caller that looks for damage in stored data.
type Scrubbing interface {
	// CheckTables reads data files from disk, even if they are in memory, and compares their content with its
	// checksums. It takes them in a fixed order, begins with the one after a file ("" for all), and ends when it has
	// read most bytes. Files that are made meanwhile come last.
	CheckTables(ctx context.Context, after string, most int64) (TablesChecked, error)
}

// TablesChecked describes files that were compared with their checksums.
type TablesChecked struct {
	// Last is the last one checked; More reports that there are others after it.
	Last string
	More bool
	// Tables and Bytes count what was checked.
	Tables int
	Bytes  int64
	// Damaged has an error for each file that is not as it was written.
	Damaged []*CorruptionError
}

// Health is the role of a caller that looks after the store itself.
type Health interface {
	// ReleaseClaims gives back the claims of processes that have ended, and returns how many: their items get the due
	// time they had before. It is called when a store has been opened, before any work begins. If only one process can
	// have a store open these are all claims; otherwise the store has to know which processes are alive. The cost does
	// not depend on items that are due later than any lease ends.
	ReleaseClaims(ctx context.Context) (int, error)

	// Barrier returns nil when every write begun before it is decided: it is durable and visible, or never will be. A
	// caller that got ErrUnknown can then read what became of its write. ErrFull and ErrBusy mean that a write is still
	// under way and that Barrier has to be called again; after ErrFailed only a restart settles it. Barrier is never
	// refused for lack of space alone.
	Barrier(ctx context.Context) error

	// Status reports what the store accepts and how much space there is. It costs next to nothing.
	Status() Status
}

// Footprint is the role of a caller that measures what the store occupies.
type Footprint interface {
	// DiskBytes returns what the store occupies on disk, 0 where that is not known. It looks at every file.
	DiskBytes() uint64

	// FilterBytes returns how many bytes of memory the filters have that know which tags and streams exist.
	FilterBytes() uint64
}

// Monitoring is the role of a caller that shows what an engine on a database does there.
type Monitoring interface {
	// Figures returns what the engine has counted and measured, the zero Figures for an engine without a database. It
	// asks the database nothing.
	Figures() Figures
}

// Memory is the role of a caller that removes erased data from memory.
type Memory interface {
	// Forget overwrites the store's memory that holds data which is no longer stored.
	Forget(ctx context.Context) error
}
