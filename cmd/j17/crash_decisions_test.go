package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/anishathalye/porcupine"
)

// transferSpec is of accounts between which money is sent: by an event that the other side follows from, and by two
// events of a transaction; and of holders of names that one alone may have. %[1]s are more guards, %[2]s is the value
// of a name.
const transferSpec = `{
	"agent_types": ["user"],
	"aggregate_types": {"account": {"events": {
		"was_opened": {"creates": "only", "schema": {"type": "object"}, "handler": [{"set": {"target": "balance", "value": "$.data.amount"}}]},
		"was_sent": {"creates": false, "schema": {"type": "object"}, "handler": [{"decrement": {"target": "balance", "by": "$.data.amount"}}],
			"reads": {"to": {"aggregate_type": "account", "id": "$.data.to"}},
			"requires": [%[1]s{"that": {"exists": "$.reads.to.balance"}, "message": "Nobody is there"}, {"that": {"gte": ["@.balance", "$.data.amount"]}, "message": "Not enough"}],
			"implications": [{"emit": {"aggregate_type": "account", "id": "$.data.to", "event_type": "was_moved", "data": {"amount": "$.data.amount", "n": "$.data.n"}}}]},
		"was_moved": {"creates": false, "schema": {"type": "object"}, "handler": [{"increment": {"target": "balance", "by": "$.data.amount"}}],
			"requires": [{"that": {"or": [{"gte": ["$.data.amount", 0]}, {"gte": ["@.balance", {"$negate": "$.data.amount"}]}]}, "message": "Not enough"}]}
	}}, "holder": {"events": {
		"was_named": {"schema": {"type": "object"}, "handler": [], "unique": {"name": {"value": %[2]s}}},
		"was_unnamed": {"schema": {"type": "object"}, "handler": [], "releases": ["name"]}
	}}}
}`

// Accounts of the test, and what each begins with.
const (
	tills   = 4
	perTill = 20
)

// books are the accounts as an order of transfers leaves them.
type books struct{ balance, length [tills]int }

// transfer is one that was asked for, and balances a look at all accounts, one after the other, while nothing is
// written.
type (
	transfer struct{ from, to, amount int }
	balances struct{}
	// moved are the lengths of both sides after a transfer, 0 where nobody has told, and refused what comes of one that
	// is not covered.
	moved   struct{ from, to int }
	refused struct{}
)

// transferModel says what may come of transfers that come one after the other, from books on.
func transferModel(from books) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return from },
		Step: func(state, input, output any) (bool, any) {
			b, ok := state.(books)
			if !ok {
				return false, state
			}
			in, ok := input.(transfer)
			if !ok {
				return output == b, state
			}
			if output == (refused{}) {
				return b.balance[in.from] < in.amount, state
			}
			b.balance[in.from] -= in.amount
			b.balance[in.to] += in.amount
			b.length[in.from]++
			b.length[in.to]++
			out, ok := output.(moved)
			return ok && b.balance[in.from] >= 0 && (out.from == 0 || out.from == b.length[in.from]) &&
				(out.to == 0 || out.to == b.length[in.to]), b
		},
	}
}

// attempt is a transfer with what its writer has heard of it. A status of 0 is no answer.
type attempt struct {
	porcupine.Operation

	n, status int
}

// bank has several writers who transfer money between the same few accounts.
type bank struct {
	ids   [tills]string
	tick  atomic.Int64
	last  atomic.Int64
	mu    sync.Mutex
	tried []attempt
}

