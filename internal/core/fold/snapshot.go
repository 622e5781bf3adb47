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

// snapshotSpace is the space of snapshots: the latest state of each stream that is long enough for one, under the
// stream's key. A snapshot is derived data: it is ignored when the handlers have changed, and rewriting a stream
// removes it.
const snapshotSpace store.Space = "snapshot"

// snapshots keeps states in the store: the latest of a long stream, and some past ones.
type snapshots struct {
	store  Storage
	logger *slog.Logger
	// every is the number of events after which a stream gets a new snapshot.
	every   uint64
	written atomic.Uint64
}

// snapshotFormat is the first byte of a snapshot. It is followed by the fingerprint of the handlers, the length and the
// timestamp of the first event as varints, and the state as JSON. For a stream with rewritten events the first byte is
// a different one, and the generation precedes the length.
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

// decodeSnapshot returns false for a snapshot made by other handlers or another version of this program.
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

// Past states of a long stream are kept so that others need not be folded from the first event: under
// "type:id/fingerprint/length" in pastSpace, in the format of snapshots. pastIndexSpace lists them under the stream's
// key. Rewriting a stream removes both.
const (
	pastSpace      store.Space = "snapshot.past"
	pastIndexSpace store.Space = "snapshot.past.index"
)

const (
	// pastEvery is how many events lie between two past states at first.
	pastEvery = 10_000
	// keptPast is the most past states of a stream: when there would be more, every other one is removed and the
	// distance doubles.
	keptPast = 64
	// pastShare: a past state is kept if the events since the last one have at least pastShare times its size, or took
	// pastWork or more to fold.
	pastShare = 4
	pastWork  = 64 << 20
)

// pastStates is an item of pastIndexSpace: the lengths of the past states that are kept, ascending.
type pastStates struct {
	Fingerprint [32]byte `json:"fingerprint"`
	Generation  uint64   `json:"generation,omitempty"`
	Every       uint64   `json:"every"`
	Lengths     []uint64 `json:"lengths"`
}

func pastKey(key j17.Key, fingerprint [32]byte, length uint64) string {
	return key.String() + "/" + hex.EncodeToString(fingerprint[:8]) + "/" + strconv.FormatUint(length, 10)
}

// load returns the longest stored state, up to the length, of the type's present handlers and of the generation. It
// returns the state before the first event if there is none, and nil if the stored one has more than most bytes.
func (s *snapshots) load(
	ctx context.Context, t j17.Tenant, typ *decider.Program, key j17.Key, of Version, most int,
) (*decider.State, error) {
	length := of.Length
	if length < s.every {
		return typ.First(), nil
	}

	// Try the latest state.
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

	// Try the longest past state that is not too long.
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

// pastStates returns the index of the past states of a stream, and the revision of its item.
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
	if json.Unmarshal(item.Value, &index) != nil { // another version's: start again
		index = pastStates{}
	}
	return index, item.Rev, nil
}

// keepPastIfDue keeps a state in the course of a fold if one is due. Errors are only logged: the fold goes on.
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

// keepPast keeps a past state of a stream, and thins out the others.
func (s *snapshots) keepPast(ctx context.Context, t j17.Tenant, key j17.Key, f *decider.State) error {
	index, rev, err := s.pastStates(ctx, t, key)
	if err != nil {
		return err
	}

	// States of other handlers, or of events rewritten since, are no longer of use.
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

	// A state near another one, or one that is large compared with the events since the last, is kept only if it was
	// expensive.
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
		// Remove every other one, but not the latest.
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

	// Write the index together with the states, and only if it has not changed since it was read.
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

// keep writes a finished state as the snapshot of its stream, and returns the state with that recorded. If the stream
// was erased since, it writes nothing.
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

// Erasures has one item, which changes with each erasure, so that states folded before are not written after it.
const (
	Erasures store.Space = "engine.erasures"

	erasuresKey = "latest"
)

// write writes states of one generation of a stream. It returns a *store.SideConflict if the stream was erased since:
// erased data would come back, and nobody would look for it.
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
