package httpapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/edge/httpapi"
	"j17/internal/lang/spec"
	"j17/internal/storage/testopen"
)

// liveEvent is an event of a live view.
type liveEvent struct{ name, id, data string }

// live returns the next event of a live view, passing over what only shows that it lives.
func (c *client) live(tb testing.TB) (ev liveEvent) {
	tb.Helper()
	for {
		line, err := c.body.ReadString('\n')
		if err != nil {
			tb.Fatal(err)
		}
		switch name, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); name {
		case "event":
			ev.name = v
		case "id":
			ev.id = v
		case "data":
			ev.data = v
		case "":
			if ev.data != "" {
				return ev
			}
		case ":":
		default:
			tb.Fatalf("unknown line %q", line)
		}
	}
}

// liveSpec has views over notes and their authors.
const liveSpec = `{
	"agent_types": ["user"],
	"aggregate_types": {
		"note": {"events": {"was_written": {"schema": {}, "handler": [{"set": {"target": "", "value": "$.data"}}]}}},
		"author": {"events": {"was_named": {"schema": {}, "handler": [{"set": {"target": "", "value": "$.data"}}]}}}
	},
	"projections": {
		"notes": {"for_each": "note", "sources": {"note": "$key", "author": {"type": "author", "id": "$.note.by"}}, "select": {"text": "$.note.text", "by": "$.author.name"}},
		"by_id": {"sources": [{"aggregate": "note", "id": "$.note"}]}
	}
}`

const noteA, noteB, ann, bob = "0b6e9d4e-6f0a-4f3c-8c53-00000000000a", "0b6e9d4e-6f0a-4f3c-8c53-00000000000b",
	"0b6e9d4e-6f0a-4f3c-8c53-0000000000aa", "0b6e9d4e-6f0a-4f3c-8c53-0000000000bb"

// name writes what an author is called.
func (f *fixture) name(tb testing.TB, id, name string) string {
	tb.Helper()
	got := f.do(tb, "POST", "/author/"+id+"/was_named", `{"data":{"name":"`+name+`"},`+actor+`}`)
	if got.status != http.StatusCreated {
		tb.Fatalf("%d %s", got.status, got.body)
	}
	return got.member(tb, "stream_id")
}

// shows compares an event of a live view, as of a position that is not before one.
func (ev *liveEvent) shows(tb testing.TB, data, since string) {
	tb.Helper()
	var got struct {
		Data     json.RawMessage
		Metadata struct{ Position string }
	}
	if err := json.Unmarshal([]byte(ev.data), &got); err != nil || ev.name != "value" || string(got.Data) != data ||
		got.Metadata.Position != ev.id || ev.id < since {
		tb.Errorf("%+v, %v, not %s since %s", *ev, err, data, since)
	}
}

// TestLiveValues follows a value while its sources change, and other things that it is not made of.
func TestLiveValues(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newRows(t, liveSpec)
		p := f.serve(t)
		f.write(t, noteA+"/was_written", `{"text":"one","by":"`+ann+`"}`)
		c := f.stream(t, p, "/_projections/notes/"+noteA+"/stream")
		ev := c.live(t)
		ev.shows(t, `{"text":"one","by":null}`, "")

		// What it is made of changes, and is another one then.
		f.write(t, noteB+"/was_written", `{"text":"other"}`)
		since := f.name(t, ann, "Ann")
		ev = c.live(t)
		ev.shows(t, `{"text":"one","by":"Ann"}`, since)
		f.name(t, ann, "Ann") // which changes nothing
		f.name(t, bob, "Bob")
		since = f.write(t, noteA+"/was_written", `{"text":"two","by":"`+bob+`"}`)
		ev = c.live(t)
		ev.shows(t, `{"text":"two","by":"Bob"}`, since)
		f.name(t, ann, "Anna") // of which it is made no more
		since = f.name(t, bob, "Rob")
		ev = c.live(t)
		ev.shows(t, `{"text":"two","by":"Rob"}`, since)

		// Who comes again has what there is now.
		again := f.stream(t, p, "/_projections/notes/"+noteA+"/stream", "Last-Event-ID: "+ev.id)
		last := again.live(t)
		last.shows(t, `{"text":"two","by":"Rob"}`, since)

		// The other form.
		form := f.stream(t, p, "/_projections/by_id/"+noteB+"/stream")
		if ev := form.live(t); ev.name != "value" ||
			!strings.HasPrefix(ev.data, `{"data":{"note":{"id":"`+noteB+`","text":"other"`) {
			t.Errorf("%+v", ev)
		}
	})
}

