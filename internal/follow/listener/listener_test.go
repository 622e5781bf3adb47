package listener_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/follow/feed"
	"j17/internal/follow/listener"
	"j17/internal/follow/outbound"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

const shop j17.Tenant = "shop/prod"

// house is a store in a bubble of its own time, a spec, and an endpoint that answers as it is told.
type house struct {
	store.Store
	tb    testing.TB
	data  *testopen.Data
	clock *clock.Movable
	spec  *spec.Compiled

	mu       sync.Mutex
	got      []message
	answers  map[string]func(message) (int, time.Duration)
	disabled []string
}

// message is what the endpoint was sent.
type message struct {
	outbound.Message
	Path string
	Key  string
	N    int
	At   time.Time
}

// inBubble runs a test with a store whose time is made up, and listeners of that many aggregate types and patterns.
func inBubble(t *testing.T, listeners string, test func(t *testing.T, h *house)) {
	t.Helper()
	testopen.Bubble(t, func(t *testing.T) {
		h := &house{
			tb: t, data: testopen.NewData(t), clock: clock.NewMovable(clock.System{}),
			answers: map[string]func(message) (int, time.Duration){},
		}
		h.spec = compiled(t, listeners)
		h.Store = h.data.Open(t, h.clock)
		test(t, h)
	})
}

func compiled(tb testing.TB, listeners string) *spec.Compiled {
	tb.Helper()
	c, found := spec.Compile([]byte(`{"agent_types": ["user"], "aggregate_types": {
		"order": {"events": {"was_placed": {"schema": {"type": "object"}, "handler": []}, "was_paid": {"schema": {"type": "object"}, "handler": []}}},
		"note": {"events": {"was_written": {"schema": {"type": "object"}, "handler": []}}}}, "listeners": ` + listeners + `}`))
	if c == nil {
		tb.Fatal(found)
	}
	return c
}

// crash goes on with what was on disk.
func (h *house) crash() {
	h.tb.Helper()
	h.data = h.data.Crashed(h.tb)
	h.Store = h.data.Open(h.tb, h.clock)
}

// service is a set of workers with its own view of the store.
type service struct {
	*listener.Service
	feed *feed.Subscriptions
	stop func()
}

// serve runs a set of workers until stop is called.
func (h *house) serve() *service {
	h.tb.Helper()
	return h.serveOn(h.Store)
}

// serveOn is serve for a set with a way of its own to the store.
func (h *house) serveOn(st store.Store) *service {
	h.tb.Helper()
	log := slog.New(slog.NewTextHandler(&bytes.Buffer{}, nil))
	kit := worker.New(h.clock, log)
	ctx, cancel := context.WithCancel(h.tb.Context())
	subscriptions := feed.New(feed.Options{Store: st, Clock: h.clock, Logger: log, Worker: kit})
	s := listener.New(ctx, listener.Options{
		Store: st, Feed: subscriptions, Worker: kit, Clock: h.clock, Logger: log, Send: h.send,
		Spec: func(j17.Tenant) *spec.Compiled {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.spec
		},
		Name: func(j17.Tenant) (string, j17.Environment) { return "shop", j17.Prod },
		Disabled: func(_ context.Context, _ j17.Tenant, name, _ string) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.disabled = append(h.disabled, name)
			return nil
		},
	})
	h.mu.Lock()
	there := h.spec != nil
	h.mu.Unlock()
	if there {
		_ = s.Adopted(ctx, shop) // a deployment goes on where it fails
	}
	ended := make(chan error, 2)
	go func() { ended <- subscriptions.Run(ctx) }()
	go func() { ended <- s.Run(ctx) }()
	return &service{s, subscriptions, func() {
		h.tb.Helper()
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			h.tb.Error(err)
		}
	}}
}

