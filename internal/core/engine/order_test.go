package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/storage/store"
)

// counting counts the appends to a store, and lets somebody else write before some of them.
type counting struct {
	store.Store
	appends int
	before  func()
}

func (c *counting) Append(ctx context.Context, t j17.Tenant, u []store.Append) ([]store.Result, error) {
	c.appends++
	if before := c.before; before != nil {
		c.before = nil
		before()
	}
	return c.Store.Append(ctx, t, u)
}

// history returns what happened in the tenant, an event a line.
func (f *fixture) history(tb testing.TB) (lines []string) {
	tb.Helper()
	for ev, err := range f.Store.ReadFeed(tb.Context(), tenant, j17.StreamID{}, 1000) {
		if err != nil {
			tb.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", ev.Key, ev.Type, ev.Data))
	}
	return lines
}

// TestCommandsInOrderAreAsOneByOne draws commands of all kinds, some of which are refused, and compares what becomes of
// them with what does when they are executed one after the other.
func TestCommandsInOrderAreAsOneByOne(t *testing.T) {
	const other = "1b671a64-40d5-491e-99b0-da01ff1f3341"
	rapid.Check(t, func(rt *rapid.T) {
		var paths, bodies []string
		for range rapid.IntRange(1, 12).Draw(rt, "commands") {
			what := rapid.SampledFrom([]string{
				"was_opened", "was_paid", "was_deposited", "was_told", "was_never",
			}).Draw(rt, "event")
			length := rapid.SampledFrom([]string{"", `,"previous_length":1`, `,"previous_length":2`}).Draw(rt, "length")
			paths = append(paths, "account/"+rapid.SampledFrom([]string{id, other}).Draw(rt, "id")+"/"+what)
			bodies = append(bodies, `{"data":{"amount":1},"metadata":{"actor":{"type":"user","id":"`+user+`"}`+length+`}}`)
		}

		// Each round closes its stores, since a server takes so many connections only.
		t.Run("", func(t *testing.T) { inOrderAsOneByOne(t, rt, paths, bodies) })
	})
}

// inOrderAsOneByOne executes commands one by one, and others like them all in order.
func inOrderAsOneByOne(t *testing.T, rt *rapid.T, paths, bodies []string) {
	t.Helper()
	one, all := newFixture(t, engine.Options{}), newFixture(t, engine.Options{})
	h := &counting{Store: all.Store}
	all.Engine = engine.New(engine.Options{Store: h, Clock: all.Clock, Logger: slog.New(slog.DiscardHandler)})
	want := make([]string, len(paths))
	one.DeploySource(t, accountSpec)
	for i := range paths {
		_, err := one.Execute(t.Context(), enginetest.Command(t, paths[i], bodies[i]))
		want[i] = string(j17.CodeOf(err))
	}
	all.DeploySource(t, accountSpec)
	var commands []*engine.Command
	for i := range paths {
		commands = append(commands, enginetest.Command(t, paths[i], bodies[i]))
	}
	got := make([]string, len(paths))
	for i, o := range all.ExecuteInOrder(t.Context(), tenant, commands) {
		got[i] = string(j17.CodeOf(o.Err))
		if o.Err == nil &&
			(len(o.Receipt.Writes) != 1 || len(o.Receipt.Writes[0].IDs) != 1 || o.Receipt.Writes[0].Length == 0) {
			rt.Errorf("command %d: the receipt is %+v", i, o.Receipt)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		rt.Error(diff)
	}
	if diff := cmp.Diff(one.history(t), all.history(t)); diff != "" {
		rt.Error(diff)
	}
}

// TestCommandsInOrderShareAnAppend counts appends, also where somebody else is faster than the commands in the middle.
func TestCommandsInOrderShareAnAppend(t *testing.T) {
	for _, overtaken := range []bool{false, true} {
		f := newFixture(t, engine.Options{})
		h := &counting{Store: f.Store}
		f.Engine = engine.New(engine.Options{Store: h, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
		f.DeploySource(t, accountSpec)
		f.Post(t, "account/"+id+"/was_opened", `{"data":{},`+meta+`}`)
		deposit := func() *engine.Command {
			return enginetest.Command(t, "account/"+id+"/was_deposited", `{"data":{"amount":1},`+meta+`}`)
		}
		var commands []*engine.Command
		for i := range 50 {
			c := deposit()
			if i == 0 {
				c.Writes[0].Length = new(uint64(1))
			}
			commands = append(commands, c)
		}
		h.appends = 0
		if overtaken {
			h.before = func() {
				if _, err := f.Execute(t.Context(), deposit()); err != nil {
					t.Error(err)
				}
			}
		}
		failed := 0
		for _, o := range f.ExecuteInOrder(t.Context(), tenant, commands) {
			if o.Err != nil {
				failed++
			}
		}
		if overtaken {
			if failed != 1 || h.appends > 5 || len(f.history(t)) != 51 {
				t.Errorf("overtaken: %d failed, %d appends, %d events", failed, h.appends, len(f.history(t)))
			}
		} else if failed != 0 || h.appends != 1 {
			t.Errorf("%d failed, %d appends", failed, h.appends)
		}
	}
}
