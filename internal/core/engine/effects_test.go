package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

const claims, cursors store.Space = "test.claims", "test.cursors"

// item returns the value and the revision of a side item, "" and 0 for none.
func (f *fixture) item(tb testing.TB, space store.Space, key string) (string, uint64) {
	tb.Helper()
	it, err := f.Store.Get(tb.Context(), tenant, space, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		tb.Fatal(err)
	}
	return string(it.Value), it.Rev
}

func (f *fixture) putItem(tb testing.TB, space store.Space, key, value string) uint64 {
	tb.Helper()
	if err := f.Store.Write(tb.Context(), tenant, []store.Side{
		{Op: store.Put, Space: space, Key: key, Value: []byte(value)},
	}); err != nil {
		tb.Fatal(err)
	}
	_, rev := f.item(tb, space, key)
	return rev
}

// TestSideWritesCommitWithTheirEvents finishes a claim and moves a cursor in the commit of an event: all of it or
// nothing, alone and in turn, with events that imply others and with those that do not.
func TestSideWritesCommitWithTheirEvents(t *testing.T) {
	for _, tc := range []struct {
		name, event, body string
		crowded           bool
	}{
		{"alone", "was_deposited", `{"data":{"amount":1},` + meta + `}`, false},
		{"implying", "was_paid", paid(), false},
		{"in turn", "was_deposited", `{"data":{"amount":1},` + meta + `}`, true},
		{"implying in turn", "was_paid", paid(), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t, engine.Options{})
			h := &hooked{Store: f.Store}
			f.Engine = engine.New(engine.Options{Store: h, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
			f.DeploySource(t, accountSpec)
			f.Post(t, "account/"+id+"/was_opened", `{"data":{},`+meta+`}`)
			if tc.crowded { // a payment is overtaken, and the lane comes into being
				h.next(func(do func() ([]store.Result, error)) ([]store.Result, error) {
					f.Post(t, "account/"+id+"/was_deposited", `{"data":{"amount":1},`+meta+`}`)
					return do()
				})
				f.Post(t, "account/"+id+"/was_paid", paid())
			}
			length := f.Written(t, "account", id)
			rev := f.putItem(t, claims, "c", "work")
			c := enginetest.Command(t, "account/"+id+"/"+tc.event, tc.body)
			c.Side = []store.Side{
				{Op: store.Delete, Space: claims, Key: "c", Cond: store.IfRev, Rev: rev},
				{Op: store.Put, Space: cursors, Key: "k", Value: []byte("1")},
			}

			// A refusal of the command leaves the items as they were.
			c.Writes[0].Length = new(uint64(99))
			if _, err := f.Execute(t.Context(), c); j17.CodeOf(err) != j17.CodeConflict {
				t.Fatalf("another length: %v", err)
			}
			if v, _ := f.item(t, claims, "c"); v != "work" {
				t.Error("the claim is finished without its event")
			}
			c.Writes[0].Length = nil

			// The first try finishes the claim, another one of the same claim is refused.
			r, err := f.Execute(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if _, rev := f.item(t, claims, "c"); rev != 0 {
				t.Error("the claim is still there")
			}
			c.Side[1].Value = []byte("2")
			_, err = f.Execute(t.Context(), c)
			lost, ok := errors.AsType[*store.SideConflict](err)
			if j17.CodeOf(err) != j17.CodeConflict || !ok || lost.Key != "c" {
				t.Errorf("a claim that is gone: %v", err)
			}
			if n := f.Written(t, "account", id); n != r.Writes[0].Length || n == length {
				t.Errorf("the aggregate has %d events, want %d", n, r.Writes[0].Length)
			}
			if v, _ := f.item(t, cursors, "k"); v != "1" {
				t.Errorf("the cursor is %q", v)
			}
		})
	}
}

// TestEffectsCommitWithTheirEvents counts events in an item that is read when they are decided. Where it has changed
// before they are stored they are decided anew, so that the count is exact; what refuses an effect refuses its event.
func TestEffectsCommitWithTheirEvents(t *testing.T) {
	f := newFixture(t, engine.Options{})
	h := &hooked{Store: f.Store}
	full := j17.Errorf(j17.CodeImplicationLimit, "There are too many.")
	var asked []string
	f.Engine = engine.New(engine.Options{
		Store: h, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler),
	}).Use(enginetest.Effects(func(
		_ context.Context, d *part.Decided,
	) (part.Effects, error) {
		types := ""
		for i := range d.Events {
			types += d.Events[i].Type + " "
		}
		asked = append(asked, types)
		n, rev := f.item(t, cursors, "count")
		if len(n) == 3 {
			return part.Effects{}, full
		}
		if d.Timestamp != f.Clock.Now().Unix() || d.Tenant != tenant || d.Decider.Types["account"] == nil {
			t.Errorf("decided at %d in %s", d.Timestamp, d.Tenant)
		}
		return part.Effects{
			Side:   []store.Side{{Op: store.Put, Space: cursors, Key: "count", Value: []byte(n + "i")}},
			Fences: []store.Fence{{Space: cursors, Key: "count", Rev: rev}},
		}, nil
	})...)
	f.DeploySource(t, accountSpec)
	f.Post(t, "account/"+id+"/was_opened", `{"data":{},`+meta+`}`)
	h.next(func(do func() ([]store.Result, error)) ([]store.Result, error) {
		f.putItem(t, cursors, "count", "xi")
		return do()
	})
	f.Post(t, "account/"+id+"/was_deposited", `{"data":{"amount":5},`+meta+`}`)
	if n, _ := f.item(t, cursors, "count"); n != "xii" {
		t.Errorf("the count is %q", n)
	}
	if diff := cmp.Diff([]string{"was_opened ", "was_deposited ", "was_deposited "}, asked); diff != "" {
		t.Error(diff)
	}
	length := f.Written(t, "account", id)
	if _, err := f.Execute(
		t.Context(), enginetest.Command(t, "account/"+id+"/was_paid", paid()),
	); !errors.Is(err, full) {
		t.Errorf("an effect that is refused: %v", err)
	}
	if n := f.Written(t, "account", id); n != length {
		t.Errorf("%d events were written", n-length)
	}
	if last := asked[len(asked)-1]; last == "was_paid " {
		t.Error("it was asked about the command's own events only")
	}
}

