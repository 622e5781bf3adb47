package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// accountSpec has payments that look at the state of their account, and deposits that do not.
const accountSpec = `{"agent_types": ["user"], "aggregate_types": {"account": {"events": {
	"was_opened": {"schema": {}, "handler": [{"set": {"target": "balance", "value": 0}}]},
	"was_paid": {"schema": {}, "handler": [{"increment": {"target": "balance", "by": "$.data.amount"}}], "implications": [
		{"condition": {"gte": ["$.state.balance", 0]}, "emit": {"aggregate_type": "account", "id": "$.key", "event_type": "was_noted", "data": {"balance": "$.state.balance"}}}]},
	"was_deposited": {"schema": {}, "handler": [{"increment": {"target": "balance", "by": "$.data.amount"}}]},
	"was_told": {"schema": {}, "handler": [{"increment": {"target": "balance", "by": "$.data.amount"}}], "implications": [
		{"condition": {"gte": ["$.data.amount", 0]}, "emit": {"aggregate_type": "account", "id": "$.key", "event_type": "was_noted", "data": {}}}]},
	"was_noted": {"schema": {}, "handler": [{"increment": {"target": "notes", "by": 1}}]}
}}}}`

func paid() string { return `{"data":{"amount":1},` + meta + `}` }

// TestWritersThatLookTakeTurns lets writers that look at one account, others that only add to it, and some that name a
// length get into each other's way. Nobody is refused who named no length, nothing is lost, and every payment has seen
// exactly what was stored before it.
func TestWritersThatLookTakeTurns(t *testing.T) {
	const writers, each = 16, 30
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, accountSpec)
	f.Post(t, "account/"+id+"/was_opened", `{"data":{},`+meta+`}`)
	var stored [3]atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				kind := (w + i) % 3
				path, body := "account/"+id+"/was_paid", paid()
				switch kind {
				case 1:
					path = "account/" + id + "/was_deposited"
				case 2:
					n, err := f.Length(t.Context(), tenant, "account", id)
					if err != nil {
						t.Error(err)
					}
					body = fmt.Sprintf(`{"data":{"amount":1},"metadata":{"actor":{"type":"user","id":"%s"},"previous_length":%d}}`, user, n)
				}
				_, err := f.Execute(t.Context(), enginetest.Command(t, path, body))
				switch {
				case err == nil:
					stored[kind].Add(1)
				case kind != 2 || j17.CodeOf(err) != j17.CodeConflict:
					t.Errorf("%s: %v", path, err)
				}
			}
		})
	}
	wg.Wait()
	f.checkAccount(t, stored[0].Load()+stored[1].Load()+stored[2].Load(), stored[0].Load()+stored[2].Load())
	t.Logf("%d, %d, %d stored: %+v", stored[0].Load(), stored[1].Load(), stored[2].Load(), f.Stats())
}

// checkAccount goes through the account's events: each note tells the balance before its payment.
func (f *fixture) checkAccount(t *testing.T, balance, notes int64) {
	t.Helper()
	sum, before, noted := int64(0), int64(0), int64(0)
	for ev, err := range f.Store.ReadStream(t.Context(), tenant, j17.Key{Type: "account", ID: id}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		var data struct{ Amount, Balance int64 }
		if err := json.Unmarshal(ev.Data, &data); err != nil {
			t.Fatal(err)
		}
		switch before, sum = sum, sum+data.Amount; {
		case ev.Type == "was_noted" && data.Balance != before-1 && sum > 0:
			t.Errorf("event %d was decided on a balance of %d, and it was %d", ev.Version, data.Balance, before-1)
		case ev.Type == "was_noted":
			noted++
		}
	}
	if sum != balance || noted != notes {
		t.Errorf("%d paid and %d noted, want %d and %d", sum, noted, balance, notes)
	}
	want := fmt.Sprintf(`{"balance":%d,"created_at":1700000000,"updated_at":1700000000,"notes":%d}`, balance, notes)
	cached, folded := f.State(t, "account/"+id, engine.LoadOptions{}), f.State(t, "account/"+id, engine.LoadOptions{
		Replay: true,
	})
	if cached != want || folded != want {
		t.Errorf("the state is %s, folded anew %s, want %s", cached, folded, want)
	}
}

