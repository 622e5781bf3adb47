package saga_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/follow/saga"
	"j17/internal/storage/store"
)

// statuses counts the sagas of each status.
func (h *house) statuses(t j17.Tenant) map[saga.Status]int {
	h.tb.Helper()
	all, err := h.List(h.tb.Context(), t, saga.Filter{}, 0, 1000)
	if err != nil {
		h.tb.Fatal(err)
	}
	n := map[saga.Status]int{}
	for _, g := range all {
		n[g.Status]++
	}
	return n
}

// ask triggers sagas that wait for an answer of the desk of their number.
func (h *house) ask(t j17.Tenant, from, to int) {
	h.tb.Helper()
	for n := from; n < to; n++ {
		if _, err := h.try(
			t, fmt.Sprintf("trip/%s/was_asked", id(n)), fmt.Sprintf(`{"leg":%q,"desk":%q,"n":%d}`, id(900), id(n), n),
		); err != nil {
			h.tb.Fatal(err)
		}
	}
}

// answer lets the desks of some numbers answer.
func (h *house) answer(numbers ...int) {
	h.tb.Helper()
	for _, n := range numbers {
		h.post(fmt.Sprintf("desk/%s/was_answered", id(n)), `{"n":7}`)
	}
}

// TestQueue triggers more sagas than may run. The others queue, over a restart, and start in the order of their
// triggers, each when there is room.
func TestQueue(t *testing.T) {
	h := newHouse(t, 4)
	h.ask(prod, 0, 6)
	h.settle()
	if diff := cmp.Diff(map[saga.Status]int{saga.Running: 4, saga.Queued: 2}, h.statuses(prod)); diff != "" {
		t.Error(diff)
	}
	g := h.sagas()[5]
	if diff := cmp.Diff([]string{"queued"}, timeline(g)); diff != "" || g.StartedAt != 0 || g.CurrentStep() != "first" {
		t.Errorf("%s started at %d", diff, g.StartedAt)
	}
	h.clock.Advance(time.Second)
	h.work(h.disk)
	h.ask(prod, 6, 9)
	h.settle()
	if n := h.statuses(prod)[saga.Running]; n != 4 {
		t.Errorf("%d run", n)
	}
	for done := 1; done <= 5; done++ {
		h.answer(done - 1)
		h.settle()
		if n := h.statuses(prod); n[saga.Running] != 4 || n[saga.Completed] != done {
			t.Errorf("after %d answers there are %v", done, n)
		}
	}
	if left := strings.Join(h.left(), " "); strings.Contains(left, "saga.queued") ||
		strings.Contains(left, "saga.admission") || strings.Contains(left, "saga.arrivals") {
		t.Errorf("what is left: %s", left)
	}
	g = h.sagas()[8]
	if diff := cmp.Diff([]string{"queued", "started", "emitted first", "emitted ask"}, timeline(g)); diff != "" ||
		g.StartedAt != h.clock.Now().Unix() || g.Timeline[1].StreamID != g.Trigger.StreamID {
		t.Error(diff, g)
	}
	h.answer(5, 6, 7, 8)
	h.settle()
	if left := h.left(); left != nil || h.statuses(prod)[saga.Completed] != 9 {
		t.Errorf("what is left: %v", left)
	}
	if s := h.Stats(); s.Queued != 5 || s.Started != 5 {
		t.Errorf("the counters of the second process are %+v", s)
	}
}

// TestQueueIsInTheOrderOfTriggers lets many trigger at once, and makes room for all of them in one go: the first events
// stand in the order of the triggers.
func TestQueueIsInTheOrderOfTriggers(t *testing.T) {
	h := newHouse(t, 40)
	filler := make([]string, 40)
	for i := range filler {
		filler[i] = `{"leg":"` + id(901) + `","desk":"` + id(0) + `"}`
	}
	h.post("trip/"+id(0)+"/was_asked", filler...)
	var all sync.WaitGroup
	for n := 1; n <= 30; n++ {
		all.Go(func() { h.ask(prod, n, n+1) })
	}
	all.Wait()
	h.settle()
	h.answer(0)
	h.settle()
	var triggers, starts []string
	for ev, err := range h.store.ReadFeed(t.Context(), prod, j17.StreamID{}, 1000) {
		if err != nil {
			t.Fatal(err)
		}
		meta := string(ev.Metadata)
		_, of, _ := strings.Cut(meta, `"correlation_id":"c-`)
		switch {
		case ev.Type == "was_asked" && ev.Key.Type == "trip" && ev.Key.ID != id(0):
			triggers = append(triggers, ev.Key.ID)
		case ev.Key == j17.Key{Type: "leg", ID: id(900)}:
			starts = append(starts, of[:len(id(0))])
		}
	}
	if diff := cmp.Diff(triggers, starts); diff != "" || len(starts) != 30 {
		t.Error(diff)
	}
}

