package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"j17"
	"j17/internal/plane/control"
)

// ordersSpec has orders of customers, and projections given as members.
func ordersSpec(projections string) string {
	set := `{"was_made":{"schema":{},"handler":[{"set":{"target":"","value":"$.data"}}]}}`
	return `{"agent_types":["user"],"aggregate_types":{"order":{"events":` + set + `},"customer":{"events":` + set + `}},"projections":{` + projections + `}}`
}

const (
	chain   = `{"for_each":"order","sources":{"order":"$key"},"select":{"n":"$.order.n"}}`
	summary = `{"name":"summary","for_each":"order","sources":{"order":"$key","customer":{"type":"customer","id":"$.order.customer_id"}},"select":{"total":"$.order.total","who":"$.customer.name"}}`
)

// staging asks the administration of staging as a platform admin.
func (a *administration) staging(tb testing.TB, method, target, body string) answer {
	tb.Helper()
	return a.ask(tb, a.admin, method, "app-staging.j17.example", "/_admin/"+target, body)
}

// wants fails unless an answer has a status and the texts.
func (a answer) wants(tb testing.TB, status int, texts ...string) {
	tb.Helper()
	if a.status != status {
		tb.Fatalf("%d %s, want %d", a.status, a.body, status)
	}
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			tb.Fatalf("%s has no %s", a.body, text)
		}
	}
}

// deploySpec deploys a spec to staging.
func (a *administration) deploySpec(tb testing.TB, spec string) answer {
	tb.Helper()
	return a.control(tb, "POST", "/spec?environment=staging", spec)
}

func TestProjectionsAreListed(t *testing.T) {
	a := administer(t)
	a.control(t, "GET", "/projections?environment=staging", "").wants(t, 200, `{"ok":true,"projections":[],"next":null,"environment":"staging"}`)
	a.staging(t, "GET", "projections/first", "").wants(t, 404, `"unknown_projection"`)
	a.deploySpec(t, ordersSpec(`"second":`+chain+`,"first":`+chain)).wants(t, 201)

	// The same on all hosts, in the order of the spec.
	row := `{"name":"%s","origin":"spec","status":"ready","projection":` + chain + `,"rows":null,"position":"0","lag":0}`
	rows := `"projections":[` + fmt.Sprintf(row, "second") + `,` + fmt.Sprintf(row, "first") + `],"next":null`
	a.control(t, "GET", "/projections?environment=staging", "").wants(t, 200, rows)
	a.staging(t, "GET", "projections", "").wants(t, 200, rows)
	a.control(t, "GET", "/ops/staging/projections", "").wants(t, 200, rows)
	a.inside(
		t, "GET", "/internal/instances/"+a.instance.ID+"/staging/projections",
		"X-Node-Secret: "+a.registry.Secrets.NodeSecret(),
	).wants(t, 200, rows)
	a.staging(t, "GET", "projections?limit=1", "").wants(t, 200, `"name":"second"`, `"next":1`)
	a.staging(t, "GET", "projections?limit=1&offset=1", "").wants(t, 200, `"name":"first"`, `"next":null`)
	a.staging(t, "GET", "projections/first", "").wants(t, 200, fmt.Sprintf(`{"ok":true,`+row[1:], "first"))
	a.staging(t, "GET", "projections/frist", "").wants(t, 404, "Did you mean 'first'?")
	a.control(t, "GET", "/projections?environment=moon", "").wants(t, 400)
}

