package loading

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/custody/erasure"
	"j17/internal/storage/store"
)

// History is a file of events that happened before, here or elsewhere, and are stored as they were: with their time,
// their actors and the names of their aggregates. They already had their effects at that time: nothing reacts to them.
type History struct {
	Tenant j17.Tenant
	// ID identifies the file by its content. Importing an interrupted file again continues where it stopped, and
	// importing a complete one again stores nothing.
	ID [32]byte
	// Generation is the one of events that have no position and say none, command.Newest for the newest of their types;
	// with 0 each has to say it, unless its type has one only.
	Generation int
	// Open begins to read the file, which is read twice: nothing of a file with faults is stored.
	Open func() (*command.FileReader, error)
}

// Imported is the result of an import.
type Imported struct {
	// Events is the number of events in the file: Stored now, or Known from an earlier attempt.
	Events int `json:"events"`
	Stored int `json:"stored"`
	Known  int `json:"already_stored"`
	// Imported is Stored under the name that all imports have.
	Imported int `json:"imported"`
	// Streams is the number of their aggregates.
	Streams int `json:"aggregates"`
}

const (
	// recordEvents and recordBytes are the limits of one unit of a recording.
	recordEvents = 500
	recordBytes  = 1 << 20
	// wholeEvents and wholeBytes are the limits of a recording that is stored in one commit. It has units as well.
	wholeEvents = 10_000
	wholeBytes  = 16 << 20
)

// Import stores the events of a recording. A file with faults is refused as a whole, with the place of each. A file
// that is not too large is stored in one commit; for a larger one, a result that is returned with a later error has
// been stored.
func (l *Loader) Import(ctx context.Context, r *History) (Imported, error) {
	past, err := l.Engine.Recorder(r.Tenant)
	if err != nil {
		return Imported{}, err
	}

	// Nothing of a file with faults is stored.
	c := &recorder{Loader: l, past: past, d: past.Decider(), r: r, now: past.Now(), seed: maphash.MakeSeed()}
	c.examine = c.examinePast
	defer c.forget()
	defer c.unfollow()
	if err := c.checkAll(ctx); err != nil {
		return Imported{}, err
	}
	if c.highest > 0 {
		// From here on no aggregate is given a number that the file has. Numbers given before belong to their
		// aggregates by now.
		if err := past.Reserve(ctx, c.highest); err != nil {
			return Imported{}, err
		}
		if err := c.checkAll(ctx); err != nil {
			return Imported{}, err
		}
	}

	// Now it is stored: as a whole, or a unit at a time. From here on the store itself decides which aggregate holds
	// which value.
	c.forget()
	c.whole = c.done.Events <= cmp.Or(l.most, wholeEvents) && c.bytes <= wholeBytes && len(c.known) == 0
	c.checked, c.done = c.done.Events, Imported{Streams: len(c.streams)}
	c.unfollow()
	err = c.units(ctx, c.store)
	c.done.Imported = c.done.Stored
	return c.done, err
}

// checkAll checks the whole file and stores nothing.
func (c *recorder) checkAll(ctx context.Context) error {
	c.forget()
	c.unfollow()
	c.streams, c.claimed, c.values, c.known, c.highest = map[uint64]pastStream{}, map[uint64]uint64{}, newExchanged(),
		map[int]bool{}, 0
	if err := c.lookUp(ctx); err != nil {
		return err
	}
	if err := c.units(ctx, c.check); err != nil {
		return err
	}
	return c.refusal()
}

// lookUp reads how many units of the file are stored.
func (c *recorder) lookUp(ctx context.Context) error {
	item, err := c.Store.Get(ctx, c.r.Tenant, recordedFiles, c.file())
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return store.UserError(err)
	}
	if c.stored, err = strconv.Atoi(string(item.Value)); err != nil {
		return store.UserError(&store.CorruptionError{Where: "the record of an imported file", Err: err})
	}
	return nil
}

// recordedFiles holds how many units of a file are stored, under its name. The items are kept forever, since history
// that was stored twice cannot be distinguished from history that happened twice.
const recordedFiles store.Space = "engine.recorded"

// file names the file in recordedFiles.
func (c *recorder) file() string { return hex.EncodeToString(c.r.ID[:]) }

