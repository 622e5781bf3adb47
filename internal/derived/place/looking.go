package place

import (
	"context"

	"j17"
	"j17/internal/base/work"
	"j17/internal/storage/store"
)

// looking reads stored data for one query, and counts the reads.
type looking struct {
	kinds *Kinds
	m     store.Moment
	// budget is the budget since the last mark: for mostEntries. scanned counts the reads, in entries.
	budget  *work.Budget
	scanned int
	// text and ends are memory for keys.
	text []byte
	ends []int
}

// look begins the reads of a query in a moment.
func (k *Kinds) look(ctx context.Context, m store.Moment) looking {
	k.s.counts.queries.Add(1)
	return looking{kinds: k, m: m, budget: work.New(ctx, k.budget())}
}

// budget is the cost that a search may have up to its first mark, and from each mark to the next, in units of work.
func (k *Kinds) budget() int64 { return int64(k.s.most) * ofEntry }

// passOn yields a mark. Continuing after it costs as much as a search that begins there, so the caller has to bound how
// many marks it takes.
func (l *looking) passOn(m Mark, yield func(Found, error) bool) bool {
	if !yield(Found{Mark: m}, nil) {
		return false
	}
	l.budget.Renew(l.kinds.budget())
	return true
}

// end adds the reads to the counters.
func (l *looking) end() { l.kinds.s.counts.scanned.Add(uint64(l.scanned)) }

// count counts work that costs as much as some entries.
func (l *looking) count(entries int) error {
	l.scanned += entries
	if l.budget.Spend(entries * ofEntry) {
		return nil
	}
	err := l.budget.Err()
	if j17.CodeOf(err) != j17.CodeWorkLimit {
		return err
	}
	return j17.Errorf(j17.CodeWorkLimit, "More than %d places would have to be compared to tell which come next: too many of them are equally far away, or within a square centimetre. Ask for those around another point or within a smaller radius, or for what is 'within' a box.", l.kinds.s.most)
}

// scan returns up to limit records of places.
func (l *looking) scan(keys store.Range, limit int) ([]store.Item, error) {
	items, err := l.m.Scan(places, keys, limit)
	if err != nil {
		return nil, err
	}
	return items, l.count(ofScan + len(items))
}

// keys returns up to limit keys of entries in a range. They are parts of one text.
func (l *looking) keys(of store.Range, limit int) ([]string, error) {
	l.text, l.ends = l.text[:0], l.ends[:0]
	err := l.m.Each(cells, of, func(key, _ []byte) bool {
		l.text = append(l.text, key...)
		l.ends = append(l.ends, len(l.text))
		return len(l.ends) < limit
	})
	if err != nil {
		return nil, err
	}
	text, keys, begin := string(l.text), make([]string, len(l.ends)), 0
	for i, end := range l.ends {
		keys[i], begin = text[begin:end], end
	}
	return keys, l.count(ofScan + len(keys))
}

// each passes the keys of entries until do reports false.
func (l *looking) each(keys store.Range, do func(key []byte) bool) error {
	if err := l.count(ofScan); err != nil {
		return err
	}
	var ended error
	err := l.m.Each(cells, keys, func(key, _ []byte) bool {
		ended = l.count(1)
		return ended == nil && do(key)
	})
	if err != nil {
		return err
	}
	return ended
}

// get returns the record of a place.
func (l *looking) get(key string) (store.Item, error) {
	if err := l.count(1); err != nil {
		return store.Item{}, err
	}
	return l.m.Get(places, key)
}
