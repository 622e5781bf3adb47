//go:build !race

package command_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/command"
)

const meta = `"metadata":{"actor":{"type":"user","id":"global"}}`

func transaction(tb testing.TB, writes string) command.Command {
	tb.Helper()
	body, err := value.ParseString(`{"writes":[` + writes + `],` + meta + `}`)
	if err != nil {
		tb.Fatal(err)
	}
	return command.ReadTransaction(body)
}

// shown is the writes of a command as text.
func shown(c command.Command) []string {
	var all []string
	for i := range c.Writes {
		w := &c.Writes[i]
		line := w.Type + ":" + w.ID
		for _, ev := range w.Events {
			line += " " + ev.Type + ev.Data.String()
		}
		all = append(all, line)
	}
	return all
}

// TestNames makes ids for what a transaction makes, and puts them where texts stand for them.
func TestNames(t *testing.T) {
	c := transaction(t, `
		{"key":"a:_new","as":"x","events":[{"type":"e"}]},
		{"key":"b:_new","as":"y_2","events":[{"type":"e","data":{"of":"$.new.x","deep":[{"m":["$.new.x",1,{"$.new.x":null}]}],"text":"the $.new.x","near":"$.new.X","more":"$.new.x.id"}}]},
		{"key":"a:_new","events":[{"type":"e","data":{"n":1.10}},{"type":"f","data":{"both":["$.new.y_2","$.new.x"]}}]},
		{"key":"b:$.new.x","events":[{"type":"e"}]},
		{"key":"c:k:17","events":[{"type":"e"}]}`)
	if err := c.Fault(); err != nil {
		t.Fatal(err)
	}
	before := shown(c)
	n := 0
	named := c.Named(func() string {
		n++
		return fmt.Sprintf("id%d", n)
	})
	want := []string{
		`a:id1 e{}`,
		`b:id2 e{"of":"id1","deep":[{"m":["id1",1,{"$.new.x":null}]}],"text":"the $.new.x","near":"$.new.X","more":"$.new.x.id"}`,
		`a:id3 e{"n":1.10} f{"both":["id2","id1"]}`,
		`b:id1 e{}`,
		`c:k:17 e{}`,
	}
	if diff := cmp.Diff(want, shown(named)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, shown(c)); diff != "" {
		t.Errorf("the command itself has changed:\n%s", diff)
	}

	// What is no transaction has no such names.
	body, err := value.ParseString(`{"data":{"a":"$.new.x"},` + meta + `}`)
	if err != nil {
		t.Fatal(err)
	}
	single := command.Read("e", body)
	single.Writes[0].Type, single.Writes[0].New = "a", true
	if diff := cmp.Diff(
		[]string{`a:id4 e{"a":"$.new.x"}`}, shown(single.Named(func() string { return "id4" })),
	); diff != "" {
		t.Error(diff)
	}
}

