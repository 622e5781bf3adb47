package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/storage/store"
)

// stockSpec has orders that ask a stock for things. What becomes of a request depends on the state of the stock, which
// is not the aggregate that is written to: it is granted, or the order has to wait. Every order is also noted in a log
// that nobody looks at.
const stockSpec = `{"agent_types": ["user"], "aggregate_types": {
	"order": {"events": {
		"was_placed": {"schema": {}, "handler": [{"set": {"target": "qty", "value": "$.data.qty"}}], "implications": [
			{"emit": {"aggregate_type": "log", "id": "global", "event_type": "was_noted", "data": {"qty": "$.data.qty"}}},
			{"condition": {"exists": "$.data.stock"}, "emit":
				{"aggregate_type": "stock", "id": "$.data.stock", "event_type": "was_asked", "data": {"qty": "$.data.qty", "order": "$.key"}}}]},
		"was_put_off": {"schema": {}, "handler": [{"set": {"target": "waits", "value": true}}]}}},
	"stock": {"events": {
		"was_filled": {"schema": {}, "handler": [{"increment": {"target": "left", "by": "$.data.qty"}}]},
		"was_asked": {"schema": {}, "handler": [{"increment": {"target": "asked", "by": 1}}], "implications": [
			{"condition": {"gte": ["$.state.left", "$.data.qty"]}, "emit":
				{"aggregate_type": "stock", "id": "$.key", "event_type": "was_taken", "data": {"qty": "$.data.qty", "left": "$.state.left", "order": "$.data.order"}}},
			{"condition": {"lt": ["$.state.left", "$.data.qty"]}, "emit":
				{"aggregate_type": "order", "id": "$.data.order", "event_type": "was_put_off"}}]},
		"was_taken": {"schema": {}, "handler": [{"decrement": {"target": "left", "by": "$.data.qty"}}]}}},
	"log": {"events": {"was_noted": {"schema": {}, "handler": [{"increment": {"target": "qty", "by": "$.data.qty"}}]}}}
}}`

func orderID(n int) string { return fmt.Sprintf("0b6e9d4e-6f0a-4f3c-8c53-%012d", n) }

// TestNoDecisionIsMadeOnAnOldState lets many writers ask one stock for more than it has. What was answered and what is
// stored have to agree, and every decision has to be right in the state that its commit found.
func TestNoDecisionIsMadeOnAnOldState(t *testing.T) {
	const writers, each, filled = 8, 40, 20
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, stockSpec)
	f.Post(t, "stock/global/was_filled", fmt.Sprintf(`{"data":{"qty":%d},%s}`, filled, meta))
	accepted := make([]bool, writers*each)
	var noted atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				n := w*each + i
				// Some orders want nothing of the stock, so that nothing is read for them: they never conflict.
				body := fmt.Sprintf(`{"data":{"qty":1,"stock":"global"},%s}`, meta)
				if n%4 == 0 {
					body = `{"data":{"qty":1},` + meta + `}`
				}
				r, err := f.Execute(t.Context(), enginetest.Command(t, "order/"+orderID(n)+"/was_placed", body))
				switch {
				case err == nil && n%4 == 0 && r.Implied == 1, err == nil && n%4 != 0 && r.Implied == 3:
					accepted[n] = true
					noted.Add(1)
				default:
					t.Errorf("order %d: %+v, %v", n, r, err)
				}
			}
		})
	}
	wg.Wait()

	// The log has what was acknowledged, no more and no less.
	if n := f.Written(t, "log", "global"); n != uint64(noted.Load()) {
		t.Errorf("the log has %d orders, %d were accepted", n, noted.Load())
	}
	asked, taken := f.decisions(t, filled)
	put := 0
	for n, ok := range accepted {
		length := f.Written(t, "order", orderID(n))
		switch {
		case !ok && length != 0:
			t.Errorf("order %d was refused and has %d events", n, length)
		case ok && n%4 == 0 && length != 1, ok && n%4 != 0 && taken["order:"+orderID(n)] && length != 1,
			ok && n%4 != 0 && !taken["order:"+orderID(n)] && length != 2:
			t.Errorf("order %d has %d events, taken %t", n, length, taken["order:"+orderID(n)])
		}
		if ok && length == 2 {
			put++
		}
	}
	if asked != len(taken)+put || len(taken) > filled {
		t.Errorf("the stock was asked %d times: %d taken of %d, %d put off", asked, len(taken), filled, put)
	}
	if s := f.Stats(); s.Conflicts != 0 || s.Busy != 0 {
		t.Errorf("refused for what others write: %+v", s)
	}
	t.Logf("%d asked, %d taken, %d put off: %+v", asked, len(taken), put, f.Stats())
}

