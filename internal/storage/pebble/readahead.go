package pebble

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/s2"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/storage/record"
)

const (
	// mostBuckets bounds the buckets of a window, and mostBucketBytes, roughly, the values of one bucket: those of one
	// bucket at a time are uncompressed. The values of a bucket never exceed maxBucketBytes by more than an event.
	mostBuckets     = 64
	mostBucketBytes = 4 << 20
	maxBucketBytes  = 4 * mostBucketBytes
	// chunkBytes is how much is compressed at a time; a larger event is compressed by itself.
	chunkBytes = 32 << 10
	// viewEvents is how many events are read from one view. It bounds how long others wait for the view to be released,
	// and the reader may pause after it.
	viewEvents = 4 << 10
	// referenceBytes is the memory of a reference with its place in the order of storage, and streamBytes that of a
	// stream apart from its name.
	referenceBytes = 28
	streamBytes    = 24
	// noStream is the stream of a reference to a note.
	noStream = 1<<32 - 1
)

// errOutdated ends the filling of a window in which something may have been erased meanwhile.
var errOutdated = errors.New("the window is outdated")

// window holds many events and notes of a feed in little memory: they are read in the order of storage, so that each
// block of the store is loaded once, and kept in the order of the feed, compressed in buckets. Each bucket becomes a
// page.
type window struct {
	// streams are the names of the streams of references: type, zero byte and id.
	streams []string
	buckets []bucket
	// at is the bucket that becomes the next page, more reports that there may be more after the last one.
	at   int
	more bool
	// value and kept are the mean bytes of an event's value and of the memory for it in the previous window, zero if
	// there was none.
	value, kept int
}

// bucket holds consecutive events and notes of a feed.
type bucket struct {
	references []reference
	notes      [][]byte
	// chunks are compressed. They hold the values, each after its place in the bucket and its length. bytes is their
	// size before compression, packed after it.
	chunks        [][]byte
	bytes, packed int
}

// reference is an entry of a feed: an event, or a note, whose version is its index in the bucket's notes.
type reference struct {
	ms      int64
	seq     uint32
	stream  uint32
	version uint64
}

func (r *reference) id() j17.StreamID { return j17.StreamID{Ms: r.ms, Seq: r.seq} }

// left reports whether the window has a page that has not been opened.
func (w *window) left() bool { return w.at < len(w.buckets) }

// open turns the next bucket into a page and releases the bucket.
func (w *window) open(p *page, names *record.TypeNames) error {
	b := w.buckets[w.at]
	w.buckets[w.at] = bucket{}
	w.at++
	p.clear()
	p.full = w.left() || w.more
	p.entries = slices.Grow(p.entries, len(b.references))[:len(b.references)]
	for i := range b.references {
		ref := &b.references[i]
		p.entries[i] = pageEntry{id: ref.id()}
		if ref.stream == noStream {
			p.entries[i].value = b.notes[ref.version]
			continue
		}
		typ, id, _ := strings.Cut(w.streams[ref.stream], "\x00")
		p.entries[i].key, p.entries[i].version = j17.Key{Type: names.Name([]byte(typ)), ID: id}, ref.version
	}

	// The values.
	p.values = slices.Grow(p.values, b.bytes)
	for _, chunk := range b.chunks {
		start := len(p.values)
		n, err := s2.DecodedLen(chunk)
		if err == nil {
			p.values = slices.Grow(p.values, n)[:start+n]
			_, err = s2.Decode(p.values[start:], chunk)
		}
		if err != nil {
			return err
		}
		for rest := p.values[start:]; len(rest) > 0; {
			at, width := binary.Uvarint(rest)
			n, width2 := binary.Uvarint(rest[width:])
			rest = rest[width+width2:]
			p.entries[at].value, rest = rest[:n:n], rest[n:]
		}
	}
	for i := range p.entries {
		if p.entries[i].value == nil {
			return errGap
		}
		p.bytes += len(p.entries[i].value)
	}
	if !w.left() {
		w.streams, w.buckets = nil, nil
	}
	return nil
}

