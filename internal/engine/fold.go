package engine

import (
	"context"
	"fmt"

	"j17"
	"j17/internal/sandbox"
	"j17/internal/spec/tick"
	"j17/internal/store"
	"j17/internal/value"
	"j17/internal/work"
)

// folded is the state of an aggregate after the first length events of its stream. It is immutable.
type folded struct {
	// fingerprint is that of the aggregate type whose handlers made the state.
	fingerprint [32]byte
	length      uint64
	// created is the timestamp of the first event.
	created int64
	data    value.Value
	json    []byte
	// loose is how many bytes of events were folded since data was last copied: it may hold on to all of them.
	loose int
	// since is how many bytes of events, and cost how many units of work, were folded since a snapshot on the way was kept.
	since int
	cost  int64
	// snapshot is the length of the latest snapshot that was seen on the way here.
	snapshot uint64
	// cacheKey and size, what the state is charged for, are the cache's.
	cacheKey stateKey
	size     int64
}

// measure returns the memory that a state takes: its text, what its strings hold on to, and its tree.
func (f *folded) measure() int64 {
	return 256 + 2*int64(len(f.json)) + int64(min(f.loose, compactAbove*len(f.json))) + treeSize(f.data)
}

// treeSize returns what the nodes of a tree take beside the text of strings and numbers.
func treeSize(v value.Value) int64 {
	const node, member, container = 24, 40, 64
	switch v.Kind() {
	case value.Array:
		n := int64(container)
		for _, elem := range v.Elems() {
			n += node + treeSize(elem)
		}
		return n
	case value.Object:
		const indexed, entry = 8, 40 // objects with more members than that have an index
		n := int64(container)
		for _, m := range v.Members() {
			n += member + treeSize(m.Value)
		}
		if v.Len() > indexed {
			n += entry * int64(v.Len())
		}
		return n
	case value.Missing, value.Null, value.Bool, value.Number, value.String:
	}
	return 0
}

// stateOf returns the state after the first length events, which the stream has. past tells that the stream has more of
// them; such states are not cached. replay starts from nothing, whatever is known.
func (e *Engine) stateOf(ctx context.Context, t j17.Tenant, d *deployed, key j17.Key, length uint64, past, replay bool) (*folded, error) {
	typ := d.program(key.Type)
	k := flightKey{stateKey: stateKey{t, key}, fingerprint: typ.fingerprint, anew: replay}
	if !replay {
		if f := e.cached(k.stateKey, typ, length, past); f != nil {
			e.counts.hits.Add(1)
			return f, nil
		}
	}
	if past || replay {
		k.length = length
	}
	return e.foldTo(ctx, k, typ, length, false)
}

// cached returns the cached state of the type's present handlers with at least so many events; exactly so many when
// the caller wants the past.
func (e *Engine) cached(k stateKey, typ *program, length uint64, past bool) *folded {
	f := e.cache.get(k)
	if f == nil || f.fingerprint != typ.fingerprint || f.length < length || past && length > 0 && f.length != length {
		return nil
	}
	return f
}

// compactAbove is how many times the size of a state its events must have before it is copied to let go of them.
const compactAbove = 4

const (
	// eventWork is what it costs to read an event, beside its bytes, and codeWork what a call of custom code may take: a guess,
	// since what it takes is not counted in the same units.
	eventWork = 32
	codeWork  = 1 << 17
	// lookEvery is how many events pass between two looks at the context.
	lookEvery = 256
)

// portion is how much of a fold is done at once: until it has cost work units, and as long as the state and the next event
// together have at most so many bytes.
type portion struct {
	work  int64
	bytes int
}

// advance applies events after base up to length, or until the portion is done. It returns what it has cost, in units of package
// work. The state has no JSON until it is finished, unless it is base.
func (e *Engine) advance(
	ctx context.Context, t j17.Tenant, typ *program, key j17.Key, base *folded, length uint64, most portion,
) (*folded, int64, error) {
	if base.length == length {
		return base, 0, nil
	}
	f := *base
	f.json = nil
	ed := value.NewEditor()
	name := key.String()
	b := work.New(ctx, work.Replay)
	replaying := sandbox.ForReplay(ctx)
	cost, done := int64(0), false
	var te tick.Event // of its own memory in every turn, it would be a quarter of all that a replay allocates
	for ev, err := range e.store.ReadStream(ctx, t, key, base.length+1, length) {
		if err != nil {
			return nil, cost, err
		}
		if f.length%lookEvery == 0 && ctx.Err() != nil {
			return nil, cost, ctx.Err()
		}
		if done = cost > most.work || f.data.Size()+len(ev.Data) > most.bytes; done {
			break
		}
		te = tick.Event{Key: name, Type: ev.Type, Timestamp: ev.Timestamp, Data: tick.Raw(ev.Data), Metadata: tick.Raw(ev.Metadata)}
		b.Renew(work.Replay)
		if err := typ.apply(replaying, &f, ed, &te, b, nil); err != nil {
			return nil, cost, replayFailed(err, &te, f.length+1)
		}
		f.loose += len(ev.Data)
		f.since += len(ev.Data) + len(ev.Metadata)
		cost += b.Spent() + eventWork + int64(len(ev.Data))/work.BytesPerUnit
		if et := typ.Events[te.Type]; et != nil && et.Code != nil {
			cost += codeWork
		}
	}
	if f.length == base.length && done {
		return base, cost, nil
	}
	e.counts.folded.Add(f.length - base.length)
	if f.length != length && !done {
		return nil, cost, &store.CorruptionError{Where: name, Err: fmt.Errorf("%d events were found where %d should be", f.length, length)}
	}
	return &f, cost, nil
}
