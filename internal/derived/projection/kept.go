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

// subject names a value: what a projection yields for one aggregate, or for parameters.
type subject struct {
	tenant j17.Tenant
	name   string
	// of is the canonical id, or the canonical parameters.
	of string
}

// keptValues holds what projections have yielded, bounded in bytes. It never decides whether a value is current: the
// reader compares what it was made of. Values that were asked for once are in a queue of their own, of a fifth of the
// memory, so that a client that reads everything once evicts nothing that is asked for again and again.
type keptValues struct {
	mu    sync.Mutex
	limit int64
	all   map[subject]*list.Element // of *keptValue
	// once are those that were asked for one time, often the others; the most recently used first.
	once, often line
	counts      keptCounts
	// passed are rows of lists that were computed and not kept.
	seed   maphash.Seed
	passed *work.Recent

	// computing are the computations under way.
	computing map[subject]*computation
}

// line is a list of values with what they are charged for.
type line struct {
	list.List
	used int64
}

// keptValue is a value with its place.
type keptValue struct {
	subject
	*Value
	size  int64
	often bool
}

// keptCounts tell how useful it is to keep values.
type keptCounts struct{ hits, misses, shared uint64 }

const (
	// onceShare is which part of the room is for values that were asked for one time.
	onceShare = 5
	// passedShare is which part of the values that there could be room for are remembered when they were not kept.
	passedShare = 4
)

func newKeptValues(limit int64) *keptValues {
	return &keptValues{
		limit: limit, all: map[subject]*list.Element{}, computing: map[subject]*computation{},
		seed: maphash.MakeSeed(), passed: work.NewRecent(limit / ownCharge / passedShare),
	}
}

// get returns the value that is kept, nil where there is none.
func (k *keptValues) get(of subject) *Value {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.find(of)
}

// rows returns the values of rows that are kept, nil where there is none.
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

	// What was asked for again has earned a place among the others, of whom the last one may go back.
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

// put keeps a value in the place of the one before. One that would fill a good part of the room is not kept.
func (k *keptValues) put(of subject, v *Value) {
	entry := &keptValue{subject: of, Value: v, size: v.charge() + int64(len(of.name)+len(of.of))}
	k.mu.Lock()
	defer k.mu.Unlock()
	if at := k.all[of]; at != nil {
		old := valueAt(at)
		if old.identity == v.identity && old.At.Compare(v.At) > 0 {
			return // somebody who came later was faster
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

// offer is put for a row of a list, one of many and soon computed: it is kept from the second time on.
func (k *keptValues) offer(of subject, v *Value) {
	if k.passed.Again(maphash.Comparable(k.seed, of)) {
		k.put(of, v)
	}
}

// trim drops values until the others fit. The caller holds mu.
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

// charge is the memory that a value takes.
func (v *Value) charge() int64 {
	const own, source = ownCharge, 96 // what a source takes beside its texts
	n := own + int64(len(v.Data)) + int64(len(v.Sources))*source
	for _, key := range v.Sources {
		n += int64(len(key.ID))
	}
	for i := range v.Sets {
		n += own + int64(len(v.Sets[i].IDs))*source
	}
	return n
}

// Stats counts what a service has done since it was made.
type Stats struct {
	// Hits are values that were served as they were kept, Misses those that were computed, Shared how often somebody
	// has waited for a computation of somebody else.
	Hits, Misses, Shared uint64
	// KeptBytes is the memory that kept values are charged for, Kept how many they are.
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

// computation is the computation of one value that all callers wait for who want it. value and err count once done is
// closed.
type computation struct {
	// at is the position that it computes the value of.
	at    j17.StreamID
	done  chan struct{}
	value *Value
	err   error
}

// join returns the computation of a value that is under way, and whether the caller has to carry it out, as of a
// position.
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

// finish wakes all that wait for a computation.
func (k *keptValues) finish(of subject, c *computation) {
	k.mu.Lock()
	delete(k.computing, of)
	k.mu.Unlock()
	close(c.done)
}

// served counts values that were served as they were kept, and others that were computed.
func (k *keptValues) served(hits, misses int) {
	k.mu.Lock()
	k.counts.hits += uint64(hits)
	k.counts.misses += uint64(misses)
	k.mu.Unlock()
}