// filling makes a window.
type filling struct {
	*window
	ctx   context.Context //nolint:containedctx // lives as long as the making of one window
	store *feeds
	of    *pager
	page  *page
	// room is how many bytes the window may keep, each how many references a bucket has.
	room, each int
	// stopped is set when one of the reading goroutines has failed.
	stopped atomic.Bool

	// mu guards the contents of the buckets. held is how many bytes these take, limit how many buckets there are: if
	// there is no room the last ones are dropped.
	mu    sync.Mutex
	held  int
	limit atomic.Int32
}

// fill makes a window of up to limit events and notes of a feed from a position on. The window is empty if the first
// bucket does not fit. The size of an event is estimated from the previous window, or from the page if there was none.
func (w *window) fill(ctx context.Context, s *feeds, of *pager, p *page, from j17.StreamID, limit int) error {
	if w.value == 0 {
		w.value = max(p.bytes/max(len(p.entries), 1), 1)
		w.kept = referenceBytes + streamBytes + w.value/2
	}
	value, kept := w.value, w.kept
	*w = window{value: value, kept: kept}
	s.beginPage(p)

	// There must be room for one uncompressed bucket, and for the chunks that the readers have not compressed yet.
	bucketBytes := min(p.size()/16, mostBucketBytes)
	looking := min(mostLooking, runtime.GOMAXPROCS(0))
	f := filling{window: w, ctx: ctx, store: s, of: of, page: p, each: max(bucketBytes/value, 1)}
	f.room = p.size() - bucketBytes
	n := max(f.room/kept, minGathered)
	n = min(n, limit, mostBuckets*f.each)
	f.room -= looking * chunkBytes * min(n/f.each+1, f.room/4/looking/chunkBytes)

	found, err := f.gather(from, n, limit)
	if err != nil {
		return err
	}
	f.limit.Store(int32(len(w.buckets)))
	if err := f.read(f.sort(found), looking); err != nil {
		return err
	}

	// The next window reads again what did not fit.
	if last := int(f.limit.Load()); last < len(w.buckets) {
		clear(w.buckets[last:])
		w.buckets, w.more = w.buckets[:last], true
	}
	bytes, events := 0, 0
	for i := range w.buckets {
		bytes, events = bytes+w.buckets[i].bytes, events+len(w.buckets[i].references)
	}

	w.value, w.kept = bytes/max(events, 1), f.held/max(events, 1)+1
	return nil
}

// going returns an error if the filling of the window has to end.
func (f *filling) going() error {
	if f.of.stale(f.page) {
		return errOutdated
	}
	if f.stopped.Load() {
		return context.Canceled // the goroutine that failed returns the cause
	}
	return f.store.interrupted(f.ctx, 0)
}

// gather collects the references of n events and notes from a position on, and of the rest of the last run, but of at
// most limit. It returns the number of events.
func (f *filling) gather(from j17.StreamID, n, limit int) (found int, err error) {
	streams := map[string]uint32{}
	f.more = true

	// Take a new view every viewEvents, so that nobody who waits for a view to be released waits for a whole window.
	for all := 0; f.more && all < min(n, limit) && f.held < f.room/2; {
		if err := f.going(); err != nil {
			return 0, err
		}
		err := f.of.use(func(r reader) (err error) {
			l, err := newLookup(r.snapshot, r.tenant, nil)
			if err != nil {
				return err
			}
			defer l.close(&err)
			f.more = l.feed.SeekGE(appendFeedKey(nil, r.tenant, from))
			for enough := min(all+viewEvents, n, limit); f.more && all < enough &&
				f.held < f.room/2; f.more = l.feed.Next() {
				last, err := l.open()
				if err != nil {
					return l.fault(err, from)
				}
				taken, err := f.entry(l, last, from, streams, limit-all)
				if err != nil {
					return err
				}
				if all += taken; l.note == nil {
					found += taken
				}
				from = last.Next()
			}
			if err := l.feed.Error(); err != nil {
				return fault("the feed", err)
			}
			return nil
		})
		if err == nil {
			err = f.rest(min(viewEvents, n) * referenceBytes)
		}
		if err != nil {
			return 0, err
		}
	}
	return found, nil
}

// rest lets the reader pause after so many bytes.
func (f *filling) rest(bytes int) error {
	if f.of.rest == nil {
		return nil
	}
	return f.of.rest(bytes)
}

