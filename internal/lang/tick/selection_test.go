package tick_test

import (
	"testing"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/tick"
)

// TestSelections has the shape of a projection's result and what it is made of its sources.
func TestSelections(t *testing.T) {
	const sources = `{"order":{"id":"o1","lines":[{"sku":"pen","n":2},{"sku":"ink","n":1},{"sku":"cap"}],"tags":{"a":1},"parts":[{"of":{"x":1,"y":[2]}},{},{"of":null},{"of":{}},{"of":[3]}]},
		"products":[{"sku":"ink","name":"Ink","makers":["x","y"]},{"sku":"pen","name":"Pen"}],"user":null}`
	scope := tick.Scope{Plain: true, Wildcards: true, Members: []string{"order", "products", "user"}}
	for src, want := range map[string]string{
		`{"id":"$.order.id","kind":"order","n":[1,null,"@home"]}`: `{"id":"o1","kind":"order","n":[1,null,"@home"]}`,
		// What is not there is null, or left out with "?", but never all around it.
		`{"a":"$.user.name","b":"$.order.none?","c":["$.order.none?","$.order.id"],"d":{"e":"$.user.x?"}}`:                                                `{"a":null,"c":["o1"],"d":{}}`,
		`{"skus":"$.order.lines[*].sku","tags":"$.order.tags.$entries"}`:                                                                                  `{"skus":["pen","ink","cap"],"tags":[{"key":"a","value":1}]}`,
		`{"of":"$.order.parts[*].of.$entries","none":"$.user[*].$entries"}`:                                                                               `{"of":[[{"key":"x","value":1},{"key":"y","value":[2]}],null,[],null],"none":null}`,
		`{"l":{"$map":"$.order.lines","as":"$line","to":{"n":"$line.n?","name":{"$lookup":"$.products","where":{"sku":"$line.sku"},"select":"$.name"}}}}`: `{"l":[{"n":2,"name":"Pen"},{"n":1,"name":"Ink"},{"name":null}]}`,
		`{"l":{"as":"$line","to":"$line.n?","$map":"$.order.lines"}}`:                                                                                     `{"l":[2,1]}`,
		`{"l":{"$map":"$.user","as":"$line","to":1}}`:                                                                                                     `{"l":[]}`,
		`{"l":{"$lookup":"$.products","where":{"sku":"ink"}}}`:                                                                                            `{"l":{"sku":"ink","name":"Ink","makers":["x","y"]}}`,
		`{"l":{"$lookup":"$.products","where":{"sku":"ink","name":"Pen"}}}`:                                                                               `{"l":null}`,
		`{"l":{"$lookup":"$.user","where":{"sku":"ink"}}}`:                                                                                                `{"l":null}`,
		// Below select "$" is the element, and outer names stay visible.
		`{"l":{"$map":"$.order.lines","as":"$line","to":{"$lookup":"$.products","where":{"sku":"$line.sku"},"select":{"of":"$line.sku","all":"$.makers","one":{"$map":"$.makers","as":"$m","to":["$m","$.sku"]}}}}}`: `{"l":[{"of":"pen","all":null,"one":[]},{"of":"ink","all":["x","y"],"one":[["x","ink"],["y","ink"]]},null]}`,
	} {
		var l diag.List
		sel := tick.CompileSelection(mustParse(t, src), "", scope, &l)
		if sel == nil {
			t.Errorf("%s: %v", src, l.All())
			continue
		}
		b := work.Counted(work.Command)
		e := tick.NewEnv(b)
		e.SetDocument(mustParse(t, sources))
		last := int64(0) // what the second time took, for which all sizes are known
		for range 2 {
			last = -b.Spent()
			if got, ok, err := sel.Eval(e, limit); err != nil || !ok || got.String() != want {
				t.Errorf("%s\nis   %s, %t, %v\nwant %s", src, got, ok, err, want)
			}
			last += b.Spent()
		}
		if last < 2 {
			t.Errorf("%s takes %d units", src, last)
		}
		// Wherever the work ends, it ends with that error and without a value.
		for n := int64(1); n < last; n++ {
			short := tick.NewEnv(work.Counted(n))
			short.SetDocument(mustParse(t, sources))
			if got, _, err := sel.Eval(short, limit); err == nil {
				t.Fatalf("%s is %s after %d of %d units", src, got, n, last)
			}
		}
	}
}