// transfer asks for one transfer and reports whether the server has answered.
func (k *bank) transfer(client *http.Client, p *process, writer int, rng *rand.Rand) bool {
	// What is asked for: an event that implies the other, or both.
	n := int(k.last.Add(1))
	in := transfer{from: rng.IntN(tills), amount: 1 + rng.IntN(perTill)}
	in.to = (in.from + 1 + rng.IntN(tills-1)) % tills
	path := "/account/" + k.ids[in.from] + "/was_sent"
	body := fmt.Sprintf(`{"data":{"to":%q,"amount":%d,"n":%d},`, k.ids[in.to], in.amount, n)
	if n%2 == 0 {
		side := func(of, amount int) string {
			return fmt.Sprintf(`{"key":"account:%s","events":[{"type":"was_moved","data":{"amount":%d,"n":%d}}]}`, k.ids[of], amount, n)
		}
		path, body = "/_transaction", `{"writes":[`+side(in.from, -in.amount)+`,`+side(in.to, in.amount)+`],`
	}

	// What comes of it.
	a := attempt{Operation: porcupine.Operation{ClientId: writer, Input: in, Call: k.tick.Add(1)}, n: n}
	var answer []byte
	a.status, answer = askOf(client, p, http.MethodPost, "prod", path, p.ready.Keys["prod"].Write, body+`"metadata":{"actor":{"type":"user","id":"global"}}}`)
	a.Return = k.tick.Add(1)
	switch a.status {
	case http.StatusCreated:
		var got struct {
			Length int
			Writes []struct{ Length int }
		}
		if err := json.Unmarshal(answer, &got); err != nil {
			a.status = -1
		}
		out := moved{from: got.Length}
		if len(got.Writes) == 2 {
			out = moved{got.Writes[0].Length, got.Writes[1].Length}
		}
		a.Output = out
	case http.StatusUnprocessableEntity:
		a.Output = refused{}
	}
	k.mu.Lock()
	k.tried = append(k.tried, a)
	k.mu.Unlock()
	return a.status != 0
}

// read returns the books, and how many sides of each transfer the accounts have. No account has ever been below zero.
func (k *bank) read(t *testing.T, p *process) (b books, sides map[int]int) {
	t.Helper()
	sides = map[int]int{}
	for i, id := range k.ids {
		var page struct {
			Events []struct {
				Type string `json:"type"`
				Data struct {
					Amount int `json:"amount"`
					N      int `json:"n"`
				} `json:"data"`
			} `json:"events"`
			Next *string `json:"next"`
		}
		for start := ""; ; start = "&start=" + *page.Next {
			page.Next = nil
			if s := requested(
				t, p, "GET", "prod", "/account/"+id+"/events?count=1000"+start, p.ready.Keys["prod"].Read, "", &page,
			); s != http.StatusOK {
				t.Fatalf("events of an account: %d", s)
			}
			for _, e := range page.Events {
				b.length[i]++
				sides[e.Data.N]++
				if e.Type == "was_sent" {
					e.Data.Amount *= -1
				}
				if b.balance[i] += e.Data.Amount; b.balance[i] < 0 {
					t.Fatalf("account %d has %d after %d events", i, b.balance[i], b.length[i])
				}
			}
			if page.Next == nil {
				break
			}
		}
		var state struct {
			Data struct {
				Balance int `json:"balance"`
			} `json:"data"`
		}
		if s := requested(
			t, p, "GET", "prod", "/account/"+id, p.ready.Keys["prod"].Read, "", &state,
		); s != http.StatusOK || state.Data.Balance != b.balance[i] {
			t.Fatalf("account %d: %d, %d where its events come to %d", i, s, state.Data.Balance, b.balance[i])
		}
	}
	return b, sides
}

