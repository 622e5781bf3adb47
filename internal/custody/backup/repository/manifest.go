package repository

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// Format is the version of the backup format in docs/storage-format.md.
const Format = 1

// Scope is what a backup holds.
type Scope string

// The scopes.
const (
	// OfEnvironment is one environment of an instance.
	OfEnvironment Scope = "environment"
	// OfServer is everything: all environments of all instances, and the System tenant.
	OfServer Scope = "server"
)

// Kind is how a backup was made.
type Kind string

// The kinds. Every backup is complete by itself: kinds differ in what was read again for it.
const (
	// Full: everything was read, and compared with what was stored before.
	Full Kind = "full"
	// Incremental: the feed was read from the end of the parent.
	Incremental Kind = "incremental"
)

// Manifest describes the contents of a backup and its parts. It can be read without a key: it has no data and no names
// of aggregates.
type Manifest struct {
	Format int    `json:"format"`
	ID     string `json:"id"`
	Scope  Scope  `json:"scope"`
	Kind   Kind   `json:"kind"`
	// Parent is the backup that an incremental one continues from. It may have been removed.
	Parent string `json:"parent,omitempty"`
	// Program is the version of j17 that made it.
	Program     string    `json:"program,omitempty"`
	CreatedAt   time.Time `json:"created_at"`
	CompletedAt time.Time `json:"completed_at"`
	// Recipients are those that the parts are encrypted to, in order; none if they are not encrypted. SealedNames is
	// the key of their names, encrypted to the same recipients.
	Recipients  []string `json:"recipients,omitempty"`
	SealedNames []byte   `json:"sealed_names,omitempty"`
	// Bytes is how much was newly stored for this backup.
	Bytes int64 `json:"bytes"`
	// Tenants are its contents, the System tenant first if it is included.
	Tenants []TenantManifest `json:"tenants"`
}

// Encrypted reports whether the parts are encrypted.
func (m *Manifest) Encrypted() bool { return len(m.Recipients) > 0 }

// Of returns the manifest of a tenant, nil if the backup has nothing of it.
func (m *Manifest) Of(t j17.Tenant) *TenantManifest {
	for i := range m.Tenants {
		if m.Tenants[i].Tenant == t {
			return &m.Tenants[i]
		}
	}
	return nil
}

// Contents is the total size of the contents of all parts, in bytes.
func (m *Manifest) Contents() (bytes int64) {
	for i := range m.Tenants {
		for p := range m.Tenants[i].Parts() {
			bytes += p.Bytes
		}
	}
	return bytes
}

// Position is that of the last event of all tenants.
func (m *Manifest) Position() (last j17.StreamID) {
	for i := range m.Tenants {
		if p := m.Tenants[i].Position; p.Compare(last) > 0 {
			last = p
		}
	}
	return last
}

// TenantHead describes a tenant at the time when it was read.
type TenantHead struct {
	Tenant j17.Tenant
	// The registry's data about an environment that is needed to serve it: none for the System tenant.
	Instance          string
	Name              string
	Plan              string
	InstanceCreatedAt time.Time
	Environment       j17.Environment
	// Position is that of the last event, Moment that of the last event or note: the backup is complete up to it.
	Position, Moment j17.StreamID
	// Time is when it was read, in Unix milliseconds.
	Time int64
	// Size is the number of events, Root that of the RFC 6962 tree over their leaf hashes in the order of the feed.
	Size uint64
	Root [32]byte
}

// TenantManifest describes the contents of a backup for one tenant.
type TenantManifest struct {
	TenantHead
	// Feed are the segments of the feed in order, Items and Commands the other parts.
	Feed            []Segment
	Items, Commands []Part
}

// Part is a file of a repository that is named after its content.
type Part struct {
	Name string `json:"part"`
	// Bytes is the length of its content.
	Bytes int64 `json:"bytes"`
}

// Segment is a part with a section of a feed.
type Segment struct {
	Part
	// First and Last are the positions of its first and its last event or note.
	First, Last j17.StreamID
	// Events is the number of events in it.
	Events uint64
}

type tenantJSON struct {
	Tenant            j17.Tenant      `json:"tenant"`
	Instance          string          `json:"instance,omitempty"`
	Name              string          `json:"name,omitempty"`
	Plan              string          `json:"plan,omitempty"`
	InstanceCreatedAt time.Time       `json:"instance_created_at,omitzero"`
	Environment       j17.Environment `json:"environment,omitempty"`
	Position          string          `json:"position"`
	Moment            string          `json:"moment"`
	Time              int64           `json:"time"`
	Size              uint64          `json:"size"`
	Root              string          `json:"root"`
	Feed              []segmentJSON   `json:"feed,omitempty"`
	Items             []Part          `json:"items,omitempty"`
	Commands          []Part          `json:"commands,omitempty"`
}

