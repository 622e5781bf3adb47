package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"j17"
	"j17/docs"
	"j17/internal/base/clock"
	"j17/internal/edge/client"
	"j17/internal/edge/mcp"
)

const secret = "j17_0_test_SECRETSECRET"

const counter = `{
	"agent_types": ["user"],
	"aggregate_types": {"counter": {"events": {
		"was_counted": {
			"schema": {"type": "object", "properties": {"by": {"type": "number"}}, "required": ["by"]},
			"handler": [{"set": {"target": "last", "value": "$.data.by"}}, {"append": {"target": "all", "value": "$.data.by"}}]
		},
		"was_broken": {
			"schema": {"type": "object"},
			"handler": [{"set": {"target": "all", "value": "text"}}]
		}
	}}}
}`

// running stands for a server: it has so many events of each aggregate.
type running struct {
	events  int
	padding int
	state   json.RawMessage
	// metadata is that of states, called what a receipt says that the aggregate is called.
	metadata json.RawMessage
	called   client.Receipt
	err      error
	written  []client.NewEvent
	tried    []client.NewEvent
	with     []client.WriteOptions
	// filter is what the feed was asked for last.
	filter client.FeedFilter
	// stored reports that events were asked for as they are stored.
	stored bool
	// projected is which value of a projection was asked for last, rows what is there of a list, and listed what was
	// asked of it.
	projected string
	rows      []json.RawMessage
	listed    []string
}

func (r *running) State(_ context.Context, _ j17.Key, o client.StateOptions) (client.State, error) {
	if r.err != nil {
		return client.State{}, r.err
	}
	length := uint64(r.events)
	if o.Length != nil {
		length = min(length, *o.Length)
	}
	return client.State{Data: r.state, Length: length, Metadata: r.metadata}, nil
}

func (r *running) Events(
	_ context.Context, key j17.Key, o client.EventsOptions,
) func(yield func(json.RawMessage, error) bool) {
	r.stored = o.Stored
	count := o.Count
	return func(yield func(json.RawMessage, error) bool) {
		if r.err != nil {
			yield(nil, r.err)
			return
		}
		for i := range r.events {
			id := fmt.Sprintf("1795300000000-%d", i)
			if id <= o.Start {
				continue
			}
			if count == 0 {
				return
			}
			count--
			ev := fmt.Sprintf(`{"stream_id":%q,"key":%q,"data":{"by":%q}}`, id, key, strings.Repeat("x", r.padding))
			if !yield(json.RawMessage(ev), nil) {
				return
			}
		}
	}
}

func (r *running) IDs(_ context.Context, _, start string, count uint64) func(yield func(string, error) bool) {
	return func(yield func(string, error) bool) {
		if r.err != nil {
			yield("", r.err)
			return
		}
		for _, id := range []string{"A", "B", "C"} {
			if id <= start || count == 0 {
				continue
			}
			count--
			if !yield(id, nil) {
				return
			}
		}
	}
}

func (r *running) Feed(
	ctx context.Context, f client.FeedFilter, after string, count uint64,
) (p client.FeedPage, err error) {
	p.Events, p.Position = []json.RawMessage{}, after
	for ev, err := range r.Events(ctx, j17.Key{Type: f.Type, ID: "global"}, client.EventsOptions{
		Start: after,
		Count: count,
	}) {
		if err != nil {
			return p, err
		}
		p.Events = append(p.Events, ev)
		p.Position = fmt.Sprintf("1795300000000-%d", len(p.Events)-1)
	}
	r.filter = f
	return p, nil
}

func (r *running) PostEvent(
	_ context.Context, _ j17.Key, ev client.NewEvent, o client.WriteOptions,
) (client.Receipt, error) {
	if r.err != nil {
		return client.Receipt{}, r.err
	}
	r.written, r.with = append(r.written, ev), append(r.with, o)
	r.events++
	receipt := r.called
	receipt.StreamIDs, receipt.Length = []string{"1795300000000-9"}, uint64(r.events)
	return receipt, nil
}