// settle compares what the writers of a round have heard with what is there, and looks for an order that explains all
// of it.
func (k *bank) settle(t *testing.T, p *process, before books) books {
	t.Helper()
	after, sides := k.read(t, p)
	sum := 0
	for _, n := range after.balance {
		sum += n
	}
	if sum != tills*perTill {
		t.Fatalf("the accounts have %d together, not %d: %v", sum, tills*perTill, after.balance)
	}

	// A transfer whose writer has heard nothing is there whole, as if it had ended with the round, or not at all.
	end := k.tick.Add(1)
	var whole []porcupine.Operation
	for _, a := range k.tried {
		there := sides[a.n]
		switch {
		case there != 0 && there != 2, a.status == http.StatusCreated && there == 0:
			t.Fatalf("transfer %d, answered with %d, has %d sides", a.n, a.status, there)
		case there == 2 && a.status == 0:
			a.Return, a.Output = end, moved{}
		case a.status == http.StatusServiceUnavailable && there == 0, a.status == 0:
			continue
		case (a.status == http.StatusCreated) != (there == 2), a.Output == nil:
			t.Fatalf("transfer %d was answered with %d and has %d sides", a.n, a.status, there)
		}
		whole = append(whole, a.Operation)
	}
	k.tried = nil
	whole = append(whole, porcupine.Operation{
		ClientId: -1, Input: balances{}, Output: after, Call: end + 1, Return: k.tick.Add(2),
	})
	if !porcupine.CheckOperations(transferModel(before), whole) {
		t.Fatalf("no order explains the %d operations from %v to %v", len(whole), before, after)
	}
	return after
}

// TestKillKeepsTheSum kills the server with SIGKILL while writers transfer money between few accounts, none of which
// may be overdrawn, others exchange unique names, and specs with other guards and another set of names are deployed,
// again and again on the same data folder. Then the sum is what it was, no account was ever below zero, each transfer
// that was acknowledged is there, and there is an order that explains every answer; no name has ever had two holders,
// and the server knows who holds it.
func TestKillKeepsTheSum(t *testing.T) {
	const writers, exchangers = 8, 4
	dir := t.TempDir()
	specFile := filepath.Join(dir, "spec.json")
	specs := []string{
		fmt.Sprintf(transferSpec, "", `"$.data.name"`),
		fmt.Sprintf(transferSpec, `{"that": {"gt": ["$.data.amount", 0]}, "message": "Nothing"}, `, `{"$lower": "$.data.name"}`), // filled anew
	}
	if err := os.WriteFile(specFile, []byte(specs[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() *process {
		t.Helper()
		p, err := startDev(t, dir, specFile, "--data", filepath.Join(dir, "data"))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)

	// The accounts are opened at once.
	k, g := &bank{}, &register{}
	p := start()
	var opened []string
	for range tills {
		opened = append(opened, fmt.Sprintf(`{"key":"account:_new","events":[{"type":"was_opened","data":{"amount":%d}}]}`, perTill))
	}
	var made struct{ Writes []struct{ ID string } }
	if s := requested(t, p, "POST", "prod", "/_transaction", p.ready.Keys["prod"].Write, `{"writes":[`+strings.Join(opened, ",")+`],"metadata":{"actor":{"type":"user","id":"global"}}}`, &made); s != http.StatusCreated {
		t.Fatal(s)
	}
	for i := range k.ids {
		k.ids[i] = made.Writes[i].ID
	}
	state, _ := k.read(t, p)

	// Rounds, each with another moment at which it ends.
	for round := range rounds(3, 20) {
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: writers + 1}}
		var write []func() bool
		for w := range writers {
			rng := rand.New(rand.NewPCG(seed, uint64(round*writers+w)))
			write = append(write, func() bool { return k.transfer(client, p, w, rng) })
		}
		for w := range exchangers {
			rng := rand.New(rand.NewPCG(seed^1, uint64(round*exchangers+w)))
			write = append(write, func() bool { return g.exchange(client, p, rng) })
		}
		token, deployed := operatorToken(t, p), 0
		deploy := func() bool {
			deployed++
			s, _ := askOf(
				client, p, http.MethodPost, "control", "/api/instances/"+p.ready.Instance.ID+"/spec", token,
				`{"spec":`+specs[deployed%2]+`,"environment":"prod"}`,
			)
			return s == http.StatusOK || s == http.StatusCreated
		}
		untilKilled(t, p, 30+int(seed>>8+uint64(round)*17)%60, write, []func() bool{deploy})
		client.CloseIdleConnections()
		t.Logf("round %d: %d transfers, %d exchanges in all, %d deployments", round, len(k.tried), len(g.tried), deployed-1)
		p = start()
		state = k.settle(t, p, state)
		g.settle(t, p)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
