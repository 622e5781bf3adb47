package checkpoint

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"slices"
	"time"
	"unicode/utf8"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// The scopes of checkpoints.
const (
	ofAggregate   = "aggregate"
	ofType        = "type"
	ofEnvironment = "environment"
)

const (
	// maxNamed is how many checkpoints an environment has at most, maxName how long their names may be, in bytes.
	maxNamed = 1000
	maxName  = 200
	// keepAttempts is how often the states of a checkpoint are gathered, if others are erased meanwhile.
	keepAttempts = 3
	// flushItems and flushBytes are how much is written at a time.
	flushItems = 500
	flushBytes = 4 << 20
)

// row is the stored form of a checkpoint.
type row struct {
	wire.Checkpoint
	// Types are those whose streams were read, none if it is of a single aggregate.
	Types []string `json:"types,omitempty"`
}

func (s *Service) named() *list[row] { return &list[row]{store: s.Store, rows: named, ids: namedIDs} }

// errErased reports that a state no longer matches its stream, since events were erased meanwhile.
var errErased = errors.New("checkpoint: events were erased meanwhile")

// admit checks the name of a checkpoint, and that there may be another one.
func (s *Service) admit(ctx context.Context, t j17.Tenant, name *string) error {
	if name != nil && (*name == "" || len(*name) > maxName || !utf8.ValidString(*name)) {
		return j17.Errorf(j17.CodeInvalidField, "'name' must be a text of 1 to %d bytes, or be left out", maxName).At("name")
	}
	return s.room(ctx, t)
}

// room checks that there may be another checkpoint.
func (s *Service) room(ctx context.Context, t j17.Tenant) error {
	n, err := s.Store.Count(ctx, t, named, store.Range{}, maxNamed)
	if err != nil {
		return store.UserError(err)
	}
	if n >= maxNamed {
		return j17.Errorf(j17.CodeConflict, "There are %d checkpoints in this environment, which is the most it may have. Delete those that are not needed.", n)
	}
	return nil
}

// wanted returns the requested aggregates, as they are now.
func (s *Service) wanted(ctx context.Context, t j17.Tenant, ask *wire.NewCheckpoint) (*States, error) {
	switch {
	case ask.Key != nil && ask.AggregateType != nil:
		return nil, j17.Errorf(j17.CodeInvalidField, "'key' and 'aggregate_type' exclude each other: a checkpoint is of one aggregate, of one type, or without both of the environment").At("key")
	case ask.AggregateType != nil:
		x, err := s.States(ctx, t, *ask.AggregateType)
		if err == nil && *ask.AggregateType == "" {
			err = j17.Errorf(j17.CodeInvalidField, "'aggregate_type' must be the name of an aggregate type").At("aggregate_type")
		}
		return x, err
	}
	x, err := s.present(ctx, t)
	if err != nil || ask.Key == nil {
		return x, err
	}
	asked, ok := j17.ParseKey(*ask.Key)
	if !ok {
		return nil, j17.Errorf(j17.CodeInvalidField, "'key' must be an aggregate's type and id with a colon between them").At("key")
	}
	key, err := s.Engine.Key(ctx, t, asked.Type, asked.ID)
	if err != nil {
		return nil, err
	}
	return x, x.one(ctx, key)
}

// rowOf describes the scope of a checkpoint of states.
func rowOf(x *States) (made row) {
	made.Scope, made.Types = ofEnvironment, x.types
	switch {
	case x.only != (j17.Key{}):
		made.Scope, made.Key, made.Types = ofAggregate, x.only.String(), nil
	case x.typed:
		made.Scope, made.AggregateType = ofType, x.types[0]
	}
	return made
}

// plan plans the removal of a checkpoint, which takes place unless it is completed.
func (s *Service) plan(ctx context.Context, t j17.Tenant, made *row) error {
	side, err := s.removal(made, s.Clock.Now().Add(unfinishedPause))
	if err != nil {
		return err
	}
	return store.UserError(s.Store.Write(ctx, t, []store.Side{side}))
}

