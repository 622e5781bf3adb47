package projection

import (
	"container/list"
	"errors"
	"hash/maphash"
	"sync"

	"j17"
	"j17/internal/base/work"
)

// errAbandoned is the result of a computation whose caller has gone, for the others that wait for it.
var errAbandoned = errors.New("projection: the computation was given up")

// subject identifies a value: a projection, with an aggregate or with parameters.
type subject struct {
	tenant j17.Tenant
	name   string
	// of is the canonical ID, or the canonical parameters.
	of string
}

// keptValues caches values of projections, bounded in bytes. It never decides whether a value is current: the reader
// compares its sources. Values requested once are in a queue of their own, which has at least a fifth of the memory, so
// that a client that reads everything once evicts nothing that is requested again and again.
type keptValues struct {
	mu    sync.Mutex
	limit int64
	all   map[subject]*list.Element // of *keptValue
	// once has the values requested one time, often the others; the most recently used come first.
	once, often line
	counts      keptCounts
	// passed remembers rows of lists that were computed and not cached.
	seed   maphash.Seed
	passed *work.Recent

	// computing has the computations under way.
	computing map[subject]*computation
}

// line is a list of values with the sum of their charges.
type line struct {
	list.List
	used int64
}

// keptValue is a cached value with its subject.
type keptValue struct {
	subject
	*Value
	size  int64
	often bool
}

// keptCounts measures how useful the cache is.
type keptCounts struct{ hits, misses, shared uint64 }

const (
	// onceShare is the divisor of the limit that gives the memory reserved for values requested once.
	onceShare = 5
	// passedShare is the divisor of the greatest possible number of values that gives how many uncached rows are
	// remembered.
	passedShare = 4
)

func newKeptValues(limit int64) *keptValues {
	return &keptValues{
		limit: limit, all: map[subject]*list.Element{}, computing: map[subject]*computation{},
		seed: maphash.MakeSeed(), passed: work.NewRecent(limit / ownCharge / passedShare),
	}
}

// get returns the cached value, nil if there is none.
func (k *keptValues) get(of subject) *Value {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.find(of)
}

// rows returns the cached values of rows, nil for those without one.
func (k *keptValues) rows(t j17.Tenant, name string, ids []string) []*Value {
	k.mu.Lock()
	defer k.mu.Unlock()
	values := make([]*Value, len(ids))
	for i, id := range ids {
		values[i] = k.find(subject{t, name, id})
	}
	return values
}

// find is get. The caller holds mu.
func (k *keptValues) find(of subject) *Value {
	at := k.all[of]
	if at == nil {
		return nil
	}
	v := valueAt(at)
	if v.often {
		k.often.MoveToFront(at)
		return v.Value
	}

	// A value requested again moves to often; if that gets too large, its last values go back to once.
	k.once.take(at)
	v.often = true
	k.all[of] = k.often.push(v)
	for k.often.used > k.limit-k.limit/onceShare {
		last := k.often.take(k.often.Back())
		last.often = false
		k.all[last.subject] = k.once.push(last)
	}
	k.trim()
	return v.Value
}

// put caches a value in place of an earlier one. A value larger than a fifth of the limit is not cached.
func (k *keptValues) put(of subject, v *Value) {
	entry := &keptValue{subject: of, Value: v, size: v.charge() + int64(len(of.name)+len(of.of))}
	k.mu.Lock()
	defer k.mu.Unlock()
	if at := k.all[of]; at != nil {
		old := valueAt(at)
		if old.identity == v.identity && old.At.Compare(v.At) > 0 {
			return // a later computation was faster
		}
		k.lineOf(old).take(at)
		delete(k.all, of)
		entry.often = old.often
	}
	if entry.size > k.limit/onceShare {
		return
	}
	k.all[of] = k.lineOf(entry).push(entry)
	k.trim()
}

// offer is put for a row of a list. There are many of those, and each is computed quickly: it is cached from the second
// time on.
func (k *keptValues) offer(of subject, v *Value) {
	if k.passed.Again(maphash.Comparable(k.seed, of)) {
		k.put(of, v)
	}
}

// trim drops values until the others fit the limit. The caller holds mu.
func (k *keptValues) trim() {
	for k.once.used+k.often.used > k.limit {
		from := &k.once
		if from.Len() == 0 {
			from = &k.often
		}
		delete(k.all, from.take(from.Back()).subject)
	}
}

func (k *keptValues) lineOf(v *keptValue) *line {
	if v.often {
		return &k.often
	}
	return &k.once
}

func valueAt(at *list.Element) *keptValue {
	v, _ := at.Value.(*keptValue)
	return v
}

func (l *line) push(v *keptValue) *list.Element {
	l.used += v.size
	return l.PushFront(v)
}

func (l *line) take(at *list.Element) *keptValue {
	v, _ := l.Remove(at).(*keptValue)
	l.used -= v.size
	return v
}

// ownCharge is the overhead around data.
const ownCharge = 512

// charge returns the approximate memory that a value takes.
func (v *Value) charge() int64 {
	const own, source = ownCharge, 96 // source is the size of a source without its texts
	n := own + int64(len(v.Data)) + int64(len(v.Sources))*source
	for _, key := range v.Sources {
		n += int64(len(key.ID))
	}
	for i := range v.Sets {
		n += own + int64(len(v.Sets[i].IDs))*source
	}
	return n
}

// Stats has the counters of a service since it was made.
type Stats struct {
	// Hits counts values served from the cache, Misses computed ones, Shared the requests that waited for a computation
	// of another request.
	Hits, Misses, Shared uint64
	// KeptBytes is the memory that cached values are charged for, Kept their number.
	KeptBytes int64
	Kept      int
}

// Stats returns the counters.
func (s *Service) Stats() Stats {
	k := s.values.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	return Stats{
		Hits: k.counts.hits, Misses: k.counts.misses, Shared: k.counts.shared, KeptBytes: k.once.used + k.often.used,
		Kept: len(k.all),
	}
}

// computation is the computation of one value, for which all requests of that value wait. value and err are valid once
// done is closed.
type computation struct {
	// at is the position that the value is computed as of.
	at    j17.StreamID
	done  chan struct{}
	value *Value
	err   error
}

// join returns the computation of a value that is under way, or a new one as of a position, which the caller has to
// carry out if lead is set.
func (k *keptValues) join(of subject, at j17.StreamID) (c *computation, lead bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c = k.computing[of]; c != nil {
		k.counts.shared++
		return c, false
	}
	c = &computation{at: at, done: make(chan struct{}), err: errAbandoned}
	k.computing[of] = c
	return c, true
}

// finish wakes all requests that wait for a computation.
func (k *keptValues) finish(of subject, c *computation) {
	k.mu.Lock()
	delete(k.computing, of)
	k.mu.Unlock()
	close(c.done)
}

// served counts values served from the cache, and computed ones.
func (k *keptValues) served(hits, misses int) {
	k.mu.Lock()
	k.counts.hits += uint64(hits)
	k.counts.misses += uint64(misses)
	k.mu.Unlock()
}