// send is the endpoint.
func (h *house) send(ctx context.Context, m outbound.Message) (outbound.Answer, error) {
	var body struct {
		Event struct {
			Key  string
			Data struct{ N int }
		}
	}
	if err := json.Unmarshal(m.Body, &body); err != nil {
		h.tb.Error(err)
	}
	_, path, _ := strings.Cut(strings.TrimPrefix(m.URL, "https://"), "/")
	in := message{Message: m, Path: path, Key: body.Event.Key, N: body.Event.Data.N, At: time.Now()}
	h.mu.Lock()
	h.got = append(h.got, in)
	answer := h.answers[path]
	h.mu.Unlock()
	if answer == nil {
		return outbound.Answer{Status: 200, Body: []byte("thank you")}, nil
	}
	status, takes := answer(in)
	if err := (clock.System{}).Wait(ctx, time.Now().Add(min(takes, 10*time.Second))); err != nil {
		return outbound.Answer{}, err
	}
	switch {
	case takes > 10*time.Second || status == 0:
		return outbound.Answer{}, errors.New("there was no answer")
	case status/100 != 2:
		return outbound.Answer{Status: status, Body: []byte("not today")},
			fmt.Errorf("the answer has the status %d", status)
	}
	return outbound.Answer{Status: status}, nil
}

// answer says how a path answers.
func (h *house) answer(path string, with func(message) (int, time.Duration)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers[path] = with
}

func always(status int) func(message) (int, time.Duration) {
	return func(message) (int, time.Duration) { return status, 0 }
}

// deploy changes the spec as a deployment does.
func (h *house) deploy(s *service, listeners string) {
	h.tb.Helper()
	after := compiled(h.tb, listeners)
	if err := s.Prepare(h.tb.Context(), shop, h.spec, after); err != nil {
		h.tb.Fatal(err)
	}
	h.mu.Lock()
	h.spec = after
	h.mu.Unlock()
	_ = s.Adopted(h.tb.Context(), shop) // as above
}

// write stores an event.
func (h *house) write(key, typ string, n int) j17.StreamID {
	h.tb.Helper()
	k, _ := j17.ParseKey(key)
	u := store.Append{Timestamp: time.Now().Unix(), Events: []store.NewEvent{{
		Key: k, Type: typ, Data: fmt.Appendf(nil, `{"n":%d}`, n), Metadata: []byte(`{"actor":{"type":"user","id":"u1"},"correlation_id":"c1"}`),
	}}}
	r, err := h.Append(h.tb.Context(), shop, []store.Append{u})
	if err != nil || r[0].Outcome != store.Committed {
		h.tb.Fatal(r, err)
	}
	return r[0].IDs[0]
}

// numbers returns the numbers of the events of an aggregate that a path was sent, in their order.
func (h *house) numbers(path, key string) (all []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.got {
		if m.Path == path && (key == "" || m.Key == key) {
			all = append(all, m.N)
		}
	}
	return all
}

// messages returns what a path was sent.
func (h *house) messages(path string) (all []message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.got {
		if m.Path == path {
			all = append(all, m)
		}
	}
	return all
}

// rest waits until nothing happens any longer, but for what is due later.
func (h *house) rest() { h.pass(50 * time.Millisecond) }

// pass lets time go by.
func (h *house) pass(d time.Duration) {
	_ = clock.System{}.Wait(h.tb.Context(), time.Now().Add(d))
	synctest.Wait()
}

// jump moves the clock of the server, which is quicker than to let days go by.
func (h *house) jump(d time.Duration) {
	h.clock.Advance(d)
	h.pass(time.Second)
}

// deliveries lists what a filter selects.
func (h *house) deliveries(s *service, f listener.Filter) []listener.Delivery {
	h.tb.Helper()
	all, err := s.Deliveries(h.tb.Context(), shop, f, 0, 1000)
	if err != nil {
		h.tb.Fatal(err)
	}
	return all
}

// one returns the only delivery that a filter selects.
func (h *house) one(s *service, f listener.Filter) listener.Delivery {
	h.tb.Helper()
	all := h.deliveries(s, f)
	if len(all) != 1 {
		h.tb.Fatalf("there are %d deliveries, not one: %+v", len(all), all)
	}
	return all[0]
}

func (h *house) lag(s *service, name string) int {
	h.tb.Helper()
	l, err := s.Get(h.tb.Context(), shop, name)
	if err != nil {
		h.tb.Fatal(err)
	}
	return l.Lag
}

func same(tb testing.TB, got, want any) {
	tb.Helper()
	if d := cmp.Diff(want, got); d != "" {
		tb.Errorf("(-want +got)\n%s", d)
	}
}

const hook = `{"hook": {"url": "https://example.com/hook", "events": ["order.*"]}}`