// TestLiveValuesCoalesce: a burst is sent as what it has come to, and at most 20 times a second.
func TestLiveValuesCoalesce(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newRows(t, liveSpec)
		p := f.serve(t)
		f.write(t, noteA+"/was_written", `{"text":"0"}`)
		c := f.stream(t, p, "/_projections/notes/"+noteA+"/stream")
		c.live(t)
		const writes = 300
		begin := time.Now()
		go func() {
			for n := range writes {
				f.write(t, noteA+"/was_written", fmt.Sprintf(`{"text":"%d"}`, n+1))
				_ = clock.System{}.Wait(t.Context(), time.Now().Add(5*time.Millisecond))
			}
		}()
		events := 0
		for want := fmt.Sprintf(`"text":"%d"`, writes); ; {
			events++
			if ev := c.live(t); strings.Contains(ev.data, want) {
				break
			}
		}
		if most := int(time.Since(begin)/(50*time.Millisecond)) + 1; events > most || events < 2 {
			t.Errorf("%d events in %s", events, time.Since(begin))
		}
	})
}

// TestLiveHeartbeats: a silent view shows that it lives.
func TestLiveHeartbeats(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newRows(t, liveSpec)
		p := f.serve(t)
		f.write(t, noteA+"/was_written", `{}`)
		c := f.stream(t, p, "/_projections/notes/"+noteA+"/stream?heartbeat=20s")
		first := c.live(t)
		f.write(t, noteB+"/was_written", `{}`)
		ids := 0
		for n := range 4 {
			if n == 2 { // before that, it may have been woken by what was written before it began
				ids = 0
				f.write(t, noteA+"/was_written", `{}`) // which changes nothing
			}
			begin := time.Now()
			line, err := c.body.ReadString('\n')
			for ; err == nil && line != ":\n"; line, err = c.body.ReadString('\n') {
				if line != "\n" && !strings.HasPrefix(line, "id: ") {
					t.Fatalf("%q", line)
				}
				if line != "\n" {
					ids++
				}
			}
			if took := time.Since(begin); err != nil || took < 19*time.Second || took > 21*time.Second {
				t.Errorf("after %s: %v", took, err)
			}
		}
		if ids != 1 {
			t.Errorf("%d heartbeats have an id, and the view was woken once and nothing had changed", ids)
		}
		f.write(t, noteA+"/was_written", `{"text":"x"}`)
		if ev := c.live(t); ev.id <= first.id {
			t.Errorf("%+v after %+v", ev, first)
		}
	})
}

// TestLiveValuesFollowTheSpec deploys another handler, of which the view yields something else without any event.
func TestLiveValuesFollowTheSpec(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newRows(t, liveSpec)
		p := f.serve(t)
		f.write(t, noteA+"/was_written", `{"text":"one"}`)
		c := f.stream(t, p, "/_projections/notes/"+noteA+"/stream")
		first := c.live(t)
		first.shows(t, `{"text":"one","by":null}`, "")

		compiled, found := spec.Compile([]byte(strings.Replace(liveSpec, `"value": "$.data"}}]`, `"value": "$.data"}}, {"set": {"target": "text", "value": "changed"}}]`, 1)))
		if compiled == nil {
			t.Fatal(found)
		}
		tenant := j17.TenantOf(f.instance.ID, j17.Prod)
		f.Engine.Deploy(tenant, compiled, nil)
		f.Projections.Adopted(t.Context(), tenant)
		second := c.live(t)
		second.shows(t, `{"text":"changed","by":null}`, first.id)
	})
}

