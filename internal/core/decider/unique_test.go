//go:build !race

package decider_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

const users = `{"agent_types": ["user"], "aggregate_types": {"user": {"events": {
	"was_registered": {"schema": {}, "handler": [], "unique": {
		"email": {"value": "$.data.email"}, "badge": {"value": ["$.data.building", "$.data.badge"]}, "nick": {"value": "$.data.nick", "scope": "$.data.team"}}},
	"was_moved": {"schema": {}, "handler": [], "releases": ["email"], "unique": {"email": {"value": ["$.data.email"]}}},
	"was_deleted": {"schema": {}, "handler": [], "releases": ["email", "badge"]}}}}}`

// exchange returns the exchanges of an event, and its error.
func exchange(tb testing.TB, typ *spec.AggregateType, event, data string) ([]decider.Exchange, error) {
	tb.Helper()
	v, err := value.ParseString(data)
	if err != nil {
		tb.Fatal(err)
	}
	e := tick.NewEnv(work.New(tb.Context(), work.Command))
	e.Renew(&tick.Event{Key: "user:u", Type: event, Data: tick.Parsed(v)})
	exchanges, _, err := decider.Exchanges(typ, typ.Events[event], e)
	return exchanges, err
}

func usersType(tb testing.TB) *spec.AggregateType {
	tb.Helper()
	compiled, found := spec.Compile([]byte(users))
	if compiled == nil {
		tb.Fatal(found)
	}
	return compiled.Types["user"]
}

// TestUniqueValuesAreEqual compares values as unique sets do.
func TestUniqueValuesAreEqual(t *testing.T) {
	typ := usersType(t)
	digest := func(event, data string) (digest [32]byte) {
		exchanges, err := exchange(t, typ, event, data)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if len(exchanges) == 0 || exchanges[len(exchanges)-1].Of == nil {
			t.Fatalf("%s takes nothing", data)
		}
		return exchanges[len(exchanges)-1].Value
	}
	long := strings.Repeat("x", decider.MaxUnique)
	for _, pair := range []struct {
		a, b  string
		equal bool
	}{
		{`{"email":"a"}`, `{"email":"a"}`, true},
		{`{"email":"a"}`, `{"email":"A"}`, false},
		{`{"email":"a"}`, `{"email":"a "}`, false},
		{`{"email":"\u00e9"}`, `{"email":"é"}`, true},
		{`{"email":"é"}`, `{"email":"e\u0301"}`, false}, // not the same code points
		{`{"email":1}`, `{"email":1.0}`, true},
		{`{"email":1}`, `{"email":10e-1}`, true},
		{`{"email":0}`, `{"email":-0.0}`, true},
		{`{"email":1}`, `{"email":-1}`, false},
		{`{"email":1}`, `{"email":10}`, false},
		{`{"email":1}`, `{"email":"1"}`, false},
		{`{"email":1}`, `{"email":true}`, false},
		{`{"email":true}`, `{"email":false}`, false},
		{`{"email":9007199254740993}`, `{"email":9007199254740992}`, false},
		{`{"email":9007199254740993}`, `{"email":9007199254740993.000}`, true},
		{`{"email":1e300}`, `{"email":10e299}`, true},
		{`{"email":[1,"a"]}`, `{"email":[1.0,"a"]}`, true},
		{`{"email":["ab","c"]}`, `{"email":["a","bc"]}`, false},
		{`{"email":[["a"],"b"]}`, `{"email":["a",["b"]]}`, false},
		{`{"email":[]}`, `{"email":[null]}`, false},
		{`{"email":[null]}`, `{"email":[null]}`, true},
		{`{"email":""}`, `{"email":[]}`, false},
		{`{"email":"` + long + `"}`, `{"email":"` + long + `"}`, true},
		{`{"building":"b","badge":1}`, `{"building":"b","badge":1.0}`, true},
		{`{"building":"b","badge":1}`, `{"building":1,"badge":"b"}`, false},
		{`{"building":"b","badge":1}`, `{"email":["b",1]}`, true}, // sets are told apart by themselves
		{`{"nick":"n","team":"red"}`, `{"nick":"n","team":"red"}`, true},
		{`{"nick":"n","team":"red"}`, `{"nick":"n","team":"blue"}`, false},
		{`{"nick":"n","team":null}`, `{"nick":"n"}`, true}, // no team is one as well
		{`{"nick":"n","team":"n"}`, `{"nick":"n","team":null}`, false},
	} {
		if a, b := digest("was_registered", pair.a), digest("was_registered", pair.b); (a == b) != pair.equal {
			t.Errorf("%s and %s: equal is not %v", pair.a, pair.b, pair.equal)
		}
	}
	if digest("was_moved", `{"email":"a"}`) == digest("was_registered", `{"email":"a"}`) {
		t.Error("a list with one value is the value itself")
	}
}

