package control

import (
	"cmp"
	"context"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// Nodes are the workers of a headnode.
type Nodes struct{ *items }

// nodeSpace holds the workers that have registered, under their names.
const nodeSpace store.Space = "control.nodes"

// Node is a worker: a server that holds the events of instances and leaves operators and keys to the headnode.
type Node struct {
	// Name is given by its operator; it never changes.
	Name string `json:"name"`
	// Identity is the random identity of the node's data folder: another folder is another node.
	Identity string `json:"identity,omitempty"`
	// PublicURL is where clients reach the node, InternalURL where other nodes do.
	PublicURL   string `json:"public_url"`
	InternalURL string `json:"internal_url"`
	// Version is that of its program.
	Version string `json:"version"`
	// Writable and SeenAt are the node's last report and its time; not stored.
	Writable bool      `json:"-"`
	SeenAt   time.Time `json:"-"`
}

// CheckNodeName reports whether name is valid for a node.
func CheckNodeName(name string) error {
	if !regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`).MatchString(name) {
		return j17.Errorf(j17.CodeInvalidField, "A node's name has up to 63 lower-case letters, digits, hyphens and dots, and starts and ends with a letter or digit.").At("name")
	}
	return nil
}

// CheckNodeURL reports whether nodes or clients can be reached at a URL: a scheme, a host, and nothing after it.
func CheckNodeURL(text, path string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return j17.Errorf(j17.CodeInvalidField, "A node's address must be a URL such as https://worker-1.example.com:17001, without a path.").At(path)
	}
	return nil
}

// Register notes that a worker is there. The first to register gets the instances that have no node yet. Another data
// folder under a name that is taken is a *j17.Error of CodeConflict.
func (r *Nodes) Register(ctx context.Context, n Node) error {
	// What a node reports about itself.
	for _, err := range []error{
		CheckNodeName(n.Name), CheckNodeURL(n.PublicURL, "public_url"), CheckNodeURL(n.InternalURL, "internal_url"),
	} {
		if err != nil {
			return err
		}
	}
	if n.Identity == "" || len(n.Identity) > 100 || len(n.Version) > 100 {
		return j17.Errorf(j17.CodeInvalidField, "A node has to tell its identity and its version.").At("identity")
	}

	n.SeenAt = r.clock.Now()
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.change.release()

	// For a known node that has not changed, only its presence is noted.
	r.mu.RLock()
	old := r.known.nodes[n.Name]
	r.mu.RUnlock()
	switch {
	case old != nil && old.Identity != n.Identity:
		return j17.Errorf(j17.CodeConflict, "There is a worker called %q already, with another data folder. Give this one another name.", n.Name).At("name")
	case old != nil && old.PublicURL == n.PublicURL && old.InternalURL == n.InternalURL && old.Version == n.Version:
		r.mu.Lock()
		r.known.nodes[n.Name] = &n
		r.mu.Unlock()
		return nil
	}

	item, err := putNew(nodeSpace, n.Name, n)
	if err != nil {
		return err
	}
	item.Cond = store.Always
	entry := Record{
		Action: "node.register", Target: n.Name,
		Details: map[string]string{"public_url": n.PublicURL, "internal_url": n.InternalURL, "version": n.Version},
	}
	if err := r.record(ctx, entry, func(k *known) { k.nodes[n.Name] = &n }, item); err != nil {
		return failure(err)
	}

	// Instances without a node get one.
	return r.placeAll(ctx)
}

// placeAll assigns a node to every instance without one. The caller holds r.change.
func (r *Nodes) placeAll(ctx context.Context) error {
	for _, i := range r.allInstances() {
		if i.Node != "" {
			continue
		}
		rec, rev, err := r.storedInstance(ctx, i.ID)
		if err != nil {
			return err
		}
		rec.Node = r.leastLoaded()
		item, err := putOver(instanceSpace, rec.UUID, rec, rev)
		if err != nil {
			return err
		}
		entry := Record{
			Action: "instance.place", Instance: rec.ID, Target: rec.ID, Details: map[string]string{"node": rec.Node},
		}
		if err := r.record(ctx, entry, func(k *known) { k.putInstance(rec) }, item); err != nil {
			return failure(err)
		}
	}
	return nil
}

// leastLoaded returns the name of the node with the fewest instances; "" if there are no nodes.
func (r *memory) leastLoaded() string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	load := make(map[string]int, len(r.known.nodes))
	for name := range r.known.nodes {
		load[name] = 0
	}
	for _, rec := range r.known.instances {
		if _, ok := load[rec.Node]; ok {
			load[rec.Node]++
		}
	}
	best := ""
	for _, name := range slices.Sorted(maps.Keys(load)) {
		if best == "" || load[name] < load[best] {
			best = name
		}
	}
	return best
}

// All lists the workers that have registered, by name.
func (r *Nodes) All() []Node {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := make([]Node, 0, len(r.known.nodes))
	for _, n := range r.known.nodes {
		all = append(all, *n)
	}
	slices.SortFunc(all, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// ByName returns the worker of that name.
func (r *Nodes) ByName(name string) (Node, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if n := r.known.nodes[name]; n != nil {
		return *n, true
	}
	return Node{}, false
}
