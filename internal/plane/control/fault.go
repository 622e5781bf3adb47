package control

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Fault is what is kept about a request that the server failed to answer, so that anyone who has its id can find out
// why. It holds no credential and no event data.
type Fault = wire.Fault

// How many faults are kept and for how long, how many may wait to be written, and how many are accepted a minute.
const (
	maxFaults     = 10_000
	keepFaults    = 7 * 24 * time.Hour
	maxPending    = 1000
	faultsMinute  = 600
	faultsEach    = 60 // of one instance
	maxFaultText  = 2000
	maxFaultStack = 8000
)

// Faults are kept under their ids; a second space has the ids under UUIDv7s, that is by age.
const (
	faultSpace    store.Space = "control.faults"
	faultAgeSpace store.Space = "control.faults_by_age"
)

type faultAge struct {
	UUID     string `json:"uuid"`
	ID       string `json:"id"`
	Instance string `json:"instance,omitempty"`
}

// Faults is the log of faults: it accepts them without waiting and writes them in the background.
type Faults struct {
	*items
	// Names, if not nil, returns the names of an aggregate beside its key. It is set before anything is erased.
	Names   func(ctx context.Context, t j17.Tenant, key j17.Key) (j17.Names, error)
	secrets *regexp.Regexp
	wake    chan struct{}
	// saving is held while faults are written.
	saving sync.Mutex

	mu sync.Mutex
	// pending are the faults that are not written yet, in order; stored the written ones, oldest first.
	pending []*Fault
	stored  []faultAge
	// taken counts the faults of the minute that ends at until, in total and of each instance.
	taken int
	each  map[string]int
	until time.Time
}

func newFaults(i *items) *Faults {
	return &Faults{
		items: i,
		// API keys, JWTs, listeners' secrets, authorization headers, and passwords in URLs.
		secrets: regexp.MustCompile(`(?i:j17_\d_[a-z]+_\w+)|eyJ[\w-]+\.[\w-]+\.[\w-]*|whsec_[\w+/=-]+|(?i:authorization:\s*\w+)\s+[\w+/=.~-]+|(?i:bearer|basic)\s+[\w+/=.~-]{16,}|://[^/\s:@"]+:[^/\s@"]+@`),
		wake:    make(chan struct{}, 1),
	}
}

func (r *Faults) load(ctx context.Context) error {
	return scan(ctx, r.store, faultAgeSpace, func(a *faultAge) { r.stored = append(r.stored, *a) })
}

// Report keeps a fault. It does not wait, and drops faults above the limits; texts are cut, and secrets in them are
// redacted.
func (r *Faults) Report(f Fault) {
	now := r.clock.Now().UTC()
	f.At = now.Truncate(time.Millisecond)
	f.Message, f.Cause = r.redact(f.Message, maxFaultText), r.redact(f.Cause, maxFaultText)
	f.Stack, f.Path = r.redact(f.Stack, maxFaultStack), r.redact(f.Path, maxFaultText)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !now.Before(r.until) {
		r.taken, r.each, r.until = 0, map[string]int{}, now.Add(time.Minute)
	}
	if len(r.pending) >= maxPending || r.taken >= faultsMinute || f.Instance != "" && r.each[f.Instance] >= faultsEach {
		return
	}
	r.taken++
	r.each[f.Instance]++
	r.pending = append(r.pending, &f)
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Redact replaces what looks like a credential, for texts that come from outside and go into a log.
func (r *Faults) Redact(s string) string {
	return r.secrets.ReplaceAllString(s, "[redacted]")
}

func (r *Faults) redact(s string, limit int) string {
	if len(s) > 4*limit {
		s = s[:4*limit] // what is cut off below must not split a secret, and need not be searched
	}
	s = strings.ToValidUTF8(r.secrets.ReplaceAllString(s, "[redacted]"), "?")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "..."
	}
	return s
}