func TestDeliversInOrder(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		h.write("order:a", "was_placed", 0) // before the listener was there
		s := h.serve()
		defer s.stop()
		var want []int
		for n := 1; n <= 200; n++ {
			h.write("order:a", "was_placed", n)
			h.write(fmt.Sprint("order:b", n%7), "was_paid", n)
			h.write("note:x", "was_written", n)
			want = append(want, n)
		}
		h.pass(time.Second)
		same(t, h.numbers("hook", "order:a"), want)
		for k := range 7 {
			if got := h.numbers("hook", fmt.Sprint("order:b", k)); !slices.IsSorted(got) {
				t.Errorf("the events of an aggregate came in the order %v", got)
			}
		}
		same(t, len(h.messages("hook")), 400)
		same(t, h.lag(s, "hook"), 0)
		same(t, s.Counts().Delivered, uint64(400))
	})
}

func TestRetriesThenGivesUp(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		h.answer("hook", always(500))
		h.write("order:a", "was_placed", 1)
		h.write("order:a", "was_placed", 2)
		h.write("order:b", "was_placed", 3)
		h.rest()
		same(t, h.numbers("hook", "order:a"), []int{1})
		same(t, h.lag(s, "hook"), 3)
		began := h.messages("hook")[0].At
		d := h.deliveries(s, listener.Filter{Key: "order:a"})[0]
		same(t, []any{d.Status, d.Attempts, d.LastStatus, d.Next.Sub(began)}, []any{
			listener.Pending, 1, 500, 5 * time.Second,
		})

		// Each pause begins with the failure before, and the next event of the aggregate waits for the end.
		h.pass(200 * time.Second)
		var at []time.Duration
		var ids []string
		for _, m := range h.messages("hook") {
			if m.Key == "order:a" && m.N == 1 {
				at = append(at, m.At.Sub(began))
				ids = append(ids, m.ID)
			}
		}
		same(t, at, []time.Duration{0, 5 * time.Second, 30 * time.Second, 155 * time.Second})
		same(t, len(slices.Compact(ids)), 1)
		same(t, h.numbers("hook", "order:a")[:5], []int{1, 1, 1, 1, 2})
		same(t, h.deliveries(s, listener.Filter{Status: listener.Failed, Key: "order:a"})[0].Attempts, 4)

		// One that has failed is sent again under its id when somebody asks for it.
		h.answer("hook", always(204))
		h.pass(200 * time.Second)
		failed := h.deliveries(s, listener.Filter{Status: listener.Failed})
		same(t, len(failed), 2)
		if _, err := s.Retry(t.Context(), shop, d.ID); err != nil {
			t.Fatal(err)
		}
		h.rest()
		last := h.messages("hook")
		same(t, []any{last[len(last)-1].ID, last[len(last)-1].N}, []any{d.ID, 1})
		_, log, err := s.Delivery(t.Context(), shop, d.ID)
		if err != nil || len(log) != 5 || log[0].Response != "not today" || log[0].Error == "" ||
			log[4].Status != 204 || !strings.Contains(log[0].Request, `"n":1`) {
			t.Errorf("%v %+v", err, log)
		}
		same(t, h.lag(s, "hook"), 0)
	})
}

// TestEndpointIsDownForAnHour lets an endpoint come back: nothing is lost, and one replay delivers what has failed.
func TestEndpointIsDownForAnHour(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		h.answer("hook", always(0))
		const events, aggregates = 300, 20
		for n := range events {
			h.write(fmt.Sprint("order:", n%aggregates), "was_placed", n)
		}
		h.pass(time.Hour)
		pending := h.deliveries(s, listener.Filter{Status: listener.Pending})
		if len(pending) > aggregates {
			t.Errorf("there are %d deliveries for %d aggregates that wait", len(pending), aggregates)
		}
		h.answer("hook", always(200))
		h.pass(10 * time.Minute)
		failed := len(h.deliveries(s, listener.Filter{Status: listener.Failed}))
		n, err := s.Replay(t.Context(), shop, "hook", listener.Replay{OnlyFailed: true})
		if err != nil || n != failed || n == 0 {
			t.Fatalf("%d of %d events are replayed: %v", n, failed, err)
		}
		h.pass(time.Minute)
		told := map[int]bool{}
		for _, d := range h.deliveries(s, listener.Filter{Status: listener.Delivered}) {
			_, log, err := s.Delivery(t.Context(), shop, d.ID)
			if err != nil {
				t.Fatal(err)
			}
			var body struct {
				Event struct{ Data struct{ N int } }
			}
			if err := json.Unmarshal([]byte(log[0].Request), &body); err != nil {
				t.Fatal(err)
			}
			told[body.Event.Data.N] = true
		}
		same(t, len(told), events)
		n, err = s.CountReplay(t.Context(), shop, "hook", listener.Replay{OnlyFailed: true})
		if err != nil || n != 0 {
			t.Errorf("%d events count as failed after they were delivered: %v", n, err)
		}
		same(t, h.lag(s, "hook"), 0)
	})
}

