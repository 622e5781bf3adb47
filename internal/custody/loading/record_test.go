package loading_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/custody/loading"
)

const elsewhere = j17.Tenant("ins_test/staging")

// historians has the same spec deployed to two tenants.
func historians(tb testing.TB) *fixture {
	tb.Helper()
	f := naming(tb)
	f.Deploy(elsewhere, enginetest.Compiled(tb, enginetest.NamesSpec), nil)
	return f
}

// export returns a tenant's events, one a line.
func (f *fixture) export(tb testing.TB, t j17.Tenant, aggregateType string, after j17.StreamID) string {
	tb.Helper()
	x, err := f.Export(tb.Context(), t, aggregateType, after, line)
	if err != nil {
		tb.Fatal(err)
	}
	var b strings.Builder
	for p, err := range x.Pieces(tb.Context()) {
		if err != nil {
			tb.Fatal(err)
		}
		b.Write(p.Bytes)
	}
	return b.String()
}

// line writes an event as a line.
func line(dst []byte, e *loading.Exported) []byte { return append(e.AppendLine(dst), '\n') }

func recording(text string) *loading.History {
	return &loading.History{
		Tenant: elsewhere, ID: sha256.Sum256([]byte(text)),
		Open: func() (*command.FileReader, error) { return command.NewFileReader(strings.NewReader(text)), nil },
	}
}

// states returns the states of all aggregates of a tenant as they were at a time, with their names and lengths.
func (f *fixture) states(tb testing.TB, t j17.Tenant, at int64) []string {
	tb.Helper()
	types, err := f.Types(t)
	if err != nil {
		tb.Fatal(err)
	}
	var all []string
	for _, typ := range types {
		ids, _, err := f.IDs(tb.Context(), t, typ, "", 1000)
		if err != nil {
			tb.Fatal(err)
		}
		for _, id := range ids {
			s, err := f.Load(tb.Context(), t, typ, id, engine.LoadOptions{Until: &at})
			if err != nil {
				all = append(all, typ+"/"+id+" "+string(j17.CodeOf(err)))
				continue
			}
			all = append(all, fmt.Sprintf("%s %v %d %s", s.Key, s.Names, s.Length, s.JSON))
		}
	}
	return all
}

func TestHistoryMovesToAnotherTenant(t *testing.T) {
	f := historians(t)
	var payment string
	for i := range 5 {
		tickets := `"` + fresh() + `","` + fresh() + `"`
		r := f.Create(
			t, "payment/_new/was_made", enginetest.Body(fmt.Sprintf(`{"amount":%d.50,"tickets":[%s]}`, i, tickets)),
		)
		payment = r.ID
		f.Clock.Advance(time.Minute)
		f.Post(t, "payment/"+r.Handle+"/was_settled", enginetest.Body(`{"settled":true}`))
		f.Create(t, "refund/_new/was_made", enginetest.Body(`{"of":"`+r.Handle+`"}`))
		f.Create(t, "note/_new/was_written", enginetest.Body(`{"text":"\u00e4 \"quoted\""}`))
		f.Clock.Advance(time.Minute)
	}
	text := f.export(t, tenant, "", j17.StreamID{})
	f.Clock.Advance(time.Hour)
	done, err := f.Import(t.Context(), recording(text))
	if err != nil {
		t.Fatal(err)
	}
	events := strings.Count(text, "\n")
	if want := (loading.Imported{Events: events, Stored: events, Imported: events, Streams: 25}); done != want {
		t.Errorf("recorded %+v, want %+v", done, want)
	}
	start := time.Unix(1_700_000_000, 0)
	for _, at := range []time.Duration{0, 90 * time.Second, 4 * time.Minute, 30 * time.Hour} {
		second := start.Add(at).Unix()
		if diff := cmp.Diff(f.states(t, tenant, second), f.states(t, elsewhere, second)); diff != "" {
			t.Errorf("after %s (-there +here):\n%s", at, diff)
		}
	}
	// What it brought about stands in the history and is not brought about again; positions are new.
	if got := strings.Count(f.export(t, elsewhere, "", j17.StreamID{}), "\n"); got != events {
		t.Errorf("%d events of %d", got, events)
	}
	// Numbers go on after those that came along.
	c := enginetest.Creation(t, "refund/_new/was_made", enginetest.Body(`{}`))
	c.Tenant = elsewhere
	receipt, err := f.Execute(t.Context(), c)
	r := enginetest.One(receipt)
	if err != nil || r.PublicID != "VNO-16" {
		t.Errorf("the next number is %q, %v", r.PublicID, err)
	}
	if s, err := f.Load(
		t.Context(), elsewhere, "refund", "VNO-1", engine.LoadOptions{},
	); j17.CodeOf(err) != j17.CodeAggregateNotFound {
		t.Errorf("VNO-1, a ticket, is the refund %+v", s)
	}
	// The same again stores nothing.
	again, err := f.Import(t.Context(), recording(text))
	if want := (loading.Imported{Events: events, Known: events, Streams: 25}); err != nil || again != want {
		t.Errorf("again: %+v, %v", again, err)
	}
	// One type, and what is new since.
	if got := f.export(t, tenant, "note", j17.StreamID{}); strings.Count(got, "\n") != 5 ||
		strings.Contains(got, "payment:") {
		t.Errorf("notes: %s", got)
	}
	last := f.Post(t, "payment/"+payment+"/was_settled", enginetest.Body(`{}`)).IDs[0]
	if got := f.export(t, tenant, "", before(last)); strings.Count(got, "\n") != 1 ||
		strings.Contains(got, `"handle"`) {
		t.Errorf("the last one: %s", got)
	}
}