// TestLimitOfAnInstance counts the sagas of all environments of an instance together; an environment whose queue waits
// for another hears of it when there is room.
func TestLimitOfAnInstance(t *testing.T) {
	h := newHouse(t, 4)
	h.ask(prod, 0, 3)
	h.ask(staging, 0, 3)
	h.settle()
	if p, s := h.statuses(prod),
		h.statuses(staging); p[saga.Running] != 3 || s[saga.Running] != 1 || s[saga.Queued] != 2 {
		t.Fatalf("in prod %v, in staging %v", p, s)
	}
	h.answer(0, 1)
	h.settle()
	if s := h.statuses(staging); s[saga.Running] != 3 {
		t.Errorf("in staging %v", s)
	}

	// What is not told is found after a while.
	h.ask(staging, 3, 5)
	h.settle()
	o := newHouse(t, 1)
	o.ask(prod, 0, 1)
	o.ask(staging, 0, 1)
	o.settle()
	if err := o.disk.Write(t.Context(), prod, []store.Side{
		{Op: store.Delete, Space: "saga.counts", Key: "running"},
	}); err != nil {
		t.Fatal(err)
	}
	o.clock.Advance(10 * time.Minute)
	o.settle()
	if s := o.statuses(staging); s[saga.Queued] != 0 {
		t.Errorf("in staging %v", s)
	}
}

// TestRetryQueues retries a saga while there is no room.
func TestRetryQueues(t *testing.T) {
	h := newHouse(t, 1)
	h.post("trip/"+id(1)+"/was_requested", `{"leg":"`+id(2)+`","n":"three"}`)
	h.settle()
	failed := h.one()
	h.ask(prod, 5, 7)
	h.settle()
	g, err := h.Retry(t.Context(), prod, failed.ID)
	if err != nil || g.Status != saga.Queued {
		t.Fatalf("%+v, %v", g, err)
	}
	h.settle()
	h.deploy(strings.Replace(shop, `"type": "integer"`, `"type": "string"`, 1))
	h.answer(5) // its trigger is older than that of the other one
	h.settle()
	if n := h.statuses(prod); n[saga.Completed] != 2 || n[saga.Running] != 1 {
		t.Errorf("%v", n)
	}
	h.answer(6)
	h.settle()
	if left := h.left(); left != nil {
		t.Errorf("what is left: %v", left)
	}
}

// TestManyTriggersInBatches queues thousands of sagas, as many in one commit as one may start.
func TestManyTriggersInBatches(t *testing.T) {
	h := newHouse(t, 2)
	batch := slices.Repeat([]string{`{"leg":"` + id(1) + `","desk":"` + id(1) + `"}`}, saga.DefaultPerWrite)
	for range 3000 / len(batch) {
		h.post("trip/"+id(1)+"/was_asked", batch...)
	}
	h.settle()
	page, err := h.List(t.Context(), prod, saga.Filter{Status: saga.Queued}, 2990, 100)
	if err != nil || len(page) != 8 {
		t.Errorf("%d of the page, %v", len(page), err)
	}
	if page, _ := h.List(t.Context(), prod, saga.Filter{Status: saga.Running}, 0, 100); len(page) != 2 {
		t.Errorf("%d run", len(page))
	}
}

// scans counts how many items are read of a store.
type scans struct {
	store.Store
	items atomic.Int64
}

// Scan is part of store.Store.
func (s *scans) Scan(
	ctx context.Context, t j17.Tenant, space store.Space, keys store.Range, limit int,
) ([]store.Item, error) {
	items, err := s.Store.Scan(ctx, t, space, keys, limit)
	s.items.Add(int64(len(items)))
	return items, err
}

// Get is part of store.Store.
func (s *scans) Get(ctx context.Context, t j17.Tenant, space store.Space, key string) (store.Item, error) {
	s.items.Add(1)
	return s.Store.Get(ctx, t, space, key)
}

