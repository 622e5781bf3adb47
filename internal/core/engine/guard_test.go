package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/storage/store"
)

// purseSpec lets two purses together never fall below zero, though each of them may.
const purseSpec = `{"agent_types": ["user"], "singletons": ["a", "b", "c"], "aggregate_types": {"purse": {"events": {
	"was_filled": {"schema": {}, "handler": [{"increment": {"target": "n", "by": "$.data.n"}}]},
	"was_moved": {"schema": {}, "handler": [{"decrement": {"target": "n", "by": "$.data.n"}}],
		"implications": [{"emit": {"aggregate_type": "purse", "id": "$.data.to", "event_type": "was_filled", "data": {"n": "$.data.n"}}}]},
	"was_used": {"schema": {}, "handler": [{"decrement": {"target": "n", "by": "$.data.n"}}],
		"reads": {"other": {"aggregate_type": "purse", "id": "$.data.other"}},
		"requires": [{"that": {"or": [{"gte": ["$.state.n", "$.data.n"]}, {"gte": ["$.reads.other.n", "$.data.n"]}]}, "message": "Neither has as much"}]}
}}}}`

// interrupted is a store that lets something happen before each look at a stream.
type interrupted struct {
	store.Store

	before func(key j17.Key)
}

func (s *interrupted) Heads(ctx context.Context, t j17.Tenant, keys []j17.Key) ([]store.Head, error) {
	if len(keys) == 1 {
		s.before(keys[0])
	}
	return s.Store.Heads(ctx, t, keys)
}