// TestSelectionErrors has what is wrong with the forms of selections; testdata of package spec has more.
func TestSelectionErrors(t *testing.T) {
	for src, want := range map[string]string{
		`{"$map":"$.order","to":1}`:                                        `: a $map needs the key "as"`,
		`{"$map":5,"as":"$x","to":1}`:                                      `/$map: $map must be a string, not a number`,
		`{"$map":"$.order","as":"x","to":1}`:                               `/as: "x" cannot name an element; names look like "$item"`,
		`{"$lookup":"$.order","where":[1]}`:                                `/where: where must be an object, not an array`,
		`{"$lookup":"$.order","where":{"a":"$.x"}}`:                        `/where/a: there is no "x" below "$" here`,
		`{"a":{"$item":1}}`:                                                `/a/$item: unknown operator "$item"`,
		`{"$map":"$.order","as":"$x","to":{"$map":"$x","as":"$x","to":1}}`: `/to/as: "$x" is bound already`,
		`{"$lookup":"$.order","where":{"a":1},"select":"@.x"}`:             `/select: "@.x" starts with "@", which stands for the state in handlers and conditions only`,
	} {
		var l diag.List
		if tick.CompileSelection(
			mustParse(t, src), "", tick.Scope{Plain: true, Members: []string{"order"}}, &l,
		) != nil || l.Errors() != 1 {
			t.Errorf("%s compiles, or has other than one error: %v", src, l.All())
			continue
		}
		if d := l.All()[0]; string(d.Pointer)+": "+d.Message != want {
			t.Errorf("%s: %s: %s", src, d.Pointer, d.Message)
		}
	}
}

// TestLookupsOfManyAreNoProduct joins arrays of 1,000 elements each, which takes about as long as to go through both.
func TestLookupsOfManyAreNoProduct(t *testing.T) {
	lines, products := make([]value.Value, 1000), make([]value.Value, 1000)
	object := func(members ...value.Member) value.Value { return value.ObjectValue(members...) }
	for i := range lines {
		lines[i] = object(value.Member{Key: "id", Value: value.Int(int64(i))}, value.Member{
			Key: "kind", Value: value.Int(int64(i % 2)),
		})
		products[i] = object(
			value.Member{Key: "id", Value: value.Int(int64(999 - i))}, value.Member{
				Key: "kind", Value: value.Int(int64((999 - i) % 2)),
			}, value.Member{Key: "n", Value: value.Int(int64(i))},
		)
	}
	for _, where := range []string{`{"id": "$l.id"}`, `{"id": "$l.id", "kind": "$l.kind"}`} {
		var l diag.List
		sel := tick.CompileSelection(mustParse(t, `{"$map": "$.lines", "as": "$l", "to": {"$lookup": "$.products", "where": `+where+`, "select": "$.n"}}`), "",
			tick.Scope{Plain: true, Members: []string{"lines", "products"}}, &l)
		b := work.Counted(work.Command)
		e := tick.NewEnv(b)
		e.SetDocument(object(value.Member{Key: "lines", Value: value.ArrayValue(lines...)}, value.Member{
			Key: "products", Value: value.ArrayValue(products...),
		}))
		got, _, err := sel.Eval(e, 1<<20)
		if err != nil || got.Len() != 1000 || got.Index(0).String() != "999" || got.Index(999).String() != "0" {
			t.Errorf("%s: %v (%v)", where, got, err)
		}
		if most := int64(100_000); b.Spent() > most {
			t.Errorf("%s takes %d units of work, more than %d", where, b.Spent(), most)
		}
	}
}