// recorder stores one recording.
type recorder struct {
	*Loader
	past *engine.Recorder
	d    *decider.Decider
	r    *History
	now  int64
	// latest is the latest time of a position that is kept, in Unix milliseconds.
	latest int64
	// examine makes the checks of one event that need no other events.
	examine func(context.Context, *command.FileEvent) (*decider.Examined, error)
	// finish, if not nil, ends the checks of an examined event; text is the event in the file. finish and examine are
	// called concurrently.
	finish func(text string, ev *pastEvent) error
	// keeps reports that events keep the trees of their data and metadata.
	keeps bool
	// seed is for the hashes by which aggregates and names are remembered, since a file may have millions of them. Two
	// with the same hash are as unlikely as a fault of the machine, and storing checks again what they decide.
	seed    maphash.Seed
	streams map[uint64]pastStream
	// claimed holds which aggregate of the file a name belongs to.
	claimed map[uint64]uint64
	// following is how much room is reserved for both, out of that of all files; beside is what else is kept about
	// aggregates, counted like them.
	following, beside int64
	// values are the unique values after the events so far. exchanged, if not nil, is called for each exchange, with
	// the value that the aggregate held before.
	values    exchanged
	exchanged func(ctx context.Context, key j17.Key, x *decider.Exchange, own *[32]byte) error
	// stored is how many units were stored when that was last looked up.
	stored int
	// known has the units that were stored by an earlier attempt.
	known map[int]bool
	// highest is the highest number in a public id of the file.
	highest uint64
	faults  []error
	done    Imported
	// bytes is the size of the file's events so far, count the number of its units; whole reports that they are stored
	// as one.
	bytes, count int
	whole        bool
	// checked is how many events there were when the file was checked.
	checked int
}

// pastStream is what is known about an aggregate while a file is checked.
type pastStream struct {
	// last is the time of its last event.
	last int64
	// names is the hash of its Names, except for plainBit.
	names uint64
}

// plainBit marks an aggregate with an event that was not erased. No marker may follow such an event.
const plainBit = 1

// pastUnit is a group of events of a recording that are stored together.
type pastUnit struct {
	// number is the number of the unit in its recording, which is the same in each attempt.
	number int
	events []pastEvent
	bytes  int
}

// command identifies a unit, so that it is stored once.
func (c *recorder) command(u *pastUnit) store.CommandID {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(append([]byte("record "), c.r.ID[:]...), uint64(u.number)))
	return store.CommandID(sum[:16])
}

