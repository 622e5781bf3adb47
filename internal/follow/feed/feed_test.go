package feed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/worker"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

const (
	shop  j17.Tenant = "shop/prod"
	other j17.Tenant = "shop/test"
)

// house is a store in a bubble of its own time.
type house struct {
	store.Store
	tb   testing.TB
	data *testopen.Data
	log  *bytes.Buffer
	// logger is the only one that writes to log: loggers do not know of each other.
	logger *slog.Logger
	n      int
}

// inBubble runs a test with a store whose time is made up.
func inBubble(t *testing.T, test func(t *testing.T, h *house)) {
	t.Helper()
	testopen.Bubble(t, func(t *testing.T) {
		h := &house{tb: t, data: testopen.NewData(t), log: &bytes.Buffer{}}
		h.Store = h.data.Open(t, clock.System{})
		h.logger = slog.New(slog.NewTextHandler(h.log, nil))
		test(t, h)
	})
}

// append stores n events of a tenant, in one unit.
func (h *house) append(t j17.Tenant, n int) {
	h.tb.Helper()
	if err := h.write(h.tb.Context(), t, n); err != nil {
		h.tb.Fatal(err)
	}
}

func (h *house) write(ctx context.Context, t j17.Tenant, n int) error {
	var u store.Append
	u.Timestamp = time.Now().Unix()
	for range n {
		h.n++
		u.Events = append(u.Events, store.NewEvent{
			Key: j17.Key{Type: "order", ID: "o" + strconv.Itoa(h.n%3)}, Type: "was_counted",
			Data: []byte(strconv.Itoa(h.n)), Metadata: []byte("{}"),
		})
	}
	r, err := h.Append(ctx, t, []store.Append{u})
	if err == nil && r[0].Outcome != store.Committed {
		err = fmt.Errorf("outcome %d", r[0].Outcome)
	}
	return err
}

// all returns the data of all events of a tenant.
func (h *house) all(t j17.Tenant) (data []string) {
	h.tb.Helper()
	for e, err := range h.ReadFeed(h.tb.Context(), t, j17.StreamID{}, 1<<30) {
		if err != nil {
			h.tb.Fatal(err)
		}
		data = append(data, string(e.Data))
	}
	return data
}

// set returns a set of workers with a kind named "test".
func (h *house) set(k feed.Kind, with ...func(*feed.Options)) *feed.Subscriptions {
	o := feed.Options{
		Store: h.Store, Clock: clock.System{}, Logger: h.logger, Worker: worker.New(clock.System{}, h.logger),
	}
	for _, w := range with {
		w(&o)
	}
	s := feed.New(o)
	k.Name = "test"
	s.Handle(k)
	return s
}

// run runs a set until the returned function is called.
func (h *house) run(s *feed.Subscriptions) (stop func()) {
	ctx, cancel := context.WithCancel(h.tb.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		h.tb.Helper()
		cancel()
		if err := <-done; err != nil {
			h.tb.Error(err)
		}
	}
}

// subscribe makes a subscription of the kind "test".
func (h *house) subscribe(s *feed.Subscriptions, t j17.Tenant, name string, from feed.Start) {
	h.tb.Helper()
	if err := s.Subscribe(h.tb.Context(), t, "test", name, from); err != nil {
		h.tb.Fatal(err)
	}
}

func (h *house) status(s *feed.Subscriptions, name string) feed.Status {
	h.tb.Helper()
	status, err := s.Status(h.tb.Context(), shop, "test", name)
	if err != nil {
		h.tb.Fatal(err)
	}
	return status
}

// heard is what was handed out, by tenant and subscription.
type heard struct {
	mu  sync.Mutex
	got map[string][]string
}

func (g *heard) take(_ context.Context, b *feed.Batch) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.got == nil {
		g.got = map[string][]string{}
	}
	at := string(b.Tenant) + " " + b.Name
	for _, e := range b.Entries {
		if e.Note != nil {
			g.got[at] = append(g.got[at], "note")
			continue
		}
		g.got[at] = append(g.got[at], string(e.Event.Data))
	}
	return nil
}

func (g *heard) of(t j17.Tenant, name string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.got[string(t)+" "+name]
}

// pass lets the time of a bubble pass.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	if err := (clock.System{}).Wait(t.Context(), time.Now().Add(d)); err != nil {
		t.Error(err)
	}
	synctest.Wait()
}

// rest lets a handler take its time.
func rest(ctx context.Context, d time.Duration) {
	_ = clock.System{}.Wait(ctx, time.Now().Add(d)) // or as long as it may
}

func same[T any](t *testing.T, what string, want, got []T) {
	t.Helper()
	if reflect.DeepEqual(want, got) {
		return // to find differences takes long where there are none
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestFollowed checks that subscriptions get all events from where they began, in order, and go on where they were.
func TestFollowed(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.append(shop, 3000)
		var g heard
		s := h.set(feed.Kind{Do: g.take})
		stop := h.run(s)
		h.subscribe(s, shop, "all", feed.Beginning())
		h.subscribe(s, shop, "new", feed.End())
		pass(t, time.Second)
		h.append(shop, 10)
		h.append(other, 10)
		h.subscribe(s, other, "all", feed.Beginning())
		pass(t, time.Second)
		h.append(shop, 1)
		pass(t, time.Minute)
		stop()
		same(t, "all", h.all(shop), g.of(shop, "all"))
		same(t, "new", h.all(shop)[3000:], g.of(shop, "new"))
		same(t, "other", h.all(other), g.of(other, "all"))
		if status := h.status(s, "all"); status.Lag != 0 || status.Count != 3011 || status.Failures != 0 {
			t.Errorf("%+v", status)
		}

		// Another set goes on where this one was.
		again := h.set(feed.Kind{Do: g.take})
		h.append(shop, 5)
		stop = h.run(again)
		pass(t, time.Second)
		h.append(shop, 5)
		pass(t, time.Second)
		stop()
		same(t, "all after a restart", h.all(shop), g.of(shop, "all"))
		if h.log.Len() > 0 {
			t.Error(h.log)
		}
	})
}

// TestExactlyOnce checks that what is committed with a move of the checkpoint is done once, whatever fails around it.
func TestExactlyOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.append(shop, 400)
		const results store.Space = "test.results"
		calls := 0
		s := h.set(feed.Kind{Batch: 7, Do: func(ctx context.Context, b *feed.Batch) error {
			calls++
			n := len(b.Entries)
			if calls%3 == 0 {
				n = (n + 1) / 2
			}
			var sides []store.Side
			for _, e := range b.Entries[:n] {
				sides = append(sides, store.Side{
					Op: store.Put, Space: results, Key: fmt.Sprintf("%06s", e.Event.Data), Value: e.Event.Data,
					Cond: store.IfAbsent,
				})
			}
			if calls%5 == 1 {
				return errors.New("before the commit")
			}
			if err := h.Write(ctx, b.Tenant, append(sides, b.Done(n)...)); err != nil {
				return err
			}
			if calls%5 == 2 {
				return errors.New("after the commit")
			}
			if calls%5 == 3 {
				panic("after the commit")
			}
			return nil
		}})
		stop := h.run(s)
		h.subscribe(s, shop, "x", feed.Beginning())
		pass(t, 10*time.Minute)
		stop()
		items, err := h.Scan(t.Context(), shop, results, store.Range{}, 2000)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, it := range items {
			got = append(got, string(it.Value))
		}
		same(t, "results", h.all(shop), got)
		if status := h.status(s, "x"); status.Lag != 0 {
			t.Errorf("%+v", status)
		}
	})
}
