package loading_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/custody/loading"
	"j17/internal/storage/store"
)

// start loads a text into the other tenant.
func (f *fixture) start(tb testing.TB, text string) (loading.Imported, error) {
	tb.Helper()
	return f.ColdStart(tb.Context(), elsewhere, command.NewFileReader(strings.NewReader(text)))
}

// history gives the tenant aggregates with and without names, one of them erased, and returns its export.
func (f *fixture) history(tb testing.TB) string {
	tb.Helper()
	var ids []string
	for i := range 7 {
		r := f.Create(
			tb, "payment/_new/was_made", enginetest.Body(fmt.Sprintf(`{"amount":%d.50,"tickets":["%s"]}`, i, fresh())),
		)
		f.Clock.Advance(time.Minute)
		f.Post(tb, "payment/"+r.Handle+"/was_settled", enginetest.Body(`{"settled":true}`))
		f.Create(tb, "refund/_new/was_made", enginetest.Body(`{"of":"`+r.Handle+`"}`))
		ids = append(ids, fresh())
		f.write(tb, ids[i], i)
		f.write(tb, ids[0], i)
	}
	f.erase(tb, ids[3])
	return f.export(tb, tenant, "", j17.StreamID{})
}

// TestAColdStartKeepsEverything: bytes, positions, chains, leaves, names and numbers.
func TestAColdStartKeepsEverything(t *testing.T) {
	f := historians(t)
	text := f.history(t)
	events := strings.Count(text, "\n")
	done, err := f.start(t, text+`{"checkpoint":"x","vkey":"y"}`+"\n")
	if want := (loading.Imported{Events: events, Stored: events, Imported: events, Streams: 28}); err != nil ||
		done != want {
		t.Fatalf("%+v, %v", done, err)
	}
	if diff := cmp.Diff(
		strings.Split(text, "\n"), strings.Split(f.export(t, elsewhere, "", j17.StreamID{}), "\n"),
	); diff != "" {
		t.Error(diff)
	}
	at := f.Clock.Now().Unix()
	if diff := cmp.Diff(f.states(t, tenant, at), f.states(t, elsewhere, at)); diff != "" {
		t.Error(diff)
	}

	// What comes next comes behind it, and gets the next number.
	last := linesOf(t, text)[events-1].StreamID
	c := enginetest.Creation(t, "refund/_new/was_made", enginetest.Body(`{}`))
	c.Tenant = elsewhere
	receipt, err := f.Execute(t.Context(), c)
	r := enginetest.One(receipt)
	if err != nil || r.PublicID != "VNO-15" || r.IDs[0].String() <= last {
		t.Errorf("%+v, %v", r, err)
	}
	if done, err := f.start(t, text); j17.CodeOf(err) != j17.CodeConflict || done.Stored != 0 {
		t.Errorf("twice: %+v, %v", done, err)
	}
}

// TestAColdStartMakesTheLog: the tiles of the log are stored with the events, so that nobody reads these again for
// them.
func TestAColdStartMakesTheLog(t *testing.T) {
	f := historians(t)
	var b strings.Builder
	ids := []string{fresh(), fresh(), fresh(), fresh(), fresh()}
	for i := range 600 {
		fmt.Fprintf(&b, `{"key":"ticket:%s","type":"was_filed","data":{"n":1},"metadata":{"actor":{"type":"user","id":"%s"},"timestamp":1600000000}}`+"\n", ids[i%len(ids)], user)
	}
	if done, err := f.start(t, b.String()); err != nil || done.Stored != 600 {
		t.Fatalf("%+v, %v", done, err)
	}
	for space, want := range map[store.Space]int{"envlog.tiles": 2, "envlog.positions": 2, "envlog.head": 1} {
		if n, err := f.Fixture.Store.Count(t.Context(), elsewhere, space, store.Range{}, 10); err != nil || n != want {
			t.Errorf("%s: %d, %v", space, n, err)
		}
	}
}