func TestASlowEndpointDelaysOnlyItself(t *testing.T) {
	inBubble(t, `{"slow": {"url": "https://example.com/slow", "events": ["order.*"]}, "fast": {"url": "https://example.com/fast", "events": ["order.*"]}}`, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		h.answer("slow", func(message) (int, time.Duration) { return 200, 8 * time.Second })
		began := time.Now()
		const events = 500
		for n := range events {
			h.write(fmt.Sprint("order:", n), "was_placed", n)
		}
		h.pass(time.Second)
		same(t, len(h.messages("fast")), events)
		if n := len(h.messages("slow")); n > 16 {
			t.Errorf("%d tries of a slow listener are under way", n)
		}
		if n := len(h.deliveries(s, listener.Filter{Listener: "slow"})); n > 48 {
			t.Errorf("%d events that wait have a delivery", n)
		}
		same(t, h.lag(s, "slow"), events)
		h.pass(10 * time.Minute)
		same(t, len(h.messages("slow")), events)
		for _, m := range h.messages("fast") {
			if m.At.Sub(began) > time.Second {
				t.Fatalf("the fast one was told after %s", m.At.Sub(began))
			}
		}
	})
}

// TestPoison lets an endpoint refuse some events for good: those of other aggregates do not wait.
func TestPoison(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		h.answer("hook", func(m message) (int, time.Duration) {
			if m.N%10 == 0 {
				return 422, 0
			}
			return 200, 0
		})
		for n := range 100 {
			h.write(fmt.Sprint("order:", n), "was_placed", n)
			h.write(fmt.Sprint("order:", n), "was_paid", 10*n+1)
		}
		h.pass(time.Second)
		same(t, len(h.deliveries(s, listener.Filter{Status: listener.Delivered})), 180)
		h.pass(5 * time.Minute)
		same(t, len(h.deliveries(s, listener.Filter{Status: listener.Delivered})), 190)
		same(t, len(h.deliveries(s, listener.Filter{Status: listener.Failed})), 10)
	})
}

func TestPauseAndResume(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		h.answer("hook", always(500))
		h.write("order:a", "was_placed", 1)
		h.rest()
		if err := s.Pause(t.Context(), shop, "hook"); err != nil {
			t.Fatal(err)
		}
		h.write("order:a", "was_placed", 2)
		h.write("order:b", "was_placed", 3)
		h.pass(time.Hour)
		same(t, h.numbers("hook", ""), []int{1})
		if _, err := s.Retry(t.Context(), shop, h.one(s, listener.Filter{}).ID); j17.CodeOf(err) != j17.CodeConflict {
			t.Errorf("a retry while the listener is paused is %v", err)
		}
		s.stop()
		h.crash()
		s = h.serve()
		defer s.stop()
		h.pass(time.Hour)
		same(t, []any{len(h.messages("hook")), h.lag(s, "hook")}, []any{1, 3})
		h.answer("hook", always(200))
		if err := s.Resume(t.Context(), shop, "hook"); err != nil {
			t.Fatal(err)
		}
		h.pass(time.Minute)
		same(t, h.numbers("hook", "order:a"), []int{1, 1, 2})
		same(t, h.numbers("hook", "order:b"), []int{3})
	})
}

