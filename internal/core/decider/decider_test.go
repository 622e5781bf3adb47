//go:build !race

package decider_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
)

var update = flag.Bool("update", false, "write what is decided into testdata")

// TestDecide reads cases from testdata: given the states of aggregates, when a command comes, then these events are
// written, these states were looked at, or this is the refusal. Neither a store nor a clock is there.
func TestDecide(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c, found := spec.Compile(a.Files[0].Data)
		if c == nil {
			t.Fatalf("%s: %+v", path, found)
		}
		d := decider.New(c, nil)
		for i := 1; i+2 < len(a.Files); i += 3 {
			given, when, then := &a.Files[i], &a.Files[i+1], &a.Files[i+2]
			t.Run(filepath.Base(path)+"/"+strings.TrimPrefix(when.Name, "when "), func(t *testing.T) {
				got := decided(t, d, string(given.Data), string(when.Data))
				if *update {
					then.Data = []byte(got)
				} else if diff := cmp.Diff(string(then.Data), got); diff != "" {
					t.Error(diff)
				}
			})
		}
		if *update {
			if err := os.WriteFile(path, txtar.Format(a), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// decided carries out one case: given has a line "key length state" for each aggregate, when a line "type/id[/event]"
// and the body of a request.
func decided(t *testing.T, d *decider.Decider, given, when string) string {
	t.Helper()
	// Given: the states of aggregates.
	states := map[j17.Key]*decider.State{}
	for line := range strings.Lines(given) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		length, text, _ := strings.Cut(rest, " ")
		key, ok := j17.ParseKey(name)
		v, err := value.ParseString(text)
		if !ok || err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		f := d.Program(key.Type).First()
		f.Data = v
		if _, err := fmt.Sscan(length, &f.Length); err != nil {
			t.Fatal(err)
		}
		states[key] = f
	}

	// When: a command comes.
	path, text, _ := strings.Cut(when, "\n")
	body, err := value.ParseString(text)
	if err != nil {
		t.Fatal(err)
	}
	parts := append(strings.Split(path, "/"), "")
	c := command.Read(parts[2], body)
	c.Writes[0].Type, c.Writes[0].ID, c.CorrelationID = parts[0], parts[1], "corr"

	// Then: events, or a refusal.
	b := work.New(t.Context(), work.Command)
	a, err := d.Admit(&c, 0, b, func(w *command.Write) (j17.Key, error) { return d.Key(w.Type, w.ID) })
	if err != nil {
		return refusal(t, err)
	}
	x, err := d.Expand(t.Context(), a, decider.Options{
		Timestamp: 1_700_000_000, MaxDepth: 3, MaxImplied: 4, Work: b,
		Lookup: func(_ context.Context, key j17.Key) (*decider.State, error) {
			if f := states[key]; f != nil {
				return f, nil
			}
			return d.Program(key.Type).First(), nil
		},
	})
	if err != nil {
		return refusal(t, err)
	}
	var out strings.Builder
	for i := range x.Events {
		o := &x.Events[i]
		fmt.Fprintf(&out, "%s %s %s\n  %s\n", o.Key, o.Type, o.JSON, o.Metadata)
	}
	for _, key := range x.Looked {
		fmt.Fprintf(&out, "looked at %s, length %d\n", key, x.Before[key].Length)
	}
	for _, key := range x.Absent {
		fmt.Fprintf(&out, "%s has to be absent\n", key)
	}
	after, err := x.After(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range after {
		fmt.Fprintf(&out, "after it %s has length %d: %s\n", c.Key, c.State.Length, c.State.Data)
	}
	return out.String()
}

func refusal(t *testing.T, err error) string {
	t.Helper()
	e, ok := errors.AsType[*j17.Error](err)
	if !ok {
		t.Fatal(err)
	}
	out := fmt.Sprintf("%s %s\n", e.Code, e.Message)
	if e.Path != "" {
		out += "at " + e.Path + "\n"
	}
	if d, ok := e.Details.(decider.RefusalDetails); ok {
		out += fmt.Sprintf("forbidden by %s", d.Pointer)
		if d.Implication != "" {
			out += fmt.Sprintf(", implied by %s in a chain of %d", d.Implication, len(d.Chain))
		}
		out += "\n"
	}
	if e.EventIndex != nil {
		out += fmt.Sprintf("in event %d\n", *e.EventIndex)
	}
	return out
}