// TestAColdStartOfFreshHistory: events without positions get their own, and aggregates without names too.
func TestAColdStartOfFreshHistory(t *testing.T) {
	f := historians(t)
	var b strings.Builder
	event := func(key, typ, more string) {
		fmt.Fprintf(&b, `{"key":"%s","type":"%s","data":{"n":1},"metadata":{"actor":{"type":"user","id":"%s"},"timestamp":1600000000}%s}`+"\n", key, typ, user, more)
	}
	tickets := []string{fresh(), fresh(), fresh()}
	event("ticket:"+tickets[0], "was_filed", "")
	event("ticket:"+tickets[1], "was_filed", `,"public_id":"VNO-7"`)
	event("ticket:"+tickets[2], "was_filed", "")
	event("ticket:"+tickets[0], "was_filed", "")
	event("payment:"+tickets[0], "was_made", "")
	if done, err := f.start(t, b.String()); err != nil || done.Stored != 5 || done.Streams != 4 {
		t.Fatalf("%+v, %v", done, err)
	}
	all := linesOf(t, f.export(t, elsewhere, "", j17.StreamID{}))
	checkChains(t, all)
	for i, want := range []string{"VNO-8", "VNO-7", "VNO-9"} {
		s, err := f.Load(t.Context(), elsewhere, "ticket", tickets[i], engine.LoadOptions{})
		if err != nil || s.PublicID != want {
			t.Errorf("%d is called %q, %v", i, s.PublicID, err)
		}
		if s, err := f.Load(t.Context(), elsewhere, "ticket", want, engine.LoadOptions{}); err != nil ||
			s.Key.ID != tickets[i] {
			t.Errorf("%s is %s, %v", want, s.Key, err)
		}
	}
	if s, err := f.Load(t.Context(), elsewhere, "payment", tickets[0], engine.LoadOptions{}); err != nil ||
		!strings.HasPrefix(s.Handle, "pmt_") {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestWhatAColdStartRefuses names the line, and stores nothing.
func TestWhatAColdStartRefuses(t *testing.T) {
	f := historians(t)
	text := f.history(t)
	lines := strings.SplitAfter(text, "\n")
	lines = lines[:len(lines)-1]
	line := func(n int, old, with string) string {
		all := slices.Clone(lines)
		if all[n] = strings.Replace(all[n], old, with, 1); all[n] == lines[n] {
			t.Fatalf("%q is not in %s", old, all[n])
		}
		return strings.Join(all, "")
	}
	swapped := slices.Clone(lines)
	swapped[3], swapped[4] = swapped[4], swapped[3]
	made := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, `"amount":1.50`) })
	erased := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, `"leaf"`) })
	without := strings.ReplaceAll(
		lines[0], lines[0][strings.Index(lines[0], `"stream_id"`):strings.Index(lines[0], `"key"`)], "",
	)
	for name, tc := range map[string]struct {
		text string
		at   int // the line, from 1
	}{
		"a changed amount": {line(made, `"amount":1.50`, `"amount":1.5`), made + 1},
		"another actor":    {line(5, user, id), 6},
		"a changed chain":  {line(5, `"chain":"`, `"chain":"00`), 6},
		"a chain of another": {
			line(5, lines[5][strings.Index(lines[5], `"chain":"`):], lines[6][strings.Index(lines[6], `"chain":"`):]),
			6,
		},
		"a changed leaf": {
			line(erased, lines[erased][strings.Index(lines[erased], `"leaf":"`):], `"leaf":"00"}`+"\n"), erased + 1,
		},
		"a leaf of what is there": {line(5, `"}`+"\n", `","leaf":"`+strings.Repeat("0", 64)+`"}`+"\n"), 6},
		"an event left out":       {strings.Join(slices.Delete(slices.Clone(lines), 4, 5), ""), 5},
		"events swapped":          {strings.Join(swapped, ""), 5},
		"an event twice": {
			strings.Join(append(slices.Clone(lines), lines[len(lines)-1]), ""), len(lines) + 1,
		},
		"one without a position":    {text + without, len(lines) + 1},
		"a chain without one":       {"\n" + without + lines[1], 2},
		"one with a position":       {fmt.Sprintf(`{"key":"note:%s","type":"was_written","data":{},"metadata":{"actor":{"type":"user","id":"%s"}}}`+"\n", id, user) + lines[1], 2},
		"an unknown type":           {line(2, `"key":"`, `"key":"x`), 3},
		"a name of another's":       {line(6, `"handle":"`, `"handle":"pmt_`), 7},
		"no JSON":                   {text + "{\n", len(lines) + 1},
		"a position without an end": {line(len(lines)-1, `"stream_id":"1`, `"stream_id":"9`), len(lines)},
	} {
		done, err := f.start(t, tc.text)
		e, _ := errors.AsType[*j17.Error](err)
		if e == nil || done.Stored != 0 || len(e.Errors) == 0 || e.Errors[0].Line != tc.at ||
			!strings.HasPrefix(e.Message, "Line ") || !strings.Contains(e.Message, "Nothing was stored") {
			t.Errorf("%s: %+v, %+v", name, done, err)
		}
	}
	_, err := f.start(t, `[`+strings.Join(strings.Split(strings.TrimSpace(line(5, user, id)), "\n"), ",")+`]`)
	if e, _ := errors.AsType[*j17.Error](err); e == nil || len(e.Errors) != 1 || e.Errors[0].Index == nil ||
		*e.Errors[0].Index != 5 {
		t.Errorf("in an array: %+v", err)
	}
	if _, err := f.start(t, " \n"); j17.CodeOf(err) != j17.CodeInvalidJSON {
		t.Errorf("nothing: %v", err)
	}
	if got := f.export(t, elsewhere, "", j17.StreamID{}); got != "" {
		t.Errorf("something was stored: %s", got)
	}
	extent, err := f.Fixture.Store.Extent(t.Context(), elsewhere)
	if err != nil || extent.Events != 0 || !extent.Last.IsZero() {
		t.Errorf("%+v, %v", extent, err)
	}
	if done, err := f.start(t, text); err != nil || done.Stored != len(lines) {
		t.Errorf("after all that: %+v, %v", done, err)
	}
}

