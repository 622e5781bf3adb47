package projection_test

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"

	"j17/internal/core/engine/enginetest"
	"j17/internal/derived/projection"
)

// The operations of TestReadsAreLinearizable: a transfer moves 1 from one of three accounts to the next in one commit,
// a look shows them all.
type (
	transfer struct{ from int }
	look     struct{ synchronous bool }
)

// bank is what the accounts have; one without events has nothing.
type bank struct {
	balances [3]int
	opened   [3]bool
}

// text is the data of a look.
func (b bank) text() string {
	var parts []string
	for i, n := range b.balances {
		if !b.opened[i] {
			parts = append(parts, "null")
			continue
		}
		parts = append(parts, strconv.Itoa(n))
	}
	return `{"all":[` + strings.Join(parts, ",") + `]}`
}

// TestReadsAreLinearizable reads three accounts as one while each commit changes two of them, from many clients: all
// reads and writes are as if they had come one after the other, so that no commit is half seen and nothing acknowledged
// is missing, also where readers share a computation.
func TestReadsAreLinearizable(t *testing.T) {
	spec := `{"agent_types":["user"],"aggregate_types":{"account":{"events":{
		"had_amount_received":{"schema":{},"handler":[{"increment":{"target":"balance","by":1}}]},
		"had_amount_moved":{"schema":{},"allow_skip_occ":true,"handler":[{"decrement":{"target":"balance","by":1}}],"implications":[
			{"emit":{"aggregate_type":"account","id":"$.data.to","event_type":"had_amount_received"}}]}}}},
		"projections":{"bank":{"for_each":"account","sources":{"a":"$key","b":{"type":"account","id":"` + id(1) + `"},"c":{"type":"account","id":"` + id(2) + `"}},
			"select":{"all":["$.a.balance","$.b.balance","$.c.balance"]}}}}`
	f := newFixture(t, spec, projection.Options{})
	f.Post(t, "account/"+id(0)+"/had_amount_received", enginetest.Body(`{}`))
	model := porcupine.Model{
		Init: func() any { return bank{balances: [3]int{1}, opened: [3]bool{true}} },
		Step: func(state, input, output any) (bool, any) {
			b, _ := state.(bank)
			switch in := input.(type) {
			case transfer:
				to := (in.from + 1) % 3
				b.balances[in.from]--
				b.balances[to]++
				b.opened[in.from], b.opened[to] = true, true
				return true, b
			default:
				return output == b.text(), state
			}
		},
	}

	const clients, operations = 6, 20
	var tick atomic.Int64
	var all [clients][]porcupine.Operation
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for n := range operations {
				op := porcupine.Operation{ClientId: c, Call: tick.Add(1)}
				if (n+c)%3 == 0 {
					from := (n / 3) % 3
					op.Input = transfer{from}
					f.Post(t, "account/"+id(from)+"/had_amount_moved", enginetest.Body(`{"to":"`+id((from+1)%3)+`"}`))
				} else {
					in := look{synchronous: n%7 == 0}
					op.Input = in
					op.Output = string(
						f.view(t, projection.Ask{Name: "bank", ID: id(0), Synchronous: in.synchronous}).Data,
					)
				}
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
	if !porcupine.CheckOperations(model, whole) {
		t.Errorf("no order explains the %d operations", len(whole))
	}
}