// before is the position before another.
func before(id j17.StreamID) j17.StreamID {
	if id.Seq > 0 {
		return j17.StreamID{Ms: id.Ms, Seq: id.Seq - 1}
	}
	return j17.StreamID{Ms: id.Ms - 1, Seq: 1 << 30}
}

// cutShort is a context that ends after so many looks at it.
type cutShort struct {
	context.Context
	left int
}

func (c *cutShort) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestARecordingGoesOnWhereItWasCutShort imports what is more than one commit takes.
func TestARecordingGoesOnWhereItWasCutShort(t *testing.T) {
	var b strings.Builder
	for i := range 2300 {
		fmt.Fprintf(&b, `{"key":"ticket:00000000-0000-4000-8000-%012d","type":"was_filed","data":{"n":%d},"metadata":{"actor":{"type":"user","id":"%s"},"timestamp":%d},"public_id":"VNO-%d"}`+"\n",
			i%1200, i, user, 1_600_000_000+i, i%1200+1)
	}
	stored := map[int]bool{}
	for looks := 1; len(stored) < 4; looks++ {
		f := historians(t)
		f.SetWhole(2000)
		done, err := f.Import(&cutShort{Context: t.Context(), left: looks}, recording(b.String()))
		if err == nil {
			t.Fatalf("all %d events were stored with %d looks at the context", done.Stored, looks)
		}
		if stored[done.Stored] {
			continue
		}
		stored[done.Stored] = true
		more, err := f.Import(t.Context(), recording(b.String()))
		if want := (loading.Imported{
			Events: 2300, Known: done.Stored, Stored: 2300 - done.Stored, Imported: 2300 - done.Stored, Streams: 1200,
		}); err != nil || more != want {
			t.Errorf("after %d events: %+v, %v", done.Stored, more, err)
		}
		s, err := f.Load(t.Context(), elsewhere, "ticket", "VNO-8", engine.LoadOptions{})
		if err != nil || s.Length != 2 || !strings.Contains(string(s.JSON), `"n":1207`) {
			t.Errorf("after %d events, VNO-8: %s, %v", done.Stored, s.JSON, err)
		}
	}
}

