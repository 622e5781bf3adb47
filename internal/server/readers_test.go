//go:build !race

package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"j17/internal/base/wire"
	"j17/internal/server"
)

// Members of the spec of TestReadersOfEachKindOfEvent: what was_set was at first, what it became, and what it is.
const (
	readerTop   = `{"agent_types":["user"],"listeners":{"hook":{"url":{"prod":"HOOK"},"events":["thing.*"]}},`
	readerViews = `"projections":{"one":{"for_each":"thing","sources":{"t":"$key"},"select":{"m":"$.t.m?","page":"$.t.page?"},"index":["m"]}},`
	readerStep  = `[{"move":{"from":"n","to":"m"}},{"set":{"target":"m","value":{"$number":"@.m"}}}]`
	readerFirst = `"aggregate_types":{"thing":{"events":{
		"was_set":{"schema":true,"handler":{"merge":{"target":"","value":"$.data"}},"tags":{"who":"$.data.who"},MORE},
		"was_named":{"schema":true,"handler":{"merge":{"target":"","value":"$.data"}},"tags":{"who":"$.data.who"},MORE},
		"was_faxed":{"schema":true,"handler":{"merge":{"target":"","value":"$.data"}},"tags":{"who":"$.data.who"},MORE}}}}}`
	readerNewest = `"aggregate_types":{"thing":{"events":{
		"was_set":{"generations":{"1":{"schema":true,"upcast":` + readerStep + `}%s},
			"schema":true,"handler":{"merge":{"target":"","value":"$.data"}},"tags":{"who":"$.data.who"},MORE},
		"was_named":{"schema":true,"retired":{"as":"was_set","generation":1,"upcast":{"move":{"from":"name","to":"n"}}}},
		"was_faxed":{"schema":true,"retired":true,"handler":{"merge":{"target":"","value":"$.data"}},"tags":{"who":"$.data.who"},MORE}}}}}`
)

// What a reader shows of an event.
const (
	asNewest = "newest"  // in the newest generation
	asStored = "stored"  // as it is stored
	asFails  = "fails"   // an error that names it
	asMarker = "marker"  // that it was erased
	asNone   = "nothing" // nothing of it
)

// shownAs tells what an answer shows.
func shownAs(answer string) string {
	switch {
	case strings.HasSuffix(answer, " fail"):
		return answer // a number
	case strings.Contains(answer, "upcast_failed"), strings.Contains(answer, "cannot be read in the newest generation"):
		return asFails
	case strings.Contains(answer, `"n":`), strings.Contains(answer, `"name":`):
		return asStored
	case strings.Contains(answer, `"m":7`), strings.Contains(answer, `"page":7`):
		return asNewest
	case strings.Contains(answer, "was_tombstoned"):
		return asMarker
	default:
		return asNone
	}
}

// readerCase is an event of one kind, of an aggregate of its own.
type readerCase struct {
	kind, id string
	// event and generation are those that it is stored in.
	event      string
	generation int
	// at is its position, before the one in front of it, and behind the one that comes next.
	at, before, behind string
}

// readers is a server with events of each kind.
type readers struct {
	*house
	cases []*readerCase
	hook  chan string
}

// stream returns the first event of an event stream.
func (h *readers) stream(path string) string {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, h.dev.URL()+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	r.Host = strings.TrimPrefix(h.ready.URLs["prod"], "http://")
	r.Header.Set("Authorization", "Bearer "+h.ready.Keys["prod"].Write)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // the first event is all that is read
	if resp.StatusCode != http.StatusOK {
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			h.t.Fatal(err)
		}
		return string(answer)
	}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data:"); ok && strings.TrimSpace(data) != "{}" {
			return data
		}
	}
	return ""
}

func (h *readers) get(path string) string {
	_, answer := h.try("GET", "prod", path, "application/json", "")
	return string(answer)
}

