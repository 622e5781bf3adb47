package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// Replication keeps the registries of workers in step with that of their headnode.
type Replication struct{ *items }

// replicatedSpaces are the side spaces of the System tenant that replicas copy, with whole deletions by key. Of
// environments they copy the specs.
func replicatedSpaces() []store.Space {
	return []store.Space{
		instanceSpace, nameSpace, operatorSpace, emailSpace, keySpace, SecretSpace, revokedSpace, nodeSpace,
		droppedSpace,
	}
}

// positionSpace has one item in a replica: the position that it has reached.
const positionSpace store.Space = "control.replica"

const positionKey = "position"

// Change is one item of the registry as it is now. A nil Value means that the item is gone.
type Change struct {
	// Tenant is that of an environment; "" stands for the System tenant.
	Tenant j17.Tenant  `json:"tenant,omitempty"`
	Space  store.Space `json:"space"`
	Key    string      `json:"key"`
	Value  []byte      `json:"value,omitempty"`
	// Expires is when the item expires; zero means never.
	Expires time.Time `json:"expires,omitzero"`
}

// Update brings a replica from one position to another.
type Update struct {
	// Position is the position of the replica afterwards.
	Position string `json:"position"`
	// Whole reports that Changes are everything there is, so that the replica must remove whatever else it has.
	Whole   bool     `json:"whole,omitempty"`
	Changes []Change `json:"changes,omitempty"`
}

// MovesSpecs reports whether environments may have a different current spec now, or need theirs here now.
func (r *Update) MovesSpecs() bool {
	return r.Whole || slices.ContainsFunc(
		r.Changes, func(c Change) bool { return c.Space == specHeadSpace || c.Space == instanceSpace },
	)
}

// Upstream is the headnode as a replica sees it. Errors are *j17.Errors; CodeUnavailable if it cannot be reached, and
// from PutSpec CodeOutcomeUnknown if it may have stored the spec.
type Upstream interface {
	// PutSpec does what Registry.PutSpec does, as the actor of the context.
	PutSpec(ctx context.Context, d Deployment) (Spec, error)
	// SpecVersion does what Registry.SpecVersion does.
	SpecVersion(ctx context.Context, instance string, env j17.Environment, version int) (Spec, error)
	// Audit adds a record, whose actor is set, to the headnode's log.
	Audit(ctx context.Context, rec Record) error
}

// maxSentBytes is the approximate limit of one Update to a replica.
const maxSentBytes = 8 << 20

// replication is the state of a registry's replicas.
type replication struct {
	mu sync.Mutex
	// moved is closed when the state of a replica has changed.
	moved    chan struct{}
	replicas map[string]*progress // by node
}

// progress is how far a replica has come in the log.
type progress struct {
	reached   uint64
	connected bool
}

func newReplication() *replication {
	return &replication{moved: make(chan struct{}), replicas: map[string]*progress{}}
}

// wake makes all waiters check again. The caller holds l.mu.
func (l *replication) wake() {
	close(l.moved)
	l.moved = make(chan struct{})
}

// reach notes that a replica is connected and has everything up to a version of the log.
func (l *replication) reach(node string, version uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.replicas[node]; p == nil || p.reached != version || !p.connected {
		l.replicas[node] = &progress{reached: version, connected: true}
		l.wake()
	}
}

// position encodes a place in the log for replicas.
func (p place) position() string { return strconv.FormatUint(p.version, 10) + "-" + p.id.String() }

// placeOf returns the place of a position; ok is false if this log has no such place, because the position is of
// another log, or this one was set back to an earlier time.
func (r *journal) placeOf(ctx context.Context, position string) (p place, ok bool, err error) {
	digits, id, _ := strings.Cut(position, "-")
	version, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return place{}, false, nil //nolint:nilerr // it is no position of this version of the program
	}
	if version == 0 {
		return place{}, id == j17.StreamID{}.String(), nil
	}
	entries, err := r.readLog(ctx, logKey(), version, version)
	if err != nil || len(entries) == 0 || entries[0].id.String() != id {
		return place{}, false, err
	}
	return entries[0].place, true, nil
}

