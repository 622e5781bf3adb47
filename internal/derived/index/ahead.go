package index

import (
	"context"
	"errors"
	"sync"

	"j17"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
)

// ErrMoved is the error of a view that was opened by Ahead.Open, when more is read of the index than was read ahead and
// the index shows another position by now. The caller begins again with At.
var ErrMoved = errors.New("index: the index has moved on")

// maxAheadLanes is how many lanes of a query are read ahead.
const maxAheadLanes = 8

// Ahead is what a search of an index reads, as far as it can be known before anything is read: what says which slot
// serves, and how far it is, and the first entries of the query. A caller reads them together with what it needs
// itself, which takes one round trip to the store instead of one for each.
type Ahead struct {
	s    *Service
	of   place
	slot string
	// Wanted is what has to be read.
	Wanted store.Wanted
}

// Ahead returns what a search for about most rows after a cursor reads, nil if it is not known which slot serves.
func (s *Service) Ahead(t j17.Tenant, id string, q Query, after string, most int) *Ahead {
	a := &Ahead{s: s, of: place{t, id}}
	s.mu.Lock()
	a.slot = s.serving[a.of]
	s.mu.Unlock()
	if a.slot == "" || len(q.Lanes) > maxAheadLanes {
		return nil
	}
	a.Wanted.Items = []store.ItemName{
		{Space: headSpace, Key: id}, {Space: slotSpace, Key: a.slot}, feed.StoredIn(kind, a.slot),
	}

	// The first entries of each lane: as many as the search reads at first.
	v := &View{slot: &slot{name: a.slot}}
	for _, l := range v.lanes(&q) {
		l.seek(after, q.Backward)
		if len(l.left) > 0 {
			a.Wanted.Pages = append(a.Wanted.Pages, store.Page{
				Space: entrySpace, Keys: l.left[0], Limit: min(max(l.size, most), lastPage),
			})
		}
	}
	return a
}

// Open opens the index as of the position of what was found. It returns nil if the index has to be opened with At: the
// slot no longer serves, is behind the position, or cannot be read.
func (a *Ahead) Open(ctx context.Context, found *store.Found) (*View, error) {
	// The slot that serves.
	s, t := a.s, a.of.tenant
	get := func(space store.Space, key string) (store.Item, error) {
		for i, name := range a.Wanted.Items {
			if name.Space == space && name.Key == key && found.Items[i].Rev > 0 {
				return found.Items[i], nil
			}
		}
		return store.Item{}, store.ErrNotFound
	}
	h, err := readHead(get, a.of.name)
	if err != nil || h.Serving != a.slot {
		return nil, nil //nolint:nilerr,nilnil // At finds the same, and knows what to do
	}
	sl, err := readSlot(get, a.slot)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // as above
	}

	// A view of it, which reads on from a later moment.
	s.deferrals.asked(ctx, t, a.slot)
	known, err := s.followed(t, s.noted(t, sl), &found.Items[len(a.Wanted.Items)-1])
	if err != nil {
		return nil, err
	}
	v, err := s.viewOf(ctx, a.of, sl, &readAhead{
		asked: a.Wanted.Pages, found: found.Pages, open: func() (store.Moment, error) { return s.unmoved(ctx, t, sl) },
	}, known, found.Position)
	if v != nil {
		v.at = found.Position // up to there the slot shows all events, and it was read as of there
		s.counts.views.Add(1)
	}
	return v, err
}

// unmoved opens a moment in which a slot is as it was read before, and so are all of its entries and records. The error
// is ErrMoved if there is none any more.
func (s *Service) unmoved(ctx context.Context, t j17.Tenant, was *slot) (store.Moment, error) {
	m, err := s.o.Store.Moment(ctx, t)
	if err != nil {
		return nil, err
	}
	it, err := m.Get(slotSpace, was.name)
	if err == nil && it.Rev == was.rev {
		return m, nil
	}
	m.Close()
	if err == nil || errors.Is(err, store.ErrNotFound) {
		err = ErrMoved
	}
	return nil, err
}

// reader reads side items as of one moment. A store.Moment is one.
type reader interface {
	Get(space store.Space, key string) (store.Item, error)
	Scan(space store.Space, keys store.Range, limit int) ([]store.Item, error)
	Count(space store.Space, keys store.Range, limit int) (int, error)
	Each(space store.Space, keys store.Range, do func(key, value []byte) bool) error
	Close()
}

// readAhead is a reader that has some pages already. It reads everything else from a moment that open returns.
type readAhead struct {
	asked []store.Page
	found []store.FoundPage
	open  func() (store.Moment, error)

	mu     sync.Mutex
	moment store.Moment
	closed bool
}

// rest returns the moment.
func (r *readAhead) rest() (store.Moment, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, store.ErrClosed
	}
	if r.moment == nil {
		m, err := r.open()
		if err != nil {
			return nil, err
		}
		r.moment = m
	}
	return r.moment, nil
}

// Each is part of reader.
func (r *readAhead) Each(space store.Space, keys store.Range, do func(key, value []byte) bool) error {
	if i := r.with(space, keys); i >= 0 {
		items := r.found[i].Items
		for j := range items {
			if key := items[j].Key; key >= keys.From && (keys.To == "" || key < keys.To) &&
				!do([]byte(key), items[j].Value) {
				return nil
			}
		}
		if !r.found[i].More {
			return nil
		}
		keys = behind(keys, items[len(items)-1].Key)
	}
	m, err := r.rest()
	if err != nil {
		return err
	}
	return m.Each(space, keys, do)
}

// with returns the index of the page that a range is in, as far as the page goes, -1 for none: a range that begins in
// that of the page and has the same end.
func (r *readAhead) with(space store.Space, keys store.Range) int {
	for i := range r.asked {
		of := &r.asked[i].Keys
		if r.asked[i].Space != space || of.Backward != keys.Backward {
			continue
		}
		if keys.Backward && keys.From == of.From && keys.To != "" && (of.To == "" || keys.To <= of.To) ||
			!keys.Backward && keys.To == of.To && keys.From >= of.From {
			return i
		}
	}
	return -1
}

// behind returns the part of a range that comes after a key, which may lie before the range.
func behind(keys store.Range, key string) store.Range {
	if keys.Backward && keys.To != "" && keys.To <= key {
		return keys
	}
	return keys.Beyond(key)
}

// Get is part of reader.
func (r *readAhead) Get(space store.Space, key string) (store.Item, error) {
	m, err := r.rest()
	if err != nil {
		return store.Item{}, err
	}
	return m.Get(space, key)
}

// Scan is part of reader.
func (r *readAhead) Scan(space store.Space, keys store.Range, limit int) ([]store.Item, error) {
	m, err := r.rest()
	if err != nil {
		return nil, err
	}
	return m.Scan(space, keys, limit)
}

// Count is part of reader.
func (r *readAhead) Count(space store.Space, keys store.Range, limit int) (int, error) {
	m, err := r.rest()
	if err != nil {
		return 0, err
	}
	return m.Count(space, keys, limit)
}

// Close is part of reader.
func (r *readAhead) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.moment != nil {
		r.moment.Close()
	}
}