// TestLaidOutAnew: what another program has written with other white space and escapes has the bytes that it had.
func TestLaidOutAnew(t *testing.T) {
	f := historians(t)
	f.Create(t, "note/_new/was_written", enginetest.Body(`{"text":"\u00e4 \"quoted\"","n":1.50}`))
	text := f.export(t, tenant, "", j17.StreamID{})
	anew := strings.NewReplacer(`,"`, `, "`, `ä`, `\u00e4`, `":`, `" : `).Replace(text)
	if done, err := f.start(t, anew); err != nil || done.Stored != 1 || anew == text {
		t.Fatalf("%+v, %v", done, err)
	}
	if got := f.export(t, elsewhere, "", j17.StreamID{}); got != text {
		t.Errorf("%s, want %s", got, text)
	}
}

// TestWhatIsDerivedIsLoaded: what is kept of events beside them comes with them, of each item what the last event says.
func TestWhatIsDerivedIsLoaded(t *testing.T) {
	const space store.Space = "test.last"
	fx := enginetest.New(t, engine.Options{},
		enginetest.Derived(func(_ context.Context, e *part.Entering) (sides []store.Side, err error) {
			for i := range e.Events {
				o := &e.Events[i]
				sides = append(sides, store.Side{Op: store.Put, Space: space, Key: o.Key.String(), Value: o.JSON})
			}
			return sides, nil
		})...)
	var events, bytes int64
	f := &fixture{fx, &loading.Loader{
		Engine: fx.Engine, Store: fx.Store, Loaded: func(_ j17.Tenant, e, b int64) { events, bytes = e, b },
	}}
	f.Deploy(elsewhere, enginetest.Compiled(t, enginetest.NamesSpec), nil)
	var b strings.Builder
	for i := range 1000 { // several batches
		fmt.Fprintf(&b, `{"key":"note:%s","type":"was_written","data":{"n":%d},"metadata":{"actor":{"type":"user","id":"%s"}}}`+"\n", id, i, user)
	}
	if done, err := f.start(t, b.String()); err != nil || done.Stored != 1000 || events != 1000 || bytes < 100_000 {
		t.Fatalf("%+v, %v, %d of %d bytes", done, err, events, bytes)
	}
	item, err := f.Fixture.Store.Get(t.Context(), elsewhere, space, "note:"+id)
	if err != nil || string(item.Value) != `{"n":999}` {
		t.Errorf("%s, %v", item.Value, err)
	}
}

// TestWhatIsDerivedIsFenced: where what the things beside events were decided by has changed since, nothing is stored,
// and who has asked for that is told.
func TestWhatIsDerivedIsFenced(t *testing.T) {
	const guard store.Space = "test.guard"
	var fx *enginetest.Fixture
	known, asked, told := uint64(0), 0, 0
	fx = enginetest.New(t, engine.Options{},
		enginetest.Derived(func(ctx context.Context, e *part.Entering) ([]store.Side, error) {
			e.Require(store.Fence{Space: guard, Key: "k", Rev: known}, func() {
				told++
				item, err := fx.Store.Get(ctx, elsewhere, guard, "k")
				if err != nil {
					t.Error(err)
				}
				known = item.Rev
			})
			if asked++; asked > 1 {
				return nil, nil
			}
			return nil, fx.Store.Write(ctx, elsewhere, []store.Side{{Op: store.Put, Space: guard, Key: "k"}})
		})...)
	f := &fixture{fx, &loading.Loader{Engine: fx.Engine, Store: fx.Store}}
	f.Deploy(elsewhere, enginetest.Compiled(t, enginetest.NamesSpec), nil)
	text := fmt.Sprintf(`{"key":"note:%s","type":"was_written","data":{},"metadata":{"actor":{"type":"user","id":"%s"}}}`+"\n", id, user)
	if done, err := f.start(t, text); j17.CodeOf(err) != j17.CodeConflict || done.Stored != 0 || told != 1 {
		t.Fatalf("%+v, %v, and it was told %d times", done, err, told)
	}
	if done, err := f.start(t, text); err != nil || done.Stored != 1 || told != 1 {
		t.Fatalf("%+v, %v, and it was told %d times", done, err, told)
	}
}

