package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"j17"
	"j17/internal/edge/httpapi"
	"j17/internal/follow/tail"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// BenchmarkGenerations reads pages of 1,000 events that are stored in an older generation, as they are stored and in
// the newest one, and writes events in the older generation and in the newest.
func BenchmarkGenerations(b *testing.B) {
	const (
		older  = `{"schema":{"type":"object"},"handler":[]}`
		newest = `{"generations":{"1":{"schema":{"type":"object"},"upcast":[{"move":{"from":"name","to":"contact.name"}},{"move":{"from":"mail","to":"contact.mail"}},{"drop":{"target":"legacy"}},{"default":{"target":"place","value":"here"}},{"default":{"target":"unit","value":"piece"}}]}},` +
			`"schema":{"type":"object","properties":{"contact":{"type":"object"},"n":{"type":"number"},"place":{"type":"string"}},"required":["contact","n"]},"handler":[{"set":{"target":"name","value":"$.data.contact.name"}}]}`
		former  = `{"name":"Ada","mail":"ada@example.org","n":3,"legacy":true,"lines":[{"sku":"LAMP-2","price":39.90},{"sku":"BULB","price":4.35}]}`
		current = `{"n":3,"lines":[{"sku":"LAMP-2","price":39.90},{"sku":"BULB","price":4.35}],"contact":{"name":"Ada","mail":"ada@example.org"},"place":"here","unit":"piece"}`
	)
	var o httpapi.Options
	f := newFixture(b, func(with *httpapi.Options) {
		with.Tail = tail.New(with.Store, with.Engine.Shown())
		o = *with
	})
	tenant := j17.TenantOf(f.instance.ID, j17.Prod)
	deploy := func(event string) {
		b.Helper()
		compiled, found := spec.Compile([]byte(
			`{"agent_types":["user"],"aggregate_types":{"note":{"events":{"was_placed":` + event + `}}}}`))
		if compiled == nil {
			b.Fatal(found)
		}
		o.Engine.Deploy(tenant, compiled, nil)
	}
	const page = 1000
	deploy(older)
	event := `{"type":"was_placed","data":` + former + `}`
	f.handled(b, http.StatusCreated, http.MethodPost, "/note/"+noteID,
		`{"events":[`+strings.TrimSuffix(strings.Repeat(event+",", page), ",")+`],`+actor+`}`)
	deploy(newest)
	d, err := o.Engine.Decider(tenant)
	if err != nil {
		b.Fatal(err)
	}
	extent, err := o.Store.Extent(b.Context(), tenant)
	if err != nil {
		b.Fatal(err)
	}
	plan := d.Types["note"].Events["was_placed"].Plan(1)

	for _, c := range []struct {
		name, query string
		tried       bool
	}{{"stored", "&generation=stored", true}, {"tried", "", true}, {"untried", "", false}} {
		b.Run("page/"+c.name, func(b *testing.B) {
			if d.Tried.Set(nil); c.tried {
				d.Tried.Set(map[*tick.Plan]j17.StreamID{plan: extent.Last})
			}
			b.ReportAllocs()
			for b.Loop() {
				f.handled(b, http.StatusOK, http.MethodGet, fmt.Sprintf("/_events?count=%d%s", page, c.query), "")
			}
		})
	}
	for _, c := range []struct{ name, data, generation string }{
		{"newest", current, ""}, {"older", former, `"generation":1,`},
	} {
		b.Run("write/"+c.name, func(b *testing.B) {
			body := `{"data":` + c.data + `,"metadata":{` + c.generation + `"actor":{"type":"user","id":"global"}}}`
			b.ReportAllocs()
			for b.Loop() {
				f.handled(b, http.StatusCreated, http.MethodPost, "/note/"+uuid.NewString()+"/was_placed", body)
			}
		})
	}
}
