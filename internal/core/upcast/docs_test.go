package upcast_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/upcast"
	"j17/internal/lang/lint"
)

// TestDocumentedUpcasts runs the fenced blocks `json upcast-example` of the guide. A block is an object: "events" are
// the event types of an aggregate type, and each of "reads" has the "type", "generation" and "data" of a stored event,
// and either "shown", the data of the newest, with the type in "as" where it differs, or the "cause" of a failure.
func TestDocumentedUpcasts(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guides/changing-events.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "\n```json upcast-example\n")[1:]
	if len(blocks) < 5 {
		t.Errorf("only %d examples", len(blocks))
	}
	for i, block := range blocks {
		text, _, _ := strings.Cut(block, "\n```")
		example, err := value.ParseString(text)
		if err != nil {
			t.Fatal(i, err)
		}
		source := fmt.Sprintf(
			`{"agent_types":["user"],"aggregate_types":{"order":{"events":%s}}}`, example.Get("events"),
		)
		compiled, found := lint.Compile([]byte(source))
		if compiled == nil || len(found) > 0 {
			t.Errorf("example %d: %v", i, found)
			continue
		}
		for _, read := range example.Get("reads").Elems() {
			generation := ""
			if n, ok := read.Get("generation").Int64(); ok && n > 1 {
				generation = fmt.Sprintf(`,"generation":%d`, n)
			}
			name := read.Get("type").Str()
			ev := stored(name, read.Get("data").String(), generation)
			got, err := upcast.Of(compiled.Types["order"], ev, work.New(t.Context(), work.Replay))
			if failed := upcast.Failure(err); failed != nil {
				if string(failed.Cause) != read.Get("cause").Str() {
					t.Errorf("example %d: %v", i, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(i, err)
			}
			if as := read.Get("as"); !as.IsMissing() {
				name = as.Str()
			}
			want := name + " " + read.Get("shown").String()
			if diff := cmp.Diff(want, got.Type+" "+string(got.Data)); diff != "" {
				t.Errorf("example %d: %s", i, diff)
			}
		}
	}
}