func TestPostedProjections(t *testing.T) {
	a := administer(t)
	a.staging(t, "POST", "projections", summary).wants(t, 503, `"no_spec_deployed"`)
	a.deploySpec(t, ordersSpec(`"chain":`+chain)).wants(t, 201)
	key := "/_projections/summary/" + "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"
	_, write, err := a.registry.Keys.Create(t.Context(), control.NewKey{
		Instance: a.instance.ID, Environment: j17.Staging, Scope: j17.ScopeWrite, Name: "app",
	})
	if err != nil {
		t.Fatal(err)
	}
	made := a.do(t, "POST", "/order/0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10/was_made", `{"data":{"total":5},"metadata":{"actor":{"type":"user","id":"0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"}}}`, "Host: app-staging.j17.example", "Authorization: Bearer "+write)
	made.wants(t, 201)
	read := func() answer {
		return a.do(t, "GET", key, "", "Host: app-staging.j17.example", "Authorization: Bearer "+write)
	}
	read().wants(t, 404, `"unknown_projection"`)

	// New, the same again, another one, bare or within an envelope.
	a.staging(t, "POST", "projections", `{"projection":`+summary+`}`).wants(t, 201, `"name":"summary","origin":"admin","status":"ready","projection":`+summary, `"created":true`, `"warnings":[]`)
	read().wants(t, 200, `"data":{"total":5,"who":null}`)
	a.staging(t, "POST", "projections", summary).wants(t, 200, `"created":false`)
	a.staging(
		t, "POST", "projections", strings.Replace(summary, `"who":"$.customer.name"`, `"n":"$.order.total"`, 1),
	).wants(t, 200)
	read().wants(t, 200, `"data":{"total":5,"n":5}`)

	// White space does not count, as in a spec.
	wide := strings.Replace(summary, `"select"`, strings.Repeat("\n", 1<<20)+`"select"`, 1)
	a.staging(t, "POST", "projections", wide).wants(t, 200, `"projection":`+summary)
	a.staging(t, "POST", "projections", strings.Replace(wide, `"for_each"`, `"more":1,"for_each"`, 1)).wants(
		t, 422, `"pointer":"/more"`,
	)
	a.staging(t, "GET", "projections", "").wants(t, 200, `"chain"`, `"summary"`)
	a.ask(t, a.admin, "GET", "app-test.j17.example", "/_admin/projections", "").wants(t, 200, `"projections":[]`)

	// Who may, and what is recorded.
	for _, token := range []string{a.viewer, a.stranger} {
		if got := a.ask(
			t, token, "POST", "app-staging.j17.example", "/_admin/projections", summary,
		); got.status != 403 {
			t.Fatal(got)
		}
	}
	a.staging(t, "DELETE", "projections/summary", "").wants(t, 200)
	read().wants(t, 404)
	a.staging(t, "DELETE", "projections/summary", "").wants(t, 404, `"unknown_projection"`)
	records, _, err := a.registry.Audit.List(
		t.Context(), control.AuditQuery{Instance: a.instance.ID, Action: "projection"}, 20,
	)
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, r := range records {
		actions = append(actions, r.Action+" "+string(r.Outcome)+" "+r.Target)
	}
	if got, want := strings.Join(actions, ", "), "projection.remove refused summary, projection.remove done summary"; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "projection.deploy done summary, projection.deploy failed ") {
		t.Errorf("recorded: %s", got)
	}
}

func TestWrongDefinitionsAreRefused(t *testing.T) {
	a := administer(t)
	a.deploySpec(t, ordersSpec("")).wants(t, 201)
	got := a.staging(t, "POST", "projections", `{"projection":{"name":"wrong","for_each":"odrer","sources":{"order":"$key","x":{"type":"ghost","id":"$.order.x"}},"select":{"a":"$.nobody.x"}}}`)
	got.wants(
		t, 422, `"invalid_spec"`, `"pointer":"/for_each"`, `"pointer":"/sources/x/type"`, `"pointer":"/select/a"`,
		"order",
	)
	for _, bad := range []string{
		`{}`, `[]`, `"x"`, `{"projection":[]}`, `{"projection":null}`,
		`{"projection":` + strings.Replace(summary, `"summary"`, `null`, 1) + `}`,
		strings.Replace(summary, `"summary"`, `"Bad-Name"`, 1), `{"projection":` + summary + `,"more":1}`,
		`{"projection":`, ``,
		`{"name":"` + strings.Repeat("x", 1<<20) + `"}`,
	} {
		if got := a.staging(t, "POST", "projections", bad); got.status < 400 || got.status > 422 {
			t.Errorf("%.100s: %d %s", bad, got.status, got.body)
		}
	}
	a.staging(t, "GET", "projections", "").wants(t, 200, `"projections":[]`)
}