func options(t *testing.T, r *running) mcp.Options {
	t.Helper()
	library, err := docs.Load()
	if err != nil {
		t.Fatal(err)
	}
	return mcp.Options{
		Version: "1.2.3", Docs: library, Reader: r, Clock: clock.NewManual(time.Unix(1_795_300_000, 0)),
		Files: fstest.MapFS{
			"counter.json": {Data: []byte(counter)}, "folder": {Mode: fs.ModeDir},
			"large.json": {Data: make([]byte, 5<<20)},
		},
		Hide: func(text string) string { return strings.ReplaceAll(text, secret, "[API key]") },
	}
}

// connect starts a server and returns a client that is connected to it.
func connect(t *testing.T, o mcp.Options) *sdk.ClientSession {
	t.Helper()
	clientSide, serverSide := sdk.NewInMemoryTransports()
	server, err := mcp.New(o).Connect(t.Context(), serverSide)
	if err != nil {
		t.Fatal(err)
	}
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(
		t.Context(), clientSide, nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(session.Close(), server.Wait()); err != nil {
			t.Error(err)
		}
	})
	return session
}

// call calls a tool with arguments in JSON and returns its text.
func call(t *testing.T, s *sdk.ClientSession, tool, arguments string) (text string, failed bool) {
	t.Helper()
	result, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
	if err != nil {
		t.Fatalf("%s: a protocol error: %v", tool, err)
	}
	if len(result.Content) != 1 {
		t.Fatalf("%s: %d contents", tool, len(result.Content))
	}
	content, ok := result.Content[0].(*sdk.TextContent)
	if !ok {
		t.Fatalf("%s: content is a %T", tool, result.Content[0])
	}
	return content.Text, result.IsError
}

// answer calls a tool that has to succeed and decodes what it returns.
func answer[T any](t *testing.T, s *sdk.ClientSession, tool, arguments string) T {
	t.Helper()
	text, failed := call(t, s, tool, arguments)
	if failed {
		t.Fatalf("%s failed: %s", tool, text)
	}
	var out T
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%s: %v: %s", tool, err, text)
	}
	return out
}

// refusal calls a tool that has to fail with a sentence that holds all of want.
func refusal(t *testing.T, s *sdk.ClientSession, tool, arguments string, want ...string) {
	t.Helper()
	text, failed := call(t, s, tool, arguments)
	if !failed {
		t.Errorf("%s(%.200s) succeeded: %.200s", tool, arguments, text)
		return
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%s(%.200s) says %q and not %q", tool, arguments, text, w)
		}
	}
	first, _, _ := strings.Cut(text, "\n")
	if strings.ToUpper(first[:1]) != first[:1] && !strings.HasPrefix(first, tool) || strings.HasPrefix(
		first, strings.ToUpper(tool[:1])+tool[1:],
	) || !strings.HasSuffix(first, ".") && !strings.HasSuffix(first, "?") {
		t.Errorf("%s(%.200s) does not answer with a sentence: %q", tool, arguments, first)
	}
}

func quoted(t *testing.T, s string) string {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestToolsAndResources(t *testing.T) {
	r := &running{}
	for _, writes := range []bool{false, true} {
		o := options(t, r)
		want := []string{
			"count_rows", "diff_specs", "dry_run_events", "explain_error", "find_containing", "find_nearby",
			"find_within",
			"list_ids", "list_rows",
			"read_doc", "read_events", "read_feed", "read_projection", "read_state", "search_docs", "validate_spec",
		}
		if writes {
			o.Writer = r
			want = slices.Insert(want, 9, "post_event")
		}
		s := connect(t, o)
		list, err := s.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, tool := range list.Tools {
			got = append(got, tool.Name)
			if tool.Description == "" || tool.Annotations.ReadOnlyHint != (tool.Name != "post_event") {
				t.Errorf("%s: description %q, read-only %t", tool.Name, tool.Description, tool.Annotations.ReadOnlyHint)
			}
			schema, ok := tool.InputSchema.(map[string]any)
			if !ok || schema["additionalProperties"] != false {
				t.Fatalf("%s: schema %v", tool.Name, tool.InputSchema)
			}
			properties, _ := schema["properties"].(map[string]any)
			for name, p := range properties {
				if p, _ := p.(map[string]any); p["description"] == "" || p["type"] == nil {
					t.Errorf("%s.%s: %v", tool.Name, name, p)
				}
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("the tools are %q", got)
		}
		if text := s.InitializeResult().Instructions; strings.Contains(text, "read-only") == writes {
			t.Errorf("the instructions with writes %t are %q", writes, text)
		}
		resources, err := s.ListResources(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(resources.Resources) != len(o.Docs.Pages()) {
			t.Errorf("%d resources for %d pages", len(resources.Resources), len(o.Docs.Pages()))
		}
		page, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "j17://docs/reference/errors"})
		if err != nil || len(page.Contents) != 1 || !strings.HasPrefix(page.Contents[0].Text, "# Errors\n") {
			t.Errorf("the page of errors: %v, %v", page, err)
		}
		if _, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "j17://docs/../go.mod"}); err == nil {
			t.Error("there is a resource outside of the documentation")
		}
	}
}