// ByID returns the fault with that id. It is a *j17.Error of CodeNotFound if there is none, or no longer one.
func (r *Faults) ByID(ctx context.Context, id string) (Fault, error) {
	r.mu.Lock()
	for _, f := range r.pending {
		if f.ID == id {
			r.mu.Unlock()
			return *f, nil
		}
	}
	r.mu.Unlock()
	missing := j17.Errorf(j17.CodeNotFound, "Nothing is known about an error with this id. Errors are kept for %d days, and the newest %d of them.", int(keepFaults.Hours())/24, maxFaults)
	if id == "" || len(id) > store.MaxNameBytes {
		return Fault{}, missing
	}
	f, _, err := get[Fault](ctx, r.store, faultSpace, id)
	if errors.Is(err, store.ErrNotFound) {
		return Fault{}, missing
	}
	if err != nil {
		return Fault{}, err
	}
	return *f, nil
}

// save writes the faults that are waiting and removes the oldest if there are too many.
func (r *Faults) save(ctx context.Context) error {
	r.saving.Lock()
	defer r.saving.Unlock()

	// The faults to remove are chosen now; faults that arrive meanwhile wait for the next time.
	r.mu.Lock()
	batch := r.pending
	kept, excess := thinned(r.stored, len(r.stored)+len(batch)-maxFaults)
	r.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}

	// A fault under its id, and its id in the order of age.
	expires := r.clock.Now().Add(keepFaults)
	var sides []store.Side
	ages := make([]faultAge, 0, len(batch))
	for _, f := range batch {
		age := faultAge{UUID: r.mint.UUIDv7(), ID: f.ID, Instance: f.Instance}
		for _, put := range []struct {
			space store.Space
			key   string
			v     any
		}{{faultSpace, f.ID, f}, {faultAgeSpace, age.UUID, age}} {
			raw, err := json.Marshal(put.v)
			if err != nil {
				return internal(err)
			}
			sides = append(sides, store.Side{
				Op: store.Put, Space: put.space, Key: put.key, Value: raw, Expires: expires,
			})
		}
		ages = append(ages, age)
	}

	for _, old := range excess {
		sides = append(sides,
			store.Side{Op: store.Delete, Space: faultSpace, Key: old.ID}, store.Side{
				Op: store.Delete, Space: faultAgeSpace, Key: old.UUID,
			})
	}

	// Memory follows the store.
	if err := r.store.Write(ctx, j17.System, sides); err != nil {
		return failure(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = append([]*Fault(nil), r.pending[len(batch):]...)
	r.stored = append(kept, ages...)
	return nil
}

// thinned splits off n faults, each the oldest of the instance that has the most, so that no instance can push out the
// faults of others.
func thinned(stored []faultAge, n int) (kept, excess []faultAge) {
	counts := map[string]int{}
	for _, a := range stored {
		counts[a.Instance]++
	}
	drop := map[string]int{}
	for range n {
		most := ""
		for instance, count := range counts {
			if count > counts[most] || count == counts[most] && instance < most {
				most = instance
			}
		}
		counts[most]--
		drop[most]++
	}
	kept = make([]faultAge, 0, max(0, len(stored)-max(n, 0))+maxPending)
	for _, a := range stored {
		if drop[a.Instance] > 0 {
			drop[a.Instance]--
			excess = append(excess, a)
			continue
		}
		kept = append(kept, a)
	}
	return kept, excess
}

// Erase removes the faults that name one of some streams, by its key or by its other names.
func (r *Faults) Erase(ctx context.Context, t j17.Tenant, e part.Erased) error {
	gone, err := r.search(ctx, t, e.Keys)
	if err != nil {
		return err
	}
	r.saving.Lock()
	defer r.saving.Unlock()
	instance, env, _ := strings.Cut(string(t), "/")
	about := func(f *Fault) bool {
		return f.Instance == instance && string(f.Environment) == env && gone.in(f)
	}

	// Remove faults that are not written yet, and collect the written ones.
	r.mu.Lock()
	r.pending = slices.DeleteFunc(r.pending, about)
	r.mu.Unlock()
	ids := map[string]bool{}
	err = scan(ctx, r.store, faultSpace, func(f *Fault) {
		if about(f) {
			ids[f.ID] = true
		}
	})
	if err != nil || len(ids) == 0 {
		return err
	}
	r.mu.Lock()
	stored := slices.Clone(r.stored)
	r.mu.Unlock()
	sides := make([]store.Side, 0, 2*len(ids))
	for id := range ids { // also those of a write whose outcome was unknown
		sides = append(sides, store.Side{Op: store.Delete, Space: faultSpace, Key: id})
	}
	for _, age := range stored {
		if ids[age.ID] {
			sides = append(sides, store.Side{Op: store.Delete, Space: faultAgeSpace, Key: age.UUID})
		}
	}
	if err := r.store.Write(ctx, j17.System, sides); err != nil {
		return failure(err)
	}

	// Memory follows the store.
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored = slices.DeleteFunc(stored, func(age faultAge) bool { return ids[age.ID] })
	return nil
}

// named recognises faults about some streams: by their keys, their handles and their public ids.
type named struct {
	keys      map[j17.Key]bool
	handles   map[string]bool
	publicIDs map[j17.Key]bool
	// ids are those of the keys and the public ids, without their types: the path of a projection has no type.
	ids map[string]bool
	// words are searched for in texts.
	words []string
}

// search returns what identifies faults about some streams.
func (r *Faults) search(ctx context.Context, t j17.Tenant, keys []j17.Key) (named, error) {
	n := named{
		keys: map[j17.Key]bool{}, handles: map[string]bool{}, publicIDs: map[j17.Key]bool{}, ids: map[string]bool{},
	}
	for _, key := range keys {
		n.keys[key], n.ids[key.ID] = true, true
		n.words = append(n.words, key.String())
		if r.Names == nil {
			continue
		}
		names, err := r.Names(ctx, t, key)
		if err != nil {
			return n, err
		}
		if names.Handle != "" {
			n.handles[names.Handle] = true
			n.words = append(n.words, names.Handle)
		}
		if names.PublicID != "" {
			n.publicIDs[j17.Key{Type: key.Type, ID: names.PublicID}], n.ids[names.PublicID] = true, true
			n.words = append(n.words, names.PublicID)
		}
	}
	return n, nil
}

// in reports whether a fault is about one of the streams.
func (n *named) in(f *Fault) bool {
	steps := strings.Split(f.Path, "/")
	projection := slices.Contains(steps, "_projections")
	for i, step := range steps {
		if n.handles[step] {
			return true
		}
		if i == 0 {
			continue
		}
		// Ids are in lower case, but requests may have them in capitals. The id of a projection follows its name.
		for _, id := range []string{step, strings.ToLower(step)} {
			if key := (j17.Key{Type: steps[i-1], ID: id}); n.keys[key] || n.publicIDs[key] || projection && n.ids[id] {
				return true
			}
		}
	}

	// Texts may have any of the names; those about projections have only the id.
	has := func(name string) bool { return hasWord(f.Message, name) || hasWord(f.Cause, name) }
	if slices.ContainsFunc(n.words, has) {
		return true
	}
	for id := range n.ids {
		if projection && has(id) {
			return true
		}
	}
	return false
}

// hasWord reports whether a text contains a name that is not part of a longer one.
func hasWord(text, name string) bool {
	part := func(c byte) bool {
		return c == '_' || c == '-' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80
	}
	for at := 0; ; at++ {
		i := strings.Index(text[at:], name)
		if i < 0 {
			return false
		}
		at += i
		end := at + len(name)
		if (at == 0 || !part(text[at-1])) && (end == len(text) || !part(text[end])) {
			return true
		}
	}
}
