package projection_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/value"
	"j17/internal/code/sandbox"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/derived/build"
	"j17/internal/derived/projection"
	"j17/internal/plane/deploy"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// listOf is a list of notes, with an index.
func listOf(index string) string {
	return `{"name":"posted","for_each":"note","sources":{"n":"$key"},"select":{"color":"$.n.color","size":"$.n.size"},"index":[` + index + `]}`
}

// TestReadsBeginAnew: a read that had begun when another definition took its place, and the index went, begins again.
// It does not build the index again, which nobody would remove.
func TestReadsBeginAnew(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.run(s.builds.Run)
	s.deploy(t, notes(keep, ""))
	s.write(t)
	s.post(t, listOf(`"color"`), false)
	s.built(t)
	over, err := s.views.ViewAfter(
		t.Context(), s.tenant, "posted", func() { s.post(t, listOf(`"size","color"`), false) },
	)
	if err != nil || !over || s.known(t) != 1 {
		t.Errorf("%v, %v, %d indexes are there", over, err, s.known(t))
	}

	// One that is in force is built for whoever needs it.
	s.built(t)
	over, err = s.views.ViewAfter(t.Context(), s.tenant, "posted", func() {
		there, err := s.indexes.List(t.Context(), s.tenant)
		if err != nil || len(there) != 1 {
			t.Fatal(there, err)
		}
		if err := s.indexes.Remove(t.Context(), s.tenant, there[0].ID); err != nil {
			t.Fatal(err)
		}
	})
	if err != nil || over {
		t.Error(over, err)
	}
	n, err := s.views.Count(t.Context(), s.tenant, "posted", map[string]string{"color": "red"})
	if err != nil || n != 20 {
		t.Error(n, err)
	}
	if _, err := s.views.List(t.Context(), s.tenant, projection.ListAsk{
		Name: "posted", Filters: map[string]string{"points": "1"}, Count: 1,
	}); j17.CodeOf(err) != j17.CodeNotIndexed {
		t.Error(err)
	}
}

// codedNames is custom code that keeps the names of customers, and traps at one of them.
type codedNames struct{ trapsAt string }

func (c codedNames) Call(_ context.Context, input []byte) ([]byte, error) {
	var in struct {
		Event struct{ Data struct{ Name string } }
	}
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	if in.Event.Data.Name == c.trapsAt {
		return nil, &sandbox.Fault{Kind: sandbox.Trap, Detail: "unreachable"}
	}
	return fmt.Appendf(nil, `{"state":{"name":%q}}`, in.Event.Data.Name), nil
}

// Digest tells versions of the code apart.
func (c codedNames) Digest() [32]byte { return sha256.Sum256([]byte(c.trapsAt)) }

// deployNames deploys tickets whose customers' handler is custom code.
func (f *fixture) deployNames(tb testing.TB, code codedNames) {
	tb.Helper()
	c := enginetest.Compiled(tb, `{"agent_types":["user"],"aggregate_types":{
		"ticket":{"events":{"was_made":{"schema":{},"handler":[{"set":{"target":"","value":"$.data"}}]}}},
		"customer":{"events":{"was_made":{"schema":{},"handler":{"wasm":"names.wasm"}}}}},
		"projections":{"tickets":{"for_each":"ticket","sources":{"t":"$key","by":{"type":"customer","id":"$.t.by"}},"select":{"n":"$.t.n","who":"$.by.name"},"index":["who","n"]}}}`)
	functions := decider.Functions{}
	for _, use := range c.CodeUses() {
		functions[use.Code] = code
	}
	f.Deploy(enginetest.Tenant, c, functions)
}

