package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/storage/store"
)

// Instances are the instances of a server, with what their plans allow.
type Instances struct {
	*items
	plans map[string]Plan // by name; never changes
}

// Instance is one tenant of the server, with three environments of its own.
type Instance struct {
	// ID is the instance's handle.
	ID string `json:"id"`
	// Name is the name of the instance in host names.
	Name string `json:"name"`
	// Plan is the name of the plan (Registry.PlanOf).
	Plan      string    `json:"plan"`
	CreatedAt time.Time `json:"created_at"`
	// Node is the name of the worker that has the instance's events; "" if this server has them itself.
	Node string `json:"node,omitempty"`
}

type instanceRecord struct {
	UUID string `json:"uuid"`
	Instance
}

// nameRecord is what a taken name or e-mail address refers to.
type nameRecord struct {
	UUID string `json:"uuid"`
}

// ControlHost is the host label of the headnode, which no instance may take.
const ControlHost = "control"

// MaxInstanceName is the number of characters an instance's name may have: with "-staging" after it, it must still be a
// host label of 63.
const MaxInstanceName = 63 - len(stagingSuffix)

// MaxInstances is the number of instances that a server may have.
const MaxInstances = 10_000

const (
	stagingSuffix = "-staging"
	testSuffix    = "-test"
)

// CheckInstanceName reports whether name is valid for an instance. The error is a *j17.Error of CodeInvalidField.
func CheckInstanceName(name string) error {
	fault := func(what string) error {
		return j17.Errorf(j17.CodeInvalidField, "The instance's name %s. Use lower-case letters, digits and single hyphens.", what).At("name")
	}
	switch {
	case name == "":
		return fault("is missing")
	case len(name) > MaxInstanceName:
		return j17.Errorf(j17.CodeInvalidField, "The instance's name is longer than %d characters.", MaxInstanceName).At("name")
	case name == ControlHost:
		return fault(`cannot be "control", which is the headnode's own`)
	case strings.HasSuffix(name, stagingSuffix), strings.HasSuffix(name, testSuffix):
		return fault(`cannot end in "-staging" or "-test", which name environments`)
	case name[0] == '-', name[len(name)-1] == '-':
		return fault("cannot start or end with a hyphen")
	case strings.Contains(name, "--"):
		return fault("cannot contain two hyphens in a row")
	}
	for i := range len(name) {
		if c := name[i]; c-'a' > 25 && c-'0' > 9 && c != '-' {
			return fault("contains a character that host names do not have")
		}
	}
	return nil
}

// NewInstance describes an instance to create.
type NewInstance struct {
	Name string
	// Plan is the name of a plan; "" means DefaultPlan.
	Plan string
}

// Create creates an instance with the default plan. A name that is taken is a *j17.Error of CodeConflict.
func (r *Instances) Create(ctx context.Context, name string) (Instance, error) {
	return r.Add(ctx, NewInstance{Name: name})
}

// Add creates an instance. A name that is taken is a *j17.Error of CodeConflict.
func (r *Instances) Add(ctx context.Context, n NewInstance) (Instance, error) {
	// Checks that do not need the lock.
	if n.Plan == "" {
		n.Plan = DefaultPlan
	}
	if err := CheckInstanceName(n.Name); err != nil {
		return Instance{}, err
	}
	if err := r.checkPlanName(n.Plan); err != nil {
		return Instance{}, err
	}

	// No other change happens from here on.
	if err := r.lock(ctx); err != nil {
		return Instance{}, err
	}
	defer r.change.release()
	if _, ok := r.ByName(n.Name); ok {
		return Instance{}, nameTaken(n.Name)
	}
	if len(r.All()) >= MaxInstances {
		return Instance{}, j17.Errorf(j17.CodeConflict, "The server has %d instances, which is as many as it may have. Delete those that are not used.", MaxInstances)
	}

	// The instance, and the name that refers to it.
	rec := &instanceRecord{
		UUID: r.mint.UUIDv7(),
		Instance: Instance{
			ID: r.mint.Handle(ident.InstancePrefix), Name: n.Name, Plan: n.Plan, CreatedAt: r.second(),
			Node: r.leastLoaded(),
		},
	}
	item, err := putNew(instanceSpace, rec.UUID, rec)
	if err != nil {
		return Instance{}, err
	}
	index, err := putNew(nameSpace, n.Name, nameRecord{UUID: rec.UUID})
	if err != nil {
		return Instance{}, err
	}

	entry := Record{
		Action: "instance.create", Instance: rec.ID, Target: rec.ID,
		Details: map[string]string{"name": n.Name, "plan": n.Plan},
	}
	err = r.record(ctx, entry, func(k *known) { k.putInstance(rec) }, item, index)
	if isConflict(err, nameSpace) {
		return Instance{}, nameTaken(n.Name)
	}
	if err != nil {
		return Instance{}, failure(err)
	}
	return rec.Instance, nil
}

