//go:build !race

package spec_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"j17"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
)

func TestUnwrapFindsTheSpec(t *testing.T) {
	const inner = `{"agent_types": ["ü"]}`
	for _, c := range []struct {
		src  string
		want spec.Envelope
	}{
		{inner, spec.Envelope{Spec: []byte(inner)}},
		{"", spec.Envelope{Spec: []byte("")}},
		{`{"spec": `, spec.Envelope{Spec: []byte(`{"spec": `)}},
		{`["spec"]`, spec.Envelope{Spec: []byte(`["spec"]`)}},
		{`{"spec": ` + inner + `}`, spec.Envelope{Spec: []byte(`         ` + inner)}},
		{
			"{\"force\": true,\n \"environment\": \"staging\", \"spec\":" + inner + ", \"x\": 1}",
			spec.Envelope{},
		},
		{
			"{\"force\": true,\n \"environment\": \"staging\", \"spec\":" + inner + "}",
			spec.Envelope{
				Spec: []byte(strings.Repeat(" ", 15) + "\n" + strings.Repeat(" ", 34) + inner), Force: true,
				Environment: j17.Staging,
			},
		},
		{`{"spec": 5}`, spec.Envelope{Spec: []byte(`         5`)}},
	} {
		got, found := spec.Unwrap([]byte(c.src))
		if diff := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(spec.Envelope{})); diff != "" {
			t.Errorf("Unwrap(%q), which found %q (-want +got):\n%s", c.src, written(found), diff)
		}

		// What has been parsed already says the same as the text.
		of, want := lint.Compile(got.Spec)
		parsed, found := lint.CompileFor(t.Context(), &got)
		if diff := cmp.Diff(written(want), written(found)); diff != "" || (of == nil) != (parsed == nil) ||
			of != nil && of.Hash != parsed.Hash {
			t.Errorf("CompileFor(%q) is not what Compile says (-want +got):\n%s", c.src, diff)
		}
	}
}

func TestUnwrapReportsFaultsOfTheEnvelope(t *testing.T) {
	_, found := spec.Unwrap([]byte("{\"spec\": {},\n \"forse\": true, \"force\": 1,\n \"environment\": \"production\"}"))
	want := `2:2 /forse (key)
	error: unknown key "forse"
	(did you mean "force"?)
2:26 /force
	error: force must be a boolean, not a number
3:17 /environment
	error: environment cannot be "production"; it is "prod", "staging" or "test"
`
	if diff := cmp.Diff(want, written(found)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPlacesAreThoseOfTheWholeText(t *testing.T) {
	const src = "{\"environment\": \"prod\", \"spec\":\n  {\"agent_types\": [\"ü\"], \"aggregate_types\": {\"a\": {}}}}"
	e, found := spec.Unwrap([]byte(src))
	if len(found) > 0 {
		t.Fatal(written(found))
	}
	_, found = lint.Compile(e.Spec)
	want := `2:20 /agent_types/0 (key)
	error: an agent type cannot be named "ü"
	(a name starts with a letter and goes on with letters, digits, "_" and "-")
2:46 /aggregate_types/a (key)
	error: an aggregate type needs the key "events"
`
	if diff := cmp.Diff(want, written(found)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestUnwrapEncoding has what editors put before a text.
func TestUnwrapEncoding(t *testing.T) {
	const bare = `{"agent_types":["user"]}`
	for src, want := range map[string]string{
		"\uFEFF" + bare:                    " " + bare,
		"\uFEFF" + `{"spec":` + bare + "}": strings.Repeat(" ", 9) + bare,
		bare:                               bare,
	} {
		if got, found := spec.Unwrap([]byte(src)); string(got.Spec) != want || len(found) > 0 {
			t.Errorf("%q: %q, %v", src, got.Spec, found)
		}
	}
	for _, src := range []string{"\xff\xfe{\x00}\x00", "\xfe\xff\x00{\x00}"} {
		if _, found := spec.Unwrap([]byte(src)); len(found) != 1 || !strings.Contains(found[0].String(), "UTF-16") {
			t.Errorf("%q: %v", src, found)
		}
	}
}
