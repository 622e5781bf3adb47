package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
)

// Names that holders take from each other: fewer than there are holders.
const (
	takers    = 4
	takeNames = 3
)

// register has several writers who let the same few holders take names, of which each has one holder at a time, and
// give them back.
type register struct {
	mu sync.Mutex
	// tried has the status of each write by its number, 0 for no answer, and the number of its events.
	tried []struct{ status, events int }
}

func holderID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// exchange asks for one write and reports whether the server has answered.
func (g *register) exchange(client *http.Client, p *process, rng *rand.Rand) bool {
	g.mu.Lock()
	n := len(g.tried)
	g.tried = append(g.tried, struct{ status, events int }{0, 1})
	g.mu.Unlock()

	// One takes a name, or gives back what it has; or another one gives back what it has first.
	who := rng.IntN(takers)
	take := fmt.Sprintf(`{"type":"was_named","data":{"name":"N%d","n":%d}}`, rng.IntN(takeNames), n)
	leave := fmt.Sprintf(`{"type":"was_unnamed","data":{"n":%d}}`, n)
	path, body, events := "/holder/"+holderID(who), `{"events":[`+take+`],`, 1
	switch rng.IntN(6) {
	case 0:
		body = `{"events":[` + leave + `],`
	case 1:
		body, events = `{"events":[`+leave+`,`+take+`],`, 2
	case 2:
		path, events = "/_transaction", 2
		body = fmt.Sprintf(`{"writes":[{"key":"holder:%s","events":[%s]},{"key":"holder:%s","events":[%s]}],`, holderID((who+1)%takers), leave, holderID(who), take)
	}
	status, _ := askOf(client, p, http.MethodPost, "prod", path, p.ready.Keys["prod"].Write, body+`"metadata":{"actor":{"type":"user","id":"global"}}}`)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tried[n].status, g.tried[n].events = status, events
	return status != 0
}

// settle compares what the writers have heard with what is there: nobody has taken what another one held, and what the
// server says of who holds what follows from the events.
func (g *register) settle(t *testing.T, p *process) {
	t.Helper()

	// Who holds what by the events, and how many there are of each write.
	held, has, there := map[string]string{}, map[string]string{}, map[int]int{}
	give := func(who string) {
		delete(held, has[who])
		delete(has, who)
	}
	for after := ""; ; {
		var page struct {
			Events []struct {
				Key, Type string
				Data      struct {
					Name string
					N    int
				}
			}
			Next *string
		}
		if s := requested(
			t, p, "GET", "prod", "/_events?type=holder&count=1000"+after, p.ready.Keys["prod"].Read, "", &page,
		); s != http.StatusOK {
			t.Fatalf("events of holders: %d", s)
		}
		for _, e := range page.Events {
			there[e.Data.N]++
			if e.Type == "was_unnamed" {
				give(e.Key)
				continue
			}
			if other, taken := held[e.Data.Name]; taken && other != e.Key {
				t.Fatalf("%s takes %s by write %d, and %s holds it", e.Key, e.Data.Name, e.Data.N, other)
			}
			give(e.Key)
			held[e.Data.Name], has[e.Key] = e.Key, e.Data.Name
		}
		if page.Next == nil {
			break
		}
		after = "&after=" + *page.Next
	}
	for n, a := range g.tried {
		whole := there[n] == a.events
		switch a.status {
		case http.StatusCreated:
		case 0:
			whole = whole || there[n] == 0
		case http.StatusConflict, http.StatusServiceUnavailable:
			whole = there[n] == 0
		default:
			whole = false
		}
		if !whole {
			t.Fatalf("write %d of %d events was answered with %d, and has %d", n, a.events, a.status, there[n])
		}
	}

	// What the server says of it.
	for n := range takeNames {
		name := fmt.Sprint("N", n)
		var tried struct {
			Accepted bool
			Refusals []struct{ Details struct{ Holder string } }
		}
		path := "/holder/" + holderID(takers) + "/was_named?dry_run=true"
		if s := requested(t, p, "POST", "prod", path, p.ready.Keys["prod"].Write, `{"data":{"name":"`+name+`","n":0},"metadata":{"actor":{"type":"user","id":"global"}}}`, &tried); s != http.StatusOK {
			t.Fatalf("%s: %d", name, s)
		}
		who := ""
		if len(tried.Refusals) > 0 {
			who = tried.Refusals[0].Details.Holder
		}
		if tried.Accepted != (held[name] == "") || who != held[name] {
			t.Fatalf("%s is held by %q, and by %q by the events", name, who, held[name])
		}
	}
}
