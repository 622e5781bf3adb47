package fold

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/decider"
	"j17/internal/storage/store"
)

// snapshotSpace is the space of snapshots: the latest state of a stream that is long enough to deserve one, under the
// stream's key. A snapshot is a derived thing: it is ignored when the handlers have changed, and whoever rewrites a
// stream removes it.
const snapshotSpace store.Space = "snapshot"

// snapshots keeps states in the store: the latest of a long stream, and some along its way.
type snapshots struct {
	store  Storage
	logger *slog.Logger
	// every is the number of events after which a stream gets a new snapshot.
	every   uint64
	written atomic.Uint64
}

// snapshotFormat is the first byte of a snapshot. Behind it stand the fingerprint of the handlers, the length and the
// timestamp of the first event as varints, and the state as JSON. Of a stream of which events were rewritten the first
// byte is another one, and the generation stands in front of the length.
const (
	snapshotFormat          = 1
	snapshotFormatRewritten = 2
)

func encodeSnapshot(f *decider.State) []byte {
	b := append(make([]byte, 0, 64+len(f.JSON)), snapshotFormat)
	b = append(b, f.Fingerprint[:]...)
	if f.Generation > 0 {
		b[0] = snapshotFormatRewritten
		b = binary.AppendUvarint(b, f.Generation)
	}
	b = binary.AppendUvarint(b, f.Length)
	b = binary.AppendVarint(b, f.Created)
	return append(b, f.JSON...)
}

// decodeSnapshot reports false for a snapshot that other handlers or another version of this program made.
func decodeSnapshot(b []byte, typ *decider.Program) (*decider.State, bool) {
	if len(b) < 1+len(typ.Fingerprint) || b[0] != snapshotFormat && b[0] != snapshotFormatRewritten ||
		[32]byte(b[1:]) != typ.Fingerprint {
		return nil, false
	}
	f := &decider.State{Fingerprint: typ.Fingerprint}
	rewritten := b[0] == snapshotFormatRewritten
	b = b[1+len(typ.Fingerprint):]
	var n, m int
	if rewritten {
		if f.Generation, n = binary.Uvarint(b); n <= 0 {
			return nil, false
		}
		b = b[n:]
	}
	if f.Length, n = binary.Uvarint(b); n <= 0 {
		return nil, false
	}
	if f.Created, m = binary.Varint(b[n:]); m <= 0 {
		return nil, false
	}
	f.JSON = b[n+m:]
	f.Snapshot = f.Length
	var err error
	f.Data, err = value.ParseStored(string(f.JSON))
	return f, err == nil
}

// The states that are kept along the way of a long stream, so that past ones need not be folded from the first event:
// under "type:id/fingerprint/length" in pastSpace, in the same format. Which there are stands in pastIndexSpace under
// the stream's key. Whoever rewrites a stream removes both.
const (
	pastSpace      store.Space = "snapshot.past"
	pastIndexSpace store.Space = "snapshot.past.index"
)

const (
	// pastEvery is how many events lie between two states that are kept along the way, at first.
	pastEvery = 10_000
	// keptPast is how many of them a stream has at most: when there would be more, every other one goes and they lie
	// twice as far apart.
	keptPast = 64
	// pastShare is how many times the size of a state the events since the last one must have for it to be kept, unless
	// they took more than pastWork to fold.
	pastShare = 4
	pastWork  = 64 << 20
)

// pastStates is what stands in pastIndexSpace: the lengths of the states that are kept, ascending.
type pastStates struct {
	Fingerprint [32]byte `json:"fingerprint"`
	Generation  uint64   `json:"generation,omitempty"`
	Every       uint64   `json:"every"`
	Lengths     []uint64 `json:"lengths"`
}

func pastKey(key j17.Key, fingerprint [32]byte, length uint64) string {
	return key.String() + "/" + hex.EncodeToString(fingerprint[:8]) + "/" + strconv.FormatUint(length, 10)
}

// load returns the longest stored state of the type's present handlers and of the generation that is not longer; that
// before the first event where there is none, and nil where what is stored has more than most bytes.
func (s *snapshots) load(
	ctx context.Context, t j17.Tenant, typ *decider.Program, key j17.Key, of Version, most int,
) (*decider.State, error) {
	length := of.Length
	if length < s.every {
		return typ.First(), nil
	}

	// The latest one.
	item, err := s.store.Get(ctx, t, snapshotSpace, key.String())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if err == nil {
		if len(item.Value) > most {
			return nil, nil //nolint:nilnil // stated
		}
		if f, ok := decodeSnapshot(item.Value, typ); ok && f.Length <= length && f.Generation == of.Generation {
			return f, nil
		}
	}

	// Those along the way: the last that is not too long.
	index, _, err := s.pastStates(ctx, t, key)
	if err != nil || index.Fingerprint != typ.Fingerprint || index.Generation != of.Generation {
		return typ.First(), err
	}
	i, found := slices.BinarySearch(index.Lengths, length)
	if found {
		i++
	}
	if i == 0 {
		return typ.First(), nil
	}

	item, err = s.store.Get(ctx, t, pastSpace, pastKey(key, typ.Fingerprint, index.Lengths[i-1]))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return typ.First(), nil
	case err != nil:
		return nil, err
	case len(item.Value) > most:
		return nil, nil //nolint:nilnil // stated
	}
	if f, ok := decodeSnapshot(item.Value, typ); ok && f.Length <= length && f.Generation == of.Generation {
		return f, nil
	}
	return typ.First(), nil
}

