package projection_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"j17"
	"j17/internal/core/engine/enginetest"
	"j17/internal/derived/projection"
)

// TestParameters asks for projections of the array form in all ways.
func TestParameters(t *testing.T) {
	f := newFixture(t, shopSpec, projection.Options{})
	f.Post(t, "account/"+id(1)+"/had_amount_received", enginetest.Body(`{"amount":5}`))
	f.make(t, "order", id(1), `{"lines":[{"product_id":"`+id(4)+`"},{"product_id":"`+id(3)+`"}]}`)
	f.make(t, "product", id(3), `{"name":"Q"}`)
	f.make(t, "product", id(4), `{"name":"P"}`)
	stamps := `,"created_at":1700000000,"updated_at":1700000000}`
	account := `{"id":"` + id(1) + `","balance":5` + stamps
	params := func(of ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(of); i += 2 {
			m[of[i]] = of[i+1]
		}
		return m
	}

	// What is there, and what is not.
	f.wants(t, projection.Ask{Name: "pair", Params: params("one", id(1), "other", id(2))}, `{"a":`+account+`,"b":null}`)
	f.wants(
		t, projection.Ask{Name: "pair", Params: params("one", id(2), "other", strings.ToUpper(id(1)))},
		`{"a":null,"b":`+account+`}`,
	)
	order := `{"id":"` + id(1) + `","lines":[{"product_id":"` + id(4) + `"},{"product_id":"` + id(3) + `"}]` + stamps
	f.wants(t, projection.Ask{Name: "of_key", ID: strings.ToUpper(id(1))},
		`{"order":`+order+`,"product":[{"id":"`+id(4)+`","name":"P"`+stamps+`,{"id":"`+id(3)+`","name":"Q"`+stamps+`]}`)
	f.wants(t, projection.Ask{Name: "of_key", ID: id(9)}, `{"order":null,"product":[]}`)
	f.wants(t, projection.Ask{Name: "of_customer", ID: id(9)}, `{"customer":null}`)
	f.wants(t, projection.Ask{Name: "of_customer", Params: params("who", "global")}, `{"customer":{"id":"global"}}`)
	if v := f.view(t, projection.Ask{Name: "of_key", ID: strings.ToUpper(id(1))}); v.Key.ID != id(1) {
		t.Errorf("the value is that of %+v", v.Key)
	}

	// What is refused.
	for _, c := range []struct {
		ask  projection.Ask
		code j17.Code
		path string
	}{
		{projection.Ask{Name: "nothing"}, j17.CodeUnknownProjection, ""},
		{projection.Ask{Name: "pair"}, j17.CodeInvalidParameter, "one"},
		{projection.Ask{Name: "pair", ID: id(1)}, j17.CodeInvalidParameter, "key"},
		{projection.Ask{Name: "pair", Params: params("one", id(1))}, j17.CodeInvalidParameter, "other"},
		{
			projection.Ask{Name: "pair", Params: params("one", id(1), "other", id(1), "more", "1")},
			j17.CodeInvalidParameter, "more",
		},
		{
			projection.Ask{Name: "pair", Params: params("one", id(1), "other", "abc")},
			j17.CodeInvalidIdentifier,
			"other",
		},
		{projection.Ask{Name: "pair", Params: params("one", "", "other", id(1))}, j17.CodeInvalidIdentifier, "one"},
		{projection.Ask{Name: "of_key"}, j17.CodeInvalidParameter, "key"},
		{projection.Ask{Name: "of_key", ID: "abc"}, j17.CodeInvalidIdentifier, "key"},
		{projection.Ask{Name: "of_customer", ID: "abc"}, j17.CodeInvalidIdentifier, "who"},
		{projection.Ask{Name: "of_customer", ID: id(1), Params: params("who", id(1))}, j17.CodeInvalidParameter, "who"},
		{projection.Ask{Name: "details", ID: "ord_12345"}, j17.CodeInvalidIdentifier, "key"},
		{projection.Ask{Name: "details", ID: id(1), Params: params("sync", "1")}, j17.CodeInvalidParameter, "sync"},
		{projection.Ask{Name: "bills", ID: "bil_zzzzzzzzzzzzzzz"}, j17.CodeAggregateNotFound, ""},
	} {
		f.refused(t, c.ask, c.code, c.path)
	}
	_, err := f.Read(t.Context(), enginetest.Tenant, &projection.Ask{Name: "pair", ID: id(1)})
	if err == nil || !strings.Contains(err.Error(), "'one' and 'other'") {
		t.Errorf("%v does not name the parameters", err)
	}
	_, err = f.Read(t.Context(), enginetest.Tenant, &projection.Ask{Name: "detail"})
	if err == nil || !strings.Contains(err.Error(), "'details'") {
		t.Errorf("%v does not name the nearest projection", err)
	}
}

