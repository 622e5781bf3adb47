// Package enginetest has an engine on a store of its own for tests, and helpers that write to it and read from it.
package enginetest

import (
	"crypto/sha256"
	"log/slog"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/value"
	"j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/core/part"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// The tenant, the user and the aggregate of most tests.
const (
	Tenant = j17.Tenant("ins_test/prod")
	User   = "550e8400-e29b-41d4-a716-446655440001"
	ID     = "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"
	// Meta is the metadata member of a body, with User as the actor.
	Meta = `"metadata":{"actor":{"type":"user","id":"` + User + `"}}`
)

// CounterSpec has the types counter and other, and a singleton. Counters count and have names.
const CounterSpec = `{
	"agent_types": ["user"], "target_types": ["thing"], "singletons": ["main"],
	"aggregate_types": {"counter": {"events": {
		"was_counted": {"schema": {"type":"object","properties":{"by":{"type":"integer"}},"required":["by"],"additionalProperties":false},
			"allow_skip_occ": true,
			"handler": [{"increment":{"target":"n","by":"$.data.by"}}]},
		"was_named": {"schema": {"type":"object","properties":{"name":{"type":"string"}}}, "handler": [{"merge":{"target":"","value":"$.data"}}]},
		"was_seen": {"schema": {"type":"object"}, "handler": []}
	}}, "other": {"events": {"was_seen": {"schema": {"type":"object"}, "handler": []}}}}
}`

// NamesSpec has types with a handle, with a number, with both and with neither. Payments imply tickets.
const NamesSpec = `{"agent_types": ["user"], "target_types": ["user"], "project_key": "VNO", "aggregate_types": {
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

// Fixture is an engine on a store of its own, with a clock that only the test moves. A test may put another engine into
// it.
type Fixture struct {
	*engine.Engine
	Store store.Store
	Clock *clock.Manual
	Data  *testopen.Data
}

// New returns a fixture whose engine has options and parts, and nothing deployed. Its store is closed when the test
// ends.
func New(tb testing.TB, o engine.Options, parts ...part.Part) *Fixture {
	tb.Helper()
	return NewOn(tb, testopen.NewData(tb), o, parts...)
}

// NewOn is New for a store on existing data.
func NewOn(tb testing.TB, data *testopen.Data, o engine.Options, parts ...part.Part) *Fixture {
	tb.Helper()
	f := &Fixture{Clock: clock.NewManual(time.Unix(1_700_000_000, 0)), Data: data}
	f.Open(tb, o, parts...)
	return f
}

// Open opens the store again, as after a crash or a Close, with a new engine.
func (f *Fixture) Open(tb testing.TB, o engine.Options, parts ...part.Part) {
	tb.Helper()
	f.Store = f.Data.Open(tb, f.Clock)
	o.Store, o.Clock, o.Logger = f.Store, f.Clock, slog.New(slog.DiscardHandler)
	f.Engine = engine.New(o).Use(parts...)
}

// Effects returns parts with these effects, one for each.
func Effects(all ...part.EffectsOf) []part.Part {
	parts := make([]part.Part, len(all))
	for i, of := range all {
		parts[i].Commit.Effects = of
	}
	return parts
}

// Derived returns parts with these kinds of derived data, one for each.
func Derived(all ...part.DerivedOf) []part.Part {
	parts := make([]part.Part, len(all))
	for i, of := range all {
		parts[i].Commit.Derive = of
	}
	return parts
}

// Compiled returns a spec, which must be valid.
func Compiled(tb testing.TB, src string) *spec.Compiled {
	tb.Helper()
	c, found := spec.Compile([]byte(src))
	if c == nil {
		tb.Fatalf("the spec is not valid: %+v", found)
	}
	return c
}

// DeploySource deploys a spec to Tenant.
func (f *Fixture) DeploySource(tb testing.TB, src string) {
	tb.Helper()
	f.Deploy(Tenant, Compiled(tb, src), nil)
}

// Body returns the body of a write of one event.
func Body(data string) string { return `{"data":` + data + `,` + Meta + `}` }

// Command returns the command of a POST of a body to {type}/{id}/{event} or {type}/{id}.
func Command(tb testing.TB, path, body string) *engine.Command {
	tb.Helper()
	v, err := value.ParseString(body)
	if err != nil {
		tb.Fatal(err)
	}
	parts := append(strings.Split(path, "/"), "", "")
	c := &engine.Command{
		Command: command.Read(parts[2], v), Tenant: Tenant, Fingerprint: sha256.Sum256([]byte(path + body)),
	}
	c.Writes[0].Type, c.Writes[0].ID = parts[0], parts[1]
	return c
}

// Creation is Command for {type}/_new/{event} or {type}/_new.
func Creation(tb testing.TB, path, body string) *engine.Command {
	tb.Helper()
	c := Command(tb, strings.Replace(path, "_new", "", 1), body)
	c.Writes[0].New = true
	return c
}

// Receipt describes what a command of one write has written.
type Receipt struct {
	engine.Written

	// ID is the id of the aggregate.
	ID string
	// Implied is the number of events that its events implied, Replayed reports that an earlier try has written them.
	Implied  int
	Replayed bool
}

// One returns the receipt of a command of one write.
func One(r engine.Receipt) Receipt {
	if len(r.Writes) == 0 {
		return Receipt{}
	}
	return Receipt{r.Writes[0], r.Writes[0].Key.ID, r.Implied, r.Replayed}
}

// Post carries out a Command, which must succeed.
func (f *Fixture) Post(tb testing.TB, path, body string) Receipt {
	tb.Helper()
	return f.execute(tb, path, Command(tb, path, body))
}

// Create carries out a Creation, which must succeed.
func (f *Fixture) Create(tb testing.TB, path, body string) Receipt {
	tb.Helper()
	return f.execute(tb, path, Creation(tb, path, body))
}

func (f *Fixture) execute(tb testing.TB, path string, c *engine.Command) Receipt {
	tb.Helper()
	r, err := f.Execute(tb.Context(), c)
	if err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
	return One(r)
}

// State returns the state of {type}/{id} as JSON, or the code of the error.
func (f *Fixture) State(tb testing.TB, path string, o engine.LoadOptions) string {
	tb.Helper()
	typ, aggregate, _ := strings.Cut(path, "/")
	s, err := f.Load(tb.Context(), Tenant, typ, aggregate, o)
	if err != nil {
		return string(j17.CodeOf(err))
	}
	return string(s.JSON)
}

// Written returns how many events an aggregate has.
func (f *Fixture) Written(tb testing.TB, typ, id string) uint64 {
	tb.Helper()
	n, err := f.Length(tb.Context(), Tenant, typ, id)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