func TestTheSpecOwnsItsProjections(t *testing.T) {
	a := administer(t)
	a.deploySpec(t, ordersSpec(`"chain":`+chain)).wants(t, 201)
	a.staging(t, "POST", "projections", strings.Replace(chain, "{", `{"name":"chain",`, 1)).wants(t, 409, "The spec declares the projection 'chain'")
	a.staging(t, "DELETE", "projections/chain", "").wants(t, 409)

	// A spec that declares the name takes it over, and it is gone with the spec.
	a.staging(t, "POST", "projections", summary).wants(t, 201)
	a.deploySpec(t, ordersSpec(`"summary":`+chain)).wants(t, 201, "'summary' was posted to this environment")
	a.staging(t, "GET", "projections/summary", "").wants(t, 200, `"origin":"spec"`)
	a.deploySpec(t, ordersSpec(`"chain":`+chain)).wants(t, 201)
	a.staging(t, "GET", "projections/summary", "").wants(t, 404)
}

func TestPostedProjectionsOutliveDeployments(t *testing.T) {
	a := administer(t)
	a.deploySpec(t, ordersSpec("")).wants(t, 201)
	a.staging(t, "POST", "projections", summary).wants(t, 201)
	a.deploySpec(t, ordersSpec(`"chain":`+chain)).wants(t, 201)
	a.staging(t, "GET", "projections/summary", "").wants(t, 200, `"origin":"admin"`)

	// What would make it invalid is refused, also in a dry run, and by force it goes away.
	without := strings.Replace(ordersSpec(""), `"customer":`, `"client":`, 1)
	a.deploySpec(t, without).wants(t, 422, `"spec_incompatible"`, "Projections that were posted to staging would not be valid under this spec: summary.", `"pointer":"/projections/summary"`, "customer")
	a.control(t, "POST", "/spec?environment=staging&dry_run=true", without).wants(t, 200, `"compatible":false`, `"pointer":"/projections/summary"`)
	a.staging(t, "GET", "projections/summary", "").wants(t, 200)
	a.deploySpec(t, `{"force":true,"spec":`+without+`}`).wants(t, 201, `"forced":true`)
	a.staging(t, "GET", "projections/summary", "").wants(t, 404)
}

// TestPostsRaceWithDeployments posts what one of two specs does not allow while these are deployed by turns: no
// deployment leaves anything behind that is not valid under it, and a post whose projection is taken away at once is
// told so.
func TestPostsRaceWithDeployments(t *testing.T) {
	a := administer(t)
	a.deploySpec(t, ordersSpec("")).wants(t, 201)
	without := strings.Replace(ordersSpec(""), `"customer":`, `"client":`, 1)
	var posts sync.WaitGroup
	for n := range 2 {
		posts.Go(func() {
			for i := range 15 {
				body := strings.Replace(summary, `"summary"`, fmt.Sprintf(`"summary_%d_%d"`, n, i), 1)
				if got := a.staging(t, "POST", "projections", body); got.status != 201 && got.status != 422 &&
					got.status != 409 {
					t.Errorf("%d %s", got.status, got.body)
				}
			}
		})
	}
	for i := range 10 {
		spec := ordersSpec("")
		if i%2 == 0 {
			spec = without
		}
		a.deploySpec(t, `{"force":true,"spec":`+spec+`}`).wants(t, 201)
		got := a.staging(t, "GET", "projections?limit=1000", "")
		var page struct {
			Projections []struct{ Name, Status string }
		}
		if err := json.Unmarshal([]byte(got.body), &page); err != nil {
			t.Fatal(err)
		}
		for _, p := range page.Projections {
			if p.Status != "ready" || i%2 == 0 {
				t.Fatalf("after deployment %d: %+v", i, p)
			}
		}
	}
	posts.Wait()
}

