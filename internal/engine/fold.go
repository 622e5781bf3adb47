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
	// snapshot is the length of the latest snapshot that was seen on the way here.
	snapshot uint64
	cacheKey stateKey
}

// charge is the memory that a state is charged for: its text, and its tree at a generous estimate.
func (f *folded) charge() int64 { return 256 + 5*int64(len(f.json)) }

// stateOf returns the state after the first length events, which the stream has. past tells that the stream has more of
// them; such states are not cached. replay starts from nothing, whatever is known.
func (e *Engine) stateOf(ctx context.Context, t store.Tenant, d *deployed, key j17.Key, length uint64, past, replay bool) (*folded, error) {
	typ := d.program(key.Type)
	if replay {
		return e.fold(ctx, t, typ, key, typ.first(), length)
	}
	k := stateKey{t, key}
	if f := e.cached(k, typ, length, past); f != nil {
		e.counts.hits.Add(1)
		return f, nil
	}
	lock := e.folding.of(e.cache.hash(k))
	lock.Lock()
	defer lock.Unlock()
	base := e.cached(k, typ, 0, past)
	if base == nil || base.length > length {
		var err error
		if base, err = e.snapshot(ctx, t, typ, key, length); err != nil {
			return nil, err
		}
	} else if base.length == length || !past && base.length > length {
		return base, nil
	}
	f, err := e.fold(ctx, t, typ, key, base, length)
	if err != nil || past {
		return f, err
	}
	e.cache.put(k, f)
	if f.length-f.snapshot >= e.every {
		e.enqueue(stateKey{t, key})
	}
	return f, nil
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

// fold applies the events after base up to length.
func (e *Engine) fold(ctx context.Context, t store.Tenant, typ *program, key j17.Key, base *folded, length uint64) (*folded, error) {
	if base.length == length {
		return base, nil
	}
	f := *base
	ed := value.NewEditor()
	name := key.String()
	b := work.New(ctx, work.Replay)
	replaying := sandbox.ForReplay(ctx)
	var te tick.Event // of its own memory in every turn, it would be a quarter of all that a replay allocates
	for ev, err := range e.store.ReadStream(ctx, t, key, base.length+1, length) {
		if err != nil {
			return nil, err
		}
		f.loose += len(ev.Data)
		te = tick.Event{Key: name, Type: ev.Type, Timestamp: ev.Timestamp, Data: tick.Raw(ev.Data), Metadata: tick.Raw(ev.Metadata)}
		b.Renew(work.Replay)
		if err := typ.apply(replaying, &f, ed, &te, b, nil); err != nil {
			return nil, replayFailed(err, &te, f.length+1)
		}
	}
	if f.length != length {
		return nil, &store.CorruptionError{Where: name, Err: fmt.Errorf("%d events were found where %d should be", f.length, length)}
	}
	e.counts.folded.Add(length - base.length)
	if err := f.finish(name); err != nil {
		return nil, err
	}
	return &f, nil
}