// TestReadOnlyCannotWrite calls the tool that is not there and looks whether anything was written.
func TestReadOnlyCannotWrite(t *testing.T) {
	r := &running{}
	s := connect(t, options(t, r))
	refusal(t, s, "post_event", `{"type":"counter","id":"global","event":"was_counted","data":{"by":1},"actor":{"type":"user","id":"global"}}`, "read-only", "--allow-writes")
	refusal(t, s, "post_events", `{}`, "no tool", "The tools are")
	refusal(t, s, "read_stat", `{}`, `Did you mean "read_state"?`)
	if len(r.written) != 0 {
		t.Errorf("%d events were written", len(r.written))
	}
}

func TestPostEvent(t *testing.T) {
	r := &running{}
	o := options(t, r)
	o.Writer = r
	s := connect(t, o)
	got := answer[struct {
		Key      string
		StreamID string `json:"stream_id"`
		Length   int
	}](t, s, "post_event", `{"type":"counter","id":"global","event":"was_counted","data":{"z":12345678901234567890.10,"a":1},
		"actor":{"type":"user","id":"global"},"target":{"type":"user","id":"other"},"previous_length":0,"idempotency_key":"k"}`)
	if got.Key != "counter:global" || got.StreamID == "" || got.Length != 1 {
		t.Errorf("answer %+v", got)
	}
	if len(r.written) != 1 || r.written[0].Type != "was_counted" ||
		string(r.written[0].Data) != `{"z":12345678901234567890.10,"a":1}` {
		t.Fatalf("written %+v", r.written)
	}
	if w := r.with[0]; w.Actor.Type != "user" || w.Target == nil || w.Target.ID != "other" || w.PreviousLength == nil ||
		*w.PreviousLength != 0 || w.IdempotencyKey != "k" {
		t.Errorf("written with %+v", w)
	}
	for arguments, want := range map[string]string{
		`{"type":"counter","id":"global","event":"was_counted"}`:                                                  `needs the argument "actor"`,
		`{"type":"counter","id":"global","actor":{"type":"user","id":"x"}}`:                                       `needs the argument "event"`,
		`{"type":"","id":"global","event":"e","actor":{"type":"user","id":"x"}}`:                                  "must not be empty",
		`{"type":"counter","id":"global","event":"","actor":{"type":"user","id":"x"}}`:                            "must not be empty",
		`{"type":"counter","id":"global","event":"e","actor":"user"}`:                                             "actor: The value must be an object",
		`{"type":"counter","id":"global","event":"e","actor":{"type":"user","id":"x"},"previous_length":-1}`:      "previous_length: The number must be at least 0",
		`{"type":"counter","id":"global","event":"e","actor":{"type":"user","id":"x"},"previouslength":1}`:        `Did you mean "previous_length"?`,
		`{"type":"counter","id":"global","event":"e","actor":{"type":"user","id":"x"},"actor":{"type":"y"}}`:      "not acceptable JSON",
		`{"type":"counter","id":"global","event":"e","actor":{"type":"user","id":"x"},"data":{"by":1,"by":2}}`:    "not acceptable JSON",
		`{"type":"counter","id":"global","event":"e","actor":{"type":"user","id":"x"},"data":{"by":"\ud800"}}`:    "not acceptable JSON",
		`{"type":"counter","id":"global","event":"e","actor":{"type":"user","id":"x"},"data":{"by":1e999999999}}`: "not acceptable JSON",
	} {
		refusal(t, s, "post_event", arguments, want)
	}
	if len(r.written) != 1 {
		t.Errorf("%d events were written", len(r.written))
	}
}

