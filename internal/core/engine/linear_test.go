package engine_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"

	"j17"
	"j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/custody/loading"
	"j17/internal/storage/store"
)

// The operations of TestTurnsAreLinearizable on one account. A payment stores two events, all others one.
type (
	payment struct{}
	deposit struct{ expected int64 } // -1: none
	history struct{}
	glance  struct{}
	// paidIn is the length of the stream after a write; 0 for one that was refused.
	paidIn struct{ length uint64 }
	shown  struct {
		length  uint64
		balance string
	}
	// ledger is an account: the number of its events, the sum of what was paid, and the sum of the balances that
	// payments saw.
	ledger struct {
		length        uint64
		balance, seen int64
	}
)

// ledgerSpec has payments that write down the balance they see: each of their notes adds it to "seen".
const ledgerSpec = `{"agent_types": ["user"], "aggregate_types": {"account": {"events": {
	"was_opened": {"schema": {}, "handler": [{"set": {"target": "balance", "value": 0}}, {"set": {"target": "seen", "value": 0}}]},
	"was_paid": {"schema": {}, "handler": [{"increment": {"target": "balance", "by": 1}}], "implications": [
		{"emit": {"aggregate_type": "account", "id": "$.key", "event_type": "was_noted", "data": {"balance": "$.state.balance"}}}]},
	"was_deposited": {"schema": {}, "handler": [{"increment": {"target": "balance", "by": 1}}]},
	"was_noted": {"schema": {}, "handler": [{"increment": {"target": "seen", "by": "$.data.balance"}}]}
}}}}`

func (l ledger) text() string { return fmt.Sprintf("%d/%d", l.balance, l.seen) }

func ledgerModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return ledger{length: 1} },
		Step: func(state, input, output any) (bool, any) {
			l, ok := state.(ledger)
			if !ok {
				return false, state
			}
			switch in := input.(type) {
			case payment:
				next := ledger{length: l.length + 2, balance: l.balance + 1, seen: l.seen + l.balance}
				return output == paidIn{next.length}, next
			case deposit:
				if in.expected >= 0 && uint64(in.expected) != l.length {
					return output == paidIn{}, state
				}
				next := ledger{length: l.length + 1, balance: l.balance + 1, seen: l.seen}
				return output == paidIn{next.length}, next
			case history:
				next := ledger{length: l.length + 1, balance: l.balance + 1, seen: l.seen}
				return true, next
			case glance:
				return output == shown{l.length, l.text()}, state
			default:
				return false, state
			}
		},
	}
}

// TestTurnsAreLinearizable: payments that write down the balance they see, deposits with and without an expected
// length, imports and reads of one account, all at the same time, are as if they had come one after the other.
func TestTurnsAreLinearizable(t *testing.T) {
	const clients, operations = 6, 20
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, ledgerSpec)
	f.Post(t, "account/"+id+"/was_opened", `{"data":{},`+meta+`}`)
	var tick atomic.Int64
	var all [clients][]porcupine.Operation
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for n := range operations {
				op := porcupine.Operation{ClientId: c, Call: tick.Add(1)}
				op.Input, op.Output = f.operate(t, (n+c)%5, fmt.Sprint(c, " ", n))
				op.Return = tick.Add(1)
				all[c] = append(all[c], op)
			}
		})
	}
	wg.Wait()
	var whole []porcupine.Operation
	for _, some := range all {
		whole = append(whole, some...)
	}
	if !porcupine.CheckOperations(ledgerModel(), whole) {
		t.Errorf("no order explains the %d operations", len(whole))
	}
}

// operate does one operation and returns what it was and what came of it.
func (f *fixture) operate(t *testing.T, kind int, name string) (input, output any) {
	t.Helper()
	path := "account/" + id
	write := func(c *engine.Command, input any) (any, any) {
		r, err := f.Execute(t.Context(), c)
		if in, ok := input.(deposit); err != nil && (!ok || in.expected < 0 || j17.CodeOf(err) != j17.CodeConflict) {
			t.Errorf("%T: %v", input, err)
		}
		return input, paidIn{enginetest.One(r).Length}
	}
	switch kind {
	case 0, 1:
		return write(enginetest.Command(t, path+"/was_paid", paid()), payment{})
	case 2:
		return write(enginetest.Command(t, path+"/was_deposited", paid()), deposit{-1})
	case 3:
		n, err := f.Length(t.Context(), tenant, "account", id)
		if err != nil {
			t.Error(err)
		}
		body := fmt.Sprintf(`{"data":{},"metadata":{"actor":{"type":"user","id":"%s"},"previous_length":%d}}`, user, n)
		return write(enginetest.Command(t, path+"/was_deposited", body), deposit{int64(n)})
	}
	if len(name)%2 == 0 {
		text := `{"key":"account:` + id + `","type":"was_deposited","data":{"name":"` + name + `"},"metadata":{"actor":{"type":"user","id":"` + user + `"}}}` + "\n"
		loader := loading.Loader{Engine: f.Engine, Store: f.Store}
		if done, err := loader.Import(t.Context(), &loading.History{
			Tenant: tenant, ID: sha256.Sum256([]byte(text)),
			Open: func() (*command.FileReader, error) { return command.NewFileReader(strings.NewReader(text)), nil },
		}); err != nil || done.Stored != 1 {
			t.Errorf("%+v, %v", done, err)
		}
		return history{}, nil
	}
	s, err := f.Load(t.Context(), tenant, "account", id, engine.LoadOptions{})
	if err != nil {
		t.Error(err)
		return glance{}, nil
	}
	return glance{}, shown{s.Length, s.Data.Get("balance").String() + "/" + s.Data.Get("seen").String()}
}

// slowWrites is a store whose side items are written when it is opened; it counts the commits of them.
type slowWrites struct {
	store.Store

	commits atomic.Int64
	open    chan struct{}
}

func (s *slowWrites) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	s.commits.Add(1)
	<-s.open
	return s.Store.Write(ctx, t, side, fences...)
}

// TestManyRefusalsAreFewCommits: what is kept of refused writes takes a few commits, however many are refused while one
// is written.
func TestManyRefusalsAreFewCommits(t *testing.T) {
	f := newFixture(t, engine.Options{})
	slow := &slowWrites{Store: f.Store, open: make(chan struct{})}
	e := on(engine.New(engine.Options{Store: slow, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)}))
	e.DeploySource(t, `{"agent_types":["user"],"aggregate_types":{"a":{"events":{
		"was_sent":{"schema":{},"handler":[],"implications":[{"emit":{"aggregate_type":"a","id":"$.key","event_type":"was_refused","data":{}}}]},
		"was_refused":{"schema":{"type":"object","required":["x"]},"handler":[]}}}}}`)
	const refused = 300
	for range refused {
		if _, err := e.Execute(
			t.Context(), enginetest.Command(t, "a/"+id+"/was_sent", `{"data":{},`+meta+`}`),
		); j17.CodeOf(err) != j17.CodeImplicationFailed {
			t.Fatal(err)
		}
	}
	close(slow.open)
	await(t, "the refusals were not stored", func() bool {
		items, err := f.Store.Scan(t.Context(), tenant, "implication.failed", store.Range{}, refused)
		return err == nil && len(items) >= 100
	})
	if n := slow.commits.Load(); n > 4 {
		t.Errorf("%d commits for %d refusals", n, refused)
	}
}
