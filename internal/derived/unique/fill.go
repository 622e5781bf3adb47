package unique

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/core/upcast"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
	"j17/internal/storage/store"
)

// filling goes through the feed for sets that a spec has and the environment lacks. Of several aggregates with one
// value, the first in the feed holds it and the others wait in feed order: when it is given back, the next one gets it.
type filling struct {
	s *Service
	t j17.Tenant
	d *decider.Decider
	// fences hold as long as the spec deployed when the filling began stays deployed, so that nothing is written to an
	// environment that is gone.
	fences []store.Fence
	// key is that of its item in fillings, "" for a trial, which writes nothing; rev is the item's revision, 0 before
	// the first page is written.
	key string
	rev uint64

	// generations are those being filled; sets has the same generations by set.
	generations []*generation
	sets        map[*spec.UniqueSet]*generation
	// at is the position reached, done the number of feed elements up to it.
	at   j17.StreamID
	done uint64

	// Changes that are not written yet, by item key.
	holders  map[string]string // "" for nobody
	holdings map[string]*holding
	lines    map[string]*line
	items    int
	// written, if not nil, has the keys of all holders and holdings ever written. It is only kept if this filling wrote
	// all of them.
	written *filter
}

// line has the unwritten changes of the queue of aggregates that wait for a value.
type line struct {
	// added come after all stored ones; gone are the item keys of those that no longer wait.
	added []waiter
	gone  map[string]bool
}

// waiter is an aggregate that waits for a value: the key of its item, and of the aggregate.
type waiter struct{ item, who string }

// fillingItem is the stored progress of a filling.
type fillingItem struct {
	Generations []*generation `json:"generations"`
	At          []byte        `json:"at"`
	Done        uint64        `json:"done"`
}

// begin returns a filling of the missing sets. It resumes an earlier filling of the same sets if there is one, under
// the given key or that of a prepared spec.
func (s *Service) begin(
	ctx context.Context, t j17.Tenant, d *decider.Decider, key string, missing []*generation,
) (*filling, error) {
	f := &filling{s: s, t: t, d: d, key: key, generations: missing}
	_, fences, err := s.Engine.Deployed(t)
	if err != nil && j17.CodeOf(err) != j17.CodeNoSpec {
		return nil, err
	}
	f.fences = fences

	// An earlier filling is resumed, or discarded if it has this key and other sets.
	for _, at := range slices.Compact([]string{key, prepared}) {
		item, err := s.get(ctx, t, fillings, at)
		if err != nil {
			return nil, err
		}
		if item.Rev == 0 {
			continue
		}
		began, err := readFilling(&item)
		switch {
		case err != nil:
			return nil, err
		case began.same(missing):
			f.key = at
			return f, f.resume(&item, began)
		case at == key:
			if err := s.Store.Write(ctx, t, s.discard(t, at, item.Rev, began.Generations)); err != nil {
				return nil, err
			}
		}
	}
	f.know()
	return f, nil
}

// resume continues the filling from the progress that its item has.
func (f *filling) resume(item *store.Item, began *fillingItem) (err error) {
	f.rev, f.generations, f.done = item.Rev, began.Generations, began.Done
	f.at, _, err = store.ReadStamp(began.At)
	f.know()
	return err
}

// know resolves the sets of the generations, registers the decider once something is stored, and drops unwritten
// changes.
func (f *filling) know() {
	f.sets = map[*spec.UniqueSet]*generation{}
	for _, g := range f.generations {
		g.set = f.d.Types[g.Type].Unique[g.Name]
		f.sets[g.set] = g
	}
	if f.rev != 0 {
		f.s.deciders.Store(f.generations[0].ID, f.d)
	}
	f.holders, f.holdings, f.lines, f.items = map[string]string{}, map[string]*holding{}, map[string]*line{}, 0
}

func readFilling(item *store.Item) (*fillingItem, error) {
	began := &fillingItem{}
	if err := json.Unmarshal(item.Value, began); err != nil || len(began.Generations) == 0 {
		return nil,
			&store.CorruptionError{Where: "the filling of unique sets " + item.Key, Err: errors.Join(errRecord, err)}
	}
	return began, nil
}

