package tail

import (
	"encoding/binary"
	"slices"
	"strings"

	"j17"
	"j17/internal/core/upcast"
	"j17/internal/storage/store"
)

// Filter selects events of an environment: those that match all of its members that are not zero.
type Filter struct {
	// Type is the aggregate type, Event the event type.
	Type, Event string
	// Actor and Target are tags, as j17.ActorTag and j17.TargetTag make them.
	Actor, Target string
	// Types are patterns of which one has to match, Tags are tags of which an event has to have all.
	Types Types
	Tags  Tags
	// Key is the aggregate. It cannot be combined with tags.
	Key j17.Key
	// Stored asks for events as they are stored, instead of in the newest generation of their types.
	Stored bool
}

// Types is a set of patterns of event types.
type Types string

// NewTypes returns a set of patterns: "type.event", "type.*", or "*" for all.
func NewTypes(patterns []string) Types { return Types(pack(sorted(patterns))) }

func (t Types) list() []store.TypePattern {
	var patterns []store.TypePattern
	for _, text := range unpack(string(t)) {
		aggregate, event, _ := strings.Cut(text, ".")
		patterns = append(patterns, store.TypePattern{
			Aggregate: strings.TrimSuffix(aggregate, "*"), Event: strings.TrimSuffix(event, "*"),
		})
	}
	return patterns
}

// Tags is a set of tags.
type Tags string

// NewTags returns a set of tags.
func NewTags(tags []string) Tags { return Tags(pack(sorted(tags))) }

// With returns the set with another tag.
func (t Tags) With(tag string) Tags { return NewTags(append(t.list(), tag)) }

func (t Tags) list() []string { return unpack(string(t)) }

// sorted returns texts sorted and without duplicates.
func sorted(texts []string) []string { return slices.Compact(slices.Sorted(slices.Values(texts))) }

// pack encodes several texts as one, which unpack decodes, so that filters can be compared.
func pack(texts []string) []byte {
	var b []byte
	for _, text := range texts {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	return b
}

func unpack(text string) (texts []string) {
	for len(text) > 0 {
		n, width := binary.Uvarint([]byte(text[:min(len(text), binary.MaxVarintLen64)]))
		end := width + int(n)
		texts, text = append(texts, text[width:end]), text[end:]
	}
	return texts
}

// Indexed reports whether the events are found by the store's index of tags.
func (f *Filter) Indexed() bool { return f.Actor != "" || f.Target != "" || f.Tags != "" }

// Passes reports whether a reader has to look at events that the filter does not select.
func (f *Filter) Passes() bool { return f.Type != "" || f.Event != "" || f.Types != "" }

// tags returns the tags by which events are found in the store's index.
func (f *Filter) tags() []string {
	tags := f.Tags.list()
	for _, tag := range []string{f.Actor, f.Target} {
		if tag != "" && !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
}

// test tests events against a filter.
type test struct {
	filter Filter
	types  []store.TypePattern
	tags   []string
}

func newTest(f Filter) test { return test{filter: f, types: f.Types.list(), tags: f.tags()} }

// stored returns patterns that match all stored events that the filter may select, none if it selects events of all
// types.
func (t *test) stored(shown *upcast.Reader, tenant j17.Tenant) []store.TypePattern {
	f := &t.filter
	switch {
	case len(t.types) > 0 && !slices.ContainsFunc(t.types, func(p store.TypePattern) bool { return p.Aggregate == "" }):
		return shown.Stored(tenant, t.types)
	case f.Type != "":
		return shown.Stored(tenant, []store.TypePattern{{Aggregate: f.Type, Event: f.Event}})
	default:
		return nil
	}
}

// fits reports whether the filter selects an event that is shown, by the type that it has or is stored under, of its
// aggregate that has its tags.
func (t *test) fits(ev *j17.Event) bool {
	f := &t.filter
	return (f.Type == "" || f.Type == ev.Key.Type) &&
		(f.Event == "" || f.Event == ev.Type || f.Event == ev.AsStored().Type) &&
		(len(t.types) == 0 || slices.ContainsFunc(
			t.types, func(p store.TypePattern) bool { return p.Aggregate == "" || upcast.Fits(p, ev) },
		))
}

// lets reports whether the filter selects an event with tags.
func (t *test) lets(ev *j17.Event, tags []string) bool {
	return t.fits(ev) && (t.filter.Key == (j17.Key{}) || t.filter.Key == ev.Key) &&
		!slices.ContainsFunc(t.tags, func(tag string) bool { return !slices.Contains(tags, tag) })
}
