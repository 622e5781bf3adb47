package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"j17"
	"j17/internal/base/clock"
)

// screenSpec is of tickets, each of a customer that counts them in the same commit, and at a place.
const screenSpec = `{
	"agent_types": ["user"],
	"aggregate_types": {
		"ticket": {"events": {"was_changed": {"allow_skip_occ": true, "schema": {"type": "object"}, "geo": {"type": "point", "path": "$.data.at"},
			"handler": [{"set": {"target": "", "value": "$.data"}}],
			"implications": [{"emit": {"aggregate_type": "customer", "id": "$.data.by", "event_type": "had_change", "data": {}}}]}}},
		"customer": {"events": {
			"had_change": {"schema": {"type": "object"}, "handler": [{"increment": {"target": "changes", "by": 1}}]},
			"was_named": {"allow_skip_occ": true, "schema": {"type": "object"}, "handler": [{"set": {"target": "name", "value": "$.data.name"}}]}}}
	},
	"projections": {
		"declared": %s,
		"of_customer": {"for_each": "customer", "sources": {"c": "$key", "tickets": {"type": "ticket", "query": "by = $.c.id"}}, "select": {"tickets": "$.tickets[*].id"}}
	}
}`

// screen is the definition of a list of tickets. Each edition says which one it is; every other one has one more index.
func screen(edition int) string {
	more := ""
	if edition%2 == 1 {
		more = `, "points"`
	}
	return fmt.Sprintf(`{"for_each": "ticket", "sources": {"t": "$key", "by": {"type": "customer", "id": "$.t.by"}},
		"select": {"edition": %d, "status": "$.t.status", "points": "$.t.points", "n": "$.t.n", "who": "$.by.name"}, "index": ["status", ["who", "points"]%s]}`, edition, more)
}

// The editions that may be in force: all from the last one that was acknowledged to the last one that was sent.
type editions struct {
	mu        sync.Mutex
	low, high int
}

// next is an edition that is to be sent.
func (e *editions) next() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.high++
	return e.high
}

// inForce notes that an edition has taken its place.
func (e *editions) inForce(edition int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.low = edition
}

// ticket is one as it was written, and shown. Each writer has tickets of its own, and numbers what it writes.
type ticket struct {
	Status string `json:"status"`
	Points int    `json:"points"`
	By     string `json:"by"`
	N      int    `json:"n"`
	At     struct {
		Lat float64 `json:"lat"`
		Lng float64 `json:"lng"`
	} `json:"at"`
}

// screenRow is a row of a list of tickets, or of those near a point.
type screenRow struct {
	ID   string `json:"id"`
	Data struct {
		Edition int    `json:"edition"`
		Status  string `json:"status"`
		Points  int    `json:"points"`
		N       int    `json:"n"`
		Who     string `json:"who"`
	} `json:"data"`
}

// screens are the clients of a server with lists of tickets.
type screens struct {
	client    *http.Client
	p         *process
	token     string
	customers []string
	// tickets are the ids of each writer, acked the highest number of each ticket that was acknowledged.
	tickets [][]string
	acked   []map[string]int
	// declared and posted are the editions of the projections of these names.
	declared, posted editions
}