// TestSourcesThatFail: where custom code fails for a source, a read by id has the error of that aggregate. In lists the
// row stands with the error, in the order of null, and all others are as ever.
func TestSourcesThatFail(t *testing.T) {
	f := newListed(t)
	f.deployNames(t, codedNames{"nobody"})
	for n, name := range []string{"Ann", "Bob"} {
		f.make(t, "customer", id(100+n), `{"name":"`+name+`"}`)
		f.make(t, "ticket", id(n), fmt.Sprintf(`{"n":%d,"by":%q}`, n, id(100+n)))
	}
	f.make(t, "ticket", id(2), `{"n":2}`)
	list := func(filters map[string]string) (shown string) {
		for _, row := range f.list(t, projection.ListAsk{Name: "tickets", Filters: filters, Count: 10}).Rows {
			if row.Err != nil && row.Data != nil {
				t.Errorf("%+v", row)
			}
			shown += fmt.Sprintf("%s%s;", row.Data, j17.CodeOf(row.Err))
		}
		return shown
	}
	const ann, bob, none = `{"n":0,"who":"Ann"};`, `{"n":1,"who":"Bob"};`, `{"n":2,"who":null};`
	wants := func(filter, value, want string) {
		t.Helper()
		filters := map[string]string{}
		if filter != "" {
			filters[filter] = value
		}
		if got := list(filters); got != want {
			t.Errorf("%s=%s: %s, want %s", filter, value, got, want)
		}
	}
	wants("", "", ann+bob+none)

	// Another version of the code fails for one of them.
	f.deployNames(t, codedNames{"Bob"})
	const failed = string(j17.CodeCustomCodeFailed) + ";"
	f.refused(t, projection.Ask{Name: "tickets", ID: id(1)}, j17.CodeCustomCodeFailed, "")
	f.wants(t, projection.Ask{Name: "tickets", ID: id(0)}, `{"n":0,"who":"Ann"}`)
	wants("", "", ann+failed+none)
	wants("who", "Ann", ann)
	wants("who", "Bob", "")
	wants("who", "null", failed+none)
	wants("n", "1", "") // all fields count as null
	f.make(t, "ticket", id(3), `{"n":3,"by":"`+id(101)+`"}`)
	wants("who", "null", failed+none+failed)

	// A version that does not makes all well again.
	f.deployNames(t, codedNames{"nobody"})
	wants("who", "Bob", bob+`{"n":3,"who":"Bob"};`)
	f.wants(t, projection.Ask{Name: "tickets", ID: id(1)}, `{"n":1,"who":"Bob"}`)
}

// load stores a unit of events of the past: notes from one number up to another get a color.
func (s *server) load(tb testing.TB, from, to int, color string) {
	tb.Helper()
	past, err := s.engine.Recorder(s.tenant)
	if err != nil {
		tb.Fatal(err)
	}
	metadata, err := value.ParseString(
		`{"actor":{"type":"user","id":"` + enginetest.User + `"},"timestamp":1600000000}`,
	)
	if err != nil {
		tb.Fatal(err)
	}
	data, err := value.ParseString(`{"color":"` + color + `"}`)
	if err != nil {
		tb.Fatal(err)
	}
	unit := &engine.Past{}
	binary.BigEndian.PutUint64(unit.ID[:], uint64(from))
	copy(unit.ID[8:], color)
	for n := from; n < to; n++ {
		e, faults := past.Decider().Examine(tb.Context(), &command.FileEvent{
			AggregateType: "note", ID: id(n), Type: "was_made", Data: data, Metadata: metadata,
		})
		if len(faults) > 0 {
			tb.Fatal(faults)
		}
		unit.Events = append(unit.Events, engine.PastEvent{Examined: e})
	}
	if _, err := past.Store(tb.Context(), unit); err != nil {
		tb.Fatal(err)
	}
}

// caughtUp waits until all indexes have what came in while they were built. The builds look again and again whether
// that is so.
func (s *server) caughtUp(tb testing.TB) {
	tb.Helper()
	there, err := s.indexes.List(tb.Context(), s.tenant)
	if err != nil {
		tb.Fatal(err)
	}
	for _, x := range there {
		for ready := x.Ready; !ready; {
			s.clock.Advance(10 * time.Millisecond)
			waiting, stop := context.WithTimeout(tb.Context(), 20*time.Millisecond)
			got, err := s.indexes.Await(waiting, s.tenant, x.ID)
			stop()
			if ready = got.Ready; err != nil && !errors.Is(err, context.DeadlineExceeded) {
				tb.Fatal(err)
			}
			if got.Build != nil && got.Build.State == build.Failed {
				tb.Fatalf("the index %s could not be built: %s", x.ID, got.Build.Error)
			}
		}
	}
}