// TestRoomForUniqueValues loads and imports files that take unique values: there is no room for them while other files
// have it all, nothing is stored then, and what a file has is there again when it ends, however it ends.
func TestRoomForUniqueValues(t *testing.T) {
	const source = `{"agent_types": ["user"], "aggregate_types": {"note": {"events": {"was_written": {"schema": {}, "handler": [], "unique": {"n": {"value": "$.data.n"}}}}}}}`
	line := func(n int) string {
		return fmt.Sprintf(`{"key":"note:%s","type":"was_written","data":{"n":"%d"},"metadata":{"actor":{"type":"user","id":"%s"},"timestamp":1600000000}}`+"\n", fresh(), n, user)
	}
	good, bad := line(1)+line(2), line(1)+line(1)
	for name, load := range map[string]func(*fixture, string) (loading.Imported, error){
		"cold start": func(f *fixture, text string) (loading.Imported, error) { return f.start(t, text) },
		"import": func(f *fixture, text string) (loading.Imported, error) {
			return f.Import(t.Context(), recording(text))
		},
	} {
		f := newFixture(t)
		f.Deploy(elsewhere, enginetest.Compiled(t, source), nil)
		f.Remember(loading.Room)
		if done, err := load(f, good); j17.CodeOf(err) != j17.CodeBusy || done.Stored != 0 {
			t.Errorf("%s without room: %+v, %v", name, done, err)
		}
		f.Remember(-loading.Room)
		if done, err := load(f, bad); err == nil || done.Stored != 0 {
			t.Errorf("%s of a value twice: %+v, %v", name, done, err)
		}
		if done, err := load(f, good); err != nil || done.Stored != 2 {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
		if n := f.Remembered(); n != 0 {
			t.Errorf("%s: %d are counted at the end", name, n)
		}
	}
}

// TestAColdStartTakesNoFarFuture: later events could not come before it.
func TestAColdStartTakesNoFarFuture(t *testing.T) {
	f := historians(t)
	now := f.Clock.Now()
	line := func(position, at time.Time) string {
		return fmt.Sprintf(`{"stream_id":"%d-0","key":"note:%s","type":"was_written","data":{"n":1},"metadata":{"actor":{"type":"user","id":"%s"},"timestamp":%d}}`+"\n",
			position.UnixMilli(), id, user, at.Unix())
	}
	const day = 24 * time.Hour
	for want, text := range map[string]string{
		"'timestamp' lies more than a day after": line(now, now.Add(day+time.Minute)),
		"position lies more than 366 days ahead": line(now.Add(366*day+time.Hour), now),
	} {
		if done, err := f.start(t, text); j17.CodeOf(err) != j17.CodeInvalidField ||
			!strings.Contains(err.Error(), want) || done.Stored != 0 {
			t.Errorf("%s: %+v, %v", want, done, err)
		}
	}
	if done, err := f.start(t, line(now.Add(365*day), now.Add(366*day-time.Minute))); done.Stored != 1 || err != nil {
		t.Errorf("as far as it may: %+v, %v", done, err)
	}
}

// during is a text that is read after something was done.
type during struct {
	do func()
	io.Reader
}

func (d *during) Read(p []byte) (int, error) {
	if d.do != nil {
		d.do()
		d.do = nil
	}
	return d.Reader.Read(p)
}

// TestColdStartsAreShared: an instance has one at a time, and leaves room for another one.
func TestColdStartsAreShared(t *testing.T) {
	f := historians(t)
	first, sibling, other, third := j17.TenantOf("ins_7", j17.Prod), j17.TenantOf("ins_7", j17.Test),
		j17.TenantOf("ins_8", j17.Prod), j17.TenantOf("ins_9", j17.Prod)
	for _, tn := range []j17.Tenant{first, sibling, other, third} {
		f.Deploy(tn, enginetest.Compiled(t, enginetest.NamesSpec), nil)
	}
	text := fmt.Sprintf(`{"key":"note:%s","type":"was_written","data":{"n":1},"metadata":{"actor":{"type":"user","id":"%s"}}}`+"\n", id, user)
	begin := func(tn j17.Tenant, do func()) error {
		_, err := f.ColdStart(t.Context(), tn, command.NewFileReader(&during{do, strings.NewReader(text)}))
		return err
	}
	var ofSibling, ofOther, ofThird error
	err := begin(first, func() {
		ofSibling = begin(sibling, nil)
		ofOther = begin(other, func() { ofThird = begin(third, nil) })
	})
	if j17.CodeOf(ofSibling) != j17.CodeBusy || j17.CodeOf(ofThird) != j17.CodeBusy ||
		errors.Join(err, ofOther) != nil {
		t.Errorf("%v; its sibling %v, another one %v, a third one %v", err, ofSibling, ofOther, ofThird)
	}
	if err := errors.Join(begin(sibling, nil), begin(third, nil)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