// gather keeps states, and records their number and their hash.
func (s *Service) gather(ctx context.Context, m *making, x *States) error {
	t, made := m.tenant, &m.made
	m.done.Store(0)
	made.Position, made.Aggregates, made.CreatedAt = x.Position().PositionText(), 0, s.now()
	sum := sha256.New()
	var batch keeping
	for st, err := range x.All(ctx) {
		if err != nil {
			return err
		}
		hashLine(sum, st.Line)
		made.Aggregates++
		m.done.Store(made.Aggregates)
		batch.add(&st, made.ID, x.m.Decider().Program(st.Key.Type).Fingerprint)
		if len(batch.sides) == flushItems || batch.bytes >= flushBytes {
			if err := s.flush(ctx, t, &batch); err != nil {
				return err
			}
		}
	}
	made.StateHash = hex.EncodeToString(sum.Sum(nil))
	return s.flush(ctx, t, &batch)
}

// hashLine adds a line to the hash of a checkpoint.
func hashLine(sum hash.Hash, line []byte) {
	_, _ = sum.Write(line) // never fails
	_, _ = sum.Write([]byte{'\n'})
}

// keeping are states to be written together.
type keeping struct {
	sides       []store.Side
	keys        []j17.Key
	generations []uint64
	bytes       int
}

func (k *keeping) add(st *State, id string, fingerprint [32]byte) {
	value := keep(st, fingerprint)
	k.sides = append(k.sides, store.Side{
		Op: store.Put, Space: states, Key: keptKey(st.Key, id), Value: value, Plain: true,
	})
	k.keys, k.generations = append(k.keys, st.Key), append(k.generations, st.Version.Generation)
	k.bytes += len(value)
}

// flush writes states, if they still match their streams; errErased if they do not.
func (s *Service) flush(ctx context.Context, t j17.Tenant, k *keeping) error {
	if len(k.sides) == 0 {
		return nil
	}
	s.erasing.RLock()
	defer s.erasing.RUnlock()
	heads, err := s.Store.Heads(ctx, t, k.keys)
	if err != nil {
		return store.UserError(err)
	}
	for i := range heads {
		if heads[i].Generation != k.generations[i] {
			return errErased
		}
	}
	if err := s.Store.Write(ctx, t, k.sides); err != nil {
		return store.UserError(err)
	}
	*k = keeping{sides: k.sides[:0], keys: k.keys[:0], generations: k.generations[:0]}
	return nil
}

// addNamed lists a checkpoint whose states are kept. It checks the limit again, since others may have been made
// meanwhile.
func (s *Service) addNamed(ctx context.Context, t j17.Tenant, made *row) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if err := s.room(ctx, t); err != nil {
		return err
	}
	sides, err := s.named().add(ctx, t, made.ID, made)
	if err != nil {
		return err
	}
	sides = append(sides, store.Side{Op: store.Delete, Space: jobs, Key: made.ID})
	return store.UserError(s.Store.Write(ctx, t, sides))
}

// Get returns a checkpoint by its id.
func (s *Service) Get(ctx context.Context, t j17.Tenant, id string) (wire.Checkpoint, error) {
	if c, ok := s.unfinishedOne(t, id); ok {
		return c, nil
	}
	found, err := s.find(ctx, t, id)
	if err != nil {
		return wire.Checkpoint{}, err
	}
	return s.restored(t, found.row.Checkpoint), nil
}

func (s *Service) find(ctx context.Context, t j17.Tenant, id string) (*numbered[row], error) {
	found, err := s.named().get(ctx, t, id)
	if err == nil && found == nil {
		err = j17.Errorf(j17.CodeNotFound, "There is no checkpoint with this id in this environment")
	}
	if err == nil {
		found.row.Status = completed
	}
	return found, err
}

// List returns up to limit checkpoints after skipping offset of them: first those that are not completed, then the
// others, the newest first.
func (s *Service) List(ctx context.Context, t j17.Tenant, offset, limit int) ([]wire.Checkpoint, error) {
	unfinished := s.unfinished(t)
	all := append([]wire.Checkpoint{}, unfinished[min(offset, len(unfinished)):min(offset+limit, len(unfinished))]...)
	if len(all) == limit {
		return all, nil
	}
	offset = max(offset-len(unfinished), 0)
	page, err := s.named().page(ctx, t, offset, limit-len(all))
	for i := range page {
		c := page[i].Checkpoint
		if c.Status = completed; !slices.ContainsFunc(
			unfinished, func(u wire.Checkpoint) bool { return u.ID == c.ID },
		) {
			// it may be by now
			all = append(all, s.restored(t, c))
		}
	}
	return all, err
}