// entry collects the references of a feed entry that ends at last: a note, or up to most events of a run from position
// from on. It returns the number of references. streams has the numbers of the streams met so far.
func (f *filling) entry(l *lookup, last, from j17.StreamID, streams map[string]uint32, most int) (n int, err error) {
	if l.note != nil {
		if !f.of.notes {
			return 0, nil
		}
		b := f.next()
		b.references = append(b.references, reference{last.Ms, last.Seq, noStream, uint64(len(b.notes))})
		b.notes = append(b.notes, bytes.Clone(l.note))
		f.held += referenceBytes + len(l.note)
		return 1, nil
	}
	for i, name := range l.run {
		id := ahead(last, len(l.run)-1-i)
		if id.Compare(from) < 0 || n == most {
			continue
		}

		// The name of a stream is stored once, and its number from then on.
		end := len(name) - versionSuffix - 1
		if end < 0 || name[end] != 0 || bytes.IndexByte(name[:end], 0) < 0 {
			return n, l.fault(errFormat, id)
		}
		stream, ok := streams[string(name[:end])]
		if !ok {
			stream = uint32(len(f.streams))
			f.streams = append(f.streams, string(name[:end]))
			streams[f.streams[stream]] = stream
			f.held += streamBytes + end
		}

		b := f.next()
		b.references = append(b.references, reference{id.Ms, id.Seq, stream, binary.BigEndian.Uint64(name[end+1:])})
		f.held += referenceBytes
		n++
	}
	return n, nil
}

// next returns the bucket that the next reference belongs to.
func (f *filling) next() *bucket {
	if n := len(f.buckets); n == 0 || len(f.buckets[n-1].references) == f.each {
		f.buckets = append(f.buckets, bucket{references: make([]reference, 0, f.each)})
	}
	return &f.buckets[len(f.buckets)-1]
}

// sort returns the places of the events in the order of storage: by stream, and within a stream in the order of the
// feed.
func (f *filling) sort(events int) []uint32 {
	if events == 0 {
		return nil
	}
	same := len(f.streams[0])
	for _, name := range f.streams[1:] {
		same = min(same, len(name))
		for name[:same] != f.streams[0][:same] {
			same--
		}
	}
	order := make([]sought, len(f.streams))
	for i, name := range f.streams {
		var b [8]byte
		copy(b[:], name[same:])
		order[i] = sought{binary.BigEndian.Uint64(b[:]), i}
	}
	slices.SortFunc(order, func(a, b sought) int {
		return cmp.Or(cmp.Compare(a.prefix, b.prefix), cmp.Compare(f.streams[a.at][same:], f.streams[b.at][same:]))
	})

	// Where the events of each stream begin.
	starts := make([]uint32, len(f.streams))
	f.events(func(_ uint32, ref *reference) { starts[ref.stream]++ })
	begin := uint32(0)
	for _, s := range order {
		starts[s.at], begin = begin, begin+starts[s.at]
	}
	places := make([]uint32, events)
	f.events(func(place uint32, ref *reference) {
		places[starts[ref.stream]] = place
		starts[ref.stream]++
	})
	return places
}

// events calls do for the references of events, with their places.
func (f *filling) events(do func(place uint32, ref *reference)) {
	for i := range f.buckets {
		for j := range f.buckets[i].references {
			if ref := &f.buckets[i].references[j]; ref.stream != noStream {
				do(uint32(i*f.each+j), ref)
			}
		}
	}
}

// read reads the events in the order of places, with up to looking goroutines, each of which reads a part.
func (f *filling) read(places []uint32, looking int) error {
	looking = min(looking, 2*len(places)/dividedFrom)
	if looking < 2 {
		return f.collect(places)
	}
	errs := make([]error, looking)
	var reading panics.Parts
	for i := range looking {
		reading.Go(func() {
			if errs[i] = f.collect(places[len(places)*i/looking : len(places)*(i+1)/looking]); errs[i] != nil {
				f.stopped.Store(true)
			}
		})
	}
	reading.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return errors.Join(errs...)
}

// collect reads some of the events, and puts them into their buckets.
func (f *filling) collect(places []uint32) error {
	c := collector{
		filling: f, chunks: make([][]byte, len(f.buckets)), packed: make([]byte, s2.MaxEncodedLen(chunkBytes)),
	}
	for len(places) > 0 {
		some := places[:min(len(places), viewEvents)]
		places = places[len(some):]
		before := c.read
		err := f.of.use(func(r reader) error { return c.collect(r, some) })
		if err == nil {
			err = f.rest(c.read - before)
		}
		if err != nil {
			return err
		}
	}
	for at := range c.chunks {
		c.flush(at)
	}
	return nil
}