// TestExchanges looks at what events take and give back.
func TestExchanges(t *testing.T) {
	typ := usersType(t)
	for _, test := range []struct {
		event, data, want string
		code              j17.Code
		path              string
	}{
		{event: "was_registered", data: `{}`},
		{event: "was_registered", data: `{"email":null,"building":"b","nick":null,"team":"t"}`},
		{event: "was_registered", data: `{"email":"a","building":"b","badge":false,"nick":0}`, want: "+badge +email +nick"},
		{event: "was_moved", data: `{"email":null}`, want: "-email"},
		{event: "was_moved", data: `{"email":"a"}`, want: "-email +email"},
		{event: "was_deleted", data: `{"email":{}}`, want: "-email -badge"},
		{event: "was_registered", data: `{"email":{"a":1}}`, code: j17.CodeInvalidOperand, path: "data.email"},
		{event: "was_registered", data: `{"email":[[{}]]}`, code: j17.CodeInvalidOperand, path: "data.email"},
		{event: "was_registered", data: `{"building":{},"badge":1}`, code: j17.CodeInvalidOperand},
		{event: "was_registered", data: `{"nick":"n","team":{}}`, code: j17.CodeInvalidOperand},
		{
			event: "was_registered", data: `{"email":"` + strings.Repeat("x", decider.MaxUnique+1) + `"}`,
			code: j17.CodeSchemaViolation, path: "data.email",
		},
		{
			event: "was_registered", data: `{"email":"` + strings.Repeat("ä", decider.MaxUnique/2+1) + `"}`,
			code: j17.CodeSchemaViolation, path: "data.email",
		},
		{
			event: "was_registered", data: `{"email":` + strings.Repeat("1", decider.MaxUnique+1) + `}`,
			code: j17.CodeSchemaViolation, path: "data.email",
		},
		{
			event: "was_registered", data: `{"email":"` + strings.Repeat("x", 100_000) + `"}`,
			code: j17.CodeSchemaViolation, path: "data.email",
		},
		{
			event: "was_registered", data: `{"email":[` + strings.Repeat("[],", decider.MaxUnique+1) + `1]}`,
			code: j17.CodeSchemaViolation, path: "data.email",
		},
		{
			event: "was_registered", data: `{"nick":1,"team":"` + strings.Repeat("x", decider.MaxUnique+1) + `"}`,
			code: j17.CodeSchemaViolation,
		},
	} {
		exchanges, err := exchange(t, typ, test.event, test.data)
		if j17.CodeOf(err) != test.code && err != nil || (err != nil) != (test.code != "") {
			t.Errorf("%s %.50s: %v", test.event, test.data, err)
			continue
		}
		if e, ok := err.(*j17.Error); ok && e.Path != test.path { //nolint:errorlint // it is one, or nothing
			t.Errorf("%s %.50s: the path is %q", test.event, test.data, e.Path)
		}
		var got []string
		for _, c := range exchanges {
			sign := "+"
			if c.Of == nil {
				sign = "-"
			}
			got = append(got, sign+c.Set.Name)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s %.50s: the exchanges are %v", test.event, test.data, got)
		}
	}
}

// shelf is holders in memory.
type shelf struct {
	holders map[[32]byte]j17.Key
	asked   int
}

func (s *shelf) Holder(_ context.Context, _ *spec.UniqueSet, v [32]byte) (j17.Key, error) {
	s.asked++
	return s.holders[v], nil
}

func (s *shelf) Held(_ context.Context, _ *spec.UniqueSet, key j17.Key) ([32]byte, bool, error) {
	s.asked++
	for v, holder := range s.holders {
		if holder == key {
			return v, true, nil
		}
	}
	return [32]byte{}, false, nil
}

// TestValuesChangeHands compares random exchanges of some aggregates with a list of who holds what.
func TestValuesChangeHands(t *testing.T) {
	typ := usersType(t)
	set := typ.Unique["email"]
	of := typ.Events["was_registered"].Unique[1]
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		digest := func() [32]byte { return [32]byte{byte(r.IntN(4))} }
		keys := []j17.Key{{Type: "user", ID: "a"}, {Type: "user", ID: "b"}, {Type: "user", ID: "c"}}
		at := &shelf{holders: map[[32]byte]j17.Key{}}
		model := map[[32]byte]j17.Key{}
		for i, key := range keys {
			if r.IntN(2) == 0 {
				at.holders[[32]byte{byte(i)}], model[[32]byte{byte(i)}] = key, key
			}
		}
		values := decider.NewValues(at)
		for step := range 20 {
			key, c := keys[r.IntN(len(keys))], decider.Exchange{Set: set}
			if r.IntN(3) > 0 {
				c.Of, c.Value = of, digest()
			}
			taken, holder, err := values.Apply(t.Context(), key, []decider.Exchange{c})
			if err != nil {
				t.Fatal(err)
			}

			// What the list says.
			other, held := model[c.Value]
			refused := c.Of != nil && held && other != key
			if refused != (taken != nil) || refused && holder != other {
				t.Fatalf("seed %d, step %d: %v takes %v: refused for %v, not %v", seed, step, key, c.Value[0], holder, other)
			}
			if refused {
				continue
			}
			for v, holder := range model {
				if holder == key {
					delete(model, v)
				}
			}
			if c.Of != nil {
				model[c.Value] = key
			}
		}

		// What it has come to, of all that was looked at.
		for i := range 4 {
			v := [32]byte{byte(i)}
			if got, looked := values.Holder(set, v); looked && got != model[v] || !looked && at.holders[v] != model[v] {
				t.Fatalf("seed %d: %v holds %d, not %v", seed, got, i, model[v])
			}
		}
		for _, key := range keys {
			got, looked := values.Held(set, key)
			if looked && got != nil && model[*got] != key {
				t.Fatalf("seed %d: %v holds %v", seed, key, got)
			}
		}
		if at.asked > 4+len(keys) {
			t.Fatalf("seed %d: the holders were asked %d times", seed, at.asked)
		}
	}
}