// TestRefusedForWhatWas: money moves from one purse to the other between the looks at both. An event that is refused is
// so for states that were there at one moment.
func TestRefusedForWhatWas(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, purseSpec)
	f.Post(t, "purse/a/was_filled", enginetest.Body(`{"n":10}`))
	moves := 0
	s := &interrupted{Store: f.Store}
	s.before = func(key j17.Key) {
		// The other purse is looked at first, while it has nothing; then this one, which has nothing any more.
		if key.ID == "a" && moves == 0 {
			moves++
			f.Post(t, "purse/a/was_moved", enginetest.Body(`{"n":10,"to":"b"}`))
		}
	}
	e := engine.New(engine.Options{Store: s, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
	e.Deploy(tenant, enginetest.Compiled(t, purseSpec), nil)
	if _, err := e.Execute(
		t.Context(), enginetest.Command(t, "purse/a/was_used", enginetest.Body(`{"n":10,"other":"b"}`)),
	); err != nil || moves != 1 {
		t.Errorf("after %d moves: %v", moves, err)
	}

	// A refusal that holds is told at once.
	_, err := e.Execute(t.Context(), enginetest.Command(t, "purse/a/was_used", enginetest.Body(`{"n":11,"other":"b"}`)))
	refused, _ := errors.AsType[*j17.Error](err)
	if refused == nil || refused.Code != j17.CodeRequirementFailed || refused.Message != "Neither has as much" {
		t.Fatal(err)
	}
	if d, ok := refused.Details.(decider.RefusalDetails); !ok || d.Key != "purse:a" || d.Pointer != "/aggregate_types/purse/events/was_used/requires/0" {
		t.Errorf("%+v", refused.Details)
	}
}

// TestGuardsInARace lets many writers use and fill three purses, each event of which is guarded by two of them. Gone
// through in the order of the feed, every event was allowed where it stands.
func TestGuardsInARace(t *testing.T) {
	const writers, rounds = 8, 25
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, purseSpec)
	names := []string{"a", "b", "c"}
	var refused, written atomic.Int64
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 7))
			for range rounds {
				i := rnd.IntN(3)
				own, other, n := names[i], names[(i+1+rnd.IntN(2))%3], 1+rnd.IntN(5)
				path, body := "purse/"+own+"/was_used", fmt.Sprintf(`{"n":%d,"other":%q}`, n, other)
				if rnd.IntN(2) == 0 {
					path, body = "purse/"+own+"/was_filled", fmt.Sprintf(`{"n":%d}`, n)
				}
				switch _, err := f.Execute(t.Context(), enginetest.Command(t, path, enginetest.Body(body))); {
				case err == nil:
					written.Add(1)
				case j17.CodeOf(err) == j17.CodeRequirementFailed:
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	all.Wait()

	// What happened, in its order.
	has, events := map[string]int64{}, int64(0)
	for ev, err := range f.Store.ReadFeed(t.Context(), tenant, j17.StreamID{}, writers*rounds+1) {
		if err != nil {
			t.Fatal(err)
		}
		events++
		v, err := value.Parse(ev.Raw)
		if err != nil {
			t.Fatal(err)
		}
		data := v.Get("data")
		n, _ := data.Get("n").Int64()
		if ev.Type == "was_filled" {
			has[ev.Key.ID] += n
			continue
		}
		if has[ev.Key.ID] < n && has[data.Get("other").Str()] < n {
			t.Errorf("%s took %d of %v", ev.Key, n, has)
		}
		has[ev.Key.ID] -= n
	}
	if events != written.Load() || written.Load()+refused.Load() != writers*rounds || written.Load() == 0 {
		t.Errorf("%d events, %d written, %d refused", events, written.Load(), refused.Load())
	}
}

// late is a store in which something happens before it is looked for the first time what a command has come to, or
// before a unit is stored.
type late struct {
	store.Store

	afterLookup, beforeAppend func()
}

func once(do *func()) {
	if now := *do; now != nil {
		*do = nil
		now()
	}
}

func (s *late) Command(ctx context.Context, t j17.Tenant, id store.CommandID) (*store.Result, error) {
	r, err := s.Store.Command(ctx, t, id)
	once(&s.afterLookup)
	return r, err
}

func (s *late) Append(ctx context.Context, t j17.Tenant, units []store.Append) ([]store.Result, error) {
	once(&s.beforeAppend)
	return s.Store.Append(ctx, t, units)
}

// TestRefusedForItself: another try of a command is stored while this one is decided, so that what forbids it is what
// it has written itself. It is a repetition.
func TestRefusedForItself(t *testing.T) {
	const src = `{"agent_types": ["user"], "aggregate_types": {"account": {"events": {
		"was_noted": {"schema": {}, "tags": {"n": "$.data.n"}, "handler": []},
		"was_opened": {"schema": {}, "creates": "only", "handler": []},
		"was_paid": {"schema": {}, "requires": [{"that": {"not_equals": ["$.state.paid", true]}, "message": "Paid"}],
			"handler": [{"set": {"target": "paid", "value": true}}]}}}}}`
	for name, body := range map[string]string{
		"was_noted":           enginetest.Body(`{"n":1}`),
		"was_noted/condition": `{"data":{"n":3},"conditions":[{"fail_if_events_match":{"tags":["n:3"]}}],` + enginetest.Meta + `}`,
		"was_noted/length": strings.Replace(
			enginetest.Body(`{}`), `"metadata":{`, `"metadata":{"previous_length":0,`, 1,
		),
		"was_opened": enginetest.Body(`{}`),
		"was_paid":   enginetest.Body(`{}`),
		"was_paid/length": strings.Replace(
			enginetest.Body(`{}`), `"metadata":{`, `"metadata":{"previous_length":0,`, 1,
		),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, engine.Options{})
			f.DeploySource(t, src)
			s := &late{Store: f.Store}
			e := engine.New(engine.Options{Store: s, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
			e.Deploy(tenant, enginetest.Compiled(t, src), nil)
			event, _, _ := strings.Cut(name, "/")
			command := func() *engine.Command {
				c := enginetest.Command(t, "account/global/"+event, body)
				c.IdempotencyKey = "once"
				return c
			}
			var first engine.Receipt
			s.afterLookup = func() {
				var err error
				if first, err = f.Execute(t.Context(), command()); err != nil {
					t.Fatal(err)
				}
			}
			again, err := e.Execute(t.Context(), command())
			if err != nil || !again.Replayed || again.Writes[0].IDs[0] != first.Writes[0].IDs[0] {
				t.Errorf("%+v, %v; the first was %+v", again, err, first)
			}
		})
	}
}