// lineOf is the line of an answer that is about an aggregate.
func lineOf(answer, id string) string {
	for line := range strings.Lines(answer) {
		if strings.Contains(line, id) {
			return line
		}
	}
	return ""
}

// readerRow is a way in which events are read, by packages, with what it shows of an event. What does not stand in want
// it shows in the newest generation. An event that fails, or that is of a later generation than the spec has, is an
// error wherever it is looked at.
type readerRow struct {
	reader   string
	packages string
	read     func(h *readers, c *readerCase) string
	want     map[string]string
}

// path is a reader that is asked by a path, in which ID, AT, BEFORE, BEHIND and KIND stand for what an event has.
func path(of string) func(h *readers, c *readerCase) string {
	return func(h *readers, c *readerCase) string { return h.get(c.filled(of)) }
}

// streamOf is path for event streams.
func streamOf(of string) func(h *readers, c *readerCase) string {
	return func(h *readers, c *readerCase) string { return h.stream(c.filled(of)) }
}

// place is the latitude of the event.
func (c *readerCase) place() string { return c.id[len(c.id)-2:] + ".5" }

func (c *readerCase) filled(path string) string {
	return strings.NewReplacer(
		"PLACE", c.place(), "ID", c.id, "AT", c.at, "BEFORE", c.before, "BEHIND", c.behind, "KIND", c.kind,
	).Replace(path)
}

// readerRows are the readers of events. TestStoredReaders wants each package to stand here that reads events and shows
// them, or computes with them.
func readerRows() []readerRow {
	erased := map[string]string{"erased": asNone} // a state says nothing of it
	holdsNothing := map[string]string{"erased": asNone, "failing": asNone, "later": asNone}
	stored := map[string]string{"older": asStored, "renamed": asStored, "failing": asStored, "later": asNewest}
	return []readerRow{
		{"state", "internal/core/fold", path("/thing/ID"), erased},
		{"state at a length", "internal/core/engine", path("/thing/ID?length=1"), erased},
		{"list", "internal/edge/httpapi", path("/thing/ID/events"), nil},
		{"list, stored", "internal/core/engine", path("/thing/ID/events?generation=stored"), stored},
		{"changes", "internal/core/trial", path("/_admin/aggregates/thing/ID/changes"), nil},
		{"event", "internal/core/engine", path("/_admin/events/AT"), nil},
		{"guards and states of a write", "internal/core/decider", tried, erased},

		{"feed", "internal/follow/tail", path("/_events?count=1&after=BEFORE"), nil},
		{"feed, stored", "internal/follow/tail", path("/_events?count=1&generation=stored&after=BEFORE"), stored},
		{"feed, back", "internal/follow/tail", path("/_events?count=1&before=BEHIND"), nil},
		// The next event of the type is one that fails.
		{"feed, by type", "internal/follow/tail", path("/_events?count=1&types=thing.was_set&after=BEFORE"), map[string]string{
			"retired": asFails, "erased": asFails,
		}},
		// What cannot be read has no tags.
		{"feed, by tag", "internal/derived/tagging", path("/_events?count=1&tags=who:KIND"), map[string]string{
			"erased": asNone, "failing": asNone, "later": asNone,
		}},
		{"stream of the feed", "internal/follow/tail", streamOf("/_events/stream?after=BEFORE"), nil},
		{"stream of an aggregate", "internal/follow/tail", streamOf("/thing/ID/events/stream?after=0"), nil},
		{"webhook", "internal/follow/listener", replayed, nil},
		{"trace", "internal/follow/trace", traced, map[string]string{"failing": asNewest, "later": asNewest}},

		{"projection", "internal/derived/projection", path("/_projections/one/ID"), erased},
		{"live view", "internal/derived/projection", streamOf("/_projections/one/ID/stream"), erased},
		// What cannot be read is nowhere and holds nothing.
		{"place", "internal/derived/place", path("/thing/nearby?lat=PLACE&lng=11&radius=100"), holdsNothing},
		{"unique value", "internal/derived/unique", holds, holdsNothing},
		{"trial", "internal/derived/generation", counted, map[string]string{
			"older": "2, 1 fail", "renamed": "1, 0 fail", "retired": "1, 0 fail", "failing": "2, 1 fail",
			"erased": "2, 1 fail", "later": "1, 1 fail", "newest": "2, 0 fail",
		}},

		{"export", "internal/custody/loading", func(h *readers, c *readerCase) string {
			return lineOf(h.get("/_admin/export"), c.id)
		}, stored},
		// It is whole or none: events that cannot be read come behind all others but one.
		{"export, newest", "internal/custody/loading", path("/_admin/export?generation=newest&after=BEFORE"), map[string]string{
			"older": asFails, "renamed": asFails, "retired": asFails, "erased": asFails,
		}},
	}
}