// units reads the file and calls do with its events, a unit at a time. Faults of single events are recorded.
func (c *recorder) units(ctx context.Context, do func(context.Context, *pastUnit) error) error {
	in, err := c.r.Open()
	if err != nil {
		return err
	}
	u := &pastUnit{}
	flush := func() error {
		if len(u.events) == 0 {
			return nil
		}
		err := do(ctx, u)
		*u = pastUnit{number: u.number + 1, events: u.events[:0]}
		c.count = max(c.count, u.number)
		return err
	}

	// A unit is full by its number of events or by their bytes.
	c.done.Events, c.bytes = 0, 0
	err = c.each(ctx, in, func(events []pastEvent) error {
		for i := range events {
			ev := &events[i]
			c.done.Events, c.bytes = c.done.Events+1, c.bytes+ev.size
			if ev.fault != nil {
				if c.fault(ev, ev.fault) {
					return errEnough
				}
				continue
			}
			u.events = append(u.events, *ev)
			if u.bytes += ev.size; !c.whole && (len(u.events) >= recordEvents || u.bytes >= recordBytes) {
				if err := flush(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	if err != nil {
		return err
	}
	return flush()
}

// errEnough ends the reading of a file when as many faults were found as are reported.
var errEnough = errors.New("loading: enough faults were found")

// examinePast examines an event of history.
func (c *recorder) examinePast(ctx context.Context, file *command.FileEvent) (*decider.Examined, error) {
	x, err := c.examineAny(ctx, file)
	if err == nil && x.Timestamp != nil && *x.Timestamp > c.now {
		err = j17.Errorf(j17.CodeInvalidField, "'timestamp' must be the time of the event in Unix seconds and not lie in the future").At("metadata.timestamp")
	}
	return x, err
}

// examineAny examines an event of history, which may be of a server whose clock is ahead.
func (c *recorder) examineAny(ctx context.Context, file *command.FileEvent) (*decider.Examined, error) {
	file.Unsaid = c.r.Generation
	if file.Stored {
		file.Unsaid = 1
	}
	file.Past, file.Stored = true, true // for the rules that depend on it
	if ident.IsReservedEventType(file.Type) && file.Type != ident.WasTombstoned {
		return nil, j17.Errorf(
			j17.CodeReservedEventType, "'%s' is no event type of the platform", j17.Printable(file.Type),
		).At("type")
	}
	if file.Type == ident.WasTombstoned {
		if err := erasure.CheckMarker(file.Data, file.Metadata); err != nil {
			return nil, err
		}
	}
	x, faults := c.d.Examine(ctx, file)
	if len(faults) > 0 {
		return nil, faults[0]
	}
	at := c.now
	if x.Timestamp != nil {
		at = *x.Timestamp
	}
	if err := c.d.Exchange(ctx, &x.Events[0], at); err != nil {
		return nil, err
	}
	switch meta := file.Metadata; {
	case !meta.Get("previous_length").IsMissing(), !meta.Get("skip_occ").IsMissing():
		return nil, j17.Errorf(j17.CodeInvalidField, "'previous_length' and 'skip_occ' are for events that happen now; leave them out").At("metadata")
	}
	return x, checkNames(c.d, x.Key, file.Names)
}

// maxPastNumber is the highest number that an import may contain: far beyond any real count, and far below the end of
// the counter, which continues after it.
const maxPastNumber = 1_000_000_000_000_000

// checkNames checks the form of an aggregate's new names.
func checkNames(d *decider.Decider, key j17.Key, names j17.Names) error {
	typ := d.Types[key.Type]
	if names.Handle != "" {
		h, err := ident.ParseHandle(names.Handle)
		if typ.Handle == "" || err != nil || h != typ.Handle {
			return j17.Errorf(j17.CodeInvalidField, "'%s' is no handle of aggregate type '%s'", j17.Printable(names.Handle), typ.Name).At("handle")
		}
	}
	if names.PublicID != "" {
		number, ok := d.Number(names.PublicID)
		if n, err := strconv.ParseInt(number, 10, 64); !typ.Sequence || !ok || err != nil || n < 1 ||
			n > maxPastNumber {
			return j17.Errorf(j17.CodeInvalidField, "'%s' is no public id of aggregate type '%s'", j17.Printable(names.PublicID), typ.Name).At("public_id")
		}
	}
	return nil
}

// check compares a unit with the events before it, in the file and in the store.
func (c *recorder) check(ctx context.Context, u *pastUnit) error {
	known := func() bool {
		if u.number < c.stored {
			c.known[u.number] = true
		}
		return c.known[u.number]
	}
	known()
	faults := len(c.faults)
	if err := c.compare(ctx, u); err != nil {
		return err
	}
	if len(c.faults) > faults && !known() {
		// The same file may be stored concurrently.
		if err := c.lookUp(ctx); err != nil {
			return err
		}
		if known() {
			c.faults = c.faults[:faults]
		}
	}
	if len(c.faults) >= maxErrors {
		return c.refusal()
	}
	return nil
}

// compare records how a unit contradicts the events before it.
func (c *recorder) compare(ctx context.Context, u *pastUnit) error {
	holding := c.past.Holding()
	for i := range u.events {
		ev := &u.events[i]
		faults := len(c.faults)
		if _, err := c.follow(ctx, ev, !c.known[u.number]); err != nil {
			return err
		}
		if len(c.faults) == faults && !c.known[u.number] {
			fault, err := c.exchange(ctx, ev, holding)
			if err != nil {
				return err
			}
			if fault != nil {
				c.fault(ev, fault)
			}
		}
		if len(c.faults) >= maxErrors {
			return nil
		}
	}
	return nil
}

// follow compares an event with those before it in the file and, if look is set, in the store. Contradictions are
// recorded. It reports whether the event is the first of its aggregate in the file.
func (c *recorder) follow(ctx context.Context, ev *pastEvent, look bool) (fresh bool, err error) {
	// What is known about the aggregate.
	hash := maphash.Comparable(c.seed, ev.Key)
	s, ok := c.streams[hash]
	if fresh = !ok; fresh {
		if err := c.makeRoom(); err != nil {
			return fresh, err
		}
		s.names = maphash.Comparable(c.seed, ev.file.Names) &^ plainBit
		if look {
			heads, err := c.Store.Heads(ctx, c.r.Tenant, []j17.Key{ev.Key})
			if err != nil {
				return fresh, store.UserError(err)
			}
			s.last = heads[0].LastTime
			plain, err := c.endsPlain(ctx, ev, heads[0].Length)
			if err != nil {
				return fresh, err
			}
			if plain {
				s.names |= plainBit
			}
		}
		c.streams[hash] = s
	}

	// Its names must be free, and time must not run backward.
	at := s.last
	if ev.Timestamp != nil {
		at = *ev.Timestamp
	} else if at < c.now {
		at = c.now
	}
	err = c.claim(ctx, ev.Key, ev.file.Names, s, fresh && look)
	if code := j17.CodeOf(err); err != nil && code != j17.CodeInvalidField && code != j17.CodeConflict {
		return fresh, err
	}
	if at < s.last {
		err = j17.Errorf(j17.CodeInvalidField, "The event lies before the one that its aggregate has already, at %d: time never runs backward in an aggregate", s.last).At("metadata.timestamp")
	}
	marker := ev.file.Type == ident.WasTombstoned
	if err == nil && marker && s.names&plainBit != 0 {
		err = j17.Errorf(j17.CodeInvalidField, "The '%s' stands behind an event of its aggregate that was not erased: an erasure replaces all events from the first one on", ident.WasTombstoned).At("type")
	}
	if err != nil {
		c.fault(ev, err)
		return fresh, nil
	}

	// The state for later events.
	if s.last = max(s.last, at); !marker {
		s.names |= plainBit
	}
	c.streams[hash] = s
	if number, ok := c.d.Number(ev.file.PublicID); ok {
		n, _ := strconv.ParseUint(number, 10, 63) // checked
		c.highest = max(c.highest, n)
	}
	return fresh, nil
}

// endsPlain reports whether the last stored event of a stream was not erased, if the event after it is a marker.
func (c *recorder) endsPlain(ctx context.Context, ev *pastEvent, length uint64) (plain bool, err error) {
	if length == 0 || ev.file.Type != ident.WasTombstoned {
		return false, nil
	}
	for last, err := range c.Store.ReadStream(ctx, c.r.Tenant, ev.Key, length, length) {
		if err != nil {
			return false, store.UserError(err)
		}
		plain = last.Type != ident.WasTombstoned
	}
	return plain, nil
}

const (
	// followedBytes is how many bytes are kept about an aggregate, or one of its names, including the overhead of maps;
	// its names are counted before it is known whether it has some.
	followedBytes = 60
	ofOneStream   = 3
	// fewFollowed is how many all files may have however little memory there is, usuallyFollowed how many if the memory
	// is unknown.
	fewFollowed, usuallyFollowed = 1_000_000, 30_000_000
)

// mostFollowed returns how many aggregates and names may be remembered for all files.
func (l *Loader) mostFollowed() int64 {
	if l.Memory == 0 {
		return usuallyFollowed
	}
	return max(l.Memory/4/followedBytes, fewFollowed)
}

// makeRoom reserves room for another aggregate.
func (c *recorder) makeRoom() error {
	if int64(len(c.streams)+len(c.claimed))+c.beside+ofOneStream <= c.following {
		return nil
	}
	most := c.mostFollowed()
	switch {
	case c.followed.Add(takenAtOnce) <= most:
		c.following += takenAtOnce
		return nil
	case c.following+takenAtOnce > most:
		c.followed.Add(-takenAtOnce)
		return j17.Errorf(j17.CodePayloadTooLarge, "The file has more aggregates than fit into the memory of this server: about %d, fewer where they have names. Nothing was stored. "+
			"Divide the file and import its parts one after the other, or give the server more memory.", most)
	}
	c.followed.Add(-takenAtOnce)
	return j17.Errorf(j17.CodeBusy, "Other files are loaded at this moment that have so many aggregates that those of this file have no room beside them. Nothing was stored. Try again when they are through.")
}

// unfollow forgets the aggregates of the file and releases their room.
func (c *recorder) unfollow() {
	c.followed.Add(-c.following)
	c.streams, c.claimed, c.following, c.beside = nil, nil, 0, 0
}

// claim checks that names are free or the aggregate's own. The store is asked if look is set.
func (c *recorder) claim(ctx context.Context, key j17.Key, names j17.Names, s pastStream, look bool) error {
	if names == (j17.Names{}) {
		return nil
	}
	if maphash.Comparable(c.seed, names)&^plainBit != s.names&^plainBit {
		return j17.Errorf(j17.CodeInvalidField, "The aggregate has other names in an event before: names stand with the first event of an aggregate").At("key")
	}
	taken := func(path, name string) error {
		return j17.Errorf(j17.CodeConflict, "'%s' is the name of another aggregate", name).At(path)
	}

	// The names in the store.
	var present j17.Names
	var owners engine.Owners
	if look {
		var err error
		if present, err = c.Engine.Names(ctx, c.r.Tenant, c.d, key); err != nil {
			return err
		}
		if owners, err = c.past.Owners(ctx, names); err != nil {
			return err
		}
	}

	// A name belongs to one aggregate, in the file and in the store.
	claimant := maphash.Comparable(c.seed, key)
	for _, n := range []struct {
		path, name, present, owner string
	}{
		{"handle", names.Handle, present.Handle, owners.Handle},
		{"public_id", names.PublicID, present.PublicID, owners.PublicID},
	} {
		if n.name == "" {
			continue
		}
		hash := maphash.String(c.seed, n.name)
		if owner, ok := c.claimed[hash]; ok && owner != claimant {
			return taken(n.path, n.name)
		}
		c.claimed[hash] = claimant
		if !look {
			continue
		}
		if n.present != "" && n.present != n.name {
			return j17.Errorf(j17.CodeConflict, "The aggregate is called '%s' here, and names are for good", n.present).At(n.path)
		}
		if n.owner != "" && n.owner != key.String() {
			return taken(n.path, n.name)
		}
	}
	return nil
}

// store writes a unit that was checked.
func (c *recorder) store(ctx context.Context, u *pastUnit) error {
	if len(c.faults) > 0 {
		return c.refusal()
	}
	if c.known[u.number] {
		c.done.Known += len(u.events)
		return nil
	}

	// The progress of the file is written with the events.
	past := engine.Past{ID: c.command(u), Events: make([]engine.PastEvent, len(u.events))}
	units := u.number + 1
	if c.whole {
		if units = c.count; len(u.events) != c.checked {
			return fmt.Errorf("%d events were checked and %d are to be stored", c.checked, len(u.events))
		}
	}
	past.Side = []store.Side{
		{Op: store.Raise, Space: recordedFiles, Key: c.file(), Value: strconv.AppendInt(nil, int64(units), 10)},
	}
	for i := range u.events {
		past.Events[i] = engine.PastEvent{Examined: u.events[i].Examined, Names: u.events[i].file.Names}
	}

	// Others may store the same file, or write to its aggregates.
	known, err := c.past.Store(ctx, &past)
	if e, ok := errors.AsType[*j17.Error](err); ok && e.EventIndex != nil {
		return c.notStored(&u.events[*e.EventIndex], e)
	}
	if err != nil {
		return err
	}
	if known {
		c.done.Known += len(u.events)
	} else {
		c.done.Stored += len(u.events)
	}
	return nil
}

// notStored is the error for an event of the file that the engine refuses.
func (c *recorder) notStored(ev *pastEvent, why *j17.Error) error {
	out := *why
	out.EventIndex = nil
	field := j17.FieldError{Pointer: "/" + strconv.Itoa(ev.index), Message: why.Message, Code: why.Code}
	if ev.element {
		field.Index = &ev.index
	} else {
		field.Line = ev.line
	}
	out.Errors = []j17.FieldError{field}
	if why.Code != j17.CodeWorkLimit {
		out.Message = fmt.Sprintf("Line %d: %s", ev.line, why.Message)
		return &out
	}
	out.Message = fmt.Sprintf("Line %d: the event %s of %s cannot be stored: %s. Nothing was stored.", ev.line, ev.file.Type, ev.Key, why.Message)
	if before := c.done.Stored + c.done.Known; before > 0 {
		out.Message = fmt.Sprintf("Line %d: the event %s of %s was not stored, nor what follows it: %s. What came before it has been stored: %s.",
			ev.line, ev.file.Type, ev.Key, why.Message, j17.Count(before, "event"))
	}
	return j17.InEvent(&out, ev.index)
}