// Restore puts an instance back as it is in a backup, under its old id. If the registry has an instance of that id or
// name, it is a *j17.Error of CodeConflict. If this server does not have its plan, the instance gets the default one.
func (r *Instances) Restore(ctx context.Context, i Instance) error {
	if err := CheckInstanceName(i.Name); err != nil {
		return err
	}
	if r.checkPlanName(i.Plan) != nil {
		i.Plan = DefaultPlan
	}
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.change.release()
	if _, ok := r.ByID(i.ID); ok {
		return j17.Errorf(j17.CodeConflict, "There is an instance %s already.", i.ID)
	}
	if _, ok := r.ByName(i.Name); ok {
		return nameTaken(i.Name)
	}

	rec := &instanceRecord{UUID: r.mint.UUIDv7(), Instance: i}
	item, err := putNew(instanceSpace, rec.UUID, rec)
	if err != nil {
		return err
	}
	index, err := putNew(nameSpace, i.Name, nameRecord{UUID: rec.UUID})
	if err != nil {
		return err
	}
	entry := Record{
		Action: "instance.restore", Instance: i.ID, Target: i.ID, Details: map[string]string{"name": i.Name},
	}
	if err := r.record(ctx, entry, func(k *known) { k.putInstance(rec) }, item, index); err != nil {
		return failure(err)
	}
	return nil
}

func nameTaken(name string) error {
	return j17.Errorf(j17.CodeConflict, "There is an instance named %q already. Choose another name.", name).At("name")
}

// InstanceChange says what to change about an instance; nil fields stay as they are.
type InstanceChange struct {
	// Name is a new name. The hosts of the old one no longer work then.
	Name *string
	Plan *string
}

// Change renames an instance or changes its plan.
func (r *Instances) Change(ctx context.Context, id string, c InstanceChange) (Instance, error) {
	// Checks that do not need the lock.
	if c.Name != nil {
		if err := CheckInstanceName(*c.Name); err != nil {
			return Instance{}, err
		}
	}
	if c.Plan != nil {
		if err := r.checkPlanName(*c.Plan); err != nil {
			return Instance{}, err
		}
	}

	// No other change happens from here on.
	if err := r.lock(ctx); err != nil {
		return Instance{}, err
	}
	defer r.change.release()
	rec, rev, err := r.storedInstance(ctx, id)
	if err != nil {
		return Instance{}, err
	}
	old := rec.Instance
	entry := Record{Action: "instance.change", Instance: id, Target: id, Details: map[string]string{"name": rec.Name}}

	// A new name is an item of its own, whose absence keeps two instances from having the same one.
	var sides []store.Side
	if c.Name != nil && *c.Name != rec.Name {
		if _, ok := r.ByName(*c.Name); ok {
			return Instance{}, nameTaken(*c.Name)
		}
		index, err := putNew(nameSpace, *c.Name, nameRecord{UUID: rec.UUID})
		if err != nil {
			return Instance{}, err
		}
		sides = append(sides, index, store.Side{Op: store.Delete, Space: nameSpace, Key: rec.Name})
		entry.Details["new_name"] = *c.Name
		rec.Name = *c.Name
	}

	if c.Plan != nil && *c.Plan != rec.Plan {
		entry.Details["plan"] = *c.Plan
		rec.Plan = *c.Plan
	}
	if rec.Instance == old {
		return old, nil
	}

	// Item, names and record are one commit.
	item, err := putOver(instanceSpace, rec.UUID, rec, rev)
	if err != nil {
		return Instance{}, err
	}
	err = r.record(ctx, entry, func(k *known) {
		delete(k.names, old.Name)
		k.putInstance(rec)
	}, append(sides, item)...)
	if isConflict(err, nameSpace) {
		return Instance{}, nameTaken(rec.Name)
	}
	if err != nil {
		return Instance{}, failure(err)
	}
	return rec.Instance, nil
}