// writer returns what writes orders and customers to staging, by id.
func (a *administration) writer(tb testing.TB) func(path, data string) {
	tb.Helper()
	_, write, err := a.registry.Keys.Create(tb.Context(), control.NewKey{
		Instance: a.instance.ID, Environment: j17.Staging, Scope: j17.ScopeWrite, Name: "app",
	})
	if err != nil {
		tb.Fatal(err)
	}
	return func(path, data string) {
		tb.Helper()
		body := `{"data":` + data + `,"metadata":{"actor":{"type":"user","id":"` + orderID(0) + `"}}}`
		a.do(
			tb, "POST", "/"+path+"/was_made", body, "Host: app-staging.j17.example", "Authorization: Bearer "+write,
		).wants(tb, 201)
	}
}

func orderID(n int) string { return fmt.Sprintf("0b6e9d4e-6f0a-4f3c-8c53-%012x", n) }

func TestDryRunsOfProjections(t *testing.T) {
	a := administer(t)
	a.deploySpec(t, ordersSpec("")).wants(t, 201)
	write := a.writer(t)
	write("customer/"+orderID(9), `{"name":"Ada"}`)
	for n := range 3 {
		write("order/"+orderID(n), fmt.Sprintf(`{"total":%d,"customer_id":"%s"}`, n, orderID(9)))
	}
	a.staging(t, "POST", "projections", summary).wants(t, 201)

	// What would differ, with its place; nothing changes.
	other := strings.Replace(summary, `"who":"$.customer.name"`, `"who":"$.order.total"`, 1)
	want := `"replay":{"types":["customer","order"],"aggregates":3,"events":0,"complete":true,"changed":3,"failed":0,"differences":[{"key":"order:` + orderID(0) +
		`","length":1,"changes":[{"pointer":"/who","change":"changed","before":"\"Ada\"","after":"0"}]},`
	a.staging(t, "POST", "projections?dry_run=true", `{"projection":`+other+`}`).wants(t, 200, `"dry_run":true,"name":"summary","created":false`, want,
		`"widest":{"key":"customer:`+orderID(9)+`","rows":3}`)
	a.staging(t, "POST", "projections?dry_run=true&aggregates=2", other).wants(t, 200, `"aggregates":2,"events":0,"complete":false,"changed":2`)
	a.staging(t, "GET", "projections/summary", "").wants(t, 200, `$.customer.name`)
	never := strings.Replace(summary, `"summary"`, `"never"`, 1)
	a.staging(t, "POST", "projections?dry_run=true", never).wants(t, 200, `"created":true`, `"changed":0,"failed":0`)
	a.staging(t, "GET", "projections/never", "").wants(t, 404)
	a.staging(
		t, "POST", "projections?dry_run=true", strings.Replace(never, `"order","sources"`, `"ghost","sources"`, 1),
	).wants(t, 422)
	a.staging(t, "POST", "projections?aggregates=2", never).wants(t, 400)

	// A spec tells of its projections too: of changed definitions, and of changed handlers of what they read.
	spec := strings.Replace(ordersSpec(`"chain":`+chain), `"value":"$.data"}}]}}}},"projections"`, `"value":"$.data"}},{"set":{"target":"name","value":"Bob"}}]}}}},"projections"`, 1)
	got := a.control(t, "POST", "/spec?environment=staging&dry_run=true", spec)
	got.wants(t, 200, `"projections":[{"name":"chain","change":"added"`, `{"name":"summary","change":"changed","replay":{"types":["customer","order"],"aggregates":3`,
		`{"pointer":"/who","change":"changed","before":"\"Ada\"","after":"\"Bob\""}`)
	a.control(t, "POST", "/spec?environment=staging&dry_run=true", ordersSpec("")).wants(t, 200, `"incompatible":[]`)
}