// same reports whether a filling is of the same sets.
func (i *fillingItem) same(missing []*generation) bool {
	if len(i.Generations) != len(missing) {
		return false
	}
	for n, g := range i.Generations {
		if m := missing[n]; g.Type != m.Type || g.Name != m.Name || string(g.Fingerprint) != string(m.Fingerprint) {
			return false
		}
	}
	return true
}

// newGeneration returns an empty generation for a set.
func newGeneration(aggregateType string, set *spec.UniqueSet) *generation {
	return &generation{
		ID: strings.ToLower(rand.Text()[:16]), Type: aggregateType, Name: set.Name, Fingerprint: set.Fingerprint[:],
		set: set,
	}
}

// page processes one page of the feed, and reports whether it reached the end with nothing left to write. What it
// writes may rest on events that were rewritten meanwhile; the note of that comes on the next page.
func (f *filling) page(ctx context.Context) (ended bool, err error) {
	n := 0
	for e, err := range f.s.Store.ReadChanges(ctx, f.t, f.at, f.s.pageEvents) {
		if err != nil {
			return false, err
		}
		n++
		if e.Note != nil {
			f.at = e.Note.Position
			for i := 0; i < len(e.Note.Streams) && err == nil; i++ {
				err = f.rewritten(ctx, e.Note.Streams[i].Key, f.at)
			}
		} else {
			f.at = e.Event.StreamID
			err = f.event(ctx, e.Event)
		}
		if err != nil {
			return false, err
		}
		if f.done++; f.items >= f.s.pageItems && f.key != "" {
			return false, f.flush(ctx)
		}
	}
	ended = n < f.s.pageEvents
	if f.key == "" || ended && f.items == 0 {
		return ended, nil
	}
	return false, f.flush(ctx)
}

// flush writes the changes and the progress in one commit.
func (f *filling) flush(ctx context.Context) error {
	// The progress, unless another attempt has advanced it.
	item := fillingItem{Generations: f.generations, At: store.AppendStamp(nil, f.at), Done: f.done}
	b, _ := json.Marshal(item) //nolint:errchkjson // texts and numbers: it cannot fail
	record := store.Side{Op: store.Put, Space: fillings, Key: f.key, Value: b, Cond: store.IfAbsent}
	if f.rev != 0 {
		record.Cond, record.Rev = store.IfRev, f.rev
	}
	sides := []store.Side{record}

	// The holders of values, the values of aggregates, and the aggregates that wait for values.
	put := func(space store.Space, key string, value []byte) {
		side := store.Side{Op: store.Put, Space: space, Key: key, Value: value}
		if len(value) == 0 {
			side.Op = store.Delete
		}
		sides = append(sides, side)
	}
	for key, who := range f.holders {
		put(values, key, []byte(who))
	}
	for key, h := range f.holdings {
		if h == nil {
			put(held, key, nil)
		} else {
			put(held, key, h.value())
		}
	}
	for _, l := range f.lines {
		for _, w := range l.added {
			if !l.gone[w.item] {
				put(waiting, w.item, []byte(w.who))
			}
			delete(l.gone, w.item)
		}
		for item := range l.gone {
			put(waiting, item, nil)
		}
	}

	// Most keys to come were never written; the filter spares looking them up.
	if f.rev == 0 {
		f.written = newFilter()
	}
	if f.written != nil {
		for key := range f.holders {
			f.written.add(key)
		}
		for key := range f.holdings {
			f.written.add(key)
		}
	}

	// The next page is conditional on the revision that this one leaves.
	if err := f.s.Store.Write(ctx, f.t, sides, f.fences...); err != nil {
		return err
	}
	stored, err := f.s.Store.Get(ctx, f.t, fillings, f.key)
	f.rev = stored.Rev
	f.know()
	return err
}