type validation struct {
	Valid    bool
	Errors   int
	Findings []struct {
		Severity, Pointer, Message, Hint string
		Line, Column                     int
	}
	Omitted int
	Types   map[string][]string `json:"aggregate_types"`
}

func TestDiffSpecs(t *testing.T) {
	s := connect(t, options(t, &running{}))
	type difference struct {
		Valid      bool
		Compatible bool
		Tried      []string
		Spec, Old  *validation
		Proposals  []struct {
			Type       string
			Generation int
			Definition json.RawMessage
		}
	}
	spec := func(schema string) string {
		return `{"agent_types":["user"],"aggregate_types":{"a":{"events":{"e":{"schema":` + schema + `,"handler":[]}}}}}`
	}
	old, next := spec(`{"properties":{"mail":{}},"required":["mail"]}`), spec(`{"properties":{"e_mail":{}},"required":["e_mail"]}`)
	got := answer[difference](t, s, "diff_specs", `{"old":`+old+`,"spec":`+quoted(t, next)+`}`)
	if !got.Valid || got.Compatible || len(got.Proposals) != 1 || got.Proposals[0].Type != "a.e" ||
		!strings.Contains(string(got.Proposals[0].Definition), `{"move":{"from":"mail","to":"e_mail"}}`) {
		t.Errorf("%+v", got)
	}
	if got := answer[difference](t, s, "diff_specs", `{"old_file":"counter.json","spec":{}}`); got.Valid ||
		got.Spec == nil || got.Old != nil {
		t.Errorf("%+v", got)
	}
	refusal(t, s, "diff_specs", `{"spec":`+next+`}`, `pass "old" or "old_file"`)
}

func TestValidateSpec(t *testing.T) {
	o := options(t, &running{})
	s := connect(t, o)
	for _, arguments := range []string{
		`{"spec":` + counter + `}`, `{"spec":` + quoted(t, counter) + `}`, `{"file":"counter.json"}`,
		`{"file":"./folder/../counter.json"}`,
	} {
		got := answer[validation](t, s, "validate_spec", arguments)
		if !got.Valid || got.Errors != 0 || !slices.Equal(got.Types["counter"], []string{"was_broken", "was_counted"}) {
			t.Errorf("%.40s: %+v", arguments, got)
		}
	}
	slip := `{"agent_types":["user"],"aggregate_types":{"a":{"events":{"e":{"schema":{"type":"object"},"handler":{"set":{"target":"x","value":"data.n"}}}}}}}`
	for arguments, valid := range map[string]bool{
		`{"spec":` + slip + `}`: true, `{"spec":` + slip + `,"strict":false}`: true,
		`{"spec":` + slip + `,"strict":true}`:                                           false,
		`{"spec":` + strings.Replace(slip, "data.n", "$.data.n", 1) + `,"strict":true}`: true,
	} {
		got := answer[validation](t, s, "validate_spec", arguments)
		if got.Valid != valid || got.Errors != 0 {
			t.Errorf("%.200s: %+v", arguments, got)
		}
	}
	broken := strings.Replace(counter, `"agent_types"`, `"agnt_types"`, 1)
	got := answer[validation](t, s, "validate_spec", `{"spec":`+quoted(t, broken)+`}`)
	if got.Valid || got.Errors == 0 || got.Types != nil {
		t.Fatalf("%+v", got)
	}
	i := slices.IndexFunc(got.Findings, func(f struct {
		Severity, Pointer, Message, Hint string
		Line, Column                     int
	},
	) bool {
		return f.Pointer == "/agnt_types"
	})
	if i < 0 || got.Findings[i].Line != 2 || got.Findings[i].Column != 2 ||
		!strings.Contains(got.Findings[i].Hint, "agent_types") || got.Findings[i].Severity != "error" {
		t.Errorf("findings %+v", got.Findings)
	}
	many := `{"a":1`
	for i := range 500 {
		many += fmt.Sprintf(`,"unknown%d":1`, i)
	}
	if got := answer[validation](t, s, "validate_spec", `{"spec":`+many+`}}`); len(got.Findings) != 100 ||
		got.Omitted < 400 {
		t.Errorf("%d findings, %d omitted", len(got.Findings), got.Omitted)
	}
	for arguments, want := range map[string]string{
		`{}`:                                "There is no spec to work on",
		`{"spec":{},"file":"counter.json"}`: "not both",
		`{"file":"../counter.json"}`:        "only files within the folder",
		`{"file":"/etc/passwd"}`:            "only files within the folder",
		`{"file":"..\\counter.json"}`:       "only files within the folder",
		`{"file":"none.json"}`:              "There is no file",
		`{"file":"folder"}`:                 "regular file",
		`{"file":"large.json"}`:             "larger than",
		`{"file":7}`:                        "file: The value must be a string",
		`{"spec":{},"spec":{}}`:             "not acceptable JSON",
		`{"speck":{}}`:                      `Did you mean "spec"?`,
		`[]`:                                "must be a JSON object",
	} {
		refusal(t, s, "validate_spec", arguments, want)
	}
	if got := answer[validation](t, s, "validate_spec", `{"spec":"no JSON"}`); got.Valid || len(got.Findings) == 0 {
		t.Errorf("a text that is no JSON: %+v", got)
	}
	o.Spec = func() ([]byte, error) { return []byte(counter), nil }
	if got := answer[validation](t, connect(t, o), "validate_spec", `{}`); !got.Valid {
		t.Errorf("the spec of the start: %+v", got)
	}
}

