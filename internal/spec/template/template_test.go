package template_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"j17/internal/spec/jsonpath"
	"j17/internal/spec/template"
	"j17/internal/value"
	"j17/internal/work"
)

const (
	key   = "order:0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"
	id    = "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"
	actor = "550e8400-e29b-41d4-a716-446655440001"
	limit = 1 << 20
)

func parse(tb testing.TB, text string) value.Value {
	tb.Helper()
	v, err := value.ParseString(text)
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return v
}

// context is the event that the templates of the tables are evaluated in.
func context(tb testing.TB) *template.Context {
	tb.Helper()
	return &template.Context{
		Work: work.New(tb.Context(), work.Command),
		Key:  key, ID: id, Type: "was_placed",
		Data: parse(tb, `{"n":1.50,"zero":0,"yes":true,"no":false,"nil":null,"text":"a","empty":"","list":[1,"two",{"three":3}],
			"obj":{"x":1,"y":{"z":2}},"$literal":9,"big":123456789012345678901234567890}`),
		Metadata: parse(tb, `{"actor":{"type":"user","id":"`+actor+`"},"timestamp":1700000000}`),
		State:    parse(tb, `{"tier":"gold","defaults":{"a":1,"b":2}}`),
		Name:     "item", Binding: parse(tb, `{"sku":"pen","qty":2}`),
	}
}