// tried asks what a write to the aggregate would do, for which its events are read.
func tried(h *readers, c *readerCase) string {
	_, answer := h.try("POST", "prod", "/thing/"+c.id+"/was_set?dry_run=true", "application/json", by(numbered(0),
		`{"q":1}`))
	return string(answer)
}

// holds asks whether another aggregate could have the unique value of the event.
func holds(h *readers, c *readerCase) string {
	data := fmt.Sprintf(`{"q":1,"number":%q}`, c.kind)
	_, answer := h.try("POST", "prod", "/thing/"+numbered(40)+"/was_set?dry_run=true", "application/json",
		by(numbered(0), data))
	if strings.Contains(string(answer), "not_unique") {
		return `"m":7`
	}
	return ""
}

// replayed tells the listener of the event again, and returns what it was told, or what is said of the delivery.
func replayed(h *readers, c *readerCase) string {
	h.t.Helper()
	for len(h.hook) > 0 {
		<-h.hook
	}
	h.ask("POST", "prod", "/_admin/listeners/hook/replay", fmt.Sprintf(`{"after":%q,"until":%q}`, c.before, c.at))
	var now string
	for range 10 {
		if len(h.hook) > 0 {
			return <-h.hook
		}
		h.advance("1s")
		now = h.get("/_admin/deliveries?key=thing:" + c.id)
	}

	// What a try has come to stands in the log of the delivery.
	var all struct{ Deliveries []struct{ ID string } }
	h.decode([]byte(now), &all)
	return h.get("/_admin/deliveries/" + all.Deliveries[0].ID)
}

// traced looks at the event among those that it has to do with. There it has no data: the name of its type tells how it
// is shown.
func traced(h *readers, c *readerCase) string {
	h.t.Helper()
	var all struct{ Nodes []struct{ ID, Type string } }
	h.decode(h.ask("GET", "prod", "/_admin/trace/"+c.at, ""), &all)
	for _, n := range all.Nodes {
		switch {
		case n.ID != c.at:
		case n.Type == "was_set", n.Type == "was_faxed":
			return `"m":7`
		default:
			return n.Type
		}
	}
	return ""
}

// counted finds out how the trial has counted the events of the kind.
func counted(h *readers, c *readerCase) string {
	h.t.Helper()
	var all struct{ Types []wire.TypeGenerations }
	h.decode(h.ask("GET", "prod", "/_admin/generations", ""), &all)
	for _, of := range all.Types {
		for _, n := range of.Stored {
			if n.Name == c.event && n.Generation == c.generation && of.Type == "thing."+n.Name {
				return fmt.Sprintf("%d, %d fail", n.Events, n.Failed)
			}
		}
	}
	return ""
}

