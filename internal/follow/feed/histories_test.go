package feed_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"j17"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
)

// plan is a random history: what happens to two sets of workers and two tenants, one step after the other.
type plan struct {
	faults uint64
	steps  []step
}

type step struct {
	what   string
	set    int
	tenant j17.Tenant
	name   string
	n      int
}

func plans() *rapid.Generator[plan] {
	return rapid.Custom(func(rt *rapid.T) plan {
		one := rapid.Custom(func(rt *rapid.T) step {
			return step{
				what: rapid.SampledFrom([]string{
					"append", "append", "append", "rest", "rest", "long", "freeze", "thaw", "cut", "heal", "stop",
					"start", "pause", "resume", "erase", "wake",
				}).Draw(rt, "what"),
				set:    rapid.IntRange(0, 1).Draw(rt, "set"),
				tenant: rapid.SampledFrom([]j17.Tenant{shop, other}).Draw(rt, "tenant"),
				name:   rapid.SampledFrom([]string{"once", "least"}).Draw(rt, "name"),
				n:      rapid.IntRange(1, 400).Draw(rt, "n"),
			}
		})
		return plan{faults: rapid.Uint64().Draw(rt, "faults"), steps: rapid.SliceOfN(one, 1, 40).Draw(rt, "steps")}
	})
}