// TestLiveRefusals asks for live views that there are not.
func TestLiveRefusals(t *testing.T) {
	f := newRows(t, liveSpec)
	for path, want := range map[string]string{
		"notes/" + noteA + "/stream": "aggregate_not_found ", "ghost/" + noteA + "/stream": "unknown_projection ",
		"notes/x/stream": "invalid_identifier key",
		"notes/" + noteA + "/stream?heartbeat=61s": "invalid_parameter heartbeat",
		"notes/" + noteA + "/stream?at=1":          "invalid_parameter at",
		"by_id/global/stream?x=1":                  "invalid_parameter x",
	} {
		code, at, _ := strings.Cut(want, " ")
		got := f.do(t, "GET", "/_projections/"+path, "")
		if got.member(t, "code") != code || at != "" && got.member(t, "path") != at {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	f.write(t, noteA+"/was_written", `{}`)
	if got := f.do(
		t, "GET", "/_projections/notes/"+noteA+"/stream", "", "Last-Event-ID: x",
	); got.member(t, "code") != "invalid_header" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := f.do(t, "HEAD", "/_projections/notes/"+noteA+"/stream", ""); got.status != http.StatusOK ||
		got.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d %v", got.status, got.header)
	}
}

// next returns the name of the next event of a live list, and its row's id.
func (c *client) nextRow(tb testing.TB) string {
	tb.Helper()
	ev := c.live(tb)
	var row struct{ ID string }
	if err := json.Unmarshal([]byte(ev.data), &row); err != nil {
		tb.Fatal(ev, err)
	}
	return strings.TrimSpace(ev.name + " " + row.ID)
}

// TestLiveRows follows all rows of a projection, whose sources change as well.
func TestLiveRows(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newRows(t, liveSpec)
		p := f.serve(t)
		f.write(t, noteA+"/was_written", `{"text":"one","by":"`+ann+`"}`)
		c := f.stream(t, p, "/_projections/notes/_stream")
		if ev := c.live(t); ev.name != "row" || ev.data != `{"id":"`+noteA+`","data":{"text":"one","by":null}}` {
			t.Errorf("%+v", ev)
		}
		if got := c.nextRow(t); got != "ready" {
			t.Error(got)
		}
		f.name(t, bob, "Bob") // of whom there is no note
		since := f.name(t, ann, "Ann")
		if ev := c.live(t); ev.name != "row" || ev.data != `{"id":"`+noteA+`","data":{"text":"one","by":"Ann"}}` ||
			ev.id < since {
			t.Errorf("%+v", ev)
		}
		f.write(t, noteB+"/was_written", `{"text":"two","by":"`+bob+`"}`)
		if ev := c.live(t); ev.name != "row" || ev.data != `{"id":"`+noteB+`","data":{"text":"two","by":"Bob"}}` {
			t.Errorf("%+v", ev)
		}
		for path, want := range map[string]string{
			"?count=1": "count", "?order=text": "order", "?start=x": "start", "?at=1": "at", "?text=x": "text",
			"?near=1,1": "radius",
		} {
			if got := f.do(t, "GET", "/_projections/notes/_stream"+path, ""); got.status != http.StatusBadRequest ||
				got.member(t, "path") != want {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
	})
}

// TestLiveRowsSayWhyTheyEnd follows a list that becomes too large to be followed, and one that a deployment takes away.
func TestLiveRowsSayWhyTheyEnd(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newRows(t, liveSpec)
		p := f.serve(t)
		ends := func(c *client, code j17.Code) {
			t.Helper()
			ev := c.live(t)
			var body struct {
				Code   j17.Code
				Error  string
				Status int
			}
			if err := json.Unmarshal([]byte(ev.data), &body); err != nil || ev.name != "error" || body.Code != code ||
				body.Status != httpapi.StatusOf(code) || body.Error == "" {
				t.Errorf("%s %.300s, %v", ev.name, ev.data, err)
			}
			if rest, err := io.ReadAll(c.body); len(rest) > 0 || err != nil {
				t.Errorf("behind it: %.100q, %v", rest, err)
			}
		}

		// Another spec, without it.
		deploy := func(text string) {
			t.Helper()
			compiled, found := spec.Compile([]byte(text))
			if compiled == nil {
				t.Fatal(found)
			}
			tenant := j17.TenantOf(f.instance.ID, j17.Prod)
			f.Engine.Deploy(tenant, compiled, nil)
			f.Projections.Adopted(t.Context(), tenant)
		}
		c := f.stream(t, p, "/_projections/notes/_stream")
		if got := c.nextRow(t); got != "ready" {
			t.Error(got)
		}
		deploy(strings.Replace(liveSpec, `"notes":`, `"others":`, 1))
		ends(c, j17.CodeUnknownProjection)
		deploy(liveSpec)

		// More than goes into it.
		large := func(n int) string {
			return f.write(
				t, fmt.Sprintf("%s%02d/was_written", noteA[:len(noteA)-2], n),
				`{"text":"`+strings.Repeat("x", 900<<10)+`"}`,
			)
		}
		const fit = 9
		for n := range fit {
			if large(n) == "" {
				t.Fatal("a note is not written")
			}
		}
		c = f.stream(t, p, "/_projections/notes/_stream")
		for range fit {
			if ev := c.live(t); ev.name != "row" {
				t.Errorf("%s %.100s", ev.name, ev.data)
			}
		}
		if got := c.nextRow(t); got != "ready" {
			t.Error(got)
		}
		large(fit)
		ends(c, j17.CodeProjectionLimit)
	})
}