// collector reads a part of the events of a window for one goroutine.
type collector struct {
	*filling
	// chunks holds the values of each bucket that are not compressed yet; large is for events larger than a chunk,
	// packed is the buffer that is compressed to.
	chunks        [][]byte
	large, packed []byte
	// read is the size of all values read so far.
	read int
}

// collect reads events from one view.
func (c *collector) collect(r reader, places []uint32) (err error) {
	key := appendPrefix(nil, r.tenant, kindEvent)
	it, err := r.iterate(key, after(key))
	if err != nil {
		return err
	}
	defer closeIter(it, &err, "events")
	prefix, stream, version := len(key), uint32(noStream), uint64(0)
	for i, place := range places {
		if i%cancelEvery == 0 {
			if err := c.going(); err != nil {
				return err
			}
		}
		at := int(place) / c.each
		if at >= int(c.limit.Load()) {
			continue
		}

		// The next event of a stream is mostly the next one in storage.
		ref := &c.buckets[at].references[int(place)%c.each]
		follows := ref.stream == stream && ref.version == version+1
		if ref.stream != stream {
			key = append(append(append(key[:prefix], c.streams[ref.stream]...), 0), make([]byte, versionSuffix)...)
		}
		stream, version = ref.stream, ref.version
		binary.BigEndian.PutUint64(key[len(key)-versionSuffix:], version)
		var found bool
		if follows {
			found = it.Next()
		} else {
			found = it.SeekGE(key)
		}
		var value []byte
		failed := it.Error()
		if failed == nil && found {
			value, failed = it.ValueAndErr()
		}
		if failed != nil || !found || !bytes.Equal(it.Key(), key) {
			return corruption(cmp.Or(failed, errGap), "the feed of tenant number %d at %s", r.tenant, ref.id())
		}
		c.add(at, int(place)%c.each, value)
		c.read += len(value)
	}
	return nil
}

// add puts a value into a bucket.
func (c *collector) add(at, place int, value []byte) {
	to := &c.chunks[at]
	if len(*to) > 0 && len(*to)+2*binary.MaxVarintLen32+len(value) > chunkBytes {
		c.flush(at)
	}
	large := 2*binary.MaxVarintLen32+len(value) > chunkBytes
	if large {
		to = &c.large
	} else if *to == nil {
		*to = make([]byte, 0, chunkBytes)
	}
	*to = append(binary.AppendUvarint(binary.AppendUvarint(*to, uint64(place)), uint64(len(value))), value...)
	if large {
		c.pack(at, *to)
		c.large = c.large[:0]
	}
}

// flush compresses the values of a bucket that are not compressed yet.
func (c *collector) flush(at int) {
	if len(c.chunks[at]) > 0 {
		c.pack(at, c.chunks[at])
		c.chunks[at] = c.chunks[at][:0]
	}
}

// pack compresses a chunk. It drops the last buckets if there is no room, or a bucket and those after it if that has
// too many bytes.
func (c *collector) pack(at int, chunk []byte) {
	packed := s2.Encode(c.packed[:cap(c.packed)], chunk)
	if cap(packed) > cap(c.packed) && cap(packed) < maxBucketBytes {
		c.packed = packed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if at >= int(c.limit.Load()) {
		return
	}
	b := &c.buckets[at]
	b.chunks = append(b.chunks, bytes.Clone(packed))
	b.bytes, b.packed = b.bytes+len(chunk), b.packed+len(packed)
	c.held += len(packed)
	if b.bytes > maxBucketBytes {
		c.give(at)
	}
	for limit := int(c.limit.Load()); limit > 0 && c.held > c.room; limit-- {
		c.give(limit - 1)
	}
}

// give drops a bucket and those after it.
func (c *collector) give(from int) {
	for i := from; i < int(c.limit.Load()); i++ {
		c.held -= c.buckets[i].packed + referenceBytes*len(c.buckets[i].references)
		c.buckets[i].chunks = nil
	}
	c.limit.Store(int32(from))
}