func TestGoneDisables(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		h.answer("hook", always(410))
		h.write("order:a", "was_placed", 1)
		h.rest()
		h.write("order:a", "was_placed", 2)
		h.pass(time.Hour)
		l, err := s.Get(t.Context(), shop, "hook")
		if err != nil || l.Status != listener.Disabled || l.Lag != 1 {
			t.Errorf("%+v %v", l, err)
		}
		d := h.one(s, listener.Filter{})
		same(t, []any{d.Status, d.Attempts, d.LastStatus}, []any{listener.Failed, 1, 410})
		same(t, h.disabled, []string{"hook"})
		h.answer("hook", always(200))
		if err := s.Resume(t.Context(), shop, "hook"); err != nil {
			t.Fatal(err)
		}
		h.rest()
		same(t, h.numbers("hook", ""), []int{1, 2})
	})
}

func TestSecretsAreRotated(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		before, err := s.Get(t.Context(), shop, "hook")
		if err != nil {
			t.Fatal(err)
		}
		h.write("order:a", "was_placed", 1)
		h.rest()
		if err := s.Rotate(t.Context(), shop, "hook"); err != nil {
			t.Fatal(err)
		}
		after, _ := s.Get(t.Context(), shop, "hook")
		if after.Secret == before.Secret || after.Previous != before.Secret {
			t.Errorf("%+v", after)
		}
		h.write("order:a", "was_placed", 2)
		h.rest()
		h.jump(25 * time.Hour)
		h.write("order:a", "was_placed", 3)
		h.rest()
		var keys []int
		for _, m := range h.messages("hook") {
			keys = append(keys, len(m.Keys))
		}
		same(t, keys, []int{1, 2, 1})
		h.deploy(s, `{"hook": {"url": "https://example.com/elsewhere", "events": ["*"]}}`)
		last, _ := s.Get(t.Context(), shop, "hook")
		same(t, []string{last.Secret, last.Previous}, []string{after.Secret, ""})
	})
}

// TestSecretsAreNotInTheOpen looks at what a backup in clear has of a listener, and restores that: the listener has
// another secret then, for good, and is what it was otherwise.
func TestSecretsAreNotInTheOpen(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		if err := errors.Join(s.Rotate(t.Context(), shop, "hook"), s.Pause(t.Context(), shop, "hook")); err != nil {
			t.Fatal(err)
		}
		before, err := s.Get(t.Context(), shop, "hook")
		if err != nil {
			t.Fatal(err)
		}
		item, err := h.Get(t.Context(), shop, "listener.states", "hook")
		if err != nil {
			t.Fatal(err)
		}
		open := part.ByName(s.Part().Spaces)["listener.states"].Open
		seen := open(item.Value)
		if strings.Contains(string(seen), "whsec_") || !strings.Contains(string(item.Value), "whsec_") {
			t.Errorf("seen is %s", seen)
		}
		if open([]byte("{")) != nil {
			t.Error("what cannot be read is shown")
		}

		// What was restored.
		if err := h.Write(t.Context(), shop, []store.Side{
			{Op: store.Put, Space: "listener.states", Key: "hook", Value: seen},
		}); err != nil {
			t.Fatal(err)
		}
		after, err := s.Get(t.Context(), shop, "hook")
		if err != nil || after.Secret == before.Secret || !strings.HasPrefix(after.Secret, "whsec_") ||
			after.Previous != "" || after.Status != before.Status {
			t.Errorf("it is %+v, %v, and was %+v", after, err, before)
		}
		if again, err := s.Get(t.Context(), shop, "hook"); err != nil || again.Secret != after.Secret {
			t.Errorf("and then %+v, %v", again, err)
		}
	})
}

func TestCleanUp(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		h.answer("hook", func(m message) (int, time.Duration) { return map[int]int{1: 200, 2: 500}[m.N], 0 })
		h.write("order:a", "was_placed", 1)
		h.write("order:b", "was_placed", 2)
		const day = 24 * time.Hour
		for range 6 {
			h.jump(time.Minute)
		}
		h.jump(6 * day)
		same(t, len(h.deliveries(s, listener.Filter{})), 2)
		h.jump(2 * day)
		same(t, h.one(s, listener.Filter{}).Status, listener.Failed)
		h.jump(21 * day)
		same(t, len(h.deliveries(s, listener.Filter{})), 1)
		h.jump(2 * day)
		same(t, len(h.deliveries(s, listener.Filter{})), 0)
		same(t, len(h.deliveries(s, listener.Filter{Key: "order:b"})), 0)
	})
}