// geofenceSpec has vans with places, and a projection of them.
const geofenceSpec = `{
	"agent_types": ["user"],
	"aggregate_types": {"note": {"events": {"was_written": {"schema": {}, "handler": [{"merge": {"target": "", "value": "$.data"}}], "geo": {"type": "point", "path": "$.data.place"}}}}},
	"projections": {"vans": {"for_each": "note", "sources": {"note": "$key"}, "select": {"text": "$.note.text"}, "index": ["text"]}}
}`

// TestZones follows which areas have a point.
func TestZones(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newRows(t, placesSpec)
		p := f.serve(t)
		draw := func(south string) string {
			return f.post(t, "area", 1, "was_drawn", `{"name":"North","area":[{"lat":`+south+`,"lng":-75},{"lat":`+
				south+`,"lng":-73},{"lat":41,"lng":-74}]}`)
		}
		id := draw("40")
		c := f.stream(t, p, "/area/containing/stream?lat=40.2&lng=-74")
		if got := []string{c.nextRow(t), c.nextRow(t)}; got[0] != "row "+id || got[1] != "ready" {
			t.Errorf("%q", got)
		}
		draw("40.5")
		if got := c.nextRow(t); got != "gone "+id {
			t.Error(got)
		}
		draw("40.1")
		if got := c.nextRow(t); got != "row "+id {
			t.Error(got)
		}
	})
}

// TestGeofences follows what is around a point: rows come and go as they move.
func TestGeofences(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newRows(t, geofenceSpec)
		p := f.serve(t)
		move := func(id, lat, text string) {
			f.write(t, id+"/was_written", `{"text":"`+text+`","place":{"lat":`+lat+`,"lng":10}}`)
		}
		move(noteA, "50", "a")
		move(noteB, "51", "b")
		for _, path := range []string{
			"/note/nearby/stream?lat=50&lng=10&radius=5000", "/note/within/stream?box=49.9,9,50.1,11&data=false", "/_projections/vans/_stream?near=50,10&radius=5000",
		} {
			c := f.stream(t, p, path)
			if got := []string{c.nextRow(t), c.nextRow(t)}; got[0] != "row "+noteA || got[1] != "ready" {
				t.Errorf("%s: %q", path, got)
			}
			move(noteB, "50.01", "b")
			if got := c.nextRow(t); got != "row "+noteB {
				t.Errorf("%s: %s", path, got)
			}
			move(noteB, "51", "b")
			if got := c.nextRow(t); got != "gone "+noteB {
				t.Errorf("%s: %s", path, got)
			}
		}

		// The same as a list, with a filter.
		move(noteB, "50.02", "b")
		for query, want := range map[string]string{
			"": noteA + " " + noteB, "&text=b": noteB, "&text=c": "", "&count=1": noteA,
		} {
			got := f.do(t, "GET", "/_projections/vans?near=50,10&radius=5000"+query, "")
			var page struct {
				Rows []struct {
					ID       string
					Distance float64
				}
				Next string
			}
			if err := json.Unmarshal([]byte(got.body), &page); err != nil || got.status != http.StatusOK {
				t.Fatalf("%d %s", got.status, got.body)
			}
			var ids []string
			for _, row := range page.Rows {
				ids = append(ids, row.ID)
				if row.ID == noteB && (row.Distance < 2200 || row.Distance > 2250) {
					t.Errorf("%s is %v m away", row.ID, row.Distance)
				}
			}
			if strings.Join(ids, " ") != want {
				t.Errorf("%s: %q", query, ids)
			}
			if query != "&count=1" {
				continue
			}
			if rest := f.do(t, "GET", "/_projections/vans?near=50,10&radius=5000&count=1&start="+page.Next, ""); !strings.Contains(rest.body, noteB) || strings.Contains(rest.body, noteA) || rest.member(t, "next") != "<nil>" {
				t.Errorf("%d %s", rest.status, rest.body)
			}
			if other := f.do(t, "GET", "/_projections/vans?near=50,11&radius=5000&start="+page.Next, ""); other.status != http.StatusBadRequest {
				t.Errorf("%d %s", other.status, other.body)
			}
		}
		for query, want := range map[string]string{
			"near=50,10": "radius", "radius=5": "near", "near=50&radius=5": "near", "near=95,1&radius=5": "near",
			"near=1,x&radius=5": "near", "near=50,10&radius=0": "radius", "near=50,10&radius=5&order=text": "order",
			"near=50,10&radius=5&text.gt=a": "text",
		} {
			if got := f.do(t, "GET", "/_projections/vans?"+query, ""); got.status != http.StatusBadRequest ||
				got.member(t, "path") != want {
				t.Errorf("%s: %d %s", query, got.status, got.body)
			}
		}

		// A filter that cannot stand there is refused with the indexes that there are, and so are two of one field.
		for _, query := range []string{
			"?near=50,10&radius=5&text.gt=a", "?text=a&text.in=b", "/_stream?text=a&text.in=b",
			"/_count?text=a&text.in=b",
		} {
			if got := f.do(t, "GET", "/_projections/vans"+query, ""); got.member(t, "code") != "not_indexed" ||
				!strings.Contains(got.body, `"details":{"indexes":["text"]}`) {
				t.Errorf("%s: %d %s", query, got.status, got.body)
			}
		}
	})
}

