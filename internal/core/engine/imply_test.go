package engine_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
)

// implySpec has an event that implies others in each of the declarative ways, and a chain that is six links long.
const implySpec = `{"agent_types": ["user"], "aggregate_types": {
	"order": {"events": {
		"was_placed": {"schema": {}, "handler": [{"increment":{"target":"n","by":1}}], "implications": [
			{"map": {"in": "$.data.items", "as": "$item", "condition": {"gt": ["$item.qty", 0]}, "emit":
				{"aggregate_type": "stock", "id": "$item.id", "event_type": "was_reserved", "data": {"qty": "$item.qty", "order": "$.key"}}}},
			{"emit": {"aggregate_type": "audit", "id": "global", "event_type": "was_noted", "data": {"before": "$.state.n"}}}]},
		"was_spread": {"schema": {}, "handler": [], "implications": [
			{"map": {"in": "$.data.ids", "as": "$i", "emit": {"aggregate_type": "tally", "id": "$i", "event_type": "was_counted"}}}]}}},
	"stock": {"events": {"was_reserved": {"schema": {"type":"object","properties":{"qty":{"type":"integer"}}}, "handler": [{"increment":{"target":"reserved","by":"$.data.qty"}}]}}},
	"audit": {"events": {"was_noted": {"schema": {}, "handler": [{"append":{"target":"log","value":"$.data.before"}}]}}},
	"tally": {"events": {"was_counted": {"schema": {}, "handler": [{"increment":{"target":"n","by":1}}]}}},
	%s
	"c6": {"events": {"e": {"schema": {}, "handler": []}}}
}}`

func chainSpec() string {
	var links strings.Builder
	for i := range 6 {
		fmt.Fprintf(&links, `"c%d": {"events": {"e": {"schema": {}, "handler": [], "implications": [
			{"emit": {"aggregate_type": "c%d", "id": "global", "event_type": "e"}}]}}},`, i, i+1)
	}
	return fmt.Sprintf(implySpec, links.String())
}

func implying(tb testing.TB) *fixture {
	tb.Helper()
	f := newFixture(tb, engine.Options{})
	f.DeploySource(tb, chainSpec())
	return f
}

