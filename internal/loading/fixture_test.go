package loading_test

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"j17"
	"j17/internal/clock"
	cmd "j17/internal/command"
	"j17/internal/engine"
	"j17/internal/loading"
	"j17/internal/spec"
	"j17/internal/store/pebble"
	"j17/internal/value"
)

const (
	tenant = j17.Tenant("ins_test/prod")
	user   = "550e8400-e29b-41d4-a716-446655440001"
	id     = "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"
	meta   = `"metadata":{"actor":{"type":"user","id":"` + user + `"}}`
)

// fixture is a loader of an engine on a store in memory, at a time that stands still.
type fixture struct {
	*engine.Engine
	*loading.Loader
	store *pebble.Store
	clock *clock.Manual
}

func newFixture(tb testing.TB) *fixture {
	tb.Helper()
	f := &fixture{clock: clock.NewManual(time.Unix(1_700_000_000, 0))}
	s, err := pebble.Open(pebble.Options{Dir: "data", FS: vfs.NewMem(), Clock: f.clock})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	f.store = s
	f.Engine = engine.New(engine.Options{Store: s, Clock: f.clock, Logger: slog.New(slog.DiscardHandler)})
	f.Loader = &loading.Loader{Engine: f.Engine, Store: s}
	return f
}

func (f *fixture) deploy(tb testing.TB, src string) {
	tb.Helper()
	c, found := spec.Compile([]byte(src))
	if c == nil {
		tb.Fatalf("the spec is not valid: %+v", found)
	}
	f.Deploy(tenant, c, nil)
}

func command(tb testing.TB, path, body string) *engine.Command {
	tb.Helper()
	v, err := value.ParseString(body)
	if err != nil {
		tb.Fatal(err)
	}
	parts := append(strings.Split(path, "/"), "", "")
	c := &engine.Command{Command: cmd.Read(parts[2], v), Tenant: tenant, Fingerprint: sha256.Sum256([]byte(path + body))}
	c.Type, c.ID = parts[0], parts[1]
	return c
}

// post writes and fails the test if that does not work.
func (f *fixture) post(tb testing.TB, path, body string) engine.Receipt {
	tb.Helper()
	r, err := f.Execute(tb.Context(), command(tb, path, body))
	if err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
	return r
}

func (f *fixture) state(tb testing.TB, path string, o engine.LoadOptions) string {
	tb.Helper()
	typ, aggregate, _ := strings.Cut(path, "/")
	s, err := f.Load(tb.Context(), tenant, typ, aggregate, o)
	if err != nil {
		return string(j17.CodeOf(err))
	}
	return string(s.JSON)
}

// identitySpec has types with a handle, with a number, with both and with neither. Payments write tickets.
const identitySpec = `{"agent_types": ["user"], "target_types": ["user"], "project_key": "VNO", %s "aggregate_types": {
	"payment": {"identity": {"handle": "pmt"}, "events": {
		"was_made": {"schema": {}, "handler": {"merge":{"target":"","value":"$.data"}}, "implications": [
			{"map": {"in": "$.data.tickets", "as": "$t", "emit": {"aggregate_type": "ticket", "id": "$t", "event_type": "was_filed", "data": {"by": "$.key", "seen": "$.state.seen"}}}}]},
		"was_settled": {"schema": {}, "handler": {"merge":{"target":"","value":"$.data"}}}}},
	"ticket": {"identity": {"sequence": true}, "events": {
		"was_filed": {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}}, "handler": {"merge":{"target":"","value":"$.data"}}},
		"was_split": {"schema": {}, "handler": [], "implications": [
			{"map": {"in": "$.data.into", "as": "$i", "emit": {"aggregate_type": "ticket", "id": "$i", "event_type": "was_filed"}}}]}}},
	"refund": {"identity": {"sequence": true, "handle": "rfd"}, "events": {
		"was_made": {"schema": {}, "handler": {"merge":{"target":"","value":"$.data"}}}}},
	"note": {"events": {"was_written": {"schema": {}, "handler": {"merge":{"target":"","value":"$.data"}}}}}
}}`

func naming(tb testing.TB) *fixture {
	tb.Helper()
	f := newFixture(tb)
	f.deploy(tb, fmt.Sprintf(identitySpec, ""))
	return f
}

func written(data string) string { return `{"data":` + data + `,` + meta + `}` }

// fresh returns the id of an aggregate that does not exist yet.
func fresh() string { return uuid.NewString() }

// create writes {type}/_new/{event} or {type}/_new.
func (f *fixture) create(tb testing.TB, path, body string) engine.Receipt {
	tb.Helper()
	r, err := f.Execute(tb.Context(), creation(tb, path, body))
	if err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
	return r
}

func creation(tb testing.TB, path, body string) *engine.Command {
	tb.Helper()
	c := command(tb, strings.Replace(path, "_new", "", 1), body)
	c.New = true
	return c
}

func number(tb testing.TB, id j17.Names) int {
	tb.Helper()
	text, ok := strings.CutPrefix(id.PublicID, "VNO-")
	n, err := strconv.Atoi(text)
	if !ok || err != nil {
		tb.Errorf("the public id is %q", id.PublicID)
	}
	return n
}

func (f *fixture) length(tb testing.TB, typ, id string) uint64 {
	tb.Helper()
	n, err := f.Length(tb.Context(), tenant, typ, id)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func repeated(text string, n int) string {
	return strings.TrimSuffix(strings.Repeat(text+",", n), ",")
}
