package tick_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/tick"
)

const (
	orderKey = "order:0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"
	orderID  = "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"
	actor    = "550e8400-e29b-41d4-a716-446655440001"
	limit    = 1 << 20
)

// itemScope is what paths can start with while the elements of an array are gone through.
func itemScope() tick.Scope {
	return tick.Scope{
		Bindings: []string{"item"}, Members: []string{"key", "id", "type", "data", "metadata", "state", "more"},
	}
}

// place is what templates and paths are evaluated in.
type place struct {
	key, typ              string
	data, metadata, state value.Value
	more                  []value.Member
	item                  value.Value
}

func (p *place) env(tb testing.TB) *tick.Env {
	tb.Helper()
	e := tick.NewEnv(work.New(tb.Context(), work.Command))
	at, _ := p.metadata.Get("timestamp").Int64()
	e.Renew(&tick.Event{
		Key: p.key, Type: p.typ, Timestamp: at, Data: tick.Parsed(p.data), Metadata: tick.Parsed(p.metadata),
	})
	e.SetState(p.state)
	e.Extend(p.more)
	e.Bind(0, p.item)
	return e
}

func template(tb testing.TB, text string, s tick.Scope) *tick.Template {
	tb.Helper()
	var l diag.List
	tmpl := tick.CompileTemplate(mustParse(tb, text), "", s, &l)
	if tmpl == nil {
		tb.Fatalf("%s does not compile: %v", text, l.All())
	}
	return tmpl
}

// placed is the event that the templates of the tables are evaluated in.
func placed(tb testing.TB) *place {
	tb.Helper()
	return &place{
		key: orderKey, typ: "was_placed",
		data: mustParse(tb, `{"n":1.50,"zero":0,"yes":true,"no":false,"nil":null,"text":"a","empty":"","list":[1,"two",{"three":3}],
			"obj":{"x":1,"y":{"z":2}},"$literal":9,"big":123456789012345678901234567890}`),
		metadata: mustParse(tb, `{"actor":{"type":"user","id":"`+actor+`"},"timestamp":1700000000}`),
		state:    mustParse(tb, `{"tier":"gold","defaults":{"a":1,"b":2}}`),
		item:     mustParse(tb, `{"sku":"pen","qty":2}`),
	}
}

