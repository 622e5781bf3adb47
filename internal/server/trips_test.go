//go:build !race

package server_test

import (
	"fmt"
	"math"
	"testing"

	"j17/internal/server"
	"j17/internal/storage/postgres/pgtest"
)

// tripSpec has notes, a projection of each, and a list of all of them.
const tripSpec = `{"agent_types":["user"],
	"aggregate_types":{"note":{"events":{"was_written":{"schema":{"type":"object"},
		"handler":[{"set":{"target":"text","value":"$.data.text"}}]}}},
		"other":{"events":{"was_written":{"schema":{"type":"object"},"handler":[]}}}},
	"projections":{
		"list":{"for_each":"note","sources":{"note":"$key"},"select":{"text":"$.note.text"},"index":["text"]}}}`

// TestTripsOfRequests counts what requests cost in round trips to the database, the least of several
// tries: what goes on in the background makes some as well.
func TestTripsOfRequests(t *testing.T) {
	db := pgtest.Shared(t)
	proxy := pgtest.NewProxy(t, db)
	h, moveOut := moveInto(t, t.TempDir(), frozenAt(), server.StoreOptions{
		Address: db.Address(proxy.Host()), Schema: db.Schema(t), Plain: true, AllowSingle: true, Connections: 12,
	})
	defer moveOut()
	h.ask("POST", "control", "/api/instances/"+h.ready.Instance.ID+"/spec?environment=prod", tripSpec)
	write := func(n int) {
		h.ask("POST", "prod", "/note/"+numbered(n)+"/was_written", by(numbered(0), fmt.Sprintf(`{"text":"%02d"}`, n)))
	}
	for n := range 60 {
		write(n)
	}
	list := func(int) { h.ask("GET", "prod", "/_projections/list?order=text&count=50", "") }

	const tries = 12
	for _, c := range []struct {
		what string
		most int
		ask  func(try int)
		// before, if not nil, is done before each try.
		before func()
	}{
		{"a write where the head is known", 1, func(int) { write(7) }, nil},
		{"a state", 1, func(int) { h.ask("GET", "prod", "/note/"+numbered(7), "") }, nil},
		{"a kept projection", 1, func(int) { h.ask("GET", "prod", "/_projections/list/"+numbered(7), "") }, nil},
		{"a page of a list", 1, list, nil},
		// The heads of all rows are compared, together.
		{"a page of a list after a write", 2, list, func() {
			h.ask("POST", "prod", "/other/"+numbered(0)+"/was_written", by(numbered(0), `{}`))
		}},
	} {
		least := math.MaxInt
		for try := range tries {
			if c.before != nil {
				c.before()
			}
			before := proxy.Count().Trips
			c.ask(try)
			least = min(least, proxy.Count().Trips-before)
		}
		t.Logf("%s: %d round trips", c.what, least)
		if least > c.most {
			t.Errorf("%s takes %d round trips, %d at most", c.what, least, c.most)
		}
	}
}