// TestKillLeavesListsRight kills the server with SIGKILL at random moments while tickets are written, lists are read,
// projections are posted, prepared and built anew, and specs are deployed, again and again on the same data folder.
// Each time all lists, counts and places are then what reading every ticket by id comes to, the indexes are what the
// events say, and what was deployed holds.
func TestKillLeavesListsRight(t *testing.T) {
	const writers, each = 4, 20
	dir := t.TempDir()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := &screens{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
	for range 4 {
		s.customers = append(s.customers, uuid.New().String())
	}
	for range writers {
		var ids []string
		for range each {
			ids = append(ids, uuid.New().String())
		}
		s.tickets, s.acked = append(s.tickets, ids), append(s.acked, map[string]int{})
	}
	start := func() {
		t.Helper()
		var err error
		if s.p, err = startDev(t, dir, "--data", filepath.Join(dir, "data")); err != nil {
			t.Fatal(err)
		}
		s.token = operatorToken(t, s.p)
	}

	for round := range rounds(1, 50) {
		start()
		if round == 0 {
			s.deploy(t, false)
		} else {
			s.check(t)
		}
		if t.Failed() {
			break
		}
		var writing, others []func() bool
		for w := range writers {
			own := rand.New(rand.NewPCG(rng.Uint64(), 0))
			writing = append(writing, func() bool { return s.change(t, w, own) })
		}
		naming, reading, posting := rand.New(rand.NewPCG(rng.Uint64(), 0)), rand.New(rand.NewPCG(rng.Uint64(), 0)),
			rand.New(rand.NewPCG(rng.Uint64(), 0))
		others = append(
			others, func() bool { return s.rename(t, naming) }, func() bool { return s.read(t, reading) },
			func() bool { return s.administer(t, posting) },
		)
		untilKilled(t, s.p, rng.IntN(400)+30, writing, others)
		s.client.CloseIdleConnections()
	}
	if !t.Failed() {
		start()
		s.check(t)
		if err := s.p.end(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.Log(s.p.err.String())
	}
}

// get reads from the environment. It returns 0 where there was no answer.
func (s *screens) get(t *testing.T, path string, into any) int {
	t.Helper()
	status, raw := askOf(s.client, s.p, http.MethodGet, "prod", path, s.p.ready.Keys["prod"].Read, "")
	if status == http.StatusOK && into != nil {
		if err := json.Unmarshal(raw, into); err != nil {
			t.Errorf("%s: %v: %s", path, err, raw)
		}
	}
	return status
}

// answered reports whether a client goes on after an answer: not where there was none, nor after one that it does not
// expect.
func answered(t *testing.T, what string, status int, want ...int) bool {
	t.Helper()
	if status != 0 && !slices.Contains(want, status) {
		t.Errorf("%s: %d", what, status)
		return false
	}
	return status != 0
}

// notWritten reports whether an answer says that a write was not done, and may be tried again.
func notWritten(status int, answer []byte) bool {
	return status == http.StatusServiceUnavailable && !bytes.Contains(answer, []byte(j17.CodeOutcomeUnknown))
}

// change writes one of a writer's tickets, and finds it by what it has written.
func (s *screens) change(t *testing.T, writer int, rng *rand.Rand) bool {
	t.Helper()
	id := s.tickets[writer][rng.IntN(len(s.tickets[writer]))]
	var next ticket
	next.N, next.Status, next.Points, next.By = s.acked[writer][id]+1, []string{"open", "opened", "done"}[rng.IntN(3)],
		rng.IntN(10), s.customers[rng.IntN(len(s.customers))]
	next.At.Lat, next.At.Lng = 52+float64(rng.IntN(1000))/2000, 13+float64(rng.IntN(1000))/2000
	data, err := json.Marshal(next)
	if err != nil {
		t.Error(err)
		return false
	}
	written, raw := askOf(
		s.client, s.p, http.MethodPost, "prod", "/ticket/"+id+"/was_changed", s.p.ready.Keys["prod"].Write,
		`{"data":`+string(data)+`,`+byGlobal+`}`,
	)
	if notWritten(written, raw) {
		return true
	}
	if !answered(t, "a ticket: "+string(raw), written, http.StatusCreated) {
		return false
	}
	s.acked[writer][id] = next.N

	// It stands in the list, and at its place.
	var list struct{ Rows []screenRow }
	path := "/_projections/declared?count=1000&status=" + next.Status
	if rng.IntN(2) == 0 {
		path = fmt.Sprintf("/ticket/nearby?count=1000&radius=1&lat=%v&lng=%v", next.At.Lat, next.At.Lng)
	}
	status := s.get(t, path, &list)
	if status == http.StatusOK &&
		!slices.ContainsFunc(list.Rows, func(r screenRow) bool { return r.ID == id && r.Data.N == next.N }) {
		t.Errorf("%s does not have %s as it was just written, with n=%d: %v", path, id, next.N, list.Rows)
	}
	return answered(t, path, status, http.StatusOK, http.StatusServiceUnavailable)
}

// byGlobal is the metadata of an event that is written whatever is there.
const byGlobal = `"metadata":{"actor":{"type":"user","id":"global"},"skip_occ":true}`

// rename names a customer anew, which changes many rows.
func (s *screens) rename(t *testing.T, rng *rand.Rand) bool {
	t.Helper()
	id, name := s.customers[rng.IntN(len(s.customers))], []string{"Ann", "Bob", "Cid", "Dot", "Eve"}[rng.IntN(5)]
	status, raw := askOf(
		s.client, s.p, http.MethodPost, "prod", "/customer/"+id+"/was_named", s.p.ready.Keys["prod"].Write,
		`{"data":{"name":"`+name+`"},`+byGlobal+`}`,
	)
	return notWritten(status, raw) || answered(t, "a name: "+string(raw), status, http.StatusCreated)
}

// read reads one list in its order. All rows are of one edition.
func (s *screens) read(t *testing.T, rng *rand.Rand) bool {
	t.Helper()
	path := "/_projections/" + []string{"declared", "posted"}[rng.IntN(2)] + "?count=1000&order=who"
	var list struct{ Rows []screenRow }
	status := s.get(t, path, &list)
	for i := 1; i < len(list.Rows); i++ {
		a, b := &list.Rows[i-1], &list.Rows[i]
		if compareRows(a, b, byWho) >= 0 || a.Data.Edition != b.Data.Edition {
			t.Errorf("%s: %+v stands before %+v", path, *a, *b)
		}
	}
	return answered(t, path, status, http.StatusOK, http.StatusServiceUnavailable, http.StatusNotFound)
}

// administer posts a projection, or deploys the spec with another one, with or without preparing it, or builds indexes
// anew.
func (s *screens) administer(t *testing.T, rng *rand.Rand) bool {
	t.Helper()
	switch rng.IntN(5) {
	case 0:
		return s.deploy(t, rng.IntN(2) == 0)
	case 1:
		name := []string{"declared", "posted", "of_customer"}[rng.IntN(3)]
		status, _ := askOf(s.client, s.p, http.MethodPost, "prod", "/_admin/projections/"+name+"/rebuild", s.token, "")
		return answered(
			t, "rebuild "+name, status, http.StatusAccepted, http.StatusNotFound, http.StatusPreconditionFailed,
			http.StatusServiceUnavailable,
		)
	}
	edition := s.posted.next()
	query := ""
	if rng.IntN(2) == 0 {
		query = "?prepare=true"
	}
	definition := `{"name": "posted", ` + strings.TrimPrefix(screen(edition), "{")
	status, raw := askOf(s.client, s.p, http.MethodPost, "prod", "/_admin/projections"+query, s.token, definition)
	if status == http.StatusOK || status == http.StatusCreated {
		s.posted.inForce(edition)
	}
	return answered(
		t, "posting a projection: "+string(raw), status, http.StatusOK, http.StatusCreated, http.StatusAccepted,
		http.StatusPreconditionFailed, http.StatusServiceUnavailable,
	)
}

// deploy deploys the spec with the next edition of its list.
func (s *screens) deploy(t *testing.T, prepare bool) bool {
	t.Helper()
	edition := s.declared.next()
	path := "/api/instances/" + s.p.ready.Instance.ID + "/spec?environment=prod"
	if prepare {
		path += "&prepare=true"
	}
	status, raw := askOf(
		s.client, s.p, http.MethodPost, "control", path, s.token, fmt.Sprintf(screenSpec, screen(edition)),
	)
	if status == http.StatusOK || status == http.StatusCreated {
		s.declared.inForce(edition)
	}
	return answered(t, "deploying: "+string(raw), status, http.StatusOK, http.StatusCreated, http.StatusAccepted,
		http.StatusConflict, http.StatusPreconditionFailed, http.StatusServiceUnavailable) // with one that was prepared
}

// An order of rows: the fields before the id.
type order func(r *screenRow) (who string, points int)

func byID(*screenRow) (who string, points int)       { return "", 0 }
func byWho(r *screenRow) (who string, points int)    { return r.Data.Who, r.Data.Points }
func byPoints(r *screenRow) (who string, points int) { return "", r.Data.Points }

func compareRows(a, b *screenRow, by order) int {
	whoA, pointsA := by(a)
	whoB, pointsB := by(b)
	return cmp.Or(strings.Compare(whoA, whoB), pointsA-pointsB, strings.Compare(a.ID, b.ID))
}

// screenQueries are lists that can be asked for, with what they have.
func screenQueries() map[string]struct {
	has func(r *screenRow) bool
	by  order
} {
	type query = struct {
		has func(r *screenRow) bool
		by  order
	}
	every := func(*screenRow) bool { return true }
	return map[string]query{
		"":                     {every, byID},
		"status=open":          {func(r *screenRow) bool { return r.Data.Status == "open" }, byID},
		"status=done":          {func(r *screenRow) bool { return r.Data.Status == "done" }, byID},
		"who=Ann":              {func(r *screenRow) bool { return r.Data.Who == "Ann" }, byWho},
		"who=Bob&points.gte=5": {func(r *screenRow) bool { return r.Data.Who == "Bob" && r.Data.Points >= 5 }, byWho},
		"who=null":             {func(r *screenRow) bool { return r.Data.Who == "" }, byWho},
		"order=who":            {every, byWho},
		"order=points":         {every, byPoints},
		"points.in=3%2C7": {
			func(r *screenRow) bool { return r.Data.Points == 3 || r.Data.Points == 7 }, byPoints,
		},
		"who.prefix=C":          {func(r *screenRow) bool { return strings.HasPrefix(r.Data.Who, "C") }, byWho},
		"who=Eve&points.lt=3.5": {func(r *screenRow) bool { return r.Data.Who == "Eve" && r.Data.Points < 4 }, byWho},
	}
}

// check compares everything with what reading all tickets by id comes to.
func (s *screens) check(t *testing.T) {
	t.Helper()
	s.rest(t)
	tickets := s.all(t)
	rows := s.rows(t, tickets)
	s.checkLists(t, "declared", &s.declared, rows)
	if s.posted.low > 0 || s.get(t, "/_projections/posted?count=1", nil) != http.StatusNotFound {
		s.checkLists(t, "posted", &s.posted, rows)
	}
	s.checkCustomers(t, tickets)
	s.checkNearby(t, tickets)
	s.checkVerified(t, "of_customer")
}

// rest waits until nothing is built or prepared any more: what the server before had begun goes on when its time is
// over.
func (s *screens) rest(t *testing.T) {
	t.Helper()
	system := clock.System{}
	for deadline := system.Now().Add(patience); ; {
		if status := postTo(s.client, s.p, "/_dev/clock/advance", s.token, `{"by":"1m"}`); status != http.StatusOK {
			t.Fatalf("moving the clock: %d", status)
		}
		var going []byte
		for _, path := range []string{"/_admin/projections", "/_admin/spec/prepared"} {
			status, raw := askOf(s.client, s.p, http.MethodGet, "prod", path, s.token, "")
			if status != http.StatusOK && status != http.StatusNotFound {
				t.Fatalf("%s: %d %s", path, status, raw)
			}
			if bytes.Contains(raw, []byte(`"status":"running"`)) {
				going = append(going, raw...)
			}
		}
		if going == nil {
			return
		}
		if system.Now().After(deadline) {
			t.Fatalf("it is not built: %s", going)
		}
		if err := system.Wait(t.Context(), system.Now().Add(20*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
}

// all reads all tickets by id. Each is as it was acknowledged, or has the one write more that was under way; and the
// customers have counted as many changes as there are.
func (s *screens) all(t *testing.T) map[string]ticket {
	t.Helper()
	tickets, changes := map[string]ticket{}, 0
	for w, ids := range s.tickets {
		for _, id := range ids {
			var found struct {
				Data     ticket
				Metadata struct{ Length int }
			}
			status, acked := s.get(t, "/ticket/"+id, &found), s.acked[w][id]
			if status == http.StatusNotFound && acked == 0 {
				continue
			}
			if status != http.StatusOK || found.Data.N < acked || found.Data.N > acked+1 ||
				found.Data.N != found.Metadata.Length {
				t.Fatalf("%s: %d, %+v, of which %d were acknowledged", id, status, found, acked)
			}
			tickets[id], s.acked[w][id] = found.Data, found.Data.N
			changes += found.Data.N
		}
	}
	for _, id := range s.customers {
		var found struct{ Data struct{ Changes int } }
		if status := s.get(t, "/customer/"+id, &found); status != http.StatusOK && status != http.StatusNotFound {
			t.Fatalf("%s: %d", id, status)
		}
		changes -= found.Data.Changes
	}
	if changes != 0 {
		t.Errorf("customers have counted %d changes of tickets too few", changes)
	}
	return tickets
}

// rows are the rows of a list of tickets, without an edition.
func (s *screens) rows(t *testing.T, tickets map[string]ticket) (rows []screenRow) {
	t.Helper()
	names := map[string]string{}
	for _, id := range s.customers {
		var found struct{ Data struct{ Name string } }
		s.get(t, "/customer/"+id, &found)
		names[id] = found.Data.Name
	}
	for id, of := range tickets {
		row := screenRow{ID: id}
		row.Data.Status, row.Data.Points, row.Data.N, row.Data.Who = of.Status, of.Points, of.N, names[of.By]
		rows = append(rows, row)
	}
	return rows
}

// checkLists checks all lists and counts of a projection, and its indexes.
func (s *screens) checkLists(t *testing.T, name string, of *editions, rows []screenRow) {
	t.Helper()
	// Nothing is prepared any more, so the edition stays.
	s.checkVerified(t, name)
	first := s.page(t, "/_projections/"+name+"?count=1")
	edition := of.low
	if len(first.Rows) > 0 {
		edition = first.Rows[0].Data.Edition
	}
	if edition < of.low || edition > of.high {
		t.Errorf("edition %d of %s is in force; %d was acknowledged, %d sent", edition, name, of.low, of.high)
	}
	of.inForce(edition)

	// Each list in pages, against filtering and sorting.
	for query, q := range screenQueries() {
		if edition%2 == 0 && (strings.HasPrefix(query, "points") || strings.HasSuffix(query, "=points")) {
			continue // no index serves it
		}
		var want []screenRow
		for _, row := range rows {
			if row.Data.Edition = edition; q.has(&row) {
				want = append(want, row)
			}
		}
		slices.SortFunc(want, func(a, b screenRow) int { return compareRows(&a, &b, q.by) })
		if got := s.pages(t, name, query); !slices.Equal(got, want) {
			t.Errorf("%s?%s: %d rows, want %d:\n%+v\nwant\n%+v", name, query, len(got), len(want), got, want)
		}
		var counted struct{ Count int }
		if !strings.HasPrefix(query, "order") {
			s.await(t, "/_projections/"+name+"/_count?"+query, &counted)
			if counted.Count != len(want) {
				t.Errorf("%s?%s: %d are counted of %d", name, query, counted.Count, len(want))
			}
		}
	}
}

// screenPage is a page of a list.
type screenPage struct {
	Rows []screenRow
	Next *string
}

// page reads a page, as soon as the server is able to.
func (s *screens) page(t *testing.T, path string) (page screenPage) {
	t.Helper()
	s.await(t, path, &page)
	return page
}

// await reads what the server may not be able to tell yet: an index is being built.
func (s *screens) await(t *testing.T, path string, into any) {
	t.Helper()
	system := clock.System{}
	for deadline := system.Now().Add(patience); ; {
		switch status := s.get(t, path, into); {
		case status == http.StatusOK:
			return
		case status != http.StatusServiceUnavailable || system.Now().After(deadline):
			t.Fatalf("%s: %d", path, status)
		}
		if err := system.Wait(t.Context(), system.Now().Add(20*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
}

// pages reads all rows of a list, some at a time.
func (s *screens) pages(t *testing.T, name, query string) (rows []screenRow) {
	t.Helper()
	for path := "/_projections/" + name + "?count=17&" + query; ; {
		page := s.page(t, path)
		rows = append(rows, page.Rows...)
		if page.Next == nil {
			return rows
		}
		path = "/_projections/" + name + "?count=17&" + query + "&start=" + url.QueryEscape(*page.Next)
	}
}

// checkVerified compares the indexes of a projection with the events, as an operator does.
func (s *screens) checkVerified(t *testing.T, name string) {
	t.Helper()
	s.await(t, "/_projections/"+name+"?count=1", nil)
	cmd := startable(t, "j17", "projection", "verify", name, "--url", s.p.ready.URLs["control"], "--env", "prod")
	cmd.Env = append(cmd.Env, "J17_TOKEN="+s.token)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("verifying %s: %v\n%s", name, err, out)
	}
}

// checkCustomers checks which tickets a query finds.
func (s *screens) checkCustomers(t *testing.T, tickets map[string]ticket) {
	t.Helper()
	for _, customer := range s.customers {
		var want []string
		for id, of := range tickets {
			if of.By == customer {
				want = append(want, id)
			}
		}
		if s.get(t, "/customer/"+customer, nil) == http.StatusNotFound {
			continue // it has no row
		}
		var got struct{ Data struct{ Tickets []string } }
		s.await(t, "/_projections/of_customer/"+customer, &got)
		slices.Sort(want)
		if slices.Sort(got.Data.Tickets); !slices.Equal(got.Data.Tickets, want) {
			t.Errorf("the tickets of %s: %d, want %d", customer, len(got.Data.Tickets), len(want))
		}
	}
}

// checkNearby checks what is around a point.
func (s *screens) checkNearby(t *testing.T, tickets map[string]ticket) {
	t.Helper()
	const lat, lng, radius = 52.25, 13.25, 15_000
	distances, want := map[string]float64{}, 0
	for id, of := range tickets {
		if distances[id] = haversine(lat, lng, of.At.Lat, of.At.Lng); distances[id] <= radius {
			want++
		}
	}
	var near struct {
		Rows []struct {
			ID       string
			Distance float64
			Data     ticket
		}
	}
	s.await(t, fmt.Sprintf("/ticket/nearby?count=1000&lat=%v&lng=%v&radius=%v", lat, lng, radius), &near)
	if len(near.Rows) != want {
		t.Errorf("%d tickets are near, want %d", len(near.Rows), want)
	}
	last := 0.0
	for _, row := range near.Rows {
		if row.Data != tickets[row.ID] || math.Abs(row.Distance-distances[row.ID]) > 0.01 || row.Distance < last {
			t.Errorf("%+v is near, after what is %v away; it is %+v, %v away", row, last, tickets[row.ID], distances[row.ID])
		}
		last = row.Distance
	}
}

// haversine is the distance of two points in metres.
func haversine(lat1, lng1, lat2, lng2 float64) float64 {
	const degree = math.Pi / 180
	half := func(degrees float64) float64 { return math.Pow(math.Sin(degrees*degree/2), 2) }
	return 2 * 6_371_008.8 * math.Asin(
		math.Sqrt(half(lat2-lat1)+math.Cos(lat1*degree)*math.Cos(lat2*degree)*half(lng2-lng1)),
	)
}