// TestTemplates has a template, the value that it stands for, and whether it reads the state. A value of "" is none: an
// optional path leads nowhere.
func TestTemplates(t *testing.T) {
	for name, tc := range map[string]struct {
		template, want string
		state          bool
	}{
		"number":              {`1.50`, `1.50`, false},
		"null":                {`null`, `null`, false},
		"text":                {`"plain"`, `"plain"`, false},
		"at sign in text":     {`"@home"`, `"@home"`, false},
		"empty text":          {`""`, `""`, false},
		"empty object":        {`{}`, `{}`, false},
		"literal object":      {`{"b":1,"a":[true,{}]}`, `{"b":1,"a":[true,{}]}`, false},
		"keys are no paths":   {`{"data.n":1,"@.key":2}`, `{"data.n":1,"@.key":2}`, false},
		"members keep order":  {`{"z":"$.type","a":"$.key"}`, `{"z":"was_placed","a":"` + orderKey + `"}`, false},
		"array of both kinds": {`["$.type",2,["$.data.n"]]`, `["was_placed",2,[1.50]]`, false},

		"key":                      {`"$.key"`, `"` + orderKey + `"`, false},
		"id":                       {`"$.id"`, `"` + orderID + `"`, false},
		"type":                     {`"$.type"`, `"was_placed"`, false},
		"data":                     {`"$.data.obj"`, `{"x":1,"y":{"z":2}}`, false},
		"decimals are kept":        {`"$.data.n"`, `1.50`, false},
		"large numbers are kept":   {`"$.data.big"`, `123456789012345678901234567890`, false},
		"metadata":                 {`"$.metadata.actor.id"`, `"` + actor + `"`, false},
		"timestamp":                {`"$.metadata.timestamp"`, `1700000000`, false},
		"state":                    {`"$.state.tier"`, `"gold"`, true},
		"whole state":              {`"$.state"`, `{"tier":"gold","defaults":{"a":1,"b":2}}`, true},
		"state deep inside":        {`{"a":[{"concat":["$.state.tier"]}]}`, `{"a":["gold"]}`, true},
		"element":                  {`"$.data.list[1]"`, `"two"`, false},
		"element from the end":     {`"$.data.list[-1].three"`, `3`, false},
		"entries":                  {`"$.data.obj.$entries"`, `[{"key":"x","value":1},{"key":"y","value":{"z":2}}]`, false},
		"entries of an array":      {`"$.data.list.$entries"`, `null`, false},
		"binding":                  {`"$item"`, `{"sku":"pen","qty":2}`, false},
		"member of a binding":      {`"$item.qty"`, `2`, false},
		"null is a value":          {`"$.data.nil"`, `null`, false},
		"optional null is a value": {`"$.data.nil?"`, `null`, false},
		"nowhere":                  {`"$.data.none.deeper"`, `null`, false},
		"nowhere in an object":     {`{"a":"$.data.none"}`, `{"a":null}`, false},
		"member of a text":         {`"$.data.text.length"`, `null`, false},
		"not a member of $":        {`"$.more"`, `null`, false},
		"optional":                 {`"$.data.text?"`, `"a"`, false},
		"optional nowhere":         {`"$.data.none?"`, ``, false},
		"optional deep inside":     {`{"a":[1,{"b":"$.data.none?"}]}`, ``, false},
		"optional binding":         {`"$item.none?"`, ``, false},
		"optional state":           {`"$.state.none?"`, ``, true},

		"concat":                      {`{"concat":["Order ","$.key"," of ","$.data.n"]}`, `"Order ` + orderKey + ` of 1.50"`, false},
		"concat of nothing":           {`{"concat":[]}`, `""`, false},
		"concat of literals":          {`{"concat":["a",1,true]}`, `"a1true"`, false},
		"concat of booleans":          {`{"concat":["$.data.yes","/","$.data.no"]}`, `"true/false"`, false},
		"concat leaves null out":      {`{"concat":["a","$.data.nil","$.data.none",null,"b"]}`, `"ab"`, false},
		"concat of containers":        {`{"concat":["$.data.list","$item"]}`, `"[1,\"two\",{\"three\":3}]{\"sku\":\"pen\",\"qty\":2}"`, false},
		"concat with optional":        {`{"concat":["a","$.data.none?"]}`, ``, false},
		"concat is an object of two":  {`{"concat":["a"],"b":"$.type"}`, `{"concat":["a"],"b":"was_placed"}`, false},
		"coalesce":                    {`{"coalesce":["$.data.none","$.data.nil","$.data.text","no"]}`, `"a"`, false},
		"if":                          {`{"$if":{"equals":["$.data.text","a"]},"then":{"concat":["it is ","$.data.text"]},"else":1}`, `"it is a"`, false},
		"if without else":             {`{"a":{"$if":{"equals":["$.data.text","b"]},"then":1}}`, `{"a":null}`, false},
		"if leaves out":               {`[{"$if":{"exists":"$.data.text"},"then":"$.data.none?","else":1}]`, ``, false},
		"if computes one":             {`{"$if":{"exists":"$.data.text"},"then":1,"else":{"$abs":"$.data.text"}}`, `1`, false},
		"coalesce takes false":        {`{"coalesce":["$.data.no","no"]}`, `false`, false},
		"coalesce takes zero":         {`{"coalesce":["$.data.zero","no"]}`, `0`, false},
		"coalesce takes empty":        {`{"coalesce":["$.data.empty","no"]}`, `""`, false},
		"coalesce of nothing":         {`{"coalesce":[]}`, `null`, false},
		"coalesce of nulls":           {`{"coalesce":["$.data.nil",null]}`, `null`, false},
		"coalesce skips optional":     {`{"coalesce":["$.data.none?","b"]}`, `"b"`, false},
		"coalesce skips what is left": {`{"coalesce":[{"a":"$.data.none?"},{"concat":["x","$.data.none?"]},"b"]}`, `"b"`, false},
		"coalesce all optional":       {`{"coalesce":["$.data.none?"]}`, `null`, false},
		"coalesce around, optional":   {`[{"coalesce":["$.data.none?",1]},"$.data.none?"]`, ``, false},
		"merge":                       {`{"merge":["$.state.defaults",{"b":"$.data.n","c":3}]}`, `{"a":1,"b":1.50,"c":3}`, true},
		"merge is shallow":            {`{"merge":["$.data.obj",{"y":{"w":1}}]}`, `{"x":1,"y":{"w":1}}`, false},
		"merge skips the rest":        {`{"merge":["$.data.list","$.data.nil",1,"text",{"a":1},"$.data.none"]}`, `{"a":1}`, false},
		"merge of nothing":            {`{"merge":[]}`, `{}`, false},
		"merge with optional":         {`{"merge":["$.data.none?",{"a":1},{"b":"$.data.none?","c":2}]}`, `{"a":1}`, false},
		"merge keeps null members":    {`{"merge":[{"a":1},{"a":"$.data.none"}]}`, `{"a":null}`, false},
		"nested": {
			`{"merge":[{"message":{"concat":["Order ",{"coalesce":["$.data.none","$.data.text"]}]}},
			{"name":{"coalesce":["$.data.nil",{"concat":["$item.sku","!"]}]}},{"merge":[{"deep":{"merge":["$.data.obj",{"x":2}]}}]}]}`,
			`{"message":"Order a","name":"pen!","deep":{"x":2,"y":{"z":2}}}`, false,
		},
		"operator in an array": {`[{"concat":["a","b"]},{"coalesce":[null,1]}]`, `["ab",1]`, false},

		"$literal":               {`{"$literal":"$.key"}`, `"$.key"`, false},
		"$literal of operators":  {`{"$literal":{"concat":["$.key","@.x"]}}`, `{"concat":["$.key","@.x"]}`, false},
		"$literal beside texts":  {`{"a":{"$literal":"$5"},"b":[{"$literal":"@"}]}`, `{"a":"$5","b":["@"]}`, false},
		"$literal in an object":  {`{"a":{"$literal":"$5"},"b":"$.type"}`, `{"a":"$5","b":"was_placed"}`, false},
		"$literal in an operand": {`{"concat":[{"$literal":"$"},"$.data.n"]}`, `"$1.50"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl := template(t, tc.template, itemScope())
			if tmpl.ReadsState() != tc.state {
				t.Errorf("ReadsState is %t", !tc.state)
			}
			got, ok, err := tmpl.Eval(placed(t).env(t), limit)
			if err != nil || ok != (tc.want != "") || ok && got.String() != tc.want {
				t.Errorf("got  %s, %t, %v\nwant %s", got, ok, err, tc.want)
			}
			if tmpl.Source().String() != mustParse(t, tc.template).String() {
				t.Errorf("the source is %s", tmpl.Source())
			}
		})
	}
}

// TestTheWholeDocument looks at "$" itself, with and without what steps of a pipeline have added.
func TestTheWholeDocument(t *testing.T) {
	tmpl := template(t, `"$"`, tick.Scope{})
	if !tmpl.ReadsState() {
		t.Error(`"$" has the state in it`)
	}
	p := &place{key: "a:b", typ: "e", data: mustParse(t, `{"d":1}`)}
	eval := func(want string) {
		t.Helper()
		if got, ok, err := tmpl.Eval(p.env(t), limit); err != nil || !ok || got.String() != want {
			t.Errorf("got %s, %t, %v, want %s", got, ok, err, want)
		}
	}
	eval(`{"key":"a:b","id":"b","type":"e","data":{"d":1}}`)
	p.more = []value.Member{{Key: "desk", Value: mustParse(t, `7`)}, {Key: "data", Value: mustParse(t, `{"d":2}`)}}
	eval(`{"key":"a:b","id":"b","type":"e","data":{"d":1},"desk":7}`) // the event's own members stay
	for path, want := range map[string]string{
		`"$.desk"`: "7", `"$.data.d"`: "1", `"$.key"`: `"a:b"`, `"$.metadata"`: "null", `"$.enriched.desk"`: "7",
		`"$.enriched.data.d"`: "2",
	} {
		if got, _, err := template(t, path, tick.Scope{}).Eval(p.env(t), limit); err != nil || got.String() != want {
			t.Errorf("%s: got %s, %v, want %s", path, got, err, want)
		}
	}
}

// TestEnriched: what steps of a pipeline have added goes by one name too, unless one of them has used it.
func TestEnriched(t *testing.T) {
	tmpl := template(t, `"$.enriched.desk"`, tick.Scope{})
	p := &place{key: "a:b", typ: "e"}
	eval := func(want string) {
		t.Helper()
		if got, _, err := tmpl.Eval(p.env(t), limit); err != nil || got.String() != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	eval("null")
	p.more = []value.Member{{Key: "desk", Value: mustParse(t, `7`)}}
	eval("7")
	p.more = append(p.more, value.Member{Key: "enriched", Value: mustParse(t, `{"desk":8}`)})
	eval("8")
}

// TestNoTemplate: an emit without data has those of an empty object.
func TestNoTemplate(t *testing.T) {
	tmpl := tick.CompileTemplate(value.Value{}, "", itemScope(), &diag.List{})
	got, ok, err := tmpl.Eval(placed(t).env(t), limit)
	if tmpl != nil || err != nil || !ok || got.String() != "{}" || tmpl.ReadsState() || !tmpl.Source().IsMissing() {
		t.Error(tmpl, got, ok, err)
	}
}

// TestOneEnvironment: conditions, paths and templates of one event are evaluated in one environment, which another
// event takes over without a trace of the first.
func TestOneEnvironment(t *testing.T) {
	p := placed(t)
	p.more = []value.Member{{Key: "desk", Value: value.Int(7)}}
	e := p.env(t)
	scope := itemScope().With("other")
	scope.Members = nil
	var l diag.List
	holds := tick.CompilePredicate(mustParse(t, `{"and":[{"equals":["$.id","`+orderID+`"]},{"gt":["$.desk",6]},
		{"some":{"in":"$.data.list","match":{"equals":["$item","two"]}}},{"equals":["$item.sku","pen"]},{"equals":["@.tier","$.state.tier"]}]}`), "", scope, &l)
	if holds == nil {
		t.Fatal(l.All())
	}
	tmpl := template(t, `["$.desk","$item.qty","$other","$.state.tier","$.id"]`, scope)
	for range 2 {
		if is, ok, err := holds.Test(e); !is || !ok || err != nil {
			t.Errorf("the condition is %t, %t, %v", is, ok, err)
		}
		if got, _, err := tmpl.Eval(e, limit); err != nil || got.String() != `[7,2,null,"gold","`+orderID+`"]` {
			t.Error(got, err)
		}
	}
	e.Renew(&tick.Event{Key: "a:b", Type: "e"})
	if got, _, err := tmpl.Eval(e, limit); err != nil || got.String() != `[null,null,null,null,"b"]` {
		t.Error(got, err)
	}
}

// TestPathsAlone has the paths that stand where an id, or the array of a map, is taken from.
func TestPathsAlone(t *testing.T) {
	for text, tc := range map[string]struct {
		want            string
		state, optional bool
	}{
		"$.key":               {`"` + orderKey + `"`, false, false},
		"$.id":                {`"` + orderID + `"`, false, false},
		"$.metadata.actor.id": {`"` + actor + `"`, false, false},
		"$item.sku":           {`"pen"`, false, false},
		"$item.none":          {``, false, false},
		"$item.none?":         {``, false, true},
		"$.data.list":         {`[1,"two",{"three":3}]`, false, false},
		"$.data.none":         {``, false, false},
		"$.data.nil?":         {`null`, false, true},
		"$.data.text?":        {`"a"`, false, true},
		"$.data.n":            {`1.50`, false, false},
		"$.state.tier":        {`"gold"`, true, false},
		"$.state":             {`{"tier":"gold","defaults":{"a":1,"b":2}}`, true, false},
		"$.state.$entries":    {`[{"key":"tier","value":"gold"},{"key":"defaults","value":{"a":1,"b":2}}]`, true, false},
	} {
		var l diag.List
		p := tick.CompilePath(value.StringValue(text), "", "a path", itemScope(), &l)
		if p == nil {
			t.Fatal(l.All())
		}
		if p.ReadsState() != tc.state || p.Optional() != tc.optional || p.Text() != text {
			t.Errorf("%s: reads the state %t, optional %t, text %s", text, p.ReadsState(), p.Optional(), p.Text())
		}
		got, err := p.In(placed(t).env(t))
		if err != nil {
			t.Fatal(err)
		}
		if got.IsMissing() != (tc.want == "") || !got.IsMissing() && got.String() != tc.want {
			t.Errorf("%s: got %s, want %s", text, got, tc.want)
		}
	}
}

// TestValuesAreBounded: what a template puts together, or multiplies, must not fill the memory.
func TestValuesAreBounded(t *testing.T) {
	p := &place{data: mustParse(t, `{"s":"`+strings.Repeat("x", 1000)+`"}`)}
	many := strings.TrimSuffix(strings.Repeat(`"$.data.s",`, 10), ",")
	deep := strings.Repeat(`{"a":`, value.MaxDepth-3) + `"$.data"` + strings.Repeat(`}`, value.MaxDepth-3)
	for text, fits := range map[string]bool{
		`{"concat":[` + many + `]}`:                                    false,
		`{"concat":[{"concat":[` + many + `]}]}`:                       false,
		`{"coalesce":[{"concat":[` + many + `]},"b"]}`:                 false,
		`[` + many + `]`:                                               false,
		`{"merge":[{"a":"$.data.s"},{"b":"$.data.s"},{"c":"$.data"}]}`: true,
		`{"concat":["$.data.s","$.data.s"]}`:                           true,
		deep:                                                           true,
		`[[` + deep + `]]`:                                             false,
	} {
		_, _, err := template(t, text, itemScope()).Eval(p.env(t), 5000)
		if fits && err != nil || !fits && !errors.Is(err, tick.ErrTooLarge) {
			t.Errorf("%.60s: fits %t, got %v", text, fits, err)
		}
	}
}

// walked evaluates a template by walking it. It reports false where an optional path leads nowhere.
func walked(v value.Value, c *place) (value.Value, bool) {
	switch v.Kind() {
	case value.String:
		if jsonpath.IsPath(v.Str()) {
			if p, err := jsonpath.Parse(v.Str()); err == nil {
				at := followed(p, c)
				return at.OrNull(), !at.IsMissing() || !p.Optional
			}
		}
	case value.Array:
		elems, ok := walkedAll(v.Elems(), c)
		return value.ArrayValue(elems...), ok
	case value.Object:
		if v.Len() == 1 {
			switch arg := v.Members()[0].Value; v.Members()[0].Key {
			case "$literal":
				return arg, true
			case "coalesce":
				for _, e := range arg.Elems() {
					if at, ok := walked(e, c); ok && at.Kind() != value.Null {
						return at, true
					}
				}
				return value.NullValue(), true
			case "concat":
				elems, ok := walkedAll(arg.Elems(), c)
				text := ""
				for _, e := range elems {
					if e.Kind() == value.String {
						text += e.Str()
					} else if e.Kind() != value.Null {
						text += e.String()
					}
				}
				return value.StringValue(text), ok
			case "merge":
				var members []value.Member
				for _, item := range arg.Elems() {
					e, ok := walked(item, c)
					if !ok {
						continue
					}
					for _, m := range e.Members() {
						if i := slices.IndexFunc(members, func(o value.Member) bool { return o.Key == m.Key }); i >= 0 {
							members[i] = m
						} else {
							members = append(members, m)
						}
					}
				}
				return value.ObjectValue(members...), true
			}
		}
		var members []value.Member
		all := true
		for _, m := range v.Members() {
			at, ok := walked(m.Value, c)
			members, all = append(members, value.Member{Key: m.Key, Value: at}), all && ok
		}
		return value.ObjectValue(members...), all
	case value.Missing, value.Null, value.Bool, value.Number:
	}
	return v, true
}

func walkedAll(list []value.Value, c *place) ([]value.Value, bool) {
	out, all := make([]value.Value, len(list)), true
	for i, e := range list {
		var ok bool
		out[i], ok = walked(e, c)
		all = all && ok
	}
	return out, all
}

// followed follows a path from the whole of what it starts in.
func followed(p jsonpath.Path, c *place) value.Value {
	root := c.item
	if p.Root == jsonpath.Document {
		_, id, _ := strings.Cut(c.key, ":")
		document := []value.Member{
			{Key: "key", Value: value.StringValue(c.key)},
			{Key: "id", Value: value.StringValue(id)},
			{Key: "type", Value: value.StringValue(c.typ)},
			{Key: "data", Value: c.data},
			{Key: "metadata", Value: c.metadata},
			{Key: "state", Value: c.state},
		}
		root = value.ObjectValue(
			slices.DeleteFunc(document, func(m value.Member) bool { return m.Value.IsMissing() })...,
		)
	}
	if root = root.At(p.Steps); p.Entries {
		return jsonpath.Entries(root)
	}
	return root
}

// FuzzTemplate compiles any template and evaluates it in any event. Nothing panics, the value is within its limit, and
// it is the one that walking the template yields.
func FuzzTemplate(f *testing.F) {
	const event = `{"a":{"b":[1,null,"x"]},"n":0.10}`
	for _, text := range []string{
		`{"concat":["$.data.a.b[0]","$.state.s",{"coalesce":["$.type?","$item"]}]}`, `{"merge":["$.data","$.state",{"$literal":"$"}]}`,
		`["$","$.data.n?","$.state.$entries"]`, `{"a":"$.key","b":{"concat":["none"]}}`, `{"coalesce":[{"a":1}]}`,
		`{"merge":null}`, `"$..x"`, `"@"`,
	} {
		f.Add(text, event, `{"s":true}`, `[1]`)
	}
	f.Fuzz(func(t *testing.T, text, data, state, item string) {
		v, err := value.ParseString(text)
		if err != nil {
			return
		}
		var l diag.List
		tmpl := tick.CompileTemplate(v, "", itemScope(), &l)
		if (tmpl == nil) != (l.Errors() > 0) {
			t.Fatalf("%s: %v, but %d errors", text, tmpl, l.Errors())
		}
		if tmpl == nil {
			return
		}
		p := &place{
			key: orderKey, typ: "e", metadata: value.ObjectValue(value.Member{Key: "timestamp", Value: value.Int(0)}),
		}
		for src, into := range map[string]*value.Value{data: &p.data, state: &p.state, item: &p.item} {
			// What is no JSON is missing.
			*into, _ = value.ParseString(src)
		}
		got, ok, err := tmpl.Eval(p.env(t), 1<<16)
		switch {
		case errors.Is(err, tick.ErrTooLarge):
			return
		case err != nil:
			t.Fatal(err)
		case ok && got.IsMissing():
			t.Fatal("the value is missing")
		case ok && got.Size() > 1<<16:
			t.Fatal("the value is too large")
		}
		want, has := walked(v, p)
		if ok != has || ok && got.String() != want.String() {
			t.Fatalf("%s is %s, %t; walking it yields %s, %t", text, got, ok, want, has)
		}
		if !tmpl.ReadsState() {
			p.state = value.Value{}
			if again, _, _ := tmpl.Eval(p.env(t), 1<<16); ok && again.String() != got.String() {
				t.Fatalf("%s does not read the state, but without it is %s and not %s", text, again, got)
			}
		}
	})
}

// TestWildcards has paths of projections into a value of their own, and what following them takes.
func TestWildcards(t *testing.T) {
	const doc = `{"a":{"b":[1,{"c":null},[2,3]]},"o":{"x":1,"y":"z"},"lines":[{"id":"p","tags":["t1","t2"]},{"tags":[]},{"id":"q","tags":"no"},5],"s":"text"}`
	tests := []struct{ path, want string }{
		{"$", doc},
		{"$.a.b[0]", `1`},
		{"$.a.b[1].c", `null`},
		{"$.a.b[-1][1]", `3`},
		{"$.a.b[-4]", ``},
		{"$.a.b[3]", ``},
		{"$.a.b.c", ``},
		{"$.a[0]", ``},
		{"$.s.length", ``},
		{"$.o.$entries", `[{"key":"x","value":1},{"key":"y","value":"z"}]`},
		{"$.a.b.$entries", `null`},
		{"$.s.$entries", `null`},
		{"$.none.$entries", ``},
		{"$.none.$entries?", ``},
		{"$.lines[*].id", `["p","q"]`},
		{"$.lines[*].tags[*]", `["t1","t2"]`},
		{"$.lines[*]", `[{"id":"p","tags":["t1","t2"]},{"tags":[]},{"id":"q","tags":"no"},5]`},
		{"$.lines[*].tags", `[["t1","t2"],[],"no"]`},
		{"$.lines[0].tags[*]", `["t1","t2"]`},
		{"$.o[*]", ``},
		{"$.none[*].x", ``},
	}
	for _, test := range tests {
		var l diag.List
		p := tick.CompilePath(value.StringValue(test.path), "", "a path", tick.Scope{Plain: true, Wildcards: true}, &l)
		if p == nil {
			t.Errorf("%s: %v", test.path, l.All())
			continue
		}
		b := work.Counted(work.Command)
		e := tick.NewEnv(b)
		e.SetDocument(mustParse(t, doc))
		if got, err := p.In(e); got.String() != test.want || err != nil {
			t.Errorf("%s is %s, %v, want %s", test.path, got, err, test.want)
		}
		if most := int64(4 + len(doc)/2); b.Spent() < 1 || b.Spent() > most {
			t.Errorf("%s takes %d units", test.path, b.Spent())
		}
	}
}