// TestFaultsOfTransactions has every way in which the form of a transaction can be wrong, with its code and its place.
func TestFaultsOfTransactions(t *testing.T) {
	const ok = `{"key":"a:_new","as":"x","events":[{"type":"e"}]}`
	many := func(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }
	for _, tc := range []struct {
		writes, code, path string
	}{
		{``, "invalid_field", "writes"},
		{`1`, "invalid_field", "writes[0]"},
		{`{"events":[]}`, "missing_field", "writes[0].key"},
		{`{"key":1}`, "invalid_field", "writes[0].key"},
		{`{"key":"a"}`, "invalid_field", "writes[0].key"},
		{`{"key":":x"}`, "invalid_field", "writes[0].key"},
		{`{"key":"a:$.new.x"}`, "invalid_field", "writes[0].key"},
		{ok + `,{"key":"a:b"}`, "missing_field", "writes[1].events"},
		{`{"key":"a:b","events":{}}`, "invalid_field", "writes[0].events"},
		{`{"key":"a:b","events":[]}`, "invalid_field", "writes[0].events"},
		{`{"key":"a:b","events":[{}]}`, "missing_field", "writes[0].events[0].type"},
		{`{"key":"a:b","events":[{"type":"e"},{"type":1}]}`, "invalid_field", "writes[0].events[1].type"},
		{`{"key":"a:b","events":[{"type":"e","dta":1}]}`, "unknown_field", "writes[0].events[0].dta"},
		{`{"key":"a:b","events":[1]}`, "invalid_field", "writes[0].events[0]"},
		{`{"key":"a:b","as":"x"}`, "invalid_field", "writes[0].as"},
		{`{"key":"a:_new","as":"X"}`, "invalid_field", "writes[0].as"},
		{`{"key":"a:_new","as":"1x"}`, "invalid_field", "writes[0].as"},
		{`{"key":"a:_new","as":""}`, "invalid_field", "writes[0].as"},
		{`{"key":"a:_new","as":null}`, "invalid_field", "writes[0].as"},
		{ok + "," + ok, "invalid_field", "writes[1].as"},
		{`{"key":"a:_new","as":"x","events":[{"type":"e","data":{"self":"$.new.x"}}]}`, "invalid_field", "writes[0].events[0].data.self"},
		{ok + `,{"key":"a:b","events":[{"type":"e"},{"type":"e","data":{"a":[0,{"b":"$.new.z"}]}}]}`, "invalid_field", "writes[1].events[1].data.a[1].b"},
		{`{"key":"a:b","previous_length":-1}`, "invalid_field", "writes[0].previous_length"},
		{`{"key":"a:b","previous_length":"1"}`, "invalid_field", "writes[0].previous_length"},
		{`{"key":"a:b","skip_occ":true}`, "unknown_field", "writes[0].skip_occ"},
		{many(101, `{"key":"a:_new","events":[{"type":"e"}]}`), "payload_too_large", "writes"},
		{`{"key":"a:b","events":[` + many(10_001, `{"type":"e"}`) + `]}`, "payload_too_large", "writes[0].events"},
		{
			ok + `,{"key":"a:b","events":[` + many(10_000, `{"type":"e"}`) + `]}`, "payload_too_large",
			"writes[1].events",
		},
	} {
		c := transaction(t, tc.writes)
		e, isOurs := c.Fault().(*j17.Error) //nolint:errorlint // made by the reader
		if !isOurs || string(e.Code) != tc.code || e.Path != tc.path || c.FaultAt(command.AtEvents) == nil {
			t.Errorf("%.100s: %+v", tc.writes, c.Fault())
		}
	}
	if c := transaction(t, many(100, `{"key":"a:_new","events":[{"type":"e"}]}`)); c.Fault() != nil || len(c.Writes) != 100 {
		t.Error(c.Fault())
	}
	for body, want := range map[string]string{
		`[]`:                         "invalid_field ",
		`{` + meta + `}`:             "missing_field writes",
		`{"writes":{},` + meta + `}`: "invalid_field writes",
		`{"writes":[` + ok + `],"x":1,` + meta + `}`: "unknown_field x",
		`{"writes":[` + ok + `]}`:                    "missing_field metadata",
		`{"writes":[` + ok + `],"metadata":{"actor":{"type":"u","id":"i"},"previous_length":1}}`: "unknown_field metadata.previous_length",
		`{"writes":[` + ok + `],"metadata":{"actor":{"type":"u","id":"i"},"skip_occ":true}}`:     "unknown_field metadata.skip_occ",
		`{"writes":[` + ok +
			`],"metadata":{"actor":{"type":"u"}}}`: "missing_field metadata.actor.id",
		`{"writes":[` + ok + `],"conditions":[],` + meta +
			`}`: "invalid_field conditions",
		`{"writes":[` + ok + `],"conditions":[{"fail_if_events_match":{"tags":["a:b"]},"before":1}],` + meta + `}`: "unknown_field conditions[0].before",
		`{"writes":[` + ok + `],"metadata":{"actor":{"type":"u","id":"i"},"target":1}}`:                            "invalid_field metadata.target",
	} {
		v, err := value.ParseString(body)
		if err != nil {
			t.Fatal(err)
		}
		c := command.ReadTransaction(v)
		e, _ := c.Fault().(*j17.Error) //nolint:errorlint // made by the reader
		if e == nil || string(e.Code)+" "+e.Path != want {
			t.Errorf("%s: %+v, want %s", body, c.Fault(), want)
		}
	}
}

// FuzzReadTransaction reads what a stranger sends: it must be refused, or be a command that can be named.
func FuzzReadTransaction(f *testing.F) {
	f.Add(`{"writes":[{"key":"a:_new","as":"x","events":[{"type":"e"}]},{"key":"a:$.new.x","events":[{"type":"e","data":{"y":["$.new.x"]}}]}],` + meta + `}`)
	f.Add(`{"writes":[{"key":"a:","previous_length":0,"events":[{}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		body, err := value.ParseString(text)
		if err != nil {
			return
		}
		c := command.ReadTransaction(body)
		named := c.Named(func() string { return "id" })
		if c.Fault() != nil {
			return
		}
		if len(named.Writes) == 0 || len(named.Writes) > command.MaxWrites {
			t.Errorf("%d writes", len(named.Writes))
		}
		for i := range named.Writes {
			w := &named.Writes[i]
			if w.Type == "" || w.New && w.ID != "id" {
				t.Errorf("%+v", w)
			}
		}
	})
}