// TestFilesStayInTheirFolder uses a real folder with links out of it and something that is no file.
func TestFilesStayInTheirFolder(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "spec.json"), []byte(counter), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "spec.json"), filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close() //nolint:errcheck // only read
	o := options(t, &running{})
	o.Files = root.FS()
	refusal(t, connect(t, o), "validate_spec", `{"file":"link.json"}`, "cannot be read")
}

type dryRun struct {
	SpecValid bool `json:"spec_valid"`
	Spec      *validation
	Events    int
	Accepted  int
	Findings  []struct {
		Event               int
		Code, Path, Pointer string
		Message             string
	}
	Faults []struct {
		Event, Line                 int
		Key, Type, Pointer, Message string
	}
	States []struct {
		Key    string
		Length int
		State  json.RawMessage
	}
	Omitted int
}

func event(typ, data string) string {
	return `{"key":"counter:global","type":"` + typ + `","data":` + data + `,"metadata":{"actor":{"type":"user","id":"global"}}}`
}

// hasty is a clock that is always where it is waited for.
type hasty struct{ clock.Clock }

func (hasty) Wait(context.Context, time.Time) error { return nil }

// TestNames reads and writes aggregates by other names than their id: the answers have all of them.
func TestNames(t *testing.T) {
	const id = "7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05"
	r := &running{
		events: 1, state: json.RawMessage(`{}`), metadata: json.RawMessage(`{"length":1,"id":"` + id + `","handle":"acc_1","public_id":"BANK-1"}`),
		called: client.Receipt{ID: id, Handle: "acc_1", PublicID: "BANK-1", ImpliedCount: 2},
	}
	o := options(t, r)
	o.Writer = r
	s := connect(t, o)
	names := `{"key":"counter:` + id + `","id":"` + id + `","handle":"acc_1","public_id":"BANK-1",`
	if text, failed := call(t, s, "read_state", `{"type":"counter","id":"BANK-1"}`); failed ||
		text != names+`"state":{},"length":1}` {
		t.Error(text)
	}
	text, failed := call(t, s, "post_event", `{"type":"counter","id":"_new","event":"was_counted","actor":{"type":"user","id":"global"}}`)
	if failed || !strings.HasPrefix(text, names) || !strings.Contains(text, `"implied_count":2`) {
		t.Error(text)
	}
	r.metadata = json.RawMessage(`[]`)
	refusal(t, s, "read_state", `{"type":"counter","id":"BANK-1"}`, "metadata that cannot be read")
}