// Delete removes an instance with its keys, specs and grants, and all data of its environments. confirm must be the
// instance's name. Data that remains after a crash is removed by Run.
func (r *Instances) Delete(ctx context.Context, id, confirm string) error {
	gone, err := r.remove(ctx, id, confirm)
	if err != nil {
		return err
	}
	// The instance stays deleted even if this fails.
	return r.dropData(context.WithoutCancel(ctx), gone)
}

// remove removes the records of an instance, in one step.
func (r *Instances) remove(ctx context.Context, id, confirm string) (string, error) {
	if err := r.change.take(ctx); err != nil {
		return "", err
	}
	defer r.change.release()
	rec, rev, err := r.storedInstance(ctx, id)
	if err != nil {
		return "", err
	}

	// The confirmation is compared under the lock, since the instance may be renamed.
	if confirm != rec.Name {
		return "", j17.Errorf(j17.CodeInvalidField, "Deleting an instance removes all its data for good. Give its name, %q, to confirm.", rec.Name).At("confirm")
	}

	// Removed are the instance with its name and keys, and the grants of operators.
	sides := []store.Side{
		{Op: store.Delete, Space: instanceSpace, Key: rec.UUID, Cond: store.IfRev, Rev: rev},
		{Op: store.Delete, Space: nameSpace, Key: rec.Name},
	}
	for _, key := range r.keyRecords(id) {
		sides = append(sides, store.Side{Op: store.Delete, Space: keySpace, Key: key.UUID}, store.Side{
			Op: store.Delete, Space: keyUseSpace, Key: key.UUID,
		})
	}
	granted, err := r.withoutGrant(ctx, id)
	if err != nil {
		return "", err
	}
	for _, op := range granted {
		item, err := putOver(operatorSpace, op.rec.UUID, op.rec, op.rev)
		if err != nil {
			return "", err
		}
		sides = append(sides, item)
	}

	// Its data is removed in the background; the mark stays until that is done.
	leftover, err := putNew(droppedSpace, rec.ID, droppedRecord{DeletedAt: r.second()})
	if err != nil {
		return "", err
	}
	entry := Record{Action: "instance.delete", Instance: id, Target: id, Details: map[string]string{"name": rec.Name}}
	err = r.recordFreeing(ctx, entry, func(k *known) {
		k.dropInstance(rec.ID)
		for _, op := range granted {
			k.putOperator(op.rec)
		}
	}, append(sides, leftover)...)
	if err != nil {
		return "", failure(err)
	}
	return rec.ID, nil
}

type storedOperator struct {
	rec *operatorRecord
	rev uint64
}

// withoutGrant returns the operators that have a grant for an instance, without that grant.
func (r *Instances) withoutGrant(ctx context.Context, instanceID string) ([]storedOperator, error) {
	var granted []storedOperator
	for _, op := range r.allOperators() {
		if !slices.Contains(op.Instances, instanceID) {
			continue
		}
		rec, rev, err := r.storedOperator(ctx, op.ID)
		if err != nil {
			return nil, err
		}
		rec.Instances = slices.DeleteFunc(rec.Instances, func(id string) bool { return id == instanceID })
		granted = append(granted, storedOperator{rec, rev})
	}
	return granted, nil
}

// keysOf lists the keys of a space of the System tenant that start with prefix.
func (r *items) keysOf(ctx context.Context, space store.Space, prefix string) (keys []string, err error) {
	err = each(ctx, r.store, j17.System, space, prefix, func(it store.Item) error {
		keys = append(keys, it.Key)
		return nil
	})
	return keys, err
}

// droppedSpace holds the instances whose data is to be removed, under their handles.
const droppedSpace store.Space = "control.dropped_instances"