// sent returns an item as it is sent to replicas, without the password.
func sent(c Change) (Change, error) {
	if c.Space != operatorSpace || c.Value == nil {
		return c, nil
	}
	rec, err := decode[operatorRecord](c.Space, store.Item{Key: c.Key, Value: c.Value})
	if err != nil {
		return c, err
	}
	rec.Password = ""
	if c.Value, err = json.Marshal(rec); err != nil { //nolint:gosec // the password has just been taken out
		return c, internal(err)
	}
	return c, nil
}

// Next waits until there are changes after the position of a node's replica, and returns them, or a part of them; none
// if the context ends first. The end of the context ends the wait alone: changes that are there are returned in any
// case. Asking for what follows a position confirms that everything up to it is stored. Positions are durable: a node
// that was away for any time gets all changes since.
func (r *Replication) Next(ctx context.Context, node, position string) (Update, error) {
	reading := context.WithoutCancel(ctx) // stores may read nothing for a context that has ended

	// A position that is not of this log requires everything.
	from, ok, err := r.placeOf(reading, position)
	if err != nil {
		return Update{}, err
	}
	if !ok {
		return r.everything(reading)
	}

	for {
		r.replication.reach(node, from.version)
		end, err := r.logEnd(reading)
		if err != nil {
			return Update{}, err
		}

		// Changes that are there already.
		if from.version < end.version {
			to, changes, err := r.changes(reading, from, end)
			switch {
			case err != nil:
				return Update{}, err
			case len(changes) > 0:
				return Update{Position: to.position(), Changes: changes}, nil
			}
			from = to // changes that do not concern replicas are not sent
			continue
		}

		// Otherwise wait for changes.
		if err := r.store.AwaitFeed(ctx, j17.System, from.id); err != nil {
			if ctx.Err() != nil {
				return Update{Position: from.position()}, nil //nolint:nilerr // the caller has waited for long enough
			}
			return Update{}, failure(err)
		}
	}
}

// changes returns the items that have changed between two places, as they are now, and the place that they lead to,
// which may be an earlier one since the size of an Update is limited.
func (r *Replication) changes(ctx context.Context, from, end place) (to place, changes []Change, err error) {
	entries, err := r.readLog(ctx, logKey(), from.version+1, end.version)
	if err != nil {
		return from, nil, err
	}

	// Each item once, as it is now. A page ends after an entry of the log, where the next can continue.
	type item struct {
		tenant j17.Tenant
		space  store.Space
		key    string
	}
	there, size := map[item]bool{}, 0
	to = from
	for _, e := range entries {
		if size > maxSentBytes {
			break
		}
		for _, c := range e.Changes {
			if i := (item{c.Tenant, c.Space, c.Key}); there[i] {
				continue // sent already in its current state
			} else {
				there[i] = true
			}
			if c, err = r.present(ctx, c); err != nil {
				return to, nil, err
			}
			if c, err = sent(c); err != nil {
				return to, nil, err
			}
			size += len(c.Value)
			changes = append(changes, c)
		}
		to = e.place
	}
	return to, changes, nil
}

// Disconnected reports that a node's replica is gone, so that nothing waits for it.
func (r *Replication) Disconnected(node string) {
	l := r.replication
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.replicas[node]; p != nil && p.connected {
		p.connected = false
		l.wake()
	}
}

// AwaitReplicas waits until every connected replica has what this registry has now. If the context ends first, it marks
// those that do not as disconnected. It returns the nodes that may not have it: these, and those that have instances
// and are not connected.
func (r *Replication) AwaitReplicas(ctx context.Context) (behind []string) {
	l := r.replication

	// A node that has instances counts even if it is not connected.
	busy := map[string]bool{}
	for _, i := range r.allInstances() {
		if i.Node != "" {
			busy[i.Node] = true
		}
	}

	end, err := r.logEnd(ctx)
	if err != nil {
		return slices.Sorted(maps.Keys(busy)) // the state of all of them is unknown
	}
	target := end.version

	// The state of replicas has its own lock.
	l.mu.Lock()
	away := func() []string {
		for name, p := range l.replicas {
			if p.reached >= target {
				delete(busy, name)
			}
		}
		return slices.Sorted(maps.Keys(busy))
	}

	for {
		missing := 0
		for _, p := range l.replicas {
			if p.connected && p.reached < target {
				missing++
			}
		}
		if missing == 0 {
			defer l.mu.Unlock()
			return away()
		}

		moved := l.moved
		l.mu.Unlock()
		select {
		case <-moved:
			l.mu.Lock()
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			for name, p := range l.replicas {
				if p.connected && p.reached < target {
					p.connected, busy[name] = false, true
				}
			}
			return away()
		}
	}
}