// Delete removes a checkpoint, and in the background its states. One in progress is cancelled.
func (s *Service) Delete(ctx context.Context, t j17.Tenant, id string) (wire.Checkpoint, error) {
	if c, err := s.cancel(ctx, t, id); c != nil || err != nil {
		return *cmp.Or(c, &wire.Checkpoint{}), err
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	found, err := s.find(ctx, t, id)
	if err != nil {
		return wire.Checkpoint{}, err
	}
	job, err := s.removal(&found.row, s.Clock.Now())
	if err != nil {
		return wire.Checkpoint{}, err
	}
	return found.row.Checkpoint, store.UserError(s.Store.WriteFreeing(ctx, t, append(s.named().remove(found.key), job)))
}

const (
	// unfinishedPause is how often it is checked whether a checkpoint is still being made.
	unfinishedPause = time.Minute
	// removalLease is how long a step of a removal may take, removedAtOnce how many streams it covers.
	removalLease  = time.Minute
	removedAtOnce = 20_000
)

// removing is the removal of the states of a checkpoint.
type removing struct {
	// Key is that of the only aggregate; otherwise Types are those with remaining streams, those of the first one after
	// an id.
	Key   string   `json:"key,omitempty"`
	Types []string `json:"types,omitempty"`
	After string   `json:"after,omitempty"`
}

// removal returns the write that plans the removal of the states of a checkpoint.
func (s *Service) removal(of *row, due time.Time) (store.Side, error) {
	raw, err := json.Marshal(removing{Key: of.Key, Types: of.Types})
	return store.Side{Op: store.Put, Space: jobs, Key: of.ID, Value: raw, Due: due}, err
}

// giveUp makes the removal of an unfinished checkpoint due now.
func (s *Service) giveUp(ctx context.Context, t j17.Tenant, id string) error {
	ctx = context.WithoutCancel(ctx)
	item, err := s.Store.Get(ctx, t, jobs, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = s.Store.WriteFreeing(ctx, t, []store.Side{{
			Op: store.Put, Space: jobs, Key: id, Value: item.Value, Due: s.Clock.Now(), Cond: store.IfRev,
			Rev: item.Rev,
		}})
	}
	if _, ok := errors.AsType[*store.SideConflict](err); ok {
		return nil // it has begun
	}
	return store.UserError(err)
}

// remove carries out a step of a removal while its claim holds: a checkpoint that was completed meanwhile no longer has
// a removal, and keeps its states.
func (s *Service) remove(ctx context.Context, c *worker.Claim) error {
	if s.isMaking(c.Key) {
		return store.UserError(s.Store.Write(ctx, c.Tenant, []store.Side{
			c.Replace(c.Value, s.Clock.Now().Add(unfinishedPause)),
		}))
	}
	var r removing
	if err := json.Unmarshal(c.Value, &r); err != nil {
		return &store.CorruptionError{Where: "the removal of the checkpoint " + c.Key, Err: err}
	}

	// One aggregate.
	if r.Key != "" {
		return s.Store.WriteFreeing(ctx, c.Tenant, []store.Side{
			{Op: store.Delete, Space: states, Key: r.Key + "/" + c.Key, Plain: true}, c.Remove(),
		})
	}

	// The next ones of many.
	left := removedAtOnce
	err := s.streams(ctx, c.Tenant, r.Types, r.After, func(keys []j17.Key) (bool, error) {
		sides := make([]store.Side, len(keys))
		for i, key := range keys {
			sides[i] = store.Side{Op: store.Delete, Space: states, Key: keptKey(key, c.Key), Plain: true}
		}
		for r.Types[0] != keys[0].Type {
			r.Types = r.Types[1:]
		}
		r.After = keys[len(keys)-1].ID
		left -= len(keys)
		return left > 0, s.Store.WriteFreeing(ctx, c.Tenant, sides, c.Fence())
	})
	if err != nil {
		return err
	}
	next := c.Remove()
	if left <= 0 {
		raw, err := json.Marshal(r)
		if err != nil {
			return err
		}
		next = c.Replace(raw, s.Clock.Now())
	}
	return s.Store.WriteFreeing(ctx, c.Tenant, []store.Side{next})
}

// isMaking reports whether this process is making a checkpoint.
func (s *Service) isMaking(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.making[id]
	return m != nil && !m.given
}