// TestEffectsOfACommand checks that the effects of one command see what it implies, stand behind its own side writes,
// and make it decide anew where what they looked at has changed.
func TestEffectsOfACommand(t *testing.T) {
	f := newFixture(t, engine.Options{})
	h := &hooked{Store: f.Store}
	f.Engine = engine.New(engine.Options{Store: h, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
	f.DeploySource(t, accountSpec)
	f.Post(t, "account/"+id+"/was_opened", `{"data":{},`+meta+`}`)
	rev := f.putItem(t, claims, "c", "work")
	c := enginetest.Command(t, "account/"+id+"/was_paid", paid())
	c.Side = []store.Side{{Op: store.Delete, Space: claims, Key: "c", Cond: store.IfRev, Rev: rev}}
	asked := 0
	c.Effects = func(_ context.Context, d *part.Decided) (part.Effects, error) {
		asked++
		if len(d.Events) < 2 || d.Events[0].Type != "was_paid" {
			t.Errorf("it is asked about %d events", len(d.Events))
		}
		_, rev := f.item(t, cursors, "seen")
		return part.Effects{
			Side:   []store.Side{{Op: store.Put, Space: claims, Key: "c", Value: []byte("next"), Stamps: []int{0}}},
			Fences: []store.Fence{{Space: cursors, Key: "seen", Rev: rev}},
		}, nil
	}
	h.next(func(do func() ([]store.Result, error)) ([]store.Result, error) {
		f.putItem(t, cursors, "seen", "x")
		return do()
	})
	r, err := f.Execute(t.Context(), c)
	if err != nil || asked != 2 {
		t.Fatalf("asked %d times: %v", asked, err)
	}
	v, _ := f.item(t, claims, "c")
	at, rest, err := store.ReadStamp([]byte(v))
	if err != nil || string(rest) != "next" || at != r.Writes[0].IDs[0] {
		t.Errorf("the claim is %q at %s, %v", rest, at, err)
	}
	if _, err := f.Execute(t.Context(), c); j17.CodeOf(err) != j17.CodeConflict {
		t.Errorf("the claim is gone: %v", err)
	}
}

// TestResolve finds the keys of aggregates by what they are called.
func TestResolve(t *testing.T) {
	f := newFixture(t, engine.Options{})
	for _, tc := range []struct {
		typ, id string
		want    j17.Key
		code    j17.Code
	}{
		{"counter", "0B6E9D4E-6F0A-4F3C-8C53-6A1D2B7E9F10", j17.Key{Type: "counter", ID: id}, ""},
		{"counter", "main", j17.Key{Type: "counter", ID: "main"}, ""},
		{"counter", "x", j17.Key{}, j17.CodeInvalidIdentifier},
		{"ghost", id, j17.Key{}, j17.CodeUnknownType},
	} {
		key, err := f.Resolve(t.Context(), tenant, tc.typ, tc.id)
		if key != tc.want || j17.CodeOf(err) != tc.code {
			t.Errorf("%s %s: %v, %v", tc.typ, tc.id, key, err)
		}
	}
	if _, err := f.Resolve(t.Context(), "ins_none/prod", "counter", id); j17.CodeOf(err) != j17.CodeNoSpec {
		t.Errorf("without a spec: %v", err)
	}
}

// TestWhoKeepsWhatItReadIsToldThatItChanged fences on a revision that is kept and old: the command is decided anew, on
// what is new.
func TestWhoKeepsWhatItReadIsToldThatItChanged(t *testing.T) {
	kept, told := uint64(0), 0
	f := newFixture(t, engine.Options{}, enginetest.Effects(func(context.Context, *part.Decided) (part.Effects, error) {
		return part.Effects{
			Fences: []store.Fence{{Space: cursors, Key: "k", Rev: kept}},
			Changed: func(c *store.SideConflict) {
				if told++; c.Space == cursors && c.Key == "k" {
					kept = c.Rev
				}
			},
		}, nil
	})...)
	f.DeploySource(t, accountSpec)
	for range 3 {
		kept = 0
		f.putItem(t, cursors, "k", "1")
		for _, event := range []string{"was_deposited", "was_paid"} {
			f.Post(t, "account/"+id+"/"+event, paid())
		}
	}
	if told != 3 {
		t.Errorf("it was told %d times", told)
	}
}