// TestHandlesStandForIDs reads a value by the handle of its aggregate.
func TestHandlesStandForIDs(t *testing.T) {
	f := newFixture(t, shopSpec, projection.Options{})
	handle := f.make(t, "bill", id(1), `{"n":1}`).Handle
	for _, of := range []string{handle, id(1)} {
		if v := f.view(t, projection.Ask{
			Name: "bills", ID: of,
		}); string(v.Data) != `{"n":1}` || v.Key.ID != id(1) || v.Handle != handle {
			t.Errorf("%s: %s of %+v, %+v", of, v.Data, v.Key, v.Names)
		}
	}
}

// TestThePast reads values as of seconds, while kept ones are there.
func TestThePast(t *testing.T) {
	f := newFixture(t, shopSpec, projection.Options{})
	ask := projection.Ask{Name: "details", ID: id(1)}
	began := f.Clock.Now().Unix()
	f.Clock.Advance(1e9)
	f.make(t, "order", id(1), `{"customer_id":"`+id(2)+`","total":1}`)
	f.Clock.Advance(1e9)
	f.make(t, "customer", id(2), `{"name":"then"}`)
	f.Clock.Advance(1e9)
	f.make(t, "customer", id(2), `{"name":"now"}`)
	present := `{"total":1,"customer":"now","vat":null,"products":[]}`
	f.wants(t, ask, present)
	for after, want := range map[int64]string{
		1: `{"total":1,"customer":null,"vat":null,"products":[]}`, 2: `{"total":1,"customer":"then","vat":null,"products":[]}`, 3: present, 100: present,
	} {
		for _, ask.Synchronous = range []bool{false, true} {
			ask.Until = new(began + after)
			f.wants(t, ask, want)
		}
	}
	ask.Until = new(began)
	f.refused(t, ask, j17.CodeAggregateNotFound, "")
	ask.Until = nil
	f.wants(t, ask, present)
}

// TestNothingIsCut goes up to the limits of a value and beyond.
func TestNothingIsCut(t *testing.T) {
	f := newFixture(t, shopSpec, projection.Options{})
	ids := func(n int) string {
		var lines []string
		for i := range n {
			lines = append(lines, `{"product_id":"`+id(1000+i)+`"},{"product_id":"`+id(1000+i)+`"}`)
		}
		return `{"lines":[` + strings.Join(lines, ",") + `]}`
	}
	f.make(t, "order", id(1), ids(projection.MaxAggregates))
	f.wants(t, projection.Ask{Name: "details", ID: id(1)}, `{"total":null,"customer":null,"vat":null,"products":[]}`)
	f.make(t, "order", id(1), ids(projection.MaxAggregates+1))
	f.refused(t, projection.Ask{Name: "details", ID: id(1)}, j17.CodeProjectionLimit, "")
	f.refused(t, projection.Ask{Name: "of_key", ID: id(1)}, j17.CodeProjectionLimit, "")

	// Data by its bytes: two customers fit, three do not.
	f.make(t, "order", id(2), `{"customer_id":"`+id(2)+`"}`)
	f.make(t, "customer", id(2), `{"text":"`+strings.Repeat("x", 900<<10)+`"}`)
	spec := strings.Replace(shopSpec, `"bills":`, `"many":{"for_each":"order","sources":{"order":"$key","customer":{"type":"customer","id":"$.order.customer_id"}},
		"select":{"all":{"$map":"$.order.lines","as":"$l","to":"$.customer.text"}}},"bills":`, 1)
	f.DeploySource(t, spec)
	for lines, code := range map[int]j17.Code{11: "", 12: j17.CodeProjectionLimit} {
		f.make(t, "order", id(2), `{"customer_id":"`+id(2)+`","lines":[0`+strings.Repeat(",0", lines-1)+`]}`)
		_, err := f.Read(t.Context(), enginetest.Tenant, &projection.Ask{Name: "many", ID: id(2)})
		if j17.CodeOf(err) != code {
			t.Errorf("%d times 900 KiB: %v", lines, err)
		}
	}
}

