package index_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"j17"
	"j17/internal/storage/store"
)

// loading is a store whose environment is filled at the moment at which a build has looked at it for the first time.
type loading struct {
	store.Store
	looked *sync.Once
	fill   func()
}

// Streams shows what there was before.
func (l loading) Streams(ctx context.Context, t j17.Tenant, aggregateType, after string, limit int) ([]string, error) {
	ids, err := l.Store.Streams(ctx, t, aggregateType, after, limit)
	l.looked.Do(l.fill)
	return ids, err
}

// load fills an environment, all at once, with events that are older than it.
func (h *house) load(t j17.Tenant, items int) {
	h.tb.Helper()
	l, err := h.disk.Load(h.tb.Context(), t)
	if err != nil {
		h.tb.Fatal(err)
	}
	defer l.Discard()
	at := j17.StreamID{Ms: 900_000_000_000}
	add := func(typ, id, data string) {
		at = at.Next()
		key := j17.Key{Type: typ, ID: id}
		raw, layout := j17.AppendEvent(nil, at, key, "was_set", []byte(data), []byte(`{}`), 900_000_000)
		e := j17.Event{
			StreamID: at, Key: key, Type: "was_set", Timestamp: 900_000_000, Raw: raw, Data: layout.DataOf(raw),
			Metadata: layout.MetadataOf(raw),
		}
		if _, err := l.Event(store.LoadedEvent{Event: &e}); err != nil {
			h.tb.Fatal(err)
		}
	}
	add("shop", "s", `{"name":"b"}`)
	for i := range items {
		add("item", fmt.Sprintf("i%03d", i), fmt.Sprintf(`{"label":%d,"title":"red green","shop":"s"}`, i%3))
	}
	add("note", "n1", `{"about":"i001"}`)
	if err := l.Commit(h.tb.Context()); err != nil {
		h.tb.Fatal(err)
	}
}

// TestAColdStartMeetsABuild fills an environment before an index of it is built, while that is looked at, and behind
// it: in each case the index has all of it, and what comes later.
func TestAColdStartMeetsABuild(t *testing.T) {
	const items = 24
	for _, moment := range []string{"before", "in the middle", "behind"} {
		t.Run(moment, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *house) {
				t.Helper()
				filled := false
				fill := func() {
					h.load(prod, items)
					filled = true
				}
				st := h.disk
				switch moment {
				case "before":
					fill()
				case "in the middle":
					st = loading{h.disk, new(sync.Once), fill}
				}
				p := h.start(st)
				h.ready(p, prod, source{h.disk}.definition(nil))
				if moment == "behind" {
					fill()
				}
				if !filled {
					t.Fatal("the build has not looked at the environment")
				}
				h.at(p, prod)
				h.verify(p, prod)

				h.write(prod, event("item", "i000", `{"label":"a"}`), event("shop", "s", `{"name":"c"}`))
				h.at(p, prod)
				h.verify(p, prod)
				p.stop()
			})
		})
	}
}