type droppedRecord struct {
	DeletedAt time.Time `json:"deleted_at"`
}

// lateWrites is how long after its deletion an instance may still be written to by operations that had begun before.
const lateWrites = time.Hour

// dropData removes the data of a deleted instance. A failure in one environment does not stop the others.
func (r *Instances) dropData(ctx context.Context, id string) error {
	tenants, err := r.store.Tenants(ctx)
	if err != nil {
		return failure(err)
	}
	var errs []error
	for _, env := range j17.Environments() {
		if tenant := j17.TenantOf(id, env); slices.Contains(tenants, tenant) {
			if err := r.store.DropTenant(ctx, tenant); err != nil && !errors.Is(err, store.ErrNotFound) {
				errs = append(errs, failure(err))
			}
		}
	}
	return errors.Join(errs...)
}

// dropLeftovers removes data of deleted instances that is still there, or there again. Failed removals are tried again
// the next time.
func (r *Instances) dropLeftovers(ctx context.Context) error {
	ids, err := r.keysOf(ctx, droppedSpace, "")
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		if err := r.dropLeftover(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("the data of the deleted instance %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

func (r *Instances) dropLeftover(ctx context.Context, id string) error {
	rec, rev, err := get[droppedRecord](ctx, r.store, droppedSpace, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := r.dropData(ctx, id); err != nil {
		return err
	}
	if r.clock.Now().Sub(rec.DeletedAt) < lateWrites {
		return nil
	}
	done := store.Side{Op: store.Delete, Space: droppedSpace, Key: id, Cond: store.IfRev, Rev: rev}
	if err := r.store.Write(ctx, j17.System, []store.Side{done}); err != nil {
		return failure(err)
	}
	return nil
}

// ByName returns the instance of that name.
func (r *Instances) ByName(name string) (Instance, bool) {
	r.mu.RLock()
	rec := r.known.names[name]
	r.mu.RUnlock()
	if rec == nil {
		return Instance{}, false
	}
	return rec.Instance, true
}

// ByID returns the instance with that handle.
func (r *Instances) ByID(id string) (Instance, bool) {
	rec := r.instance(id)
	if rec == nil {
		return Instance{}, false
	}
	return rec.Instance, true
}

// All lists all instances, oldest first.
func (r *Instances) All() []Instance { return r.allInstances() }

func (r *memory) allInstances() []Instance {
	r.mu.RLock()
	recs := slices.Collect(maps.Values(r.known.instances))
	r.mu.RUnlock()
	slices.SortFunc(recs, func(a, b *instanceRecord) int { return strings.Compare(a.UUID, b.UUID) })
	all := make([]Instance, len(recs))
	for i, rec := range recs {
		all[i] = rec.Instance
	}
	return all
}

// instance returns the record of a handle, nil if there is none.
func (r *memory) instance(id string) *instanceRecord {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.known.instances[id]
}

// storedInstance reads an instance's record and its revision.
func (r *items) storedInstance(ctx context.Context, id string) (*instanceRecord, uint64, error) {
	old := r.instance(id)
	if old == nil {
		return nil, 0, noInstance()
	}
	rec, rev, err := get[instanceRecord](ctx, r.store, instanceSpace, old.UUID)
	if err != nil {
		return nil, 0, failure(err)
	}
	return rec, rev, nil
}

func (k *known) putInstance(rec *instanceRecord) {
	if rec.Plan == "" {
		rec.Plan = DefaultPlan
	}
	k.instances[rec.ID] = rec
	k.names[rec.Name] = rec
}

// dropInstance removes an instance and its keys from memory.
func (k *known) dropInstance(id string) {
	if rec := k.instances[id]; rec != nil {
		delete(k.instances, id)
		delete(k.names, rec.Name)
	}
	for _, key := range k.instanceKeys[id] {
		k.dropKey(key)
	}
	delete(k.instanceKeys, id)
}

// second is the current time, truncated to a whole second as replies show it.
func (r *items) second() time.Time { return r.clock.Now().UTC().Truncate(time.Second) }

func noInstance() error {
	return j17.Errorf(j17.CodeNotFound, "There is no such instance.")
}
