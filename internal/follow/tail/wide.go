package tail

import (
	"j17"
	"j17/internal/storage/store"
)

// wide reports whether the filter has sets, so that the filters that select an event cannot be derived from the event.
func (f *Filter) wide() bool { return f.Types != "" || f.Tags != "" }

// wideGroups are groups whose filters have sets. Each is indexed by one property that an event must have: a tag, or
// else an aggregate type, of which it may have several. So an event is compared only with the groups that it may
// concern.
type wideGroups struct {
	byTag, byType map[string][]*group
}

func newWideGroups() wideGroups {
	return wideGroups{byTag: map[string][]*group{}, byType: map[string][]*group{}}
}

// places calls do with each place of a group in the index.
func (w *wideGroups) places(g *group, do func(in map[string][]*group, at string)) {
	if len(g.test.tags) > 0 {
		do(w.byTag, g.test.tags[0])
		return
	}
	seen := map[string]bool{}
	for _, p := range g.test.types {
		if !seen[p.Aggregate] {
			seen[p.Aggregate] = true
			do(w.byType, p.Aggregate)
		}
	}
}

func (w *wideGroups) add(g *group) {
	w.places(g, func(in map[string][]*group, at string) { in[at] = append(in[at], g) })
}

func (w *wideGroups) remove(g *group) {
	w.places(g, func(in map[string][]*group, at string) {
		list := in[at]
		for i := range list {
			if list[i] == g {
				last := len(list) - 1
				list[i], list[last] = list[last], nil
				in[at] = list[:last]
				break
			}
		}
		if len(in[at]) == 0 {
			delete(in, at)
		}
	})
}

// each calls let with the groups whose filters select an event, each once.
func (w *wideGroups) each(e *store.Entry, let func(*group)) {
	if len(w.byTag) > 0 {
		tags := append(j17.MetadataTags(e.Event.AsStored().Metadata), e.Tags...)
		for _, tag := range tags {
			for _, g := range w.byTag[tag] {
				if g.test.lets(e.Event, tags) {
					let(g)
				}
			}
		}
	}

	// A group with patterns of this type and of all types is in both places.
	for _, g := range w.byType[e.Event.Key.Type] {
		if g.test.lets(e.Event, nil) {
			let(g)
		}
	}
	for _, g := range w.byType[""] {
		if !g.names(e.Event.Key.Type) && g.test.lets(e.Event, nil) {
			let(g)
		}
	}
}

// names reports whether a pattern of the group's filter is of an aggregate type.
func (g *group) names(aggregateType string) bool {
	for _, p := range g.test.types {
		if p.Aggregate == aggregateType {
			return true
		}
	}
	return false
}