// TestATurnThatDoesNotCome: who is overtaken for too long is told so, and nothing of the write is stored.
func TestATurnThatDoesNotCome(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, accountSpec)
	f.Post(t, "account/"+id+"/was_opened", `{"data":{},`+meta+`}`)
	overtaken := &rival{Store: f.Store, times: 1000, by: func() {
		f.Clock.Advance(time.Second)
		f.Post(t, "account/"+id+"/was_deposited", paid())
	}}
	slow := on(engine.New(engine.Options{
		Store: overtaken, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler), WriteWait: 3 * time.Second,
	}))
	slow.DeploySource(t, accountSpec)
	_, err := slow.Execute(t.Context(), enginetest.Command(t, "account/"+id+"/was_paid", paid()))
	if j17.CodeOf(err) != j17.CodeBusy || overtaken.appends < 3 || overtaken.appends > 6 {
		t.Errorf("%v after %d tries", err, overtaken.appends)
	}
	if n := f.Written(t, "account", id); n != uint64(overtaken.appends)+1 {
		t.Errorf("%d events after %d tries", n, overtaken.appends)
	}
	if s := slow.Stats(); s.Busy != 1 || s.Conflicts != 0 {
		t.Errorf("%+v", s)
	}
	// A write that looks at nothing is not concerned.
	if _, err := slow.Execute(t.Context(), enginetest.Command(t, "account/"+id+"/was_deposited", paid())); err != nil {
		t.Error(err)
	}
}

// gatedSpec has an event whose implication in custom code looks at the state.
const gatedSpec = `{"agent_types": ["user"], "aggregate_types": {"order": {"events": {
	"was_checked": {"schema": {}, "handler": [{"increment": {"target": "n", "by": 1}}], "implications": [{"wasm": "sum.wasm"}]}}}}}`

// TestWhoWaitsForATurnMayLeave: a turn that takes long keeps nobody whose context ends, and nobody else's turn is lost
// by it.
func TestWhoWaitsForATurnMayLeave(t *testing.T) {
	f := newFixture(t, engine.Options{})
	reached, proceed := make(chan struct{}, 100), make(chan struct{})
	c, found := spec.Compile([]byte(gatedSpec))
	if c == nil {
		t.Fatal(found)
	}
	f.Deploy(tenant, c, functionsOf(c, map[string]coded{"sum.wasm": {"s", func(map[string]any) (string, error) {
		reached <- struct{}{}
		<-proceed
		return `{"actions":[]}`, nil
	}}}))
	write := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		cmd := enginetest.Command(t, "order/"+id+"/was_checked", `{"data":{},`+meta+`}`)
		go func() {
			_, err := f.Execute(ctx, cmd)
			done <- err
		}()
		return done
	}
	// Two that are planned at the same time: the second one is overtaken, and makes a lane.
	first, second := write(t.Context()), write(t.Context())
	<-reached
	<-reached
	proceed <- struct{}{}
	proceed <- struct{}{}
	<-reached // the one that was overtaken has its turn
	ctx, cancel := context.WithCancel(t.Context())
	third, fourth := write(ctx), write(t.Context())
	cancel()
	if err := <-third; err == nil {
		t.Error("a write whose context had ended was stored")
	}
	close(proceed)
	for _, done := range []chan error{first, second, fourth} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := f.Written(t, "order", id); n != 3 {
		t.Errorf("%d events, want 3", n)
	}
}

