package projection_test

import (
	"fmt"
	"testing"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/derived/projection"
)

// shopSpec has orders of customers with products, and what is made of them.
const shopSpec = `{
	"agent_types": ["user"], "singletons": ["main"],
	"aggregate_types": {
		"order": {"events": {"was_made": {"schema": {}, "handler": [{"set": {"target": "", "value": "$.data"}}]},
			"was_changed": {"schema": {}, "handler": [{"merge": {"target": "", "value": "$.data"}}]}}},
		"customer": {"events": {"was_made": {"schema": {}, "handler": [{"merge": {"target": "", "value": "$.data"}}]}}},
		"product": {"events": {"was_made": {"schema": {}, "handler": [{"merge": {"target": "", "value": "$.data"}}]}}},
		"bill": {"identity": {"handle": "bil"}, "events": {"was_made": {"schema": {}, "handler": [{"merge": {"target": "", "value": "$.data"}}]}}},
		"account": {"events": {
			"had_amount_received": {"schema": {}, "handler": [{"increment": {"target": "balance", "by": "$.data.amount"}}]},
			"had_amount_moved": {"schema": {}, "handler": [{"decrement": {"target": "balance", "by": "$.data.amount"}}], "implications": [
				{"emit": {"aggregate_type": "account", "id": "$.data.to", "event_type": "had_amount_received", "data": {"amount": "$.data.amount"}}}]}}}
	},
	"projections": {
		"details": {"for_each": "order", "include": {"settings": "customer:global"}, "sources": {"order": "$key",
			"customer": {"type": "customer", "id": "$.order.customer_id"}, "products": {"type": "product", "id": "$.order.lines[*].product_id", "mode": "array"}},
			"select": {"total": "$.order.total", "customer": "$.customer.name", "vat": "$.settings.vat", "products": "$.products[*].name"}},
		"whole": {"for_each": "order", "sources": {"order": "$key", "customer": {"type": "customer", "id": "$.order.customer_id"}}, "select": {"order": "$.order", "customer": "$.customer"}},
		"bills": {"for_each": "bill", "sources": {"bill": "$key"}, "select": {"n": "$.bill.n"}},
		"pair": {"sources": [{"aggregate": "account", "as": "a", "id": "$.one"}, {"aggregate": "account", "as": "b", "id": "$.other"}]},
		"of_key": {"sources": [{"aggregate": "order", "id": "$key"}, {"aggregate": "product", "id": "$.order.lines[*].product_id"}]},
		"of_customer": {"sources": [{"aggregate": "customer", "id": "$.who"}]}
	}}`

// id returns one of many ids.
func id(n int) string { return fmt.Sprintf("0b6e9d4e-6f0a-4f3c-8c53-%012x", n) }

// fixture is an engine with projections on it.
type fixture struct {
	*enginetest.Fixture
	*projection.Service
}

func newFixture(tb testing.TB, source string, o projection.Options) *fixture {
	tb.Helper()
	f := &fixture{Fixture: enginetest.New(tb, engine.Options{})}
	if source != "" {
		f.DeploySource(tb, source)
	}
	o.Store, o.Engine, o.Clock = f.Store, f.Engine, f.Clock
	f.Service = projection.New(o)
	return f
}

// make writes an event, "was_made" unless the path says another one.
func (f *fixture) make(tb testing.TB, aggregateType, id, data string) enginetest.Receipt {
	tb.Helper()
	return f.Post(tb, aggregateType+"/"+id+"/was_made", enginetest.Body(data))
}

// view reads a value, which must be there.
func (f *fixture) view(tb testing.TB, ask projection.Ask) *projection.Reply {
	tb.Helper()
	v, err := patiently(func() (*projection.Reply, error) { return f.Read(tb.Context(), enginetest.Tenant, &ask) })
	if err != nil {
		tb.Fatalf("%+v: %v", ask, err)
	}
	return v
}

// wants compares data.
func (f *fixture) wants(tb testing.TB, ask projection.Ask, want string) {
	tb.Helper()
	if got := string(f.view(tb, ask).Data); got != want {
		tb.Errorf("%+v: got\n%s, want\n%s", ask, got, want)
	}
}

// refused asks for what there is not.
func (f *fixture) refused(tb testing.TB, ask projection.Ask, code j17.Code, path string) {
	tb.Helper()
	_, err := f.Read(tb.Context(), enginetest.Tenant, &ask)
	//nolint:errorlint // the error itself has the path
	if e, ok := err.(*j17.Error); !ok || e.Code != code || e.Path != path {
		tb.Errorf("%+v: %v, want %s at %q", ask, err, code, path)
	}
}

// TestValuesFollowTheirSources reads one value again and again while everything that it is made of changes.
func TestValuesFollowTheirSources(t *testing.T) {
	f := newFixture(t, shopSpec, projection.Options{})
	ask := projection.Ask{Name: "details", ID: id(1)}
	f.refused(t, ask, j17.CodeAggregateNotFound, "")
	f.make(t, "order", id(1), `{"customer_id":"`+id(2)+`","total":12.50,"lines":[{"product_id":"`+id(3)+`"},{"product_id":"`+id(4)+`"},{"product_id":"`+id(3)+`"},{"product_id":5},{}]}`)
	f.wants(t, ask, `{"total":12.50,"customer":null,"vat":null,"products":[]}`)
	for _, step := range []struct{ typ, id, data, want string }{
		{"customer", id(2), `{"name":"A"}`, `{"total":12.50,"customer":"A","vat":null,"products":[]}`},
		{"customer", "global", `{"vat":7}`, `{"total":12.50,"customer":"A","vat":7,"products":[]}`},
		{"product", id(4), `{"name":"P"}`, `{"total":12.50,"customer":"A","vat":7,"products":["P"]}`},
		{"product", id(3), `{"name":"Q"}`, `{"total":12.50,"customer":"A","vat":7,"products":["Q","P"]}`},
		{"product", id(5), `{"name":"R"}`, `{"total":12.50,"customer":"A","vat":7,"products":["Q","P"]}`},
		{"order", id(1), `{"total":1e2,"customer_id":"customer:` + id(2) + `"}`, `{"total":1e2,"customer":"A","vat":7,"products":[]}`},
	} {
		written := f.make(t, step.typ, step.id, step.data)
		v := f.view(t, ask)
		if string(v.Data) != step.want || v.Position.Compare(written.IDs[0]) < 0 {
			t.Errorf("after %+v at %s: %s at %s, want %s", step, written.IDs[0], v.Data, v.Position, step.want)
		}
		again := f.view(t, ask)
		f.wants(t, projection.Ask{Name: "details", ID: id(1), Synchronous: true}, step.want)
		if again.Value != v.Value {
			t.Errorf("after %+v nothing was kept", step)
		}
	}
	if s := f.Stats(); s.Hits < 6 || s.Misses < 6 {
		t.Errorf("%+v", s)
	}
}