// TestNamesThatLeadNowhereAreLookedAt: an event is allowed because nobody is called so, and somebody is before it is
// stored.
func TestNamesThatLeadNowhereAreLookedAt(t *testing.T) {
	const src = `{"agent_types": ["user"], "project_key": "VNO", "aggregate_types": {
		"claim": {"events": {"was_made": {"schema": {}, "reads": {"ticket": {"aggregate_type": "ticket", "id": "$.data.ticket"}},
			"requires": [{"that": {"equals": ["$.reads.ticket", null]}, "message": "There is a ticket"}], "handler": []}}},
		"ticket": {"identity": {"sequence": true}, "events": {"was_filed": {"schema": {}, "handler": []}}}}}`
	claim := func(ticket string) *engine.Command {
		return enginetest.Command(t, "claim/"+enginetest.ID+"/was_made", enginetest.Body(`{"ticket":"`+ticket+`"}`))
	}
	filed := func(id string) *engine.Command {
		return enginetest.Command(t, "ticket/"+id+"/was_filed", enginetest.Body(`{}`))
	}
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, src)

	// By another server, or in a row.
	s := &late{Store: f.Store}
	s.beforeAppend = func() {
		if _, err := f.Execute(t.Context(), filed(enginetest.ID)); err != nil {
			t.Fatal(err)
		}
	}
	e := engine.New(engine.Options{Store: s, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
	e.Deploy(tenant, enginetest.Compiled(t, src), nil)
	if _, err := e.Execute(t.Context(), claim("VNO-1")); j17.CodeOf(err) != j17.CodeRequirementFailed {
		t.Errorf("a ticket that is filed meanwhile: %v", err)
	}
	row := f.ExecuteInOrder(t.Context(), tenant, []*engine.Command{
		filed(enginetest.User), claim("VNO-2"), claim("VNO-3"),
	})
	if row[0].Err != nil || j17.CodeOf(row[1].Err) != j17.CodeRequirementFailed || row[2].Err != nil {
		t.Errorf("in a row: %v, %v, %v", row[0].Err, row[1].Err, row[2].Err)
	}
}

// TestLengthsOfSeveral: a command with several writes that expect lengths is refused at once where one of them is
// another one.
func TestLengthsOfSeveral(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, purseSpec)
	f.Post(t, "purse/a/was_filled", enginetest.Body(`{"n":1}`))
	f.Post(t, "purse/b/was_filled", enginetest.Body(`{"n":1}`))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := enginetest.Command(t, "purse/a/was_moved", enginetest.Body(`{"n":1,"to":"c"}`))
	second := enginetest.Command(t, "purse/b/was_moved", enginetest.Body(`{"n":1,"to":"c"}`)).Writes[0]
	c.Writes, c.Several = append(c.Writes, second), true
	c.Writes[0].Length, c.Writes[1].Length = new(uint64(1)), new(uint64(0))
	_, err := f.Execute(ctx, c)
	refused, _ := errors.AsType[*j17.Error](err)
	if refused == nil || refused.Code != j17.CodeConflict || refused.WriteIndex == nil || *refused.WriteIndex != 1 {
		t.Errorf("%v", err)
	}
}

// TestAGuardThatCannotBeAskedSaysSo: what is missing to calculate with is no overdraft, and is told apart from one.
func TestAGuardThatCannotBeAskedSaysSo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, engine.Options{})
	sum := func(of string) string {
		return `{"lte": [{"$add": [{"$sum": ` + of + `, "of": "$item.n"}, "$.data.n"]}, 10]}`
	}
	f.DeploySource(t, `{"agent_types": ["user"], "aggregate_types": {"order": {"events": {
		"had_line": {"schema": {}, "handler": [{"append": {"target": "lines", "value": "$.data"}}], "requires": [{"that": `+sum(`"@.lines"`)+`, "message": "Too much", "code": "too_much"}]},
		"had_first": {"schema": {}, "handler": [{"append": {"target": "lines", "value": "$.data"}}], "requires": [{"that": `+sum(`{"$coalesce": ["@.lines", []]}`)+`, "message": "Too much", "code": "too_much"}]}
	}}}}`)
	for _, tc := range []struct {
		event, n string
		cause    j17.Code
		refused  bool
	}{
		{"had_line", "1", j17.CodeInvalidOperand, true}, // there are no lines yet
		{"had_first", "11", "", true},
		{"had_first", "9", "", false},
		{"had_line", "2", "", true},
		{"had_line", `"2"`, j17.CodeInvalidOperand, true},
		{"had_line", "1", "", false},
	} {
		_, err := f.Execute(
			t.Context(), enginetest.Command(t, "order/"+id+"/"+tc.event, `{"data":{"n":`+tc.n+`},`+meta+`}`),
		)
		e, _ := errors.AsType[*j17.Error](err)
		if (e != nil) != tc.refused {
			t.Errorf("%s of %s: %v", tc.event, tc.n, err)
			continue
		}
		if e == nil {
			continue
		}
		details, is := e.Details.(decider.RefusalDetails)
		if !is || details.Cause != tc.cause || details.Requirement != "too_much" || e.Message != "Too much" {
			t.Errorf("%s of %s: %v, %+v", tc.event, tc.n, err, e.Details)
		}
	}
}