// TestHistories lets two sets go through random histories: appends, erasures, sets that freeze, are cut off, stop and
// start, pauses, and handlers that fail, panic, take long, take a part, or want to be asked later. In the end each
// event was handed out at least once and in its order, and where the checkpoint is committed with what is done, exactly
// once.
func TestHistories(t *testing.T) {
	checks := "6"
	if os.Getenv("J17_SOAK") != "" {
		checks = "600"
	}
	if err := flag.Set("rapid.checks", checks); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		p := plans().Draw(rt, "plan")
		var wrong string
		inBubble(t, func(t *testing.T, h *house) {
			t.Helper()
			wrong = (&history{house: h, t: t, rng: rand.New(rand.NewPCG(p.faults, 1))}).live(p)
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// history is a plan that is carried out.
type history struct {
	*house
	t *testing.T

	mu     sync.Mutex
	rng    *rand.Rand
	calm   bool
	count  int
	handed map[string][]string

	links [2]*link
	thaws [2]func()
	stops [2]func()
	sets  [2]*feed.Subscriptions
}

// live carries out a plan, and returns what is wrong in the end.
func (h *history) live(p plan) string {
	h.handed = map[string][]string{}
	for i := range h.links {
		h.links[i] = &link{Store: h.Store}
		h.start(i)
	}
	tenants, names := []j17.Tenant{shop, other}, []string{"once", "least"}
	for _, t := range tenants {
		for _, name := range names {
			h.subscribe(h.sets[0], t, name, feed.Beginning())
		}
	}
	away := h.set(feed.Kind{}) // changes subscriptions, and is never frozen
	for _, s := range p.steps {
		h.step(away, s)
	}

	// Everything is well again.
	h.mu.Lock()
	h.calm = true
	h.mu.Unlock()
	for i := range h.links {
		h.step(away, step{what: "thaw", set: i})
		h.step(away, step{what: "heal", set: i})
		h.step(away, step{what: "start", set: i})
	}
	for _, t := range tenants {
		for _, name := range names {
			h.step(away, step{what: "resume", tenant: t, name: name})
		}
	}
	pass(h.t, 15*time.Minute)
	for i := range h.stops {
		h.stops[i]()
	}

	var wrong []string
	for _, t := range tenants {
		want := h.ids(t)
		if got := h.handed[string(t)]; !contains(got, want) {
			wrong = append(wrong, fmt.Sprintf("%s: handed out %v of %v", t, got, want))
		}
		if got := h.results(t, "once"); !slices.Equal(got, want) {
			wrong = append(wrong, fmt.Sprintf("%s: done %v, not %v", t, got, want))
		}
	}
	for _, s := range h.sets {
		if c := s.Counts(); c.Gaps > 0 {
			wrong = append(wrong, fmt.Sprintf("%+v", c))
		}
	}
	if len(wrong) > 0 {
		wrong = append(wrong, h.log.String())
	}
	return strings.Join(wrong, "\n")
}

// ids returns the positions of all events of a tenant.
func (h *history) ids(t j17.Tenant) (ids []string) {
	for e, err := range h.ReadFeed(h.t.Context(), t, j17.StreamID{}, 1<<20) {
		if err != nil {
			h.t.Fatal(err)
		}
		ids = append(ids, e.StreamID.String())
	}
	return ids
}

func (h *history) start(i int) {
	h.sets[i] = h.set(
		feed.Kind{Batch: 30, Notes: true, Do: h.handle}, linked(h.links[i]),
		func(o *feed.Options) { o.Lease = 10 * time.Second },
	)
	h.stops[i] = h.run(h.sets[i])
}

func (h *history) step(away *feed.Subscriptions, s step) {
	ctx := h.t.Context()
	switch s.what {
	case "append":
		h.append(s.tenant, s.n)
		if s.n > 200 {
			rest(ctx, time.Millisecond)
		}
	case "rest":
		rest(ctx, time.Duration(s.n)*10*time.Millisecond)
	case "long":
		rest(ctx, time.Duration(s.n)*200*time.Millisecond)
	case "freeze":
		if h.thaws[s.set] == nil && h.stops[s.set] != nil {
			h.thaws[s.set] = h.links[s.set].freeze()
		}
	case "thaw":
		if h.thaws[s.set] != nil {
			h.thaws[s.set]()
			h.thaws[s.set] = nil
		}
	case "cut":
		h.links[s.set].cut([]error{errors.New("no route"), store.ErrFull, store.ErrUnknown}[s.n%3])
	case "heal":
		h.links[s.set].cut(nil)
	case "stop":
		if h.stops[s.set] != nil && h.thaws[s.set] == nil {
			h.stops[s.set]()
			h.stops[s.set] = nil
		}
	case "start":
		if h.stops[s.set] == nil {
			h.start(s.set)
		}
	case "erase":
		for id := range 3 {
			key := j17.Key{Type: "order", ID: fmt.Sprintf("o%d", id)}
			heads, err := h.Heads(ctx, s.tenant, []j17.Key{key})
			if err != nil {
				h.t.Fatal(err)
			}
			if version := heads[0].Length; version > 0 {
				r := store.Rewrite{Streams: []store.RewrittenStream{{Key: key, Events: []store.Rewritten{
					{Version: version, Type: "was_erased", Data: []byte("null"), Metadata: []byte("{}")},
				}}}}
				if _, err := h.Rewrite(ctx, s.tenant, r); err != nil {
					h.t.Fatal(err)
				}
			}
		}
	default:
		change := map[string]func(context.Context, j17.Tenant, string, string) error{
			"pause": away.Pause, "resume": away.Resume, "wake": away.Wake,
		}[s.what]
		if err := change(ctx, s.tenant, "test", s.name); err != nil {
			h.t.Fatal(err)
		}
	}
}

// handle handles a batch, or does not.
func (h *history) handle(ctx context.Context, b *feed.Batch) error {
	h.mu.Lock()
	fault := h.rng.IntN(30)
	if h.calm {
		fault = 30
	}
	h.mu.Unlock()
	n := len(b.Entries)
	switch fault {
	case 0:
		return errors.New("before")
	case 1:
		panic("before")
	case 2:
		return feed.Later{For: 3 * time.Second}
	case 3:
		rest(ctx, 30*time.Second)
		return ctx.Err()
	case 4:
		rest(context.WithoutCancel(ctx), 12*time.Second) // longer than a lease
	case 5:
		n = (n + 1) / 2
	}
	if b.Name == "once" {
		return h.once(ctx, b, n, fault == 6)
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range b.Entries {
		if e.Event != nil {
			h.handed[string(b.Tenant)] = append(h.handed[string(b.Tenant)], e.Event.StreamID.String())
		}
	}
	if fault == 6 {
		return errors.New("after")
	}
	return nil
}

// once commits what is done together with the checkpoint.
func (h *history) once(ctx context.Context, b *feed.Batch, n int, after bool) error {
	sides := b.Done(n)
	h.mu.Lock()
	for _, e := range b.Entries[:n] {
		if e.Event != nil {
			h.count++
			sides = append(sides, store.Side{
				Op: store.Put, Space: results, Key: fmt.Sprintf("once/%09d", h.count),
				Value: []byte(e.Event.StreamID.String()),
			})
		}
	}
	h.mu.Unlock()
	err := h.Write(context.WithoutCancel(ctx), b.Tenant, sides)
	if after {
		err = errors.Join(err, errors.New("after"))
	}
	return err
}