// decisions goes through the stream of the stock and checks each decision in the state at that place. It returns how
// often the stock was asked and which orders have got something.
func (f *fixture) decisions(t *testing.T, filled int) (asked int, taken map[string]bool) {
	t.Helper()
	taken = map[string]bool{}
	left, owed := 0, false
	events, err := f.Events(t.Context(), tenant, "stock", "global", j17.StreamID{}, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		data, err := value.Parse(ev.Data)
		if err != nil {
			t.Fatal(err)
		}
		switch ev.Type {
		case "was_filled":
			left += filled
		case "was_asked":
			asked++
			if owed {
				t.Errorf("%s was not answered with %d left", ev.Data, left)
			}
			owed = left > 0
		case "was_taken":
			if was, _ := data.Get("left").Int64(); int(was) != left || left < 1 {
				t.Errorf("%s was decided with %d left when there were %d", ev.Data, was, left)
			}
			if order := data.Get("order").Str(); taken[order] {
				t.Errorf("%s has taken twice", order)
			} else {
				taken[order] = true
			}
			left--
			owed = false
		}
	}
	return asked, taken
}

// rival is the real store, but before each of the first appends somebody else is faster.
type rival struct {
	store.Store
	// times is how many appends are still to be overtaken, by is what overtakes them.
	times   int
	by      func()
	appends int
}

// Append implements store.Store.
func (r *rival) Append(ctx context.Context, t j17.Tenant, units []store.Append) ([]store.Result, error) {
	r.appends++
	if r.times > 0 {
		r.times--
		r.by()
	}
	return r.Store.Append(ctx, t, units)
}

// TestAnOvertakenWriteIsPlannedAnew: streams whose state was read are preconditions, whatever aggregate they belong to.
// Those that are only appended to are none.
func TestAnOvertakenWriteIsPlannedAnew(t *testing.T) {
	const asking, plain = `{"data":{"qty":1,"stock":"global"},` + meta + `}`, `{"data":{"qty":1},` + meta + `}`
	for name, tc := range map[string]struct {
		body string
		// rivals write to path in front of the first so many tries.
		path, rival   string
		times         int
		appends, left int
	}{
		"nobody else":                    {asking, "stock/global/was_filled", `{"qty":0}`, 0, 1, 4},
		"once":                           {asking, "stock/global/was_filled", `{"qty":10}`, 1, 2, 14},
		"once, with another decision":    {asking, "stock/global/was_filled", `{"qty":-5}`, 1, 2, 0},
		"twice":                          {asking, "stock/global/was_filled", `{"qty":1}`, 2, 3, 6},
		"ten times":                      {asking, "stock/global/was_filled", `{"qty":1}`, 10, 11, 14},
		"a stream that is not read":      {asking, "log/global/was_noted", `{"qty":1}`, 2, 1, 4},
		"the order, which is not read":   {asking, "order/" + id + "/was_put_off", `{}`, 2, 1, 4},
		"a stock that is not asked":      {asking, "stock/" + user + "/was_filled", `{"qty":1}`, 2, 1, 4},
		"an order that reads nothing":    {plain, "stock/global/was_filled", `{"qty":1}`, 1, 1, 6},
		"the log, and nothing is read":   {plain, "log/global/was_noted", `{"qty":1}`, 1, 1, 5},
		"the order, and nothing is read": {plain, "order/" + id + "/was_put_off", `{}`, 1, 1, 5},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, engine.Options{})
			f.DeploySource(t, stockSpec)
			f.Post(t, "stock/global/was_filled", `{"data":{"qty":5},`+meta+`}`)
			overtaken := &rival{
				Store: f.Store, times: tc.times, by: func() { f.Post(t, tc.path, `{"data":`+tc.rival+`,`+meta+`}`) },
			}
			slow := on(engine.New(engine.Options{
				Store: overtaken, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler),
			}))
			slow.DeploySource(t, stockSpec)
			c := enginetest.Command(t, "order/"+id+"/was_placed", tc.body)
			c.IdempotencyKey = "once"
			if _, err := slow.Execute(t.Context(), c); err != nil || overtaken.appends != tc.appends {
				t.Errorf("%v after %d tries, want %d", err, overtaken.appends, tc.appends)
			}
			s, err := f.Load(t.Context(), tenant, "stock", "global", engine.LoadOptions{})
			if left, _ := s.Data.Get("left").Int64(); err != nil || int(left) != tc.left {
				t.Errorf("%s, %v: want %d left", s.JSON, err, tc.left)
			}
			if r, err := slow.Execute(t.Context(), c); err != nil || !r.Replayed {
				t.Errorf("the same request again: %+v, %v", r, err)
			}
		})
	}
}