// TestReadersOfEachKindOfEvent has every reader of events look at an event of each kind: in the newest generation, in
// an older one, of a type that is read as another one, of a retired one, one that cannot be read, an erased one, and
// one of a later generation than the spec has.
func TestReadersOfEachKindOfEvent(t *testing.T) {
	h := &readers{hook: make(chan string, 100)}
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.hook <- string(body)
	}))
	defer hook.Close()
	inside, moveOut := moveInto(t, t.TempDir(), frozenAt(), server.StoreOptions{})
	defer moveOut()
	h.house = inside
	deploy := func(spec string) {
		spec = strings.Replace(`{"force":true,"spec":`+spec+`}`, "HOOK", hook.URL, 1)
		spec = strings.ReplaceAll(spec, "MORE", `"geo":{"type":"point","path":"$.data.at"},"unique":{"number":{"value":"$.data.number?"}}`)
		h.ask("POST", "control", "/api/instances/"+h.ready.Instance.ID+"/spec?environment=prod", spec)
	}
	write := func(kind, event string, generation int, data string) {
		c := &readerCase{kind: kind, id: numbered(10 + len(h.cases)), event: event, generation: generation}
		data = fmt.Sprintf(`{%s,"who":%[2]q,"number":%[2]q,"at":{"lat":%[3]s,"lng":11}}`, data, kind, c.place())
		h.ask("POST", "prod", "/thing/"+c.id+"/"+event, by(numbered(0), data))
		h.cases = append(h.cases, c)
	}

	// The events, under the specs of their times.
	deploy(readerTop + readerFirst)
	write("older", "was_set", 1, `"n":"7"`)
	write("renamed", "was_named", 1, `"name":"7"`)
	write("retired", "was_faxed", 1, `"page":7`)
	write("failing", "was_set", 1, `"n":"x"`)
	write("erased", "was_set", 1, `"n":"7"`)
	deploy(readerTop + readerViews + fmt.Sprintf(readerNewest, `,"2":{"schema":true,"upcast":[]},"3":{"schema":true,"upcast":[]}`))
	write("later", "was_set", 4, `"m":7`)
	deploy(readerTop + readerViews + fmt.Sprintf(readerNewest, ``))
	write("newest", "was_set", 2, `"m":7`)
	h.ask("POST", "prod", "/thing/"+numbered(30)+"/was_set", by(numbered(0), `{"m":0}`)) // what is behind the last one
	h.erase(numbered(14))

	// Where they are.
	var all struct {
		Events []struct {
			Key      string
			StreamID string `json:"stream_id"`
		}
	}
	h.decode(h.ask("GET", "prod", "/_events?generation=stored&count=100", ""), &all)
	for i := range all.Events[:len(all.Events)-1] {
		for _, c := range h.cases {
			if "thing:"+c.id == all.Events[i].Key {
				c.at, c.before, c.behind = all.Events[i].StreamID, "0", all.Events[i+1].StreamID
				if i > 0 {
					c.before = all.Events[i-1].StreamID
				}
			}
		}
	}

	for _, row := range readerRows() {
		for _, c := range h.cases {
			want := row.want[c.kind]
			switch {
			case want != "":
			case c.kind == "failing" || c.kind == "later":
				want = asFails
			case c.kind == "erased":
				want = asMarker
			default:
				want = asNewest
			}
			answer := row.read(h, c)
			if got := shownAs(answer); got != want {
				t.Errorf("%s, %s: %s, want %s: %.400s", row.reader, c.kind, got, want, answer)
			}
		}
	}
}

// erase erases an aggregate.
func (h *house) erase(id string) {
	h.t.Helper()
	var asked struct{ Tombstone struct{ ID, Status string } }
	h.decode(h.ask("POST", "prod", "/_admin/tombstone/thing/"+id, `{"legal_basis":"gdpr_article_17"}`), &asked)
	h.ask("POST", "prod", "/_admin/tombstones/"+asked.Tombstone.ID+"/execute", `{"force":true}`)
	for asked.Tombstone.Status != "executed" && asked.Tombstone.Status != "completed" && h.t.Context().Err() == nil {
		h.advance("1s")
		h.decode(h.ask("GET", "prod", "/_admin/tombstones/"+asked.Tombstone.ID, ""), &asked)
	}
}