// TestLargeDataNamesItsSource reads a large state ten times as one value: nine times would do.
func TestLargeDataNamesItsSource(t *testing.T) {
	var sources []string
	for i := range 10 {
		sources = append(sources, fmt.Sprintf(`{"aggregate":"a","as":"s%d","id":"$.id"}`, i))
	}
	f := newFixture(t, `{"agent_types":["user"],"aggregate_types":{"a":{"events":{"was_made":{"schema":{},"handler":[{"merge":{"target":"","value":"$.data"}}]}}}},
		"projections":{"ten":{"sources":[`+strings.Join(sources, ",")+`]}}}`, projection.Options{})
	for _, member := range []string{"x", "y"} {
		f.make(t, "a", id(1), `{"`+member+`":"`+strings.Repeat(member, 550<<10)+`"}`)
	}
	f.view(t, projection.Ask{Name: "ten", ID: id(2)})
	_, err := f.Read(t.Context(), enginetest.Tenant, &projection.Ask{Name: "ten", ID: id(1)})
	if e, ok := errors.AsType[*j17.Error](err); !ok || e.Code != j17.CodeProjectionLimit ||
		!strings.Contains(e.Message, "'s9'") {
		t.Errorf("%v", err)
	}
}

// TestWorkIsBounded asks for a product of four arrays, which is refused by count.
func TestWorkIsBounded(t *testing.T) {
	f := newFixture(t, "", projection.Options{})
	to := `"x"`
	for i := range 4 {
		to = fmt.Sprintf(`{"$map":"$.a.l","as":"$e%d","to":%s}`, i, to)
	}
	f.DeploySource(t, `{"agent_types":["user"],"aggregate_types":{"a":{"events":{"was_made":{"schema":{},"handler":[{"set":{"target":"","value":"$.data"}}]}}}},
		"projections":{"p":{"for_each":"a","sources":{"a":"$key"},"select":{"all":`+to+`}}}}`)
	f.make(t, "a", id(1), `{"l":[0`+strings.Repeat(",0", 999)+`]}`)
	f.refused(t, projection.Ask{Name: "p", ID: id(1)}, j17.CodeWorkLimit, "")
}

// FuzzParams reads with whatever parameters: each answer is a value or a refusal that is documented.
func FuzzParams(f *testing.F) {
	for _, seed := range [][3]string{
		{"who", "global", ""},
		{"who", "\x00", id(1)},
		{"order", "=", "&"},
		{"", "", ""},
		{"who", strings.Repeat("x", 300), "\xff"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	x := newFixture(f, shopSpec, projection.Options{})
	x.make(f, "customer", "global", `{}`)
	f.Fuzz(func(t *testing.T, name, text, id string) {
		for _, p := range []string{"pair", "of_key", "of_customer", "details", text} {
			_, err := x.Read(t.Context(), enginetest.Tenant, &projection.Ask{
				Name: p, ID: id, Params: map[string]string{name: text},
			})
			var known *j17.Error
			if err != nil && (!errors.As(err, &known) || known.Code == j17.CodeInternal) {
				t.Errorf("%s: %v", p, err)
			}
		}
	})
}
