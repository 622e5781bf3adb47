package unit

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"j17"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// lastLoadable is the greatest time of a position, in Unix milliseconds, that a load accepts: one year before positions
// need another digit, in 2286.
const lastLoadable = 9_999_999_999_999 - 365*24*60*60*1000

// Load checks each element added to a store.Load by itself, and collects the state of the loaded tenant.
type Load struct {
	// Last is the position of the last event or note, LastTime the latest timestamp of all events.
	Last     j17.StreamID
	LastTime int64
	Events   uint64
	// Rev is the greatest revision so far. Items without a revision get revisions after Given, which is 0 until there
	// is one. Revised reports that some items had revisions of their own.
	Rev, Given uint64
	Revised    bool

	canonical []byte
}

// Event checks an event by itself and returns its metadata without the timestamp, valid until the next call.
func (l *Load) Event(e *store.LoadedEvent) (metadata []byte, err error) {
	if err := l.place(e.StreamID); err != nil {
		return nil, err
	}

	// Check its parts as a write would.
	l.canonical = append(strconv.AppendInt(append(l.canonical[:0], `"timestamp":`...), e.Timestamp, 10), '}')
	before, found := bytes.CutSuffix(e.Metadata, l.canonical)
	if !found {
		return nil, errors.New("its metadata do not end with its timestamp")
	}
	l.canonical = append(append(l.canonical[:0], bytes.TrimSuffix(before, []byte(","))...), '}')
	one := store.NewEvent{Key: e.Key, Type: e.Type, Data: e.Data, Metadata: l.canonical, Tags: e.Tags}
	if err := one.Validate(); err != nil {
		return nil, err
	}
	if e.Kept != nil && len(e.Kept) != sha256.Size {
		return nil, fmt.Errorf("the leaf that it keeps has %d bytes", len(e.Kept))
	}
	return l.canonical, nil
}

// ErrLoadedBytes is the error of an event whose bytes are not those that a write would make.
var ErrLoadedBytes = errors.New("its bytes are not in canonical form")

// Add adds an event that was checked to the state.
func (l *Load) Add(e *store.LoadedEvent) {
	if l.Last = e.StreamID; l.Events == 0 || e.Timestamp > l.LastTime {
		l.LastTime = e.Timestamp
	}
	l.Events++
}

// place checks a position.
func (l *Load) place(at j17.StreamID) error {
	if at.Compare(l.Last) <= 0 {
		return fmt.Errorf("it does not come after the position before it, %s", l.Last)
	}
	if at.Ms > lastLoadable {
		return fmt.Errorf("the position %s leaves no room for events to come", at)
	}
	return nil
}

// Note checks a note by itself and adds it to the state.
func (l *Load) Note(n *store.Note) error {
	if err := l.place(n.Position); err != nil {
		return fmt.Errorf("the note at %s cannot be loaded: %w", n.Position, err)
	}
	if len(n.Streams) == 0 || len(n.Streams) > store.MaxUnitEvents {
		return fmt.Errorf("the note at %s cannot be loaded: it names %d streams", n.Position, len(n.Streams))
	}
	for i := range n.Streams {
		g := &n.Streams[i]
		if err := store.ValidKey(g.Key); err != nil || g.Number == 0 {
			return fmt.Errorf("the note at %s cannot be loaded: the generation %d of %s is none: %w", n.Position, g.Number, g.Key, err)
		}
	}
	l.Last = n.Position
	return nil
}

// Item checks an item by itself, and gives it a revision if it has none.
func (l *Load) Item(i *store.ArchivedItem) error {
	side := store.Side{
		Op: store.Put, Space: i.Space, Key: i.Key, Value: i.Value, Expires: i.Expires, Due: i.Due, Entries: i.Entries,
	}
	if err := (&store.Append{Side: []store.Side{side}}).Validate(); err != nil {
		return fmt.Errorf("the side item %s/%s cannot be loaded: %w", i.Space, i.Key, err)
	}
	if i.Rev == 0 {
		i.Rev = l.NextRev()
	} else {
		l.Revised, l.Rev = true, max(l.Rev, i.Rev)
	}
	return nil
}

// Withdraw checks the name of an item that is withdrawn.
func (l *Load) Withdraw(n store.ItemName) error {
	side := store.Side{Op: store.Delete, Space: n.Space, Key: n.Key}
	if err := (&store.Append{Side: []store.Side{side}}).Validate(); err != nil {
		return fmt.Errorf("the side item %s/%s cannot be withdrawn: %w", n.Space, n.Key, err)
	}
	return nil
}

