package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"j17"
	"j17/internal/edge/client"
	"j17/internal/edge/mcp"
)

// TestRunEndsWithItsInput serves a client over plain streams, as the command line does, and sends it something broken.
func TestRunEndsWithItsInput(t *testing.T) {
	o := options(t, &running{})
	var out strings.Builder
	if err := mcp.New(o).Run(t.Context(), strings.NewReader(""), &out); err != nil || out.Len() != 0 {
		t.Errorf("an empty input: %v, %q", err, out.String())
	}
	broken := errors.New("broken")
	if err := mcp.New(o).Run(t.Context(), iotest.ErrReader(broken), &out); !errors.Is(err, broken) ||
		!strings.Contains(err.Error(), "connection to the assistant") {
		t.Errorf("an input that cannot be read: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	in, _ := io.Pipe()
	if err := mcp.New(o).Run(ctx, in, &out); err != nil {
		t.Errorf("an end from outside: %v", err)
	}
}

// TestBatch sends several messages in one line: the answers come in one, with those to what is no request.
func TestBatch(t *testing.T) {
	in := `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","method":"notifications/x"},3,{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]` + "\n"
	var out strings.Builder
	if err := mcp.New(options(t, &running{})).Run(t.Context(), strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	var answers []struct {
		ID     json.RawMessage
		Result json.RawMessage
	}
	if err := json.Unmarshal([]byte(out.String()), &answers); err != nil {
		t.Fatal(err, out.String())
	}
	got := map[string]int{}
	for _, a := range answers {
		got[string(a.ID)+" "+string(a.Result)]++
	}
	if got["1 {}"] != 1 || got["2 {}"] != 1 || got["null "] != 1 || got["1 "] != 1 || len(answers) != 4 {
		t.Errorf("%s", out.String())
	}
}

// TestEveryCallBeforeTheEndIsAnswered sends all messages at once and closes the input, as a shell does.
func TestEveryCallBeforeTheEndIsAnswered(t *testing.T) {
	const calls = 50
	in := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`
	for i := range calls {
		in += fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"validate_spec","arguments":{"file":"counter.json"}}}`+"\n", i+1)
	}
	var out strings.Builder
	if err := mcp.New(options(t, &running{})).Run(t.Context(), strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), `\"valid\":true`); n != calls {
		t.Errorf("%d of %d calls were answered", n, calls)
	}
}

// TestAnswersHaveTheIDAsItCame calls with ids of all kinds of JSON, alone, in a batch, and in what is refused.
func TestAnswersHaveTheIDAsItCame(t *testing.T) {
	ids := []string{
		"0", "7", "-1", "1.5", "1", "9007199254740993", "12345678901234567890", "-9223372036854775809", "1e2", "100",
		`"a"`, `""`, `"7"`, `"<é \n\u0041>"`,
		"true", "null", `[1, "x"]`, `{"a" : 1}`,
	}
	answers := func(in string) string {
		t.Helper()
		var out strings.Builder
		if err := mcp.New(options(t, &running{})).Run(t.Context(), strings.NewReader(in), &out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	var all []string
	for _, id := range ids {
		all = append(all, `{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`)
	}
	for name, got := range map[string]string{
		"one a line": answers(strings.Join(all, "\n") + "\n"), "a batch": answers("[" + strings.Join(all, ",") + "]\n"),
	} {
		for _, id := range ids {
			if n := strings.Count(got, `{"jsonrpc":"2.0","id":`+id+`,"result":{}}`); n != 1 {
				t.Errorf("%s: %s is answered %d times: %s", name, id, n, got)
			}
		}
	}
	var refused, twice []string
	for _, id := range ids {
		refused = append(refused, `{"jsonrpc":"2.0","id":`+id+`,"method":"ping","params":[1]}`)
		twice = append(twice, "["+strings.Repeat(`,{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`, 2)[1:]+"]")
	}
	got, again := answers(strings.Join(refused, "\n")+"\n"), answers(strings.Join(twice, "\n")+"\n")
	for _, id := range ids {
		if strings.Count(got, `{"jsonrpc":"2.0","id":`+id+`,"error":{"code":-32602,`) != 1 {
			t.Errorf("what is refused has another id than %s: %s", id, got)
		}
		found := false
		for batch := range strings.Lines(again) {
			if strings.Contains(batch, `"id":`+id+`,`) {
				found = strings.Count(batch, `"id":`+id+`,`) == 2 && strings.Count(batch, "was not answered yet") == 1
			}
		}
		if !found {
			t.Errorf("twice the id %s: %s", id, again)
		}
	}
}

// waiting is a server whose states are waited for until nobody wants them any more.
type waiting struct {
	*running
	asked chan struct{}
}

func (w waiting) State(ctx context.Context, _ j17.Key, _ client.StateOptions) (client.State, error) {
	close(w.asked)
	<-ctx.Done()
	return client.State{}, ctx.Err()
}

// TestACallIsCancelledByTheIDThatItCameWith cancels a call that would wait for ever.
func TestACallIsCancelledByTheIDThatItCameWith(t *testing.T) {
	for _, id := range []string{"1.5", `"a"`, "9007199254740993"} {
		w := waiting{&running{}, make(chan struct{})}
		o := options(t, w.running)
		o.Reader = w
		in, send := io.Pipe()
		done := make(chan error, 1)
		var out strings.Builder
		go func() { done <- mcp.New(o).Run(t.Context(), in, &out) }()
		for _, line := range []string{
			`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"read_state","arguments":{"type":"note","id":"global"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`,
		} {
			if strings.Contains(line, "cancelled") {
				<-w.asked
			}
			if _, err := io.WriteString(send, line+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		_ = send.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