func TestNothingOfAFaultyRecordingIsStored(t *testing.T) {
	event := func(key, typ, data, metadata, more string) string {
		return `{"key":"` + key + `","type":"` + typ + `","data":` + data + `,"metadata":{"actor":{"type":"user","id":"` + user + `"}` + metadata + `}` + more + `}` + "\n"
	}
	one, two := fresh(), fresh()
	good := event("note:"+one, "was_written", `{}`, `,"timestamp":1600000100`, "")
	for name, tc := range map[string]struct {
		text string
		code j17.Code
		path string
		at   int
	}{
		"no JSON":           {good + "{\n", j17.CodeInvalidJSON, "", 1},
		"an unclosed array": {"[" + good, j17.CodeInvalidJSON, "", -1},
		"more than events":  {`{"events":[` + good + `],"more":1}`, j17.CodeInvalidJSON, "", -1},
		"an unknown type": {
			good + event("nope:"+one, "was_written", `{}`, "", ""), j17.CodeUnknownType, "key", 1,
		},
		"an unknown event type": {
			good + event("note:"+one, "was_eaten", `{}`, "", ""), j17.CodeUnknownEventType, "type", 1,
		},
		"a wrong id": {
			event("note:1", "was_written", `{}`, "", ""), j17.CodeInvalidIdentifier, "key", 0,
		},
		"wrong data": {
			good + event("ticket:"+one, "was_filed", `{"n":"x"}`, "", ""), j17.CodeSchemaViolation, "data.n", 1,
		},
		"an undeclared actor": {
			good + strings.Replace(good, `"user"`, `"robot"`, 1), j17.CodeUndeclaredType, "metadata.actor.type", 1,
		},
		"time that runs backward": {
			good + event("note:"+one, "was_written", `{}`, `,"timestamp":1600000099`, ""), j17.CodeInvalidField,
			"metadata.timestamp", 1,
		},
		"before what is there": {
			event("note:"+id, "was_written", `{}`, `,"timestamp":1600000099`, ""), j17.CodeInvalidField,
			"metadata.timestamp", 0,
		},
		"the future": {
			event("note:"+one, "was_written", `{}`, `,"timestamp":1700000001`, ""), j17.CodeInvalidField,
			"metadata.timestamp", 0,
		},
		"an expected length": {
			event("note:"+one, "was_written", `{}`, `,"previous_length":0`, ""), j17.CodeInvalidField, "metadata", 0,
		},
		"a handle without handles": {
			event("note:"+one, "was_written", `{}`, "", `,"handle":"pmt_4k7vx9tz2nqr8w3"`), j17.CodeInvalidField,
			"handle", 0,
		},
		"a handle of another type": {
			event("payment:"+one, "was_made", `{}`, "", `,"handle":"rfd_4k7vx9tz2nqr8w3"`), j17.CodeInvalidField,
			"handle", 0,
		},
		"a number of another spec": {
			event("ticket:"+one, "was_filed", `{}`, "", `,"public_id":"XYZ-1"`), j17.CodeInvalidField, "public_id", 0,
		},
		"number 0": {
			event("ticket:"+one, "was_filed", `{}`, "", `,"public_id":"VNO-0"`), j17.CodeInvalidField, "public_id", 0,
		},
		"a number that leaves none": {event("ticket:"+one, "was_filed", `{}`, "", `,"public_id":"VNO-9223372036854775807"`), j17.CodeInvalidField, "public_id", 0},
		"an event type of nobody's": {
			good + event("note:"+one, "_was_x", `{}`, "", ""), j17.CodeReservedEventType, "type", 1,
		},
		"a number beyond all": {event("ticket:"+one, "was_filed", `{}`, "", `,"public_id":"VNO-99999999999999999999"`), j17.CodeInvalidField, "public_id", 0},
		"a name given twice": {event(
			"ticket:"+one, "was_filed", `{}`, "", `,"public_id":"VNO-9"`,
		) + event("ticket:"+two, "was_filed", `{}`, "", `,"public_id":"VNO-9"`), j17.CodeConflict, "public_id", 1},
		"a name that is another's": {
			event("ticket:"+one, "was_filed", `{}`, "", `,"public_id":"VNO-1"`), j17.CodeConflict, "public_id", 0,
		},
		"another name for the known": {
			event("ticket:"+id, "was_filed", `{}`, "", `,"public_id":"VNO-7"`), j17.CodeConflict, "public_id", 0,
		},
		"a name that comes late": {event("ticket:"+one, "was_filed", `{}`, "", "") + event(
			"ticket:"+one, "was_filed", `{}`, "", `,"public_id":"VNO-7"`,
		), j17.CodeInvalidField, "key", 1},
	} {
		f := historians(t)
		for _, path := range []string{"ticket/" + id + "/was_filed", "note/" + id + "/was_written"} {
			c := enginetest.Command(t, path, enginetest.Body(`{}`))
			c.Tenant = elsewhere
			if _, err := f.Execute(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		there := f.export(t, elsewhere, "", j17.StreamID{})
		done, err := f.Import(t.Context(), recording(tc.text))
		e, _ := errors.AsType[*j17.Error](err)
		switch {
		case e == nil || e.Code != tc.code || e.Path != tc.path || done.Stored != 0:
			t.Errorf("%s: %+v, %v", name, done, err)
		case tc.at >= 0 && (e.EventIndex == nil || *e.EventIndex != tc.at || len(e.Errors) != 1 ||
			!strings.HasPrefix(e.Errors[0].Pointer, fmt.Sprintf("/%d", tc.at))):
			t.Errorf("%s: the place is %v, %+v", name, e.EventIndex, e.Errors)
		case !strings.HasPrefix(e.Message, "Line "):
			t.Errorf("%s: %s", name, e.Message)
		}
		if now := f.export(t, elsewhere, "", j17.StreamID{}); now != there {
			t.Errorf("%s: something was stored:\n%s", name, now)
		}
	}
}

func TestAllFaultsOfARecordingAreListed(t *testing.T) {
	f := historians(t)
	bad := `{"key":"ticket:` + id + `","type":"was_filed","data":{"n":"x"},"metadata":{"actor":{"type":"user","id":"` + user + `"}}}` + "\n"
	_, err := f.Import(t.Context(), recording("\n"+bad+"\n"+bad+bad))
	e, _ := errors.AsType[*j17.Error](err)
	if e == nil || len(e.Errors) != 3 || e.Errors[1].Pointer != "/1/data/n" ||
		!strings.HasPrefix(e.Message, "Line 2: ") || !strings.Contains(e.Message, "2 more faults") {
		t.Errorf("%+v", err)
	}
	_, err = f.Import(t.Context(), recording(strings.Repeat(bad, 100)))
	if e, _ = errors.AsType[*j17.Error](err); e == nil || len(e.Errors) != 20 ||
		!strings.Contains(e.Message, "At least 19 more faults") {
		t.Errorf("%+v", err)
	}
}

func TestTestDataHappenNow(t *testing.T) {
	f := historians(t)
	inject := func(text string) (loading.Injected, error) {
		return f.Inject(t.Context(), elsewhere, "corr", recording(text).Open)
	}
	ticket := fresh()
	done, err := inject(`{"events": [{"key":"payment:` + id + `","type":"was_made","data":{"tickets":["` + ticket + `"]}},
		{"aggregate_type":"note","id":"` + id + `","type":"was_written","data":{},"metadata":{"actor":{"type":"user","id":"` + user + `"}}}]}`)
	if want := (loading.Injected{Events: 2, Stored: 2, Implied: 1, Imported: 2}); err != nil || done != want {
		t.Errorf("%+v, %v", done, err)
	}
	got := f.export(t, elsewhere, "", j17.StreamID{})
	for _, want := range []string{`"actor":{"type":"system_agent","id":"test_data_importer"}`, `"actor":{"type":"user","id":"` + user, "ticket:" + ticket, `"correlation_id":"corr"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in\n%s", want, got)
		}
	}
	for _, bad := range []string{
		`{"key":"note:` + id + `","type":"was_written","data":{},"metadata":{"timestamp":1}}`,
		`{"key":"payment:` + id + `","type":"was_made","data":{},"handle":"pmt_4k7vx9tz2nqr8w3"}`,
		`{"key":"ticket:` + id + `","type":"was_filed","data":{"n":1.5}}`,
		`{"key":"note:` + id + `","type":"was_written","data":{},"metadata":{"actor":{"type":"system_agent","id":"nobody"}}}`,
		`{"key":"note:` + id + `","type":"_was_tombstoned","data":{}}`,
	} {
		if done, err := inject(`{"key":"note:` + id + `","type":"was_written","data":{}}` + "\n" + bad); err == nil ||
			done.Stored != 0 {
			t.Errorf("%s: %+v, %v", bad, done, err)
		}
	}
	if now := f.export(t, elsewhere, "", j17.StreamID{}); now != got {
		t.Errorf("something was written:\n%s", now)
	}
	// What a state refuses is met while writing, and what was written before stays.
	done, err = inject(`{"key":"note:` + id + `","type":"was_written","data":{}}` + "\n" + `{"key":"note:` + id + `","type":"was_written","data":{},"metadata":{"previous_length":1}}`)
	if e, _ := errors.AsType[*j17.Error](err); e == nil || e.Code != j17.CodeConflict || *e.EventIndex != 1 ||
		done.Stored != 1 {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestNumbersThatAFileBringsAlongAreNotGivenAway imports numbered aggregates, some of them without a number, while
// others are created.
func TestNumbersThatAFileBringsAlongAreNotGivenAway(t *testing.T) {
	f := historians(t)
	var b strings.Builder
	line := func(more string) {
		fmt.Fprintf(&b, `{"key":"ticket:%s","type":"was_filed","data":{},"metadata":{"actor":{"type":"user","id":"%s"}}%s}`+"\n", fresh(), user, more)
	}
	line("")
	for i := range 1200 {
		line(fmt.Sprintf(`,"public_id":"VNO-%d"`, 1000+i))
	}
	line("")
	ctx, stop := context.WithCancel(t.Context())
	var created sync.WaitGroup
	for range 3 {
		created.Go(func() {
			for ctx.Err() == nil {
				c := enginetest.Creation(t, "ticket/_new/was_filed", enginetest.Body(`{}`))
				c.Tenant = elsewhere
				if _, err := f.Execute(t.Context(), c); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done, err := f.Import(t.Context(), recording(b.String()))
	stop()
	created.Wait()
	if want := (loading.Imported{Events: 1202, Stored: 1202, Imported: 1202, Streams: 1202}); err != nil ||
		done != want {
		t.Fatalf("%+v, %v", done, err)
	}
	seen := map[string]string{}
	after := ""
	for more := true; more; {
		var ids []string
		if ids, more, err = f.IDs(t.Context(), elsewhere, "ticket", after, 1000); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			after = id
			s, err := f.Load(t.Context(), elsewhere, "ticket", id, engine.LoadOptions{})
			if err != nil || s.PublicID == "" || seen[s.PublicID] != "" {
				t.Errorf("%s is called %q like %s, %v", id, s.PublicID, seen[s.PublicID], err)
			}
			seen[s.PublicID] = id
		}
	}
	c := enginetest.Creation(t, "ticket/_new/was_filed", enginetest.Body(`{}`))
	c.Tenant = elsewhere
	receipt, err := f.Execute(t.Context(), c)
	r := enginetest.One(receipt)
	if err != nil || number(t, r.Names) < 2200 {
		t.Errorf("after the numbers up to 2199 comes %q, %v", r.PublicID, err)
	}
}

// TestAFileDoesNotTakeItsOwnNumbers imports an aggregate without a number long before one that has the next number to
// be given.
func TestAFileDoesNotTakeItsOwnNumbers(t *testing.T) {
	f := historians(t)
	var b strings.Builder
	ticket := func(more string) {
		fmt.Fprintf(&b, `{"key":"ticket:%s","type":"was_filed","data":{},"metadata":{"actor":{"type":"user","id":"%s"}}%s}`+"\n", fresh(), user, more)
	}
	ticket("")
	for range 600 { // more than a unit
		fmt.Fprintf(&b, `{"key":"note:%s","type":"was_written","data":{},"metadata":{"actor":{"type":"user","id":"%s"}}}`+"\n", id, user)
	}
	ticket(`,"public_id":"VNO-1"`)
	if done, err := f.Import(t.Context(), recording(b.String())); err != nil || done.Stored != 602 {
		t.Errorf("%+v, %v", done, err)
	}
	if got := f.export(t, elsewhere, "ticket", j17.StreamID{}); !strings.Contains(got, `"public_id":"VNO-2"`) ||
		!strings.Contains(got, `"public_id":"VNO-1"`) {
		t.Errorf("%s", got)
	}
}

// TestTheSameFileTwiceAtOnce checks that both imports succeed and nothing is stored twice.
func TestTheSameFileTwiceAtOnce(t *testing.T) {
	f := historians(t)
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, `{"key":"note:%s","type":"was_written","data":{"n":%d},"metadata":{"actor":{"type":"user","id":"%s"},"timestamp":%d}}`+"\n", id, i, user, 1_600_000_000+i)
	}
	results := make(chan loading.Imported, 4)
	var all sync.WaitGroup
	for range cap(results) {
		all.Go(func() {
			done, err := f.Import(t.Context(), recording(b.String()))
			if err != nil || done.Stored+done.Known != 3000 {
				t.Errorf("%+v, %v", done, err)
			}
			results <- done
		})
	}
	all.Wait()
	close(results)
	stored := 0
	for done := range results {
		stored += done.Stored
	}
	if n := strings.Count(f.export(t, elsewhere, "", j17.StreamID{}), "\n"); stored != 3000 || n != 3000 {
		t.Errorf("%d were stored, %d are there", stored, n)
	}
}

// TestOneOfTwoFirstLoads checks that different files cannot both be the first.
func TestOneOfTwoFirstLoads(t *testing.T) {
	f := historians(t)
	results := make(chan error, 4)
	var all sync.WaitGroup
	for i := range cap(results) {
		all.Go(func() {
			_, err := f.start(t, fmt.Sprintf(`{"key":"note:%s","type":"was_written","data":{"n":%d},"metadata":{"actor":{"type":"user","id":"%s"}}}`, fresh(), i, user))
			results <- err
		})
	}
	all.Wait()
	close(results)
	succeeded := 0
	for err := range results {
		if err == nil {
			succeeded++
		} else if code := j17.CodeOf(err); code != j17.CodeConflict && code != j17.CodeBusy {
			t.Error(err)
		}
	}
	if succeeded != 1 {
		t.Errorf("%d files were the first", succeeded)
	}
}

// TestTheSameFileIsStoredOnce: also long after what is kept of commands has expired, and where it was cut short.
func TestTheSameFileIsStoredOnce(t *testing.T) {
	f := historians(t)
	f.SetWhole(1000)
	var text strings.Builder
	at := f.Clock.Now().Unix()
	for i := range 1200 {
		fmt.Fprintf(&text, `{"key":"note:%s","type":"was_written","data":{"n":%d},"metadata":{"actor":{"type":"user","id":"%s"},"timestamp":%d}}`+"\n", id, i, user, at)
	}
	whole, cut := recording(text.String()), 0
	broken := *whole
	broken.Open = func() (*command.FileReader, error) {
		if cut++; cut == 2 {
			return command.NewFileReader(strings.NewReader(text.String()[:text.Len()/2])), nil
		}
		return whole.Open()
	}
	if done, err := f.Import(t.Context(), &broken); err != nil && done.Stored == 0 {
		t.Fatal(done, err)
	}
	for i := range 3 {
		f.Clock.Advance(25 * time.Hour)
		done, err := f.Import(t.Context(), whole)
		if err != nil || done.Stored+done.Known != 1200 || done.Imported != done.Stored || i > 0 && done.Stored > 0 {
			t.Errorf("time %d: %+v %v", i, done, err)
		}
	}
	heads, err := f.Fixture.Store.Heads(t.Context(), elsewhere, []j17.Key{{Type: "note", ID: id}})
	if err != nil || heads[0].Length != 1200 {
		t.Errorf("%d events, %v", heads[0].Length, err)
	}
}

// TestTimeNeverRunsBackwardInAnImport: every event is compared with the one before it, at the time that it is stored
// with.
func TestTimeNeverRunsBackwardInAnImport(t *testing.T) {
	f := historians(t)
	f.Clock.Advance(100 * time.Second)
	c := enginetest.Command(t, "note/"+id+"/was_written", enginetest.Body(`{"n":0}`))
	c.Tenant = elsewhere
	if _, err := f.Execute(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(-90 * time.Second) // the clock was wrong and is corrected
	now := f.Clock.Now().Unix()
	text := `{"key":"note:` + user + `","type":"was_written","data":{"n":1},` + meta + `}` + "\n" +
		fmt.Sprintf(`{"key":"note:`+user+`","type":"was_written","data":{"n":2},"metadata":{"actor":{"type":"user","id":"`+user+`"},"timestamp":%d}}`, now) + "\n"
	if done, err := f.Import(t.Context(), recording(text)); err == nil || done.Stored != 0 ||
		!strings.Contains(err.Error(), "Line 2: ") {
		t.Errorf("%+v %v", done, err)
	}
	// The same behind an engine that has just started and does not know the latest time.
	e := engine.New(engine.Options{Store: f.Fixture.Store, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
	fresh := on(e, f.Fixture.Store)
	compiled := f.Spec(elsewhere)
	fresh.Deploy(elsewhere, compiled, nil)
	if done, err := fresh.Import(t.Context(), recording(text)); err == nil || done.Stored != 0 {
		t.Errorf("%+v %v", done, err)
	}
}

// TestFaultsOfAnImportHaveTheirPlaces: the line in a file of lines, the index in an array, the path in the event.
func TestFaultsOfAnImportHaveTheirPlaces(t *testing.T) {
	f := historians(t)
	good := `{"key":"note:` + id + `","type":"was_written","data":{"n":1},` + meta + `}`
	unknown := strings.Replace(good, "was_written", "was_nothing", 1)
	schema := `{"key":"ticket:` + id + `","type":"was_filed","data":{"n":"x"},` + meta + `}`
	index := 2
	for text, want := range map[string]j17.FieldError{
		good + "\n\n" + unknown + "\n": {
			Line: 3, Path: "type", Pointer: "/1/type", Code: j17.CodeUnknownEventType,
		},
		good + "\n" + schema + "\n": {
			Line: 2, Path: "data.n", Pointer: "/1/data/n", Code: j17.CodeSchemaViolation,
		},
		"[" + good + "," + good + ",\n" + unknown + "]": {
			Index: &index, Path: "type", Pointer: "/2/type", Code: j17.CodeUnknownEventType,
		},
	} {
		_, err := f.Import(t.Context(), recording(text))
		e, _ := errors.AsType[*j17.Error](err)
		if e == nil || len(e.Errors) != 1 || e.Errors[0].Message == "" {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := e.Errors[0]
		got.Message, got.Plain, got.Hint = "", false, ""
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

// TestMarkersThatNoErasureHasMade: an import takes a marker in the form that an erasure writes, where one can stand,
// and no other.
func TestMarkersThatNoErasureHasMade(t *testing.T) {
	const actor, plain = `"actor":{"type":"system","id":"system"}`, `{"key":"note:%s","type":"was_written","data":{},"metadata":{"actor":{"type":"user","id":"` + user + `"}}}`
	sum := strings.Repeat("0a", 32)
	members := map[string]string{
		"original_hash": sum, "chain_hash": sum, "original_type": "was_written", "tombstone_id": "tmb_4k7vx9tz2nqr8w3",
		"tombstoned_at": "2026-11-21T08:00:00Z",
	}
	marker := func(name, text, metadata string) string {
		data := maps.Clone(members)
		if data[name] = text; text == "" {
			delete(data, name)
		}
		raw, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		return `{"key":"note:%s","type":"_was_tombstoned","data":` + string(raw) + `,"metadata":{` + metadata + `}}`
	}
	right := marker("original_type", "was_written", actor)
	f := historians(t)
	takes := func(lines ...string) error {
		_, err := f.Import(t.Context(), recording(strings.ReplaceAll(strings.Join(lines, "\n"), "%s", fresh())))
		return err
	}

	// What stands in exports comes in.
	for _, lines := range [][]string{
		{right}, {right, right, plain}, {marker("original_type", "_was_tombstoned", actor+`,"timestamp":1`)},
	} {
		if err := takes(lines...); err != nil {
			t.Errorf("%s: %v", lines, err)
		}
	}

	// What none of them can have does not.
	for path, lines := range map[string][]string{
		"data.original_hash": {marker("original_hash", strings.ToUpper(sum), actor)},
		"data.chain_hash":    {marker("chain_hash", sum[2:], actor)},
		"data.original_type": {marker("original_type", "", actor)},
		"data.tombstone_id":  {marker("tombstone_id", "ins_4k7vx9tz2nqr8w3", actor)},
		"data.tombstoned_at": {marker("tombstoned_at", "2026-11-21T08:00:00+00:00", actor)},
		"data.n":             {marker("n", "1", actor)},
		"metadata.actor":     {marker("original_type", "was_written", `"actor":{"type":"user","id":"`+user+`"}`)},
		"metadata.target": {
			marker("original_type", "was_written", actor+`,"target":{"type":"user","id":"`+user+`"}`),
		},
		"type": {right, plain, right},
	} {
		if e, ok := errors.AsType[*j17.Error](takes(lines...)); !ok || e.Code != j17.CodeInvalidField ||
			len(e.Errors) != 1 || e.Errors[0].Path != path {
			t.Errorf("%s: %+v", path, e)
		}
	}

	// Nor does one behind what the store has already.
	stored := fresh()
	for i, line := range []string{right, right, plain, marker("tombstoned_at", "2026-11-22T08:00:00Z", actor)} {
		_, err := f.Import(t.Context(), recording(strings.ReplaceAll(line, "%s", stored)))
		if refused := err != nil; refused != (i == 3) {
			t.Errorf("line %d: %v", i, err)
		}
	}
}