type segmentJSON struct {
	Part
	First  string `json:"first"`
	Last   string `json:"last"`
	Events uint64 `json:"events"`
}

// MarshalJSON writes positions and hashes as they are written elsewhere.
func (t TenantManifest) MarshalJSON() ([]byte, error) {
	out := tenantJSON{
		Tenant: t.Tenant, Instance: t.Instance, Name: t.Name, Plan: t.Plan, InstanceCreatedAt: t.InstanceCreatedAt,
		Environment: t.Environment,
		Position:    t.Position.String(), Moment: t.Moment.String(), Time: t.Time, Size: t.Size,
		Root:  hex.EncodeToString(t.Root[:]),
		Items: t.Items, Commands: t.Commands,
	}
	for _, s := range t.Feed {
		out.Feed = append(out.Feed, segmentJSON{s.Part, s.First.String(), s.Last.String(), s.Events})
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON has written.
func (t *TenantManifest) UnmarshalJSON(text []byte) error {
	var in tenantJSON
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	root, err := hex.DecodeString(in.Root)
	if err != nil || len(root) != sha256.Size {
		return errors.New("a root is no hash")
	}
	t.TenantHead = TenantHead{
		Tenant: in.Tenant, Instance: in.Instance, Name: in.Name, Plan: in.Plan, InstanceCreatedAt: in.InstanceCreatedAt,
		Environment: in.Environment,
		Time:        in.Time, Size: in.Size, Root: [32]byte(root),
	}
	if t.Position, err = j17.ParseStreamID(in.Position); err != nil {
		return err
	}
	if t.Moment, err = j17.ParseStreamID(in.Moment); err != nil {
		return err
	}

	t.Items, t.Commands, t.Feed = in.Items, in.Commands, nil
	for _, s := range in.Feed {
		segment := Segment{Part: s.Part, Events: s.Events}
		if segment.First, err = j17.ParseStreamID(s.First); err != nil {
			return err
		}
		if segment.Last, err = j17.ParseStreamID(s.Last); err != nil {
			return err
		}
		t.Feed = append(t.Feed, segment)
	}
	return nil
}

// encode returns the manifest as a file: a line of JSON, and one with the SHA-256 of that line.
func (m *Manifest) encode() ([]byte, error) {
	line, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(line)
	return fmt.Appendf(line, "\n%x\n", sum), nil
}

// decodeManifest reads the file of the backup of that id.
func decodeManifest(id string, text []byte) (Manifest, error) {
	// A manifest of a newer version may have more than the first line, which always has the version.
	line, rest, _ := bytes.Cut(text, []byte("\n"))
	var version struct {
		Format int `json:"format"`
	}
	if json.Unmarshal(line, &version) == nil && version.Format > Format {
		return Manifest{}, fmt.Errorf("it was made by a newer version of j17 (format %d, this one reads formats up to %d): use that version", version.Format, Format)
	}

	sum := sha256.Sum256(line)
	if string(rest) != hex.EncodeToString(sum[:])+"\n" {
		return Manifest{}, errors.New("its content does not have the SHA-256 that stands in its last line: it was changed or cut short")
	}
	if elements(line) > mostElements {
		return Manifest{}, errTooLarge
	}
	var m Manifest
	if err := json.Unmarshal(line, &m); err != nil {
		return Manifest{}, fmt.Errorf("it is not what j17 writes: %w", err)
	}
	if err := m.check(id); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// elements is a lower bound of the number of elements in the JSON of a manifest.
func elements(line []byte) (n int) {
	for _, sign := range []string{",", "[", "{"} {
		n += bytes.Count(line, []byte(sign))
	}
	return n
}

// check reports whether the manifest is plausible.
func (m *Manifest) check(id string) error {
	if m.ID != id {
		return errors.New("it is that of another backup")
	}
	if m.Format < 1 {
		return errors.New("it has no format")
	}
	if m.Encrypted() != (len(m.SealedNames) > 0) {
		return errors.New("it does not say how its parts are named")
	}
	for i := range m.Tenants {
		t := &m.Tenants[i]
		if store.ValidTenant(t.Tenant) != nil {
			return fmt.Errorf("%q is no name of what a backup is of", t.Tenant)
		}
		var size uint64
		var last j17.StreamID
		for _, s := range t.Feed {
			if s.First.Compare(last) <= 0 || s.Last.Compare(s.First) < 0 {
				return fmt.Errorf("the segments of the feed of %s are out of order", t.Tenant)
			}
			size, last = size+s.Events, s.Last
		}
		if size != t.Size || last.Compare(t.Moment) > 0 || t.Position.Compare(t.Moment) > 0 {
			return fmt.Errorf("the segments of the feed of %s do not come to its size", t.Tenant)
		}
		for part := range t.Parts() {
			if len(part.Name) != 2*sha256.Size || strings.Trim(part.Name, "0123456789abcdef") != "" || part.Bytes < 0 ||
				part.Bytes > maxContent {
				return fmt.Errorf("a part of %s has no proper name", t.Tenant)
			}
		}
	}
	return nil
}

// Parts goes through all parts of the tenant.
func (t *TenantManifest) Parts() iter.Seq[Part] {
	return func(yield func(Part) bool) {
		for _, s := range t.Feed {
			if !yield(s.Part) {
				return
			}
		}
		for _, parts := range [][]Part{t.Items, t.Commands} {
			for _, p := range parts {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// The folders of a repository.
const (
	manifests  = "manifests"
	parts      = "parts"
	erasures   = "erasures"
	writing    = "writing"
	collecting = "collecting"
)

const (
	// mostParts is how many parts a backup has at most: two TiB of events. Their list is read as a whole.
	mostParts = 1 << 18
	// maxManifest bounds a manifest, in bytes, and mostElements its elements, since each may take more memory than it
	// has bytes.
	maxManifest  = mostParts * 256
	mostElements = mostParts * 8
)

// errParts is the error of a backup that is too large.
var errParts = fmt.Errorf("there is more to it than a backup holds, %d parts of up to 8 MiB: back environments up by themselves, or move data to other instances", mostParts)

func manifestFile(id string) string { return manifests + "/" + id }

func partFile(name string) string { return parts + "/" + name[:2] + "/" + name }

// Manifests returns those of all backups, without their lists of parts, the newest first, and the errors of those that
// cannot be read.
func (r *Repository) Manifests(ctx context.Context) (all []Manifest, damaged []*DamagedError, err error) {
	for m, err := range r.each(ctx) {
		broken, ok := errors.AsType[*DamagedError](err)
		switch {
		case ok:
			damaged = append(damaged, broken)
		case err != nil:
			return nil, nil, err
		default:
			for i := range m.Tenants {
				m.Tenants[i].Feed, m.Tenants[i].Items, m.Tenants[i].Commands = nil, nil, nil
			}
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b Manifest) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), b.CompletedAt.Compare(a.CompletedAt), cmp.Compare(b.ID, a.ID))
	})
	return all, damaged, nil
}

// each yields the manifests one by one. For one that cannot be read it yields a *DamagedError and goes on.
func (r *Repository) each(ctx context.Context) iter.Seq2[Manifest, error] {
	return func(yield func(Manifest, error) bool) {
		for f, err := range r.storage.List(ctx, manifests) {
			if err != nil {
				yield(Manifest{}, describe(r.storage, manifests, "listed", err))
				return
			}
			m, err := r.Manifest(ctx, strings.TrimPrefix(f.Name, manifests+"/"))
			if errors.Is(err, ErrNotFound) {
				continue // removed meanwhile
			}
			if !yield(m, err) {
				return
			}
		}
	}
}

// Manifest returns that of one backup. It is ErrNotFound if there is none, a *DamagedError if it cannot be read.
func (r *Repository) Manifest(ctx context.Context, id string) (Manifest, error) {
	if !plainName(id) {
		return Manifest{}, ErrNotFound
	}
	name := manifestFile(id)
	text, err := r.storage.Get(ctx, name, maxManifest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Manifest{}, ErrNotFound
	case errors.Is(err, errTooLarge):
		return Manifest{}, r.damaged(name, err)
	case err != nil:
		return Manifest{}, describe(r.storage, name, "read", err)
	}
	m, err := decodeManifest(id, text)
	if err != nil {
		return Manifest{}, r.damaged(name, err)
	}
	return m, nil
}

// Delete removes a backup. The next Collect removes the parts that no other backup has. It is ErrNotFound if there is
// none.
func (r *Repository) Delete(ctx context.Context, id string) error {
	if _, err := r.Manifest(ctx, id); err != nil {
		if _, damaged := errors.AsType[*DamagedError](err); !damaged {
			return err
		}
	}
	name := manifestFile(id)
	err := r.storage.Delete(ctx, name)
	if err == nil {
		err = r.storage.Sync(ctx)
	}
	return describe(r.storage, name, "deleted", err)
}