// TestImportsDuringABuild loads thousands of events while an index is built: of rows that the build has passed, of
// those that it comes to, and of new ones. In the end it has all of them once.
func TestImportsDuringABuild(t *testing.T) {
	t.Parallel()
	const before, after, each = 1000, 2000, 500
	s := newServer(t)
	s.deploy(t, notes(keep, ""))
	for from := 0; from < before; from += each {
		s.load(t, 2*from, 2*(from+each), "red")
	}
	s.post(t, listOf(`"color"`), false)
	s.run(s.builds.Run)
	for from := 0; from < after; from += each {
		s.load(t, from, from+each, "blue")
		s.load(t, before+from, before+from+each, "green")
	}
	s.caughtUp(t)
	for color, want := range map[string]uint64{"red": 0, "blue": after, "green": before} {
		if n, err := s.views.Count(t.Context(), s.tenant, "posted", map[string]string{
			"color": color,
		}); err != nil || n != want {
			t.Errorf("%d rows are %s, want %d: %v", n, color, want, err)
		}
	}
	if v, err := s.views.Verify(t.Context(), s.tenant, "posted"); err != nil || !v.Verified || v.Rows != before+after {
		t.Errorf("%+v, %v", v, err)
	}
}

// goOn lets a server do what there is to do, whether that can be stored or not.
func (s *server) goOn(tb testing.TB) {
	tb.Helper()
	for range 5 {
		for _, work := range []func(context.Context) error{s.builds.Settle, s.views.Settle, s.specs.Settle} {
			_ = work(tb.Context()) // it may be the last that the server does
		}
		s.clock.Advance(time.Minute)
	}
}

// deployed waits until the spec that is prepared is deployed. No time passes: the lease of who was about to do that is
// not over.
func (s *server) deployed(tb testing.TB) {
	tb.Helper()
	for {
		_, err := s.specs.Prepared(tb.Context(), s.tenant)
		if j17.CodeOf(err) == j17.CodeNotFound {
			return
		}
		if err = cmp.Or(err, (clock.System{}).Wait(tb.Context(), time.Now().Add(5*time.Millisecond))); err != nil {
			tb.Fatal(err)
		}
	}
}

// TestAServerEndsWhileASpecIsPrepared ends a server before and after each write with which a spec is prepared, built
// for and deployed: it is deployed with its index, or it never was. It is deployed in the end where somebody was told
// that it is prepared, and at once where the claims of the one that ended were given back.
func TestAServerEndsWhileASpecIsPrepared(t *testing.T) {
	t.Parallel()
	painted := notes(`[{"set":{"target":"color","value":"blue"}}]`, `"mine":`+byColor)
	claimed := 0
	for _, late := range []bool{false, true} {
		ends, deployed := 0, 0
		for left, over := 0, false; !over; left++ {
			s := newServer(t)
			s.deploy(t, notes(keep, ""))
			s.write(t)
			s.close(t)
			var m *storetest.Crashing
			s.over = func(st store.Store) store.Store {
				m = storetest.NewCrashing(st, left, late)
				return m
			}
			s.open(t)
			if err := s.specs.Adopt(t.Context(), s.instance, j17.Prod); err != nil {
				t.Fatal(err)
			}
			_, told := s.specs.Deploy(t.Context(), deploy.Request{
				Instance: s.instance, Environment: j17.Prod, Source: []byte(painted), Prepare: true,
			})
			s.goOn(t)
			if over = !m.IsDead(); !over {
				ends++
			}

			// The next one shows the one spec or the other, whole.
			s.over = nil
			s.restart(t)
			is := func() bool {
				t.Helper()
				shown := s.shows(t, "mine")
				if shown != "" && (shown != "ready, done, "+byColor || s.found(t, "mine", "blue") != 20 ||
					s.found(t, "mine", "red") != 0) {
					t.Errorf("after %d writes (late %v): %s", left, late, shown)
				}
				return shown != ""
			}
			before := is()
			if it, err := s.store.Get(t.Context(), s.tenant, "spec.prepared", "next"); err == nil &&
				it.Due.Sub(s.clock.Now()) > time.Minute {
				claimed++
				if n, err := s.store.ReleaseClaims(t.Context()); err != nil || n == 0 {
					t.Fatal(n, err)
				}
				s.run(s.specs.Run)
				s.deployed(t)
			}
			s.goOn(t)
			after := is()
			_, err := s.specs.Prepared(t.Context(), s.tenant)
			if before && !after || told == nil && !after || j17.CodeOf(err) != j17.CodeNotFound ||
				!after && s.known(t) != 0 {
				t.Errorf("after %d writes (late %v): deployed %v, then %v; it was told %v; what is prepared: %v; %d indexes", left, late, before, after, told, err, s.known(t))
			}
			if after {
				deployed++
			}
		}
		if ends < 5 || deployed < 2 || deployed > ends+1 {
			t.Errorf("it has ended %d times, %d times with the spec deployed", ends, deployed)
		}
	}
	if claimed == 0 {
		t.Error("it has never ended while it was about to deploy the spec")
	}
}
