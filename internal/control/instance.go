package control

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"j17"
	"j17/internal/ident"
)

// Instance is one tenant of the server, with three environments of its own.
type Instance struct {
	// ID is the instance's handle.
	ID string `json:"id"`
	// Name is what the instance is called in host names.
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
}

type instanceRecord struct {
	UUID string `json:"uuid"`
	Instance
}

// nameRecord is what a taken name or e-mail address leads to.
type nameRecord struct {
	UUID string `json:"uuid"`
}

// ControlHost is the host label of the headnode, which no instance may take.
const ControlHost = "control"

// MaxInstanceName is the number of characters an instance's name may have: with "-staging" after it, it must still be a
// host label of 63.
const MaxInstanceName = 63 - len(stagingSuffix)

const (
	stagingSuffix = "-staging"
	testSuffix    = "-test"
)

// CheckInstanceName reports whether an instance may be called name. The error is a *j17.Error of CodeInvalidField.
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

// CreateInstance creates an instance. A name that is taken is a *j17.Error of CodeConflict.
func (r *Registry) CreateInstance(ctx context.Context, name string) (Instance, error) {
	if err := CheckInstanceName(name); err != nil {
		return Instance{}, err
	}
	taken := j17.Errorf(j17.CodeConflict, "There is an instance named %q already. Choose another name.", name).At("name")
	r.change.Lock()
	defer r.change.Unlock()
	if _, ok := r.InstanceByName(name); ok {
		return Instance{}, taken
	}
	rec := &instanceRecord{
		UUID:     r.mint.UUIDv7(),
		Instance: Instance{ID: r.mint.Handle(ident.InstancePrefix), Name: name, CreatedAt: r.second()},
	}
	item, err := putNew(instanceSpace, rec.UUID, rec)
	if err != nil {
		return Instance{}, err
	}
	index, err := putNew(nameSpace, name, nameRecord{UUID: rec.UUID})
	if err != nil {
		return Instance{}, err
	}
	err = r.commit(ctx, func(k *known) { k.putInstance(rec) }, item, index)
	if isConflict(err, nameSpace) {
		return Instance{}, taken
	}
	if err != nil {
		return Instance{}, failure(err)
	}
	return rec.Instance, nil
}

// InstanceByName returns the instance of that name.
func (r *Registry) InstanceByName(name string) (Instance, bool) {
	r.mu.RLock()
	rec := r.known.names[name]
	r.mu.RUnlock()
	if rec == nil {
		return Instance{}, false
	}
	return rec.Instance, true
}

// InstanceByID returns the instance with that handle.
func (r *Registry) InstanceByID(id string) (Instance, bool) {
	rec := r.instance(id)
	if rec == nil {
		return Instance{}, false
	}
	return rec.Instance, true
}

// Instances lists all instances, oldest first.
func (r *Registry) Instances() []Instance {
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

// instance returns the record of a handle, nil when there is none.
func (r *Registry) instance(id string) *instanceRecord {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.known.instances[id]
}

func (k *known) putInstance(rec *instanceRecord) {
	k.instances[rec.ID] = rec
	k.names[rec.Name] = rec
}

// second is the present time, cut to a whole second as replies show it.
func (r *Registry) second() time.Time { return r.clock.Now().UTC().Truncate(time.Second) }

func noInstance() error {
	return j17.Errorf(j17.CodeNotFound, "There is no such instance.")
}