func TestImpliedEventsAreWrittenWithTheirTrigger(t *testing.T) {
	f := implying(t)
	body := `{"data":{"items":[{"id":"` + user + `","qty":2},{"id":"` + user + `","qty":0}]},` + meta + `}`
	if r := f.Post(t, "order/"+id+"/was_placed", body); r.Implied != 2 || r.Length != 1 {
		t.Errorf("receipt %+v, want 2 implied events", r)
	}
	s, err := f.Load(t.Context(), tenant, "stock", user, engine.LoadOptions{})
	if err != nil || s.Data.Get("reserved").String() != "2" {
		t.Errorf("state %s, error %v", s.JSON, err)
	}
	events, err := f.Events(t.Context(), tenant, "stock", user, j17.StreamID{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := `"implied_by":{"key":"order:` + id + `","event_type":"was_placed","depth":1}`
	for ev, err := range events {
		if err != nil || !strings.Contains(string(ev.Metadata), want) {
			t.Errorf("metadata %s, error %v, want %s in it", ev.Metadata, err, want)
		}
	}
}

func TestImplicationsOfABatchSeeTheStateBeforeIt(t *testing.T) {
	f := implying(t)
	f.Post(t, "order/"+id+"/was_placed", `{"data":{},`+meta+`}`)
	f.Post(t, "order/"+id, `{"events":[{"type":"was_placed"},{"type":"was_placed"}],`+meta+`}`)
	s, err := f.Load(t.Context(), tenant, "audit", "global", engine.LoadOptions{})
	if err != nil || s.Data.Get("log").String() != `[null,1,1]` {
		t.Errorf("state %s, error %v", s.JSON, err)
	}
}

func TestARejectedImplicationLeavesNothing(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat(`"`+user+`",`, 101), ",")
	for name, c := range map[string]struct {
		path, data string
		code       j17.Code
	}{
		"schema": {
			"order/" + id + "/was_placed", `{"items":[{"id":"` + user + `","qty":1},{"id":"` + user + `","qty":1.5}]}`,
			j17.CodeImplicationFailed,
		},
		"id":    {"order/" + id + "/was_placed", `{"items":[{"id":"no identifier","qty":1}]}`, j17.CodeImplicationFailed},
		"no id": {"order/" + id + "/was_placed", `{"items":[{"qty":1}]}`, j17.CodeImplicationFailed},
		"total": {"order/" + id + "/was_spread", `{"ids":[` + many + `]}`, j17.CodeImplicationLimit},
		"depth": {"c0/" + id + "/e", `{}`, j17.CodeImplicationLimit},
	} {
		t.Run(name, func(t *testing.T) {
			f := implying(t)
			_, err := f.Execute(t.Context(), enginetest.Command(t, c.path, `{"data":`+c.data+`,`+meta+`}`))
			if j17.CodeOf(err) != c.code || !strings.Contains(err.Error(), " → ") {
				t.Errorf("error %v, want %s with the chain", err, c.code)
			}
			for typ, id := range map[string]string{
				"order": id, "stock": user, "audit": "global", "tally": user, "c0": id, "c1": "global", "c6": "global",
			} {
				if n := f.Written(t, typ, id); n != 0 {
					t.Errorf("%s has %d events", typ, n)
				}
			}
		})
	}
}

// TestAChainNamesAggregatesByTheirKeys: an id may be taken from a key, and then is not the whole of it.
func TestAChainNamesAggregatesByTheirKeys(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, `{"agent_types": ["user"], "aggregate_types": {
		"order": {"events": {"was_spread": {"schema": {}, "handler": [], "implications": [
			{"map": {"in": "$.data.list", "as": "$x", "emit": {"aggregate_type": "tally", "id": "$.key", "event_type": "was_counted", "data": {"n": "$x"}}}}]}}},
		"tally": {"events": {"was_counted": {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}}, "handler": []}}}}}`)
	for list, code := range map[string]j17.Code{
		"[" + strings.Repeat("1,", 100) + "1]": j17.CodeImplicationLimit,
		`[1,"two"]`:                            j17.CodeImplicationFailed,
	} {
		_, err := f.Execute(
			t.Context(), enginetest.Command(t, "order/"+id+"/was_spread", `{"data":{"list":`+list+`},`+meta+`}`),
		)
		if j17.CodeOf(err) != code ||
			!strings.Contains(err.Error(), "order:"+id+" was_spread → tally:"+id+" was_counted") {
			t.Errorf("got %v", err)
		}
	}
}

func TestAFullChainAndAFullFanOutAreAccepted(t *testing.T) {
	f := implying(t)
	if r := f.Post(t, "c1/"+id+"/e", `{"data":{},`+meta+`}`); r.Implied != 5 {
		t.Errorf("%d implied, want 5", r.Implied)
	}
	many := strings.TrimSuffix(strings.Repeat(`"`+user+`",`, 100), ",")
	if r := f.Post(t, "order/"+id+"/was_spread", `{"data":{"ids":[`+many+`]},`+meta+`}`); r.Implied != 100 {
		t.Errorf("%d implied, want 100", r.Implied)
	}
}

func TestManyWritersShareAStreamThatIsOnlyAppendedTo(t *testing.T) {
	const writers, each = 16, 8
	f := implying(t)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range each {
				path := fmt.Sprintf("order/0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e%04d/was_placed", w)
				if _, err := f.Execute(t.Context(), enginetest.Command(t, path, `{"data":{},`+meta+`}`)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := f.Written(t, "audit", "global"); n != writers*each {
		t.Errorf("%d events, want %d", n, writers*each)
	}
}

func TestARetryAnswersTheSameImpliedCount(t *testing.T) {
	f := implying(t)
	for try := range 2 {
		c := enginetest.Command(t, "order/"+id+"/was_placed", `{"data":{},`+meta+`}`)
		c.IdempotencyKey = "once"
		r, err := f.Execute(t.Context(), c)
		if err != nil || r.Implied != 1 || r.Replayed != (try == 1) {
			t.Errorf("try %d: %+v, %v", try, r, err)
		}
	}
}