// TestADecisionIsStoredAtItsTime: what implications and custom code were told of the time is what is stored, also while
// the clock is behind the latest event.
func TestADecisionIsStoredAtItsTime(t *testing.T) {
	const stamped = `{"agent_types":["user"],"aggregate_types":{
		"a":{"events":{"e":{"schema":{},"handler":[],"implications":[{"emit":{"aggregate_type":"b","id":"$.key","event_type":"f","data":{"at":"$.metadata.timestamp"}}}]}}},
		"b":{"events":{"f":{"schema":{},"handler":[]}}}}}`
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, stamped)
	// Another program has written to the same store at a later time.
	f.Clock.Advance(time.Hour)
	late := f.Clock.Now().Unix()
	if _, err := f.Store.Append(t.Context(), tenant, []store.Append{{
		Timestamp: late, Events: []store.NewEvent{
			{Key: j17.Key{Type: "b", ID: user}, Type: "f", Data: []byte(`{"at":0}`), Metadata: []byte(`{}`)},
		},
	}}); err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(-time.Hour)
	for range 2 {
		f.Post(t, "a/"+id+"/e", `{"data":{},`+meta+`}`)
	}
	for ev, err := range f.Store.ReadStream(t.Context(), tenant, j17.Key{Type: "b", ID: id}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Timestamp != late || string(ev.Data) != fmt.Sprintf(`{"at":%d}`, late) {
			t.Errorf("stored at %d: %s", ev.Timestamp, ev.Data)
		}
	}
}

// TestCodeIsAskedAboutTheTimeThatIsStored: code that accepts an event at the clock's time and would refuse it at that
// of the latest event is asked about the latter, so that what is stored can be replayed.
func TestCodeIsAskedAboutTheTimeThatIsStored(t *testing.T) {
	f := newFixture(t, engine.Options{})
	deployCoded(t, f, map[string]coded{"sum.wasm": {"gate", func(in map[string]any) (string, error) {
		event, _ := in["event"].(map[string]any)
		md, _ := event["metadata"].(map[string]any)
		if at, _ := md["timestamp"].(float64); at > 1_700_000_005 {
			return `{"error":{"type":"too_late","message":"the offer has ended"}}`, nil
		}
		return `{"state":{"ok":true}}`, nil
	}}})
	f.Clock.Advance(6 * time.Second)
	f.Post(t, "order/0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f11/was_seen", `{"data":{},`+meta+`}`)
	f.Clock.Advance(-6 * time.Second)
	if _, err := f.Execute(
		t.Context(), enginetest.Command(t, "order/"+id+"/had_line", line("1")),
	); j17.CodeOf(err) != j17.CodeHandlerRejected {
		t.Errorf("got %v, want a refusal", err)
	}
	if n := f.Written(t, "order", id); n != 0 {
		t.Errorf("%d events", n)
	}
}

// TestADeploymentIsOvertakenByNobody: a write that began before a deployment is checked against what is
// deployed when it is stored.
func TestADeploymentIsOvertakenByNobody(t *testing.T) {
	f := newFixture(t, engine.Options{})
	reached, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	deployCoded(t, f, map[string]coded{"sum.wasm": {"s", func(map[string]any) (string, error) {
		once.Do(func() {
			close(reached)
			<-proceed
		})
		return `{"state":{}}`, nil
	}}})
	done := make(chan error, 1)
	cmd := enginetest.Command(t, "order/"+id+"/had_line", line("1"))
	go func() {
		_, err := f.Execute(context.WithoutCancel(t.Context()), cmd)
		done <- err
	}()
	<-reached
	f.DeploySource(t, `{"agent_types":["user"],"aggregate_types":{"order":{"events":{"was_seen":{"schema":{},"handler":[]}}}}}`)
	close(proceed)
	if err := <-done; j17.CodeOf(err) != j17.CodeUnknownEventType {
		t.Errorf("got %v, want %s", err, j17.CodeUnknownEventType)
	}
	if n := f.Written(t, "order", id); n != 0 {
		t.Errorf("%d events", n)
	}
}