// TestEval has a template, the value that it stands for, and whether it reads the state. A value of "" is none: an optional
// path leads nowhere.
func TestEval(t *testing.T) {
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
		"keys are no paths":   {`{"$.key":1}`, `{"$.key":1}`, false},
		"members keep order":  {`{"z":"$.type","a":"$.key"}`, `{"z":"was_placed","a":"` + key + `"}`, false},
		"array of both kinds": {`["$.type",2,["$.data.n"]]`, `["was_placed",2,[1.50]]`, false},

		"key":                      {`"$.key"`, `"` + key + `"`, false},
		"id":                       {`"$.id"`, `"` + id + `"`, false},
		"type":                     {`"$.type"`, `"was_placed"`, false},
		"data":                     {`"$.data.obj"`, `{"x":1,"y":{"z":2}}`, false},
		"decimals are kept":        {`"$.data.n"`, `1.50`, false},
		"large numbers are kept":   {`"$.data.big"`, `123456789012345678901234567890`, false},
		"metadata":                 {`"$.metadata.actor.id"`, `"` + actor + `"`, false},
		"timestamp":                {`"$.metadata.timestamp"`, `1700000000`, false},
		"state":                    {`"$.state.tier"`, `"gold"`, true},
		"state with the other":     {`"@.tier"`, `"gold"`, true},
		"whole state":              {`"@"`, `{"tier":"gold","defaults":{"a":1,"b":2}}`, true},
		"state deep inside":        {`{"a":[{"concat":["$.state.tier"]}]}`, `{"a":["gold"]}`, true},
		"element":                  {`"$.data.list[1]"`, `"two"`, false},
		"element from the end":     {`"$.data.list[-1].three"`, `3`, false},
		"entries":                  {`"$.data.obj.$entries"`, `[{"key":"x","value":1},{"key":"y","value":{"z":2}}]`, false},
		"entries of an array":      {`"$.data.list.$entries"`, `null`, false},
		"binding":                  {`"$item"`, `{"sku":"pen","qty":2}`, false},
		"member of a binding":      {`"$item.qty"`, `2`, false},
		"another binding":          {`"$line.qty"`, `null`, false},
		"null is a value":          {`"$.data.nil"`, `null`, false},
		"optional null is a value": {`"$.data.nil?"`, `null`, false},
		"nowhere":                  {`"$.data.none.deeper"`, `null`, false},
		"nowhere in an object":     {`{"a":"$.data.none"}`, `{"a":null}`, false},
		"member of a text":         {`"$.data.text.length"`, `null`, false},
		"not a member of $":        {`"$.nothing"`, `null`, false},
		"optional":                 {`"$.data.text?"`, `"a"`, false},
		"optional nowhere":         {`"$.data.none?"`, ``, false},
		"optional deep inside":     {`{"a":[1,{"b":"$.data.none?"}]}`, ``, false},
		"optional binding":         {`"$item.none?"`, ``, false},
		"optional state":           {`"$.state.none?"`, ``, true},

		"concat":                      {`{"concat":["Order ","$.key"," of ","$.data.n"]}`, `"Order ` + key + ` of 1.50"`, false},
		"concat of nothing":           {`{"concat":[]}`, `""`, false},
		"concat of literals":          {`{"concat":["a",1,true]}`, `"a1true"`, false},
		"concat of booleans":          {`{"concat":["$.data.yes","/","$.data.no"]}`, `"true/false"`, false},
		"concat leaves null out":      {`{"concat":["a","$.data.nil","$.data.none",null,"b"]}`, `"ab"`, false},
		"concat of containers":        {`{"concat":["$.data.list","$item"]}`, `"[1,\"two\",{\"three\":3}]{\"sku\":\"pen\",\"qty\":2}"`, false},
		"concat with optional":        {`{"concat":["a","$.data.none?"]}`, ``, false},
		"concat is an object of two":  {`{"concat":["a"],"b":"$.type"}`, `{"concat":["a"],"b":"was_placed"}`, false},
		"coalesce":                    {`{"coalesce":["$.data.none","$.data.nil","$.data.text","no"]}`, `"a"`, false},
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
		"$literal in an object":  {`{"a":{"$literal":"$5"},"b":"$.type"}`, `{"a":"$5","b":"was_placed"}`, false},
		"$literal in an operand": {`{"concat":[{"$literal":"$"},"$.data.n"]}`, `"$1.50"`, false},
		"$literal one of two":    {`{"$literal":"$.type","b":1}`, `{"$literal":"was_placed","b":1}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl := template.Compile(parse(t, tc.template))
			if tmpl.ReadsState() != tc.state {
				t.Errorf("ReadsState is %t", !tc.state)
			}
			got, err := tmpl.Eval(context(t), limit)
			switch {
			case tc.want == "":
				if !errors.Is(err, template.ErrAbsent) {
					t.Errorf("got %s, %v, want ErrAbsent", got, err)
				}
			case err != nil || got.String() != tc.want:
				t.Errorf("got  %s, %v\nwant %s", got, err, tc.want)
			}
			if tmpl.Source().String() != parse(t, tc.template).String() {
				t.Errorf("the source is %s", tmpl.Source())
			}
		})
	}
}

// TestTheWholeDocument looks at "$" itself, with and without what steps of a pipeline have added.
func TestTheWholeDocument(t *testing.T) {
	tmpl := template.Compile(parse(t, `"$"`))
	if !tmpl.ReadsState() {
		t.Error(`"$" has the state in it`)
	}
	c := &template.Context{Work: work.New(t.Context(), work.Command), Key: "a:b", ID: "b", Type: "e", Data: parse(t, `{"d":1}`)}
	eval := func(want string) {
		t.Helper()
		if got, err := tmpl.Eval(c, limit); err != nil || got.String() != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	eval(`{"key":"a:b","id":"b","type":"e","data":{"d":1}}`)
	c.More = []value.Member{{Key: "desk", Value: parse(t, `7`)}, {Key: "data", Value: parse(t, `{"d":2}`)}}
	eval(`{"key":"a:b","id":"b","type":"e","data":{"d":1},"desk":7}`) // the event's own members stay
	for path, want := range map[string]string{
		`"$.desk"`: "7", `"$.data.d"`: "1", `"$.key"`: `"a:b"`, `"$.metadata"`: "null", `"$.enriched.desk"`: "7", `"$.enriched.data.d"`: "2",
	} {
		if got, err := template.Compile(parse(t, path)).Eval(c, limit); err != nil || got.String() != want {
			t.Errorf("%s: got %s, %v, want %s", path, got, err, want)
		}
	}
}

// TestEnriched: what steps of a pipeline have added goes by one name too, unless one of them has used it.
func TestEnriched(t *testing.T) {
	tmpl := template.Compile(parse(t, `"$.enriched.desk"`))
	c := &template.Context{Work: work.New(t.Context(), work.Command), Key: "a:b", ID: "b", Type: "e"}
	eval := func(want string) {
		t.Helper()
		if got, err := tmpl.Eval(c, limit); err != nil || got.String() != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	eval("null")
	c.More = []value.Member{{Key: "desk", Value: parse(t, `7`)}}
	eval("7")
	c.More = append(c.More, value.Member{Key: "enriched", Value: parse(t, `{"desk":8}`)})
	eval("8")
}

// TestNoTemplate: an emit without data has those of an empty object.
func TestNoTemplate(t *testing.T) {
	tmpl := template.Compile(value.Value{})
	got, err := tmpl.Eval(context(t), limit)
	if tmpl != nil || err != nil || got.String() != "{}" || tmpl.ReadsState() || !tmpl.Source().IsMissing() {
		t.Error(tmpl, got, err)
	}
}

// TestPaths has the paths that stand where an id, or the array of a map, is taken from.
func TestPaths(t *testing.T) {
	for text, tc := range map[string]struct {
		want            string
		state, optional bool
	}{
		"$.key":               {`"` + key + `"`, false, false},
		"$.id":                {`"` + id + `"`, false, false},
		"$.metadata.actor.id": {`"` + actor + `"`, false, false},
		"$item.sku":           {`"pen"`, false, false},
		"$item.none":          {``, false, false},
		"$item.none?":         {``, false, true},
		"$other.sku":          {``, false, false},
		"$.data.list":         {`[1,"two",{"three":3}]`, false, false},
		"$.data.none":         {``, false, false},
		"$.data.nil?":         {`null`, false, true},
		"$.data.text?":        {`"a"`, false, true},
		"$.data.n":            {`1.50`, false, false},
		"$.state.tier":        {`"gold"`, true, false},
		"$.state":             {`{"tier":"gold","defaults":{"a":1,"b":2}}`, true, false},
		"@.tier":              {`"gold"`, true, false},
		"$.state.$entries":    {`[{"key":"tier","value":"gold"},{"key":"defaults","value":{"a":1,"b":2}}]`, true, false},
		"$[0]":                {``, true, false},
	} {
		parsed, err := jsonpath.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		p := template.NewPath(parsed)
		if p.ReadsState() != tc.state || p.Optional() != tc.optional || p.Text() != text {
			t.Errorf("%s: reads the state %t, optional %t, text %s", text, p.ReadsState(), p.Optional(), p.Text())
		}
		got, err := p.In(context(t))
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
	c := &template.Context{Work: work.New(t.Context(), work.Command), Data: parse(t, `{"s":"`+strings.Repeat("x", 1000)+`"}`)}
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
		_, err := template.Compile(parse(t, text)).Eval(c, 5000)
		if fits && err != nil || !fits && !errors.Is(err, template.ErrTooLarge) {
			t.Errorf("%.60s: fits %t, got %v", text, fits, err)
		}
	}
}

// naive evaluates a template by walking it. It reports false where an optional path leads nowhere.
func naive(v value.Value, c *template.Context) (value.Value, bool) {
	switch v.Kind() {
	case value.String:
		if jsonpath.IsPath(v.Str()) {
			if p, err := jsonpath.Parse(v.Str()); err == nil {
				at := follow(p, c)
				return at.OrNull(), !at.IsMissing() || !p.Optional
			}
		}
	case value.Array:
		elems, ok := naiveAll(v.Elems(), c)
		return value.ArrayValue(elems...), ok
	case value.Object:
		if v.Len() == 1 {
			switch arg := v.Members()[0].Value; v.Members()[0].Key {
			case "$literal":
				return arg, true
			case "coalesce":
				for _, e := range arg.Elems() {
					if at, ok := naive(e, c); ok && at.Kind() != value.Null {
						return at, true
					}
				}
				return value.NullValue(), true
			case "concat":
				elems, ok := naiveAll(arg.Elems(), c)
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
					e, ok := naive(item, c)
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
			at, ok := naive(m.Value, c)
			members, all = append(members, value.Member{Key: m.Key, Value: at}), all && ok
		}
		return value.ObjectValue(members...), all
	case value.Missing, value.Null, value.Bool, value.Number:
	}
	return v, true
}

func naiveAll(list []value.Value, c *template.Context) ([]value.Value, bool) {
	out, all := make([]value.Value, len(list)), true
	for i, e := range list {
		var ok bool
		out[i], ok = naive(e, c)
		all = all && ok
	}
	return out, all
}

// follow follows a path from the whole of what it starts in.
func follow(p jsonpath.Path, c *template.Context) value.Value {
	switch {
	case p.Root == jsonpath.Current:
		return p.In(c.State)
	case p.Root == jsonpath.Binding && p.Name == c.Name:
		return p.In(c.Binding)
	case p.Root == jsonpath.Binding:
		return value.Value{}
	}
	document := []value.Member{
		{Key: "key", Value: value.StringValue(c.Key)},
		{Key: "id", Value: value.StringValue(c.ID)},
		{Key: "type", Value: value.StringValue(c.Type)},
		{Key: "data", Value: c.Data},
		{Key: "metadata", Value: c.Metadata},
		{Key: "state", Value: c.State},
	}
	document = slices.DeleteFunc(document, func(m value.Member) bool { return m.Value.IsMissing() })
	return p.In(value.ObjectValue(document...))
}

// FuzzEval compiles any template and evaluates it in any event. Nothing panics, the value is within its limit, and it is the
// one that walking the template yields.
func FuzzEval(f *testing.F) {
	const event = `{"a":{"b":[1,null,"x"]},"n":0.10}`
	for _, text := range []string{
		`{"concat":["$.data.a.b[0]","@.s",{"coalesce":["$.x?","$item"]}]}`, `{"merge":["$.data","$.state",{"$literal":"$"}]}`,
		`["$","$.data.n?","$.state.$entries"]`, `{"a":"$.key","b":{"concat":"none"}}`, `{"coalesce":{"a":1}}`, `{"merge":null}`, `"$..x"`, `"@"`,
	} {
		f.Add(text, event, `{"s":true}`, `[1]`)
	}
	f.Fuzz(func(t *testing.T, text, data, state, binding string) {
		tmpl, err := value.ParseString(text)
		if err != nil {
			return
		}
		c := &template.Context{Work: work.New(t.Context(), work.Command), Key: key, ID: id, Type: "e", Metadata: value.ObjectValue(), Name: "item"}
		for src, into := range map[string]*value.Value{data: &c.Data, state: &c.State, binding: &c.Binding} {
			// What is no JSON is missing.
			*into, _ = value.ParseString(src)
		}
		compiled := template.Compile(tmpl)
		got, err := compiled.Eval(c, 1<<16)
		switch {
		case errors.Is(err, template.ErrTooLarge):
			return
		case err != nil && !errors.Is(err, template.ErrAbsent):
			t.Fatal(err)
		case err == nil && got.IsMissing():
			t.Fatal("the value is missing")
		}
		if err == nil && got.Size() > 1<<16 {
			t.Fatal("the value is too large")
		}
		want, ok := naive(tmpl, c)
		if ok != (err == nil) || ok && got.String() != want.String() {
			t.Fatalf("%s is %s, %v; walking it yields %s, %t", tmpl, got, err, want, ok)
		}
		if !compiled.ReadsState() {
			c.State = value.Value{}
			if again, _ := compiled.Eval(c, 1<<16); err == nil && again.String() != got.String() {
				t.Fatalf("%s does not read the state, but without it is %s and not %s", tmpl, again, got)
			}
		}
	})
}
