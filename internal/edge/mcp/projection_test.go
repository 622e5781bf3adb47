package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"j17"
	"j17/internal/edge/client"
)

func (r *running) Projection(_ context.Context, name, id string, o client.ProjectionOptions) (client.Projected, error) {
	r.projected = fmt.Sprintf("%s %s %v %s", name, id, o.Params, o.At)
	return client.Projected{Data: r.state, Metadata: r.metadata}, r.err
}

// TestReadProjection reads values by id and by parameters.
func TestReadProjection(t *testing.T) {
	r := &running{state: json.RawMessage(`{"total":12.50}`), metadata: json.RawMessage(`{"position":"0"}`)}
	s := connect(t, options(t, r))
	for arguments, asked := range map[string]string{
		`{"name":"receipt","id":"global"}`:                                         "receipt global map[] ",
		`{"name":"board","parameters":{"team":"red"},"at":5}`:                      "board  map[team:red] 5",
		`{"name":"board","parameters":{"team":"red"},"at":"2026-01-31T12:00:00Z"}`: "board  map[team:red] 2026-01-31T12:00:00Z",
		`{"name":"board","id":"","parameters":{"team":"red","who":"me"}}`:          "board  map[team:red who:me] ",
	} {
		text, failed := call(t, s, "read_projection", arguments)
		want := `{"projection":"` + strings.Fields(asked)[0] + `","data":{"total":12.50},"metadata":{"position":"0"}}`
		if failed || text != want || r.projected != asked {
			t.Errorf("%s: %s, asked for %q", arguments, text, r.projected)
		}
	}
	for arguments, want := range map[string]string{
		`{}`:                                `needs the argument "name"`,
		`{"name":""}`:                       "must not be empty",
		`{"name":"x","at":-1}`:              "at: The number must be at least 0",
		`{"name":"x","parameters":{"a":1}}`: "parameters.a: The value must be a string",
	} {
		refusal(t, s, "read_projection", arguments, want)
	}
	r.err = &client.Error{Problem: j17.Errorf(j17.CodeUnknownProjection, "There is no projection 'x'"), Status: 404}
	refusal(t, s, "read_projection", `{"name":"x"}`, "There is no projection 'x'", "Code: unknown_projection")
}