// pastStates returns which states of a stream are kept along its way, and the revision of the item that says so.
func (s *snapshots) pastStates(
	ctx context.Context, t j17.Tenant, key j17.Key,
) (index pastStates, rev uint64, err error) {
	item, err := s.store.Get(ctx, t, pastIndexSpace, key.String())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return index, 0, nil
	case err != nil:
		return index, 0, err
	}
	if json.Unmarshal(item.Value, &index) != nil { // another version's: made anew
		index = pastStates{}
	}
	return index, item.Rev, nil
}

// keepPastIfDue keeps a state on the way of a fold where one is due. What goes wrong with it is only logged: the fold
// goes on.
func (s *snapshots) keepPastIfDue(ctx context.Context, t j17.Tenant, key j17.Key, f *decider.State) {
	if f.Length%pastEvery != 0 && f.Cost < pastWork {
		return
	}
	s.tryKeepPast(ctx, t, key, f)
}

func (s *snapshots) tryKeepPast(ctx context.Context, t j17.Tenant, key j17.Key, f *decider.State) {
	if err := s.keepPast(ctx, t, key, f); err != nil && ctx.Err() == nil {
		s.logger.LogAttrs(ctx, slog.LevelWarn, "a state could not be kept",
			slog.String("tenant", string(t)), slog.String("key", key.String()), slog.Any("error", err))
	}
}

// keepPast keeps a state among those along the way of its stream, and thins these out.
func (s *snapshots) keepPast(ctx context.Context, t j17.Tenant, key j17.Key, f *decider.State) error {
	index, rev, err := s.pastStates(ctx, t, key)
	if err != nil {
		return err
	}

	// States of other handlers, or of events that were rewritten since, are of no use any more.
	var side []store.Side
	drop := func(length uint64) {
		side = append(side, store.Side{
			Op: store.Delete, Space: pastSpace, Key: pastKey(key, index.Fingerprint, length),
		})
	}
	if index.Fingerprint != f.Fingerprint || index.Generation != f.Generation {
		for _, length := range index.Lengths {
			drop(length)
		}
		index = pastStates{Fingerprint: f.Fingerprint, Generation: f.Generation, Every: pastEvery}
	}

	// A state near another one is kept only if it was expensive, and so is one that is large for the events behind it.
	i, found := slices.BinarySearch(index.Lengths, f.Length)
	near := i > 0 && f.Length-index.Lengths[i-1] < index.Every ||
		i < len(index.Lengths) && index.Lengths[i]-f.Length < index.Every
	if found || near && f.Cost < pastWork {
		return nil
	}
	text := f.Data.AppendJSON(nil)
	if pastShare*len(text) > f.Since && f.Cost < pastWork {
		return nil
	}

	kept := *f
	kept.JSON = text
	side = append(side, store.Side{
		Op: store.Put, Space: pastSpace, Key: pastKey(key, f.Fingerprint, f.Length), Value: encodeSnapshot(&kept),
	})
	index.Lengths = slices.Insert(index.Lengths, i, f.Length)
	if len(index.Lengths) > keptPast {
		// Every other one goes; the latest stays.
		thin := index.Lengths[:0:0]
		for i, length := range index.Lengths {
			if (len(index.Lengths)-1-i)%2 == 0 {
				thin = append(thin, length)
			} else {
				drop(length)
			}
		}
		index.Lengths, index.Every = thin, 2*index.Every
	}

	// The index changes with what it lists, and only if it is still what was read.
	raw, err := json.Marshal(index)
	if err != nil {
		return err
	}
	put := store.Side{Op: store.Put, Space: pastIndexSpace, Key: key.String(), Value: raw, Cond: store.IfAbsent}
	if rev > 0 {
		put.Cond, put.Rev = store.IfRev, rev
	}
	err = s.write(ctx, StateKey{t, key}, f.Generation, append(side, put))
	if _, ok := errors.AsType[*store.SideConflict](err); ok {
		return nil // somebody else keeps states of the stream, or it was erased
	}
	if err != nil {
		return err
	}
	f.Since, f.Cost = 0, 0
	s.written.Add(1)
	return nil
}

// keep writes a finished state as the snapshot of its stream, and returns one that knows of that. One of a stream that
// was erased since is not kept.
func (s *snapshots) keep(ctx context.Context, job StateKey, f *decider.State) (*decider.State, error) {
	kept := *f
	if f.Length-f.Snapshot >= pastEvery || f.Length/pastEvery != f.Snapshot/pastEvery {
		s.tryKeepPast(ctx, job.Tenant, job.Key, &kept)
	}
	err := s.write(ctx, job, f.Generation, []store.Side{
		{Op: store.Put, Space: snapshotSpace, Key: job.Key.String(), Value: encodeSnapshot(f)},
	})
	if _, erased := errors.AsType[*store.SideConflict](err); erased {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	s.written.Add(1)
	kept.Snapshot = f.Length
	return &kept, nil
}

// Erasures has one item, which changes with each erasure: a state that was folded before is no longer kept.
const (
	Erasures store.Space = "engine.erasures"

	erasuresKey = "latest"
)

// write writes states of a stream of one generation, unless it was erased since, which is a *store.SideConflict: what
// was erased would come back, and nobody would look for it.
func (s *snapshots) write(ctx context.Context, of StateKey, generation uint64, sides []store.Side) error {
	fence := store.Fence{Space: Erasures, Key: erasuresKey}
	it, err := s.store.Get(ctx, of.Tenant, Erasures, erasuresKey)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	fence.Rev = it.Rev
	heads, err := s.store.Heads(ctx, of.Tenant, []j17.Key{of.Key})
	if err != nil {
		return err
	}
	if heads[0].Generation != generation {
		return &store.SideConflict{Space: Erasures, Key: erasuresKey, Rev: it.Rev}
	}
	return s.store.Write(ctx, of.Tenant, sides, fence)
}