// event applies what an event takes and gives back.
func (f *filling) event(ctx context.Context, ev *j17.Event) error {
	typ := f.d.Types[ev.Key.Type]
	if typ == nil {
		return nil
	}
	exchanged, err := exchanges(ctx, typ, ev)
	if err != nil {
		return err
	}
	for _, c := range exchanged {
		if f.sets[c.Set] == nil {
			continue
		}
		if err := f.exchange(ctx, c, ev.Key, ev.StreamID); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// exchanges returns what a stored event has taken and given back, as it is read by now.
func exchanges(ctx context.Context, typ *spec.AggregateType, ev *j17.Event) ([]decider.Exchange, error) {
	et := typ.Events[ev.Type]
	if et == nil || len(et.Newest().Unique) == 0 && len(et.Newest().Releases) == 0 {
		return nil, nil
	}
	seen, err := upcast.Read(typ, ev, ev.Key.String(), work.New(ctx, work.Replay))
	if upcast.Failure(err) != nil {
		return nil, nil // nobody can read it
	}
	if err != nil {
		return nil, err
	}
	e := tick.NewEnv(work.New(ctx, work.Command))
	e.Renew(&seen)
	return decider.PastExchanges(typ, et.Newest(), e), nil
}

// exchange applies an exchange by an aggregate, made by the event at a position.
func (f *filling) exchange(ctx context.Context, c decider.Exchange, key j17.Key, at j17.StreamID) error {
	g := f.sets[c.Set]
	own, err := f.holding(ctx, g.heldKey(key))
	if err != nil || c.Of != nil && own != nil && own.digest == c.Value {
		return err
	}
	if err := f.give(ctx, g, key, own); err != nil || c.Of == nil {
		return err
	}
	holder, err := f.holder(ctx, g.valueKey(c.Value))
	if err != nil {
		return err
	}
	h := &holding{digest: c.Value}
	if holder == "" {
		f.setHolder(g.valueKey(c.Value), key.String())
	} else {
		h.waits = at
		prefix := g.linePrefix(c.Value)
		l, item := f.line(prefix), prefix+store.StampedKey(at, "")
		if l.gone[item] {
			delete(l.gone, item) // it left on this page, and returns to the same place
		} else {
			l.added = append(l.added, waiter{item, key.String()})
		}
		f.items++
	}
	f.setHolding(g.heldKey(key), h)
	return nil
}

// give takes from an aggregate the value that it holds, which passes to the next one waiting, or its place in the
// queue.
func (f *filling) give(ctx context.Context, g *generation, key j17.Key, own *holding) error {
	if own == nil {
		return nil
	}
	f.setHolding(g.heldKey(key), nil)
	prefix := g.linePrefix(own.digest)
	if own.waits != (j17.StreamID{}) {
		f.leave(prefix, store.StampedKey(own.waits, ""))
		return nil
	}

	// The next one in the queue gets it.
	next, err := f.first(ctx, prefix)
	if err != nil {
		return err
	}
	f.setHolder(g.valueKey(own.digest), next.who)
	if next.who == "" {
		return nil
	}
	who, ok := j17.ParseKey(next.who)
	if !ok {
		return &store.CorruptionError{Where: "who waits at " + next.item, Err: errRecord}
	}
	f.leave(prefix, next.item[len(prefix):])
	f.setHolding(g.heldKey(who), &holding{digest: own.digest})

	return nil
}

func (f *filling) setHolder(at, who string) {
	f.holders[at] = who
	f.items++
}

func (f *filling) setHolding(at string, h *holding) {
	f.holdings[at] = h
	f.items++
}

// holder returns the holder of a value, "" for none.
func (f *filling) holder(ctx context.Context, at string) (string, error) {
	if who, ok := f.holders[at]; ok || f.rev == 0 || f.written.lacks(at) {
		return who, nil
	}
	item, err := f.s.get(ctx, f.t, values, at)
	return string(item.Value), err
}

// holding returns what an aggregate holds or waits for, nil for nothing.
func (f *filling) holding(ctx context.Context, at string) (*holding, error) {
	if h, ok := f.holdings[at]; ok || f.rev == 0 || f.written.lacks(at) {
		return h, nil
	}
	item, err := f.s.get(ctx, f.t, held, at)
	if err != nil {
		return nil, err
	}
	return readHolding(&item)
}

// line returns the unwritten changes of the queue for a value.
func (f *filling) line(prefix string) *line {
	l := f.lines[prefix]
	if l == nil {
		l = &line{gone: map[string]bool{}}
		f.lines[prefix] = l
	}
	return l
}

// leave removes an aggregate from the queue for a value.
func (f *filling) leave(prefix, at string) {
	f.line(prefix).gone[prefix+at] = true
	f.items++
}

// first returns the first aggregate in the queue for a value, the zero waiter if it is empty.
func (f *filling) first(ctx context.Context, prefix string) (waiter, error) {
	l := f.lines[prefix]
	gone := 0
	if l != nil {
		gone = len(l.gone)
	}
	if f.rev != 0 {
		items, err := f.s.Store.Scan(ctx, f.t, waiting, store.Prefix(prefix), 1+gone)
		if err != nil {
			return waiter{}, err
		}
		for i := range items {
			if l == nil || !l.gone[items[i].Key] {
				return waiter{items[i].Key, string(items[i].Value)}, nil
			}
		}
	}
	for l != nil && len(l.added) > 0 {
		if first := l.added[0]; !l.gone[first.item] {
			return first, nil
		}
		delete(l.gone, l.added[0].item)
		l.added = l.added[1:]
	}
	return waiter{}, nil
}

// rewritten recomputes what a stream holds from its present events, up to a position.
func (f *filling) rewritten(ctx context.Context, key j17.Key, upTo j17.StreamID) error {
	for _, g := range f.generations {
		if g.Type != key.Type {
			continue
		}
		last, at, err := f.s.last(ctx, f.t, f.d, g.set, key, upTo)
		if err != nil {
			return err
		}
		own, err := f.holding(ctx, g.heldKey(key))
		if err != nil {
			return err
		}
		if last != nil && own != nil && last.Value == own.digest {
			continue
		}
		if err := f.give(ctx, g, key, own); err != nil {
			return err
		}
		if last != nil {
			if err := f.exchange(ctx, *last, key, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// last returns the exchange that took the value an aggregate has by its events up to a position, and the position of
// that event; nil if it has none. Whether another aggregate holds the value is not looked at.
func (s *Service) last(
	ctx context.Context, t j17.Tenant, d *decider.Decider, set *spec.UniqueSet, key j17.Key, upTo j17.StreamID,
) (last *decider.Exchange, at j17.StreamID, err error) {
	typ := d.Types[key.Type]
	for ev, err := range s.Store.ReadStream(ctx, t, key, 1, 0) {
		if err != nil {
			return nil, at, err
		}
		if ev.StreamID.Compare(upTo) > 0 {
			break
		}
		exchanged, err := exchanges(ctx, typ, ev)
		if err != nil {
			return nil, at, err
		}
		for _, c := range exchanged {
			switch {
			case c.Set != set:
			case c.Of == nil:
				last = nil
			case last == nil || last.Value != c.Value:
				last, at = &c, ev.StreamID
			}
		}
	}
	return last, at, ctx.Err()
}

// conflict is two aggregates that have the same value.
type conflict struct {
	*generation
	holder, other string
}

// maxConflicts is how many of them are reported.
const maxConflicts = 100

// conflicts returns the waiting aggregates with the holders of their values, at most maxConflicts.
func (f *filling) conflicts(ctx context.Context) (all []conflict, err error) {
	for _, g := range f.generations {
		for prefix, l := range f.lines { // not written: nothing, or all of a trial
			if !strings.HasPrefix(prefix, g.ID+"/") {
				continue
			}
			for _, w := range l.added {
				if !l.gone[w.item] && len(all) < maxConflicts {
					all = append(all, conflict{g, f.holders[strings.TrimSuffix(prefix, "/")], w.who})
				}
			}
		}
		if f.rev == 0 {
			continue
		}
		items, err := f.s.Store.Scan(ctx, f.t, waiting, store.Prefix(g.ID+"/"), maxConflicts-len(all))
		if err != nil {
			return nil, err
		}
		for i := range items {
			value := items[i].Key[:len(g.ID)+1+base64.RawURLEncoding.EncodedLen(32)]
			holder, err := f.holder(ctx, value)
			if err != nil {
				return nil, err
			}
			all = append(all, conflict{g, holder, string(items[i].Value)})
		}
		if len(all) == maxConflicts {
			break
		}
	}
	slices.SortFunc(all, func(a, b conflict) int {
		return cmp.Or(
			strings.Compare(a.Type, b.Type), strings.Compare(a.Name, b.Name), strings.Compare(a.holder, b.holder),
			strings.Compare(a.other, b.other),
		)
	})
	return all, nil
}