// Command checks the result of a command and returns its record.
func (l *Load) Command(c *store.ArchivedCommand) ([]byte, error) {
	one := store.Append{Command: &c.Command}
	err := one.Validate()
	if err == nil && (len(c.Lengths) > store.MaxUnitEvents || c.First.IsZero() != (len(c.Lengths) == 0)) {
		err = errors.New("its result contradicts itself")
	}
	if err != nil {
		return nil, fmt.Errorf("the command %x cannot be loaded: %w", c.ID, err)
	}
	r := store.Result{Timestamp: c.Timestamp, Lengths: c.Lengths}
	if len(c.Lengths) > 0 {
		r.IDs = []j17.StreamID{c.First}
	}
	return record.AppendCommand(nil, Nanos(c.Expires), &r, c.Memo), nil
}

// revLeap is how far the revisions given to items are ahead, so that the tenant's own writes do not reach them
// meanwhile.
const revLeap = 1 << 32

// NextRev returns a revision for a loaded item.
func (l *Load) NextRev() uint64 {
	if l.Given == 0 {
		l.Rev += revLeap
		l.Given = l.Rev
	}
	l.Rev++
	return l.Rev
}

// LoadedStream is the head of a stream whose events and notes are loaded, after some of them.
type LoadedStream struct {
	// Head is without Present. Its generation is that of the last note.
	store.Head

	// present is the chain over the present bytes of the events, which differs from Head.Chain if one was erased.
	present [32]byte
	erased  bool
}

// StoredStream returns a stream that continues after a stored head.
func StoredStream(h *store.Head) *LoadedStream {
	s := &LoadedStream{Head: *h, present: h.Now(), erased: h.Now() != h.Chain}
	if s.erased && h.Generation == 1 {
		s.Generation = 0 // the generation 1 may be for a note still to come
	}
	s.Present = [32]byte{}
	return s
}

// Note gives the stream a generation.
func (s *LoadedStream) Note(generation uint64) error {
	if generation <= s.Generation {
		return fmt.Errorf("a note there gives its stream the generation %d, and it had %d before", generation, s.Generation)
	}
	s.Generation = generation
	return nil
}

// Event adds an event to the stream. version is its expected version, 0 for any, and want, if not nil, the expected
// chain up to it over the present bytes. leaf is the leaf hash of its bytes, kept that of its first ones if it was
// erased.
func (s *LoadedStream) Event(
	at j17.StreamID, timestamp int64, version uint64, want *[32]byte, leaf [32]byte, kept []byte,
) error {
	if version != 0 && version != s.Length+1 {
		return fmt.Errorf("its version is %d, and the one that follows in its stream is %d", version, s.Length+1)
	}
	first := leaf
	if kept != nil {
		first, s.erased = [32]byte(kept), true
	}
	if !s.erased {
		s.Chain = j17.Link(s.Chain, first)
		s.present = s.Chain
	} else {
		s.Chain, s.present = j17.Link(s.Chain, first), j17.Link(s.present, leaf)
	}
	if want != nil && *want != s.present {
		return errors.New("the chain of the stream's events up to it is not the one that was given with it")
	}
	if s.Length++; s.Length == 1 {
		s.FirstTime = timestamp
	}
	s.Last, s.LastTime = at, timestamp
	return nil
}

// Whole returns the head of the stream if nothing follows.
func (s *LoadedStream) Whole() store.Head {
	h := s.Head
	if s.erased {
		h.Generation = max(h.Generation, 1)
	}
	if h.Generation > 0 {
		h.Present = s.present
	}
	return h
}

// ErrNoEvents is the error of a note about a stream that has no events.
var ErrNoEvents = errors.New("a note there names a stream that has no events")

// LoadedTags finds the tags of events that are loaded. It caches some, since many events have the same actor and
// target.
type LoadedTags struct{ known map[string][]record.TagID }

// maxToldMetadata bounds the number of cached metadata, maxToldBytes the size of each.
const maxToldMetadata, maxToldBytes = 4096, 512

// Of returns the tags that come from metadata without a timestamp.
func (c *LoadedTags) Of(metadata []byte) []record.TagID {
	if ids, ok := c.known[string(metadata)]; ok {
		return ids
	}
	tags := j17.MetadataTags(metadata)
	ids := make([]record.TagID, len(tags))
	for i, tag := range tags {
		ids[i] = record.IDOfTag(tag)
	}
	if len(metadata) <= maxToldBytes {
		if c.known == nil || len(c.known) >= maxToldMetadata {
			c.known = map[string][]record.TagID{}
		}
		c.known[string(slices.Clone(metadata))] = ids
	}
	return ids
}