// peopleSpec has people, who have two places each.
const peopleSpec = `{
	"agent_types": ["user"],
	"geo_types": {"home": {"type": "point"}, "work": {"type": "point"}},
	"aggregate_types": {"note": {"events": {
		"was_written": {"schema": {}, "handler": []},
		"has_moved": {"schema": {}, "handler": [], "geo": {"type": "home", "path": "$.data.place"}},
		"was_hired": {"schema": {}, "handler": [], "geo": {"type": "work", "path": "$.data.place"}}}}},
	"projections": {"people": {"for_each": "note", "sources": {"note": "$key"}, "select": {"id": "$.note.id"}}}
}`

// TestGeofencesOfSeveralPlaces follows aggregates that are in an area twice: what has not changed is not sent again,
// and that one of the two places is left is told.
func TestGeofencesOfSeveralPlaces(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newRows(t, peopleSpec)
		p := f.serve(t)
		move := func(id, event, lat string) { f.write(t, id+"/"+event, `{"place":{"lat":`+lat+`,"lng":10}}`) }
		move(noteA, "has_moved", "50.001")
		move(noteA, "was_hired", "50.002")
		for _, path := range []string{
			"/note/nearby/stream?lat=50&lng=10&radius=5000&data=false", "/note/within/stream?box=49.9,9,50.1,11&data=false", "/_projections/people/_stream?near=50,10&radius=5000",
		} {
			c := f.stream(t, p, path)
			expect := func(want ...string) {
				t.Helper()
				for _, each := range want {
					if got := c.nextRow(t); got != each {
						t.Fatalf("%s: %s, and not %s", path, got, each)
					}
				}
			}
			expect("row "+noteA, "row "+noteA, "ready")
			move(noteB, "has_moved", "50.003")
			expect("row " + noteB)
			move(noteA, "was_hired", "51")
			expect("gone "+noteA, "row "+noteA)
			move(noteA, "was_hired", "50.002")
			expect("row " + noteA)
			// One place changes: what the row says tells which of the two that is.
			move(noteA, "was_hired", "50.004")
			expect("row " + noteA)

			// One place is left for another one, between two looks.
			move(noteA, "has_moved", "51")
			expect("gone "+noteA, "row "+noteA)
			move(noteA, "was_hired", "51")
			move(noteA, "has_moved", "50.001")
			expect("gone "+noteA, "row "+noteA)
			move(noteA, "was_hired", "50.002")
			expect("row " + noteA)
			move(noteB, "has_moved", "51")
			expect("gone " + noteB)
		}
	})
}