func TestReadState(t *testing.T) {
	r := &running{events: 3, state: json.RawMessage(`{"sum":12345678901234567890.50,"key":"` + secret + `"}`)}
	s := connect(t, options(t, r))
	text, failed := call(t, s, "read_state", `{"type":"counter","id":"global","length":2}`)
	if want := `{"key":"counter:global","id":"global","state":{"sum":12345678901234567890.50,"key":"[API key]"},"length":2}`; failed || text != want {
		t.Errorf("%s", text)
	}
	for arguments, want := range map[string]string{
		`{"type":"counter"}`:                                 `needs the argument "id"`,
		`{"type":"counter","id":""}`:                         "must not be empty",
		`{"type":"counter","id":"global","at":1,"length":1}`: "not both",
		`{"type":"counter","id":"global","at":-1}`:           "at: The number must be at least 0",
		`{"type":"counter","id":"global","length":1.5}`:      "length: The value must be an integer",
		`{"type":"counter","id":"global","length":"1"}`:      "length: The value must be an integer",
	} {
		refusal(t, s, "read_state", arguments, want)
	}
	r.state = json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
	refusal(t, s, "read_state", `{"type":"counter","id":"global"}`, "1024 KiB")
	r.err = &client.Error{
		Problem: j17.Errorf(j17.CodeConflict, "The key %s is shown here", secret).At("metadata.previous_length"),
		Status:  409, ErrorID: "e-1",
	}
	refusal(t, s, "read_state", `{"type":"counter","id":"global"}`, "The key [API key] is shown here.", "Code: conflict", "Place: metadata.previous_length", "What to do: Read again and decide again.", "e-1")
	r.err = errors.New("there is no API key: pass --key")
	refusal(t, s, "read_state", `{"type":"counter","id":"global"}`, "There is no API key: pass --key.")
}

func TestReadEvents(t *testing.T) {
	r := &running{events: 5}
	s := connect(t, options(t, r))
	type page struct {
		Events []struct {
			StreamID string `json:"stream_id"`
		}
		Next *string
	}
	first := answer[page](t, s, "read_events", `{"type":"counter","id":"global","count":3}`)
	if len(first.Events) != 3 || first.Next == nil || *first.Next != first.Events[2].StreamID {
		t.Fatalf("%+v", first)
	}
	if r.stored {
		t.Error("the events were asked for as they are stored")
	}
	second := answer[page](t, s, "read_events", `{"type":"counter","id":"global","count":3,"stored":true,"start":"`+*first.Next+`"}`)
	if len(second.Events) != 2 || second.Next != nil || !r.stored {
		t.Errorf("%+v", second)
	}
	r.padding = 300 << 10
	if large := answer[page](t, s, "read_events", `{"type":"counter","id":"global"}`); len(large.Events) != 1 ||
		large.Next == nil {
		t.Errorf("%d large events", len(large.Events))
	}
	r.events = 0
	if none := answer[page](
		t, s, "read_events", `{"type":"counter","id":"global"}`,
	); none.Events == nil || len(none.Events) != 0 || none.Next != nil {
		t.Errorf("%+v", none)
	}
	for _, count := range []string{"0", "201", "-1"} {
		refusal(t, s, "read_events", `{"type":"counter","id":"global","count":`+count+`}`)
	}
	r.err = &client.Unreachable{URL: "http://localhost:1", Err: errors.New("connection refused")}
	refusal(t, s, "read_events", `{"type":"counter","id":"global"}`, "There is no answer from http://localhost:1")
}

