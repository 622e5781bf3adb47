package restore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// rule is the treatment of the items of a space when a time earlier than the backup's is restored.
type rule int

const (
	// dropped: they follow from events and are rebuilt, or are work that was pending at the later time.
	dropped rule = iota
	// kept: they do not depend on events.
	kept
	// byKey and byValue: they belong to the aggregate that the key, or the value, names, and are kept if it is
	// restored.
	byKey
	byValue
	// counted: as byValue, and the item named latest is set to the greatest key among those kept.
	counted
	// deployed, current and announced are the versions of specs, the head and the records of deployments.
	deployed
	current
	announced
)

// madeAnew reports whether the items of a space are rebuilt after every restoration, since they may be newer than the
// parts from which the events are restored.
func madeAnew(space store.Space) bool { return space == "tagging" }

// ofIndexes reports whether an item belongs to indexes: their rows and entries, their subscriptions, builds and
// removals.
func ofIndexes(i *store.ArchivedItem) bool {
	switch i.Space {
	case "index.heads", "index.slots", "index.counts", "index.entries", "index.rows", "index.sources":
		return true
	case "feed.subscriptions", "feed.marks", "build.jobs", "build.progress", "build.removals":
		// the keys begin with a kind
		return strings.HasPrefix(i.Key, "index/")
	default:
		return false
	}
}

// ruleOf is the rule of a space. Spaces that are not listed are dropped: the items of a new space must be known to be
// valid for an earlier time before they are kept.
func ruleOf(space store.Space) rule {
	if strings.HasPrefix(string(space), "erasure.") {
		return kept // what was erased, or is to be erased, remains so
	}
	switch space {
	case "identity.handle", "identity.number":
		return byKey
	case "identity.handle.index":
		return byValue
	case "identity.number.index":
		return counted
	case "spec.versions":
		return deployed
	case "spec.head":
		return current
	case "spec.unannounced":
		return announced
	case "blob.heads", "blob.versions", "blob.chunks", "blob.uploads", // files, whose versions are named by number
		"projections", "projections.head", // definitions that were posted beside the spec
		"envlog.keys", "envlog.private", // what signs the log
		"listener.states", // whether they are paused, and what signs their messages
		"checkpoint.settings", "checkpoint.hours", "backup.settings",
		"usage.days", "usage.totals":
		return kept
	default:
		return dropped
	}
}

// latestKey is the item with the last number that was given out.
const latestKey = "latest"

// pastItems restores the items of a tenant at an earlier time.
type pastItems struct {
	*tenant
	// version is the last one that was deployed by then, skipped one that was not.
	version, skipped string
	// head, latest and announced are held back until the items that decide about them have been read.
	head, latest *store.ArchivedItem
	highest      uint64
	announced    []store.ArchivedItem
}

// items restores the side items.
func (r *tenant) items() error {
	past := &pastItems{tenant: r}
	for i, err := range r.Backup.Items(r.ctx, r.from) {
		r.step()
		switch {
		case err != nil:
		case madeAnew(i.Space):
		case r.out.Erased > 0 && ofIndexes(&i): // it shows what was erased, and is rebuilt
		case r.out.Past && r.from.Tenant != j17.System:
			err = past.item(i)
		default:
			err = r.load.Item(i)
		}
		if err != nil {
			return r.failed(err)
		}
	}
	return past.end()
}

// item restores the next item, in the order of spaces and keys.
func (p *pastItems) item(i store.ArchivedItem) error {
	switch ruleOf(i.Space) {
	case kept:
	case byKey:
		if p.gone(i.Key) {
			return nil
		}
	case byValue:
		if p.gone(string(i.Value)) {
			return nil
		}
	case counted:
		if i.Key == latestKey {
			p.latest = &i
			return nil
		}
		if p.gone(string(i.Value)) {
			return nil
		}
		number, err := strconv.ParseUint(i.Key, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is no number of an aggregate: %w", i.Key, err)
		}
		p.highest = max(p.highest, number)
	case deployed:
		there, err := p.deployed(&i)
		if err != nil || !there {
			return err
		}
	case current:
		p.head = &i
		return nil
	case announced:
		p.announced = append(p.announced, i)
		return nil
	case dropped:
		return nil
	}
	return p.load.Item(i)
}

// gone reports whether the aggregate with a key does not exist yet.
func (p *pastItems) gone(name string) bool {
	key, ok := j17.ParseKey(name)
	return ok && p.later[hashOf(key)]
}

// deployed reports whether an item is of a version of the spec that was deployed by then. Versions come in their order,
// each before its text.
func (p *pastItems) deployed(i *store.ArchivedItem) (bool, error) {
	version, rest, _ := strings.Cut(i.Key, "/")
	if rest != "" {
		return version == p.version, nil
	}
	var record struct {
		DeployedAt time.Time `json:"deployed_at"`
	}
	if err := json.Unmarshal(i.Value, &record); err != nil {
		return false, fmt.Errorf("version %s of the spec of %s cannot be read: %w", version, p.from.Tenant, err)
	}
	if record.DeployedAt.UnixMilli() > p.cut.moment() {
		p.skipped = version
		return false, nil
	}
	p.version = version
	return true, nil
}

// end restores the items that were held back.
func (p *pastItems) end() error {
	if p.latest != nil && p.highest > 0 {
		p.latest.Value = strconv.AppendUint(nil, p.highest, 10)
		if err := p.load.Item(*p.latest); err != nil {
			return err
		}
	}
	if p.head != nil && p.version != "" {
		if p.skipped != "" {
			number, err := strconv.Atoi(p.version)
			if err != nil {
				return fmt.Errorf("%q is no version of a spec: %w", p.version, err)
			}
			p.head.Value = fmt.Appendf(nil, `{"version":%d}`, number)
		}
		if err := p.load.Item(*p.head); err != nil {
			return err
		}
	}
	for _, i := range p.announced {
		if i.Key > p.version {
			continue
		}
		if err := p.load.Item(i); err != nil {
			return err
		}
	}
	return nil
}