// TestRestart ends the process at many moments under load: every event is told at least once, each time under one id.
func TestRestart(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		h.answer("hook", func(m message) (int, time.Duration) { return 200, time.Duration(m.N%5) * time.Second })
		n := 0
		for round := range 8 {
			s := h.serve()
			for range 40 {
				h.write(fmt.Sprint("order:", n%9), "was_placed", n)
				n++
			}
			h.pass(time.Duration(round) * time.Second)
			s.stop()
			h.crash()
		}
		s := h.serve()
		defer s.stop()
		h.pass(time.Hour)
		ids := map[int]map[string]bool{}
		first := map[string][]int{}
		for _, m := range h.messages("hook") {
			if ids[m.N] == nil {
				ids[m.N] = map[string]bool{}
				first[m.Key] = append(first[m.Key], m.N)
			}
			ids[m.N][m.ID] = true
		}
		same(t, len(ids), n)
		for i, under := range ids {
			if len(under) != 1 {
				t.Errorf("event %d was told under %d ids", i, len(under))
			}
		}
		for key, order := range first {
			if !slices.IsSorted(order) {
				t.Errorf("%s was told in the order %v", key, order)
			}
		}
		same(t, h.lag(s, "hook"), 0)
	})
}

// TestTwoSets lets two sets of workers share a store: nothing is lost, and what both hold commits once.
func TestTwoSets(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		h.answer("hook", func(m message) (int, time.Duration) {
			if m.N%4 == 0 {
				return 500, time.Second
			}
			return 200, time.Duration(m.N%3) * time.Second
		})
		a, b := h.serve(), h.serve()
		defer b.stop()
		const events = 200
		for n := range events {
			h.write(fmt.Sprint("order:", n%17), "was_placed", n)
			if n == events/2 {
				a.stop()
			}
		}
		h.pass(3 * time.Hour)
		delivered, failed := h.deliveries(b, listener.Filter{
			Status: listener.Delivered,
		}), h.deliveries(b, listener.Filter{Status: listener.Failed})
		same(t, []int{len(delivered), len(failed)}, []int{events * 3 / 4, events / 4})
		same(t, h.lag(b, "hook"), 0)
	})
}

func TestConditionsAndFormats(t *testing.T) {
	inBubble(t, `{"picky": {"url": "https://example.com/picky", "events": ["order.was_placed", "order.*"], "condition": {"gte": ["$.data.n", 3]}, "headers": {"X-Key": "top-secret-value"}},
		"ce": {"url": "https://example.com/ce", "events": ["*"], "format": "cloudevents"}}`, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		for n := range 5 {
			h.write("order:a", "was_placed", n)
		}
		h.rest()
		same(t, h.numbers("picky", ""), []int{3, 4})
		m := h.messages("picky")[0]
		same(t, []string{m.Headers["X-Key"], m.Headers["X-Correlation-ID"]}, []string{"top-secret-value", "c1"})
		ce := h.messages("ce")[0]
		var got map[string]any
		if err := json.Unmarshal(ce.Body, &got); err != nil {
			t.Fatal(err)
		}
		delete(got, "id")
		delete(got, "time")
		same(t, ce.ContentType, "application/cloudevents+json")
		same(t, got, map[string]any{
			"specversion": "1.0", "source": "/shop/prod", "type": "order.was_placed", "subject": "order:a",
			"datacontenttype": "application/json",
			"data":            map[string]any{"n": 0.0}, "actor": "user:u1", "correlationid": "c1",
		})
	})
}

func TestTriggerStoresNothing(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		d, try, err := s.Trigger(t.Context(), shop, "hook")
		if err != nil || d.Status != listener.Delivered || try.Status != 200 ||
			!strings.Contains(try.Request, `"listener":"hook"`) {
			t.Fatalf("%+v %+v %v", d, try, err)
		}
		same(t, len(h.messages("hook")), 1)
		same(t, len(h.deliveries(s, listener.Filter{})), 0)
		_, _, err = s.Trigger(t.Context(), shop, "ghost")
		same(t, j17.CodeOf(err), j17.CodeNotFound)
	})
}
