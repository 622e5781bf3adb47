package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"

	"j17"
	"j17/internal/core/engine/enginetest"
	"j17/internal/edge/httpapi"
)

// TestUsageOfProjections: however many aggregates a projection reads, and in whichever way it is asked for, a request
// is one read.
func TestUsageOfProjections(t *testing.T) {
	p := newPlane(t, func(o *httpapi.Options) {
		app, _ := o.Registry.Instances.ByName("app")
		o.Engine.Deploy(j17.TenantOf(app.ID, j17.Prod), enginetest.Compiled(t, rowsSpec), nil)
	})
	var ids []string
	for n := range 5 {
		ids = append(ids, fmt.Sprintf("0b6e9d4e-6f0a-4f3c-8c53-%012x", n))
		p.write(t, ids[n]+"/was_written", `{"text":"a"}`)
	}
	for reads, path := range []string{
		"/notes/" + ids[0], "/notes/" + ids[0], "/notes/" + ids[0] + "?synchronous", "/notes", "/notes?count=2",
		"/notes/_count", "/by_id/" + ids[1], "/by_id?note=" + ids[2],
	} {
		if got := p.do(t, http.MethodGet, "/_projections"+path, ""); got.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
		want := fmt.Sprintf("[map[date:2023-11-14 environment:prod events:0 reads:%d requests:%d storage_bytes:0]]", reads+1, len(ids)+reads+1)
		if got := fmt.Sprint(
			p.must(t, 200, "GET", "/api/instances/"+p.instance.ID+"/usage?from=2023-11-14&to=2023-11-15", "")["days"],
		); got != want {
			t.Errorf("behind %s: %s, want %s", path, got, want)
		}
	}
}