func TestListIDs(t *testing.T) {
	s := connect(t, options(t, &running{}))
	type page struct {
		IDs  []string
		Next *string
	}
	first := answer[page](t, s, "list_ids", `{"type":"counter","count":2}`)
	if !slices.Equal(first.IDs, []string{"A", "B"}) || first.Next == nil || *first.Next != "B" {
		t.Errorf("%+v", first)
	}
	if rest := answer[page](
		t, s, "list_ids", `{"type":"counter","start":"B"}`,
	); !slices.Equal(rest.IDs, []string{"C"}) || rest.Next != nil {
		t.Errorf("%+v", rest)
	}
	refusal(t, s, "list_ids", `{}`, `needs the argument "type"`)
	refusal(t, s, "list_ids", `{"type":""}`, "must not be empty")
}

func TestExplainError(t *testing.T) {
	s := connect(t, options(t, &running{}))
	type explanation struct {
		Code     string
		Status   int
		When     string
		WhatToDo string `json:"what_to_do"`
		Message  string
		Path     string
		Details  json.RawMessage
	}
	for _, code := range j17.Codes() {
		got := answer[explanation](t, s, "explain_error", `{"error":"`+string(code)+`"}`)
		if got.Code != string(code) || got.Status < 400 || got.When == "" || got.WhatToDo == "" ||
			strings.Contains(got.WhatToDo, "](") {
			t.Errorf("%s: %+v", code, got)
		}
	}
	body := `{"type":"urn:j17:error:conflict","code":"conflict","error":"It moved on","path":"metadata.previous_length","details":{"expected":1,"actual":2},"new":true}`
	for _, arguments := range []string{`{"error":` + body + `}`, `{"error":` + quoted(t, body) + `}`} {
		got := answer[explanation](t, s, "explain_error", arguments)
		if got.Status != 409 || got.Message != "It moved on" || got.Path != "metadata.previous_length" ||
			string(got.Details) != `{"expected":1,"actual":2}` {
			t.Errorf("%+v", got)
		}
	}
	if got := answer[explanation](t, s, "explain_error", `{"error":"urn:j17:error:storage_full"}`); got.Status != 503 {
		t.Errorf("%+v", got)
	}
	for arguments, want := range map[string]string{
		`{"error":"conflct"}`:       `Did you mean "conflict"?`,
		`{"error":"xyzzy"}`:         "The codes are",
		`{"error":{"message":"x"}}`: `has no "code"`,
		`{"error":"{broken"}`:       "neither an error code nor",
		`{"error":17}`:              "error: The value must be a string or an object",
		`{"error":{"code":["x"]}}`:  "neither an error code nor",
	} {
		refusal(t, s, "explain_error", arguments, want)
	}
}

func TestDocs(t *testing.T) {
	s := connect(t, options(t, &running{}))
	found := answer[struct {
		Hits []struct{ Topic, Title, Section, Line string }
	}](t, s, "search_docs", `{"query":"write a batch"}`)
	if len(found.Hits) == 0 || len(found.Hits) > 10 || found.Hits[0].Section != "Write a batch" {
		t.Fatalf("%+v", found)
	}
	text, failed := call(t, s, "read_doc", `{"topic":"`+found.Hits[0].Topic+`","section":"`+found.Hits[0].Section+`"}`)
	if failed || !strings.HasPrefix(text, "## Write a batch\n") || strings.Contains(text, "## Order of checks") {
		t.Errorf("%.200s", text)
	}
	if text, failed := call(t, s, "read_doc", `{"topic":"errors"}`); failed || !strings.HasPrefix(text, "# Errors\n") {
		t.Errorf("%.200s", text)
	}
	if text, failed := call(t, s, "read_doc", `{"topic":"cli#exit-codes"}`); failed ||
		!strings.HasPrefix(text, "## Exit codes\n") {
		t.Errorf("%.200s", text)
	}
	refusal(t, s, "read_doc", `{"topic":"cli#xyzzy"}`, "Its sections are")
	refusal(t, s, "search_docs", `{"query":"xyzzy"}`, "holds all of these words")
	refusal(t, s, "search_docs", `{"query":" "}`, "holds all of these words")
	refusal(t, s, "read_doc", `{"topic":"../../go.mod"}`, "The topics are")
	refusal(t, s, "read_doc", `{"topic":"errors","section":"xyzzy"}`, "Its sections are")
}