// TestLists selects sagas by status and type, page by page, and counts what that reads.
func TestLists(t *testing.T) {
	h := newHouse(t, 1000)
	for n := range 20 {
		h.clock.Advance(time.Second)
		if n%2 == 0 {
			h.ask(prod, n, n+1)
		} else {
			h.post(
				fmt.Sprintf("trip/%s/was_requested", id(n)),
				fmt.Sprintf(`{"leg":%q,"n":%d%s}`, id(n), n, strings.Repeat(".5", n%3%2)),
			)
		}
		h.settle()
	}
	keys := func(f saga.Filter, offset, limit int) (list []string) {
		t.Helper()
		page, err := h.List(t.Context(), prod, f, offset, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range page {
			if f.Status != "" && g.Status != f.Status || f.Type != "" && g.Type != f.Type {
				t.Errorf("%+v lists %s %s", f, g.Type, g.Status)
			}
			list = append(list, strings.TrimLeft(g.Trigger.Key[len("trip:")+24:], "0"))
		}
		return list
	}
	if diff := cmp.Diff([]string{"19", "18", "17"}, keys(saga.Filter{}, 0, 3)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"1", ""}, keys(saga.Filter{}, 18, 10)); diff != "" {
		t.Error(diff)
	}
	for f, want := range map[saga.Filter]int{
		{}: 20, {Status: saga.Running}: 10, {Type: "trip"}: 10, {Type: "desk"}: 10,
		{Type: "desk", Status: saga.Completed}: 0, {Type: "none"}: 0,
		{Status: saga.Queued}: 0,
	} {
		if got := len(keys(f, 0, 1000)); got != want {
			t.Errorf("%+v lists %d sagas, want %d", f, got, want)
		}
	}
	if c, f := len(keys(saga.Filter{Status: saga.Completed}, 0, 1000)),
		len(keys(saga.Filter{Status: saga.Failed}, 0, 1000)); c == 0 || f == 0 || c+f != 10 {
		t.Errorf("%d have completed, %d have failed", c, f)
	}

	// A page reads a page of each list, however many sagas there are.
	counted := &scans{Store: h.disk}
	o := h.another(counted)
	if _, err := o.List(t.Context(), prod, saga.Filter{}, 0, 2); err != nil || counted.items.Load() > 2*5+2 {
		t.Errorf("a page of 2 reads %d items, %v", counted.items.Load(), err)
	}
	if _, err := h.Get(t.Context(), prod, "sag_zzzzzzzzzzzzzzz"); j17.CodeOf(err) != j17.CodeNotFound {
		t.Errorf("a saga that is not there: %v", err)
	}
	if _, err := h.Get(t.Context(), staging, h.sagas()[0].ID); j17.CodeOf(err) != j17.CodeNotFound {
		t.Errorf("a saga of another environment: %v", err)
	}
}

// TestCompletedOnesGo waits for thirty days: completed sagas are gone, others are there.
func TestCompletedOnesGo(t *testing.T) {
	h := newHouse(t, 0)
	h.post("trip/"+id(1)+"/was_requested", `{"leg":"`+id(2)+`","n":1}`, `{"leg":"`+id(2)+`","n":"x"}`)
	h.settle()
	h.pass(30*24*time.Hour - time.Second)
	if n := h.statuses(prod); n[saga.Completed] != 1 || n[saga.Failed] != 1 {
		t.Errorf("%v", n)
	}
	h.pass(time.Second)
	if n := h.statuses(prod); n[saga.Completed] != 0 || n[saga.Failed] != 1 {
		t.Errorf("%v", n)
	}
}

// TestWritesOfOthersCostNothing counts what a write reads for sagas that has nothing to do with them.
func TestWritesOfOthersCostNothing(t *testing.T) {
	h := newHouse(t, 1000)
	h.ask(prod, 0, 50)
	h.settle()
	counted := &scans{Store: h.disk}
	o := h.another(counted)
	o.post("leg/"+id(1)+"/was_booked", slices.Repeat([]string{`{}`}, 100)...)
	if n := counted.items.Load(); n > 1 {
		t.Errorf("a hundred events that nobody awaits read %d items", n)
	}
	counted.items.Store(0)
	o.post("desk/"+id(99)+"/was_answered", slices.Repeat([]string{`{}`}, 100)...)
	if n := counted.items.Load(); n > 2 {
		t.Errorf("a hundred answers that nobody awaits read %d items", n)
	}
	counted.items.Store(0)
	for range 20 {
		o.post("leg/"+id(1)+"/was_booked", `{}`)
	}
	if n := counted.items.Load(); n > 0 {
		t.Errorf("twenty writes of what nobody awaits read %d items", n)
	}
}