// everything returns all items that replicas copy. It includes the current sources of specs only; a replica asks for
// others when it needs them.
func (r *Replication) everything(ctx context.Context) (Update, error) {
	end, err := r.logEnd(ctx) // Changes during the reading are sent again.
	if err != nil {
		return Update{}, err
	}
	whole := Update{Position: end.position(), Whole: true}
	for _, space := range replicatedSpaces() {
		err := each(ctx, r.store, j17.System, space, "", func(it store.Item) error {
			c := Change{Space: space, Key: it.Key, Value: it.Value, Expires: it.Expires}
			if !replicated(c) {
				return nil
			}
			c, err := sent(c)
			whole.Changes = append(whole.Changes, c)
			return err
		})
		if err != nil {
			return Update{}, err
		}
	}
	for _, i := range r.allInstances() {
		for _, env := range j17.Environments() {
			specs, err := r.specsOf(ctx, j17.TenantOf(i.ID, env))
			if err != nil {
				return Update{}, err
			}
			whole.Changes = append(whole.Changes, specs...)
		}
	}
	return whole, nil
}

// specsOf returns the specs of an environment with the current source, the head last.
func (r *Replication) specsOf(ctx context.Context, t j17.Tenant) ([]Change, error) {
	head, _, err := getOf[specHead](ctx, r.store, t, specHeadSpace, headKey)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var changes []Change
	err = each(ctx, r.store, t, specSpace, "", func(it store.Item) error {
		if !strings.HasSuffix(it.Key, sourceSuffix) && it.Key < versionKey(head.Version) {
			changes = append(changes, Change{Tenant: t, Space: specSpace, Key: it.Key, Value: it.Value})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, c := range specItems(t, versionKey(head.Version)) {
		if c, err = r.present(ctx, c); err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// specItems are the items that change with a deployment, the head last.
func specItems(t j17.Tenant, version string) []Change {
	return []Change{
		{Tenant: t, Space: specSpace, Key: version},
		{Tenant: t, Space: specSpace, Key: version + sourceSuffix},
		{Tenant: t, Space: specHeadSpace, Key: headKey},
	}
}

// sourceSuffix ends the keys of the sources of specs (sourceKey).
const sourceSuffix = "/source"

// Follow makes the registry a replica of the one behind up: from now on it changes through Apply only, it refuses other
// changes, and specs and audit records go to up. It must be called before the registry is used.
func (r *Replication) Follow(up Upstream) { r.upstream = up }

// UseNodeSecret replaces the registry's own node secret by a configured one, and also accepts others from nodes while
// the secret is changed. It must be called before the registry is used.
func (r *Secrets) UseNodeSecret(secret string, others ...string) { r.node, r.nodeToo = secret, others }

// Position returns the position that a replica has reached; "" before the first Apply.
func (r *Replication) Position(ctx context.Context) (string, error) {
	it, err := r.store.Get(ctx, j17.System, positionSpace, positionKey)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", failure(err)
	}
	return string(it.Value), nil
}

// Limits of the writes in which a replica applies changes.
const (
	maxAppliedItems = 500
	maxAppliedBytes = 4 << 20
)

// Apply applies what the headnode has sent. The changes are durable and shown when it returns, and the position is
// stored last, so that the headnode sends again what a crash has interrupted. Even if it fails, what the headnode has
// taken away is gone here, until the memory is read again.
func (r *Replication) Apply(ctx context.Context, rep Update) error {
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.change.release()
	changes := rep.Changes
	if rep.Whole {
		gone, err := r.surplus(ctx, changes)
		if err != nil {
			return err
		}
		changes = slices.Concat(gone, changes) // A released name may have a new owner.
	}
	sides := make([]store.Side, 0, len(changes))
	specs := map[j17.Tenant][]store.Side{}
	for _, c := range changes {
		if !replicated(c) {
			return j17.Errorf(j17.CodeInvalidField, "The headnode has sent something that this version of the program does not know. Bring both to the same version.")
		}
		if c.Space == droppedSpace && c.Value == nil && !rep.Whole {
			// The headnode has finished with a deleted instance, whose data this server may still have.
			var err error
			if c.Value, err = json.Marshal(droppedRecord{DeletedAt: r.second()}); err != nil {
				return internal(err)
			}
		}
		side := store.Side{Op: store.Put, Space: c.Space, Key: c.Key, Value: c.Value, Expires: c.Expires}
		if c.Value == nil {
			side = store.Side{Op: store.Delete, Space: c.Space, Key: c.Key}
		}
		if c.Tenant != "" {
			specs[c.Tenant] = append(specs[c.Tenant], side)
			continue
		}
		sides = append(sides, side)
	}

	// Rights come first: their removal must not wait for an environment whose specs cannot be stored.
	if err := r.takeOver(ctx, sides); err != nil {
		return err
	}
	secret := slices.ContainsFunc(changes, func(c Change) bool { return c.Space == SecretSpace })
	if rep.Whole || secret || !r.show(changes) {
		if err := r.reload(ctx); err != nil {
			r.doubt(sides)
			return err
		}
	}

	for _, t := range slices.Sorted(maps.Keys(specs)) {
		if err := r.takeSpecs(ctx, t, specs[t], rep.Whole); err != nil {
			return err
		}
	}
	return r.takeOver(ctx, []store.Side{
		{Op: store.Put, Space: positionSpace, Key: positionKey, Value: []byte(rep.Position)},
	})
}

// replicated reports whether replicas copy the item of a change.
func replicated(c Change) bool {
	if c.Tenant != "" {
		return c.Tenant != j17.System && (c.Space == specSpace || c.Space == specHeadSpace)
	}
	return slices.Contains(replicatedSpaces(), c.Space) && (c.Space != SecretSpace || c.Key == signingSecret)
}

// takeSpecs writes the specs of an environment to a replica. It keeps the head if it is the same, since events in
// progress are fenced on it, and if it is later, since this server has deployed after the headnode sent this. An
// earlier head is written only with a whole update, which comes from a headnode that was set back.
func (r *Replication) takeSpecs(ctx context.Context, t j17.Tenant, sides []store.Side, whole bool) error {
	head, err := r.store.Get(ctx, t, specHeadSpace, headKey)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return failure(err)
	}
	for part := range parts(sides) {
		part = slices.DeleteFunc(part, func(s store.Side) bool {
			return s.Space == specHeadSpace &&
				(bytes.Equal(s.Value, head.Value) || !whole && earlierHead(s.Value, head.Value))
		})
		if len(part) == 0 {
			continue
		}
		if err := r.store.Write(ctx, t, part); err != nil {
			return failure(err)
		}
	}
	return nil
}

// earlierHead reports whether both are heads, and the first has an earlier version than the second.
func earlierHead(first, second []byte) bool {
	var a, b specHead
	return json.Unmarshal(first, &a) == nil && json.Unmarshal(second, &b) == nil && a.Version < b.Version
}

// parts yields writes in pieces that are small enough for one commit each.
func parts(sides []store.Side) iter.Seq[[]store.Side] {
	return func(yield func([]store.Side) bool) {
		for begun := 0; begun < len(sides); {
			end, size := begun, 0
			for end < len(sides) && end-begun < maxAppliedItems &&
				(end == begun || size+len(sides[end].Value) <= maxAppliedBytes) {
				size += len(sides[end].Value)
				end++
			}
			if !yield(sides[begun:end]) {
				return
			}
			begun = end
		}
	}
}

// takeOver writes the changes of a replica to the System tenant, in parts.
func (r *Replication) takeOver(ctx context.Context, sides []store.Side) error {
	begun := false
	for part := range parts(sides) {
		// These writes may revoke rights, so they are made on a full disk too; their number is limited.
		err := r.store.WriteFreeing(ctx, j17.System, part)
		switch {
		case err == nil:
			begun = true
			continue
		case begun, !unwritten(err):
			r.doubt(sides)
		default:
			r.restrict(sides)
		}
		return failure(err)
	}
	return nil
}

// openSigningKeys reads the keys that check tokens again.
func (r *items) openSigningKeys(ctx context.Context) error {
	keys, _, err := get[signingRecord](ctx, r.store, SecretSpace, signingSecret)
	if err != nil {
		return failure(err)
	}
	if len(keys.Keys) == 0 || len(keys.Keys[0].Secret) == 0 {
		return damagedSecret(signingSecret)
	}
	r.signing.Store(keys)
	r.altered.Add(1)
	return nil
}

// surplus returns the deletion of every item that the replica has and the headnode does not have.
func (r *Replication) surplus(ctx context.Context, whole []Change) ([]Change, error) {
	type place struct {
		space store.Space
		key   string
	}
	there := make(map[place]bool, len(whole))
	for _, c := range whole {
		there[place{c.Space, c.Key}] = true
	}
	var gone []Change
	for _, space := range replicatedSpaces() {
		keys, err := r.keysOf(ctx, space, "")
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			if !there[place{space, key}] && space != SecretSpace {
				gone = append(gone, Change{Space: space, Key: key})
			}
		}
	}
	return gone, nil
}

// show applies a few changes to the memory. It returns false if everything has to be read again.
func (r *memory) show(changes []Change) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.altered.Add(1)
	for _, c := range changes {
		if !r.known.show(c) {
			return false
		}
	}
	return true
}

func (k *known) show(c Change) bool {
	if c.Value == nil {
		return k.drop(c)
	}

	switch c.Space {
	case keySpace:
		rec := &keyRecord{}
		if json.Unmarshal(c.Value, rec) != nil {
			return false
		}
		// The uses counted here are ahead of the sender's.
		if old := k.keys[rec.ID]; old != nil {
			rec.use = old.use
		}
		k.putKey(rec)
	case instanceSpace:
		rec := &instanceRecord{}
		if json.Unmarshal(c.Value, rec) != nil {
			return false
		}
		if old := k.instances[rec.ID]; old != nil && k.names[old.Name] == old {
			delete(k.names, old.Name)
		}
		k.putInstance(rec)
	case operatorSpace:
		rec := &operatorRecord{}
		if json.Unmarshal(c.Value, rec) != nil {
			return false
		}
		k.putOperator(rec)
	case revokedSpace:
		rec := &revokedToken{}
		if json.Unmarshal(c.Value, rec) != nil {
			return false
		}
		k.revoked[rec.ID] = rec.Expires
	case nodeSpace:
		rec := &Node{}
		if json.Unmarshal(c.Value, rec) != nil {
			return false
		}
		// The presence of workers is not in the log.
		if old := k.nodes[rec.Name]; old != nil {
			rec.Writable, rec.SeenAt = old.Writable, old.SeenAt
		}
		k.nodes[rec.Name] = rec
	case specSpace, specHeadSpace, nameSpace, emailSpace, droppedSpace, SecretSpace: // not in memory, or not here
	default:
		return false
	}
	return true
}

// drop removes a deleted item.
func (k *known) drop(c Change) bool {
	switch c.Space {
	case keySpace, operatorSpace:
		k.dropDeleted([]store.Side{{Op: store.Delete, Space: c.Space, Key: c.Key}})
	case instanceSpace:
		for id, rec := range k.instances {
			if rec.UUID == c.Key {
				k.dropInstance(id)
			}
		}
	case revokedSpace, specSpace, specHeadSpace, nameSpace, emailSpace, droppedSpace:
		// expired, or not in memory
	default:
		return false
	}
	return true
}
