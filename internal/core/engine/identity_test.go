package engine_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"j17"
	"j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

func naming(tb testing.TB) *fixture {
	tb.Helper()
	f := newFixture(tb, engine.Options{})
	f.DeploySource(tb, enginetest.NamesSpec)
	return f
}

// fresh returns the id of an aggregate that does not exist yet.
func fresh() string { return uuid.NewString() }

// file creates a ticket and returns its number.
func (f *fixture) file(tb testing.TB) int {
	tb.Helper()
	return number(tb, f.Post(tb, "ticket/"+fresh()+"/was_filed", enginetest.Body(`{}`)).Names)
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

func isHandle(prefix, s string) bool {
	return regexp.MustCompile(`^` + prefix + `_[1-9a-hjkmnp-z]{15}$`).MatchString(s)
}

func TestAnAggregateIsTheSameUnderEachOfItsNames(t *testing.T) {
	f := naming(t)
	first := f.Post(t, "refund/"+strings.ToUpper(id)+"/was_made", enginetest.Body(`{"a":1}`))
	if first.ID != id || !isHandle("rfd", first.Handle) || first.PublicID != "VNO-1" {
		t.Fatalf("receipt %+v", first)
	}
	for i, name := range []string{first.Handle, first.PublicID, id} {
		r := f.Post(t, "refund/"+name+"/was_made", enginetest.Body(fmt.Sprintf(`{"by":"%d"}`, i)))
		if r.ID != id || r.Names != first.Names || r.Length != uint64(i+2) {
			t.Errorf("a write to %s: receipt %+v, first %+v", name, r, first)
		}
	}
	for _, name := range []string{first.Handle, first.PublicID, id} {
		s, err := f.Load(t.Context(), tenant, "refund", name, engine.LoadOptions{})
		if err != nil || s.Key != (j17.Key{Type: "refund", ID: id}) || s.Names != first.Names || s.Length != 4 ||
			s.Data.Get("by").Str() != "2" {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if n := f.Written(t, "refund", name); n != 4 {
			t.Errorf("%s has %d events", name, n)
		}
		events, err := f.Events(t.Context(), tenant, "refund", name, j17.StreamID{}, 10)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ev, err := range events {
			if n++; err != nil || ev.Key.ID != id {
				t.Errorf("%s: event of %v, %v", name, ev.Key, err)
			}
		}
		if n != 4 {
			t.Errorf("%s lists %d events", name, n)
		}
	}
}

func TestTypesShareOneSequenceAndEnvironmentsDoNot(t *testing.T) {
	f := naming(t)
	got := []int{
		f.file(t),
		number(t, f.Create(t, "refund/_new/was_made", enginetest.Body(`{}`)).Names),
		f.file(t),
		number(t, f.Post(t, "ticket/global/was_filed", enginetest.Body(`{}`)).Names),
	}
	if diff := cmp.Diff([]int{1, 2, 3, 4}, got); diff != "" {
		t.Errorf("numbers (-want +got):\n%s", diff)
	}
	c, _ := spec.Compile([]byte(enginetest.NamesSpec))
	other := j17.Tenant("ins_test/staging")
	f.Deploy(other, c, nil)
	cmd := enginetest.Command(t, "ticket/"+fresh()+"/was_filed", enginetest.Body(`{}`))
	cmd.Tenant = other
	if r, err := f.Execute(t.Context(), cmd); err != nil || r.Writes[0].PublicID != "VNO-1" {
		t.Errorf("the first one of another environment: %+v, %v", r, err)
	}
	if _, err := f.Load(
		t.Context(), other, "ticket", "VNO-2", engine.LoadOptions{},
	); j17.CodeOf(err) != j17.CodeAggregateNotFound {
		t.Errorf("a number of another environment: %v", err)
	}
}

func TestABatchTakesNamesOnce(t *testing.T) {
	f := naming(t)
	batch := `{"events":[{"type":"was_made","data":{"a":1}},{"type":"was_made","data":{"b":2}},{"type":"was_made"}],` + meta + `}`
	r := f.Post(t, "refund/"+id, batch)
	if r.PublicID != "VNO-1" || !isHandle("rfd", r.Handle) || len(r.IDs) != 3 {
		t.Errorf("receipt %+v", r)
	}
	if again := f.Post(t, "refund/"+r.PublicID, batch); again.Names != r.Names || again.Length != 6 {
		t.Errorf("the second batch: %+v, first %+v", again, r)
	}
	if n := f.file(t); n != 2 {
		t.Errorf("then comes number %d", n)
	}
}

func TestImpliedAggregatesTakeNamesToo(t *testing.T) {
	f := naming(t)
	a, b := fresh(), fresh()
	r := f.Post(t, "payment/"+id+"/was_made", enginetest.Body(`{"tickets":["`+b+`","`+a+`","`+b+`"]}`))
	if r.Implied != 3 || !isHandle("pmt", r.Handle) || r.PublicID != "" {
		t.Errorf("receipt %+v", r)
	}
	if s := f.State(t, "ticket/VNO-1", engine.LoadOptions{}); !strings.Contains(s, `"by":"payment:`+id+`"`) {
		t.Errorf("the first ticket is %s", s)
	}
	for name, want := range map[string]string{"VNO-1": b, "VNO-2": a} {
		s, err := f.Load(t.Context(), tenant, "ticket", name, engine.LoadOptions{})
		if err != nil || s.Key.ID != want || s.PublicID != name || s.Handle != "" {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	// What exists keeps its number, whoever writes to it.
	c := fresh()
	f.Post(t, "payment/"+r.Handle+"/was_made", enginetest.Body(`{"tickets":["`+a+`","`+c+`"]}`))
	if kept := f.Post(t, "ticket/"+a+"/was_filed", enginetest.Body(`{}`)); kept.PublicID != "VNO-2" ||
		kept.Length != 3 {
		t.Errorf("receipt %+v", kept)
	}
	// The command's own aggregate comes first, also if it is implied once more.
	own := fresh()
	split := f.Post(t, "ticket/"+own+"/was_split", enginetest.Body(`{"into":["`+fresh()+`","`+own+`","`+c+`"]}`))
	if split.PublicID != "VNO-4" || split.Length != 2 {
		t.Errorf("receipt %+v", split)
	}
	if n := f.file(t); n != 6 {
		t.Errorf("then comes number %d, want 6", n)
	}
}

func TestRefusedWritesTakeNoNames(t *testing.T) {
	f := naming(t)
	f.file(t)
	last := 1
	for name, c := range map[string]struct {
		path, body string
		match      string
		code       j17.Code
	}{
		"length": {
			"ticket/" + fresh() + "/was_filed", strings.Replace(
				enginetest.Body(`{}`), `"metadata":{`, `"metadata":{"previous_length":4,`, 1,
			), "", j17.CodeConflict,
		},
		"entity tag": {
			"ticket/" + fresh() + "/was_filed", enginetest.Body(`{}`), `"1-00000000"`, j17.CodePreconditionFailed,
		},
		"id": {"ticket/nope/was_filed", enginetest.Body(`{}`), "", j17.CodeInvalidIdentifier},
		"schema": {
			"ticket/" + fresh() + "/was_filed", enginetest.Body(`{"n":"1"}`), "", j17.CodeSchemaViolation,
		},
		"event type":      {"ticket/" + fresh() + "/was_lost", enginetest.Body(`{}`), "", j17.CodeUnknownEventType},
		"second of batch": {"ticket/" + fresh(), `{"events":[{"type":"was_filed"},{"type":"was_filed","data":{"n":"1"}}],` + meta + `}`, "", j17.CodeSchemaViolation},
		"implied": {
			"ticket/" + fresh() + "/was_split", enginetest.Body(`{"into":["` + fresh() + `","nope"]}`), "",
			j17.CodeImplicationFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := enginetest.Command(t, c.path, c.body)
			if c.match != "" {
				cmd.IfMatch = []string{c.match}
			}
			if _, err := f.Execute(t.Context(), cmd); j17.CodeOf(err) != c.code {
				t.Fatalf("error %v, want %s", err, c.code)
			}
			if last++; f.file(t) != last {
				t.Errorf("the next number is not %d", last)
			}
		})
	}
}

// TestRetriesOfConflictsLeaveNoGap lets writers overtake each other: each payment looks at a state that all of them
// change.
func TestRetriesOfConflictsLeaveNoGap(t *testing.T) {
	const writers, each = 8, 25
	f := naming(t)
	var mu sync.Mutex
	filed := map[string]bool{}
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				ticket := fresh()
				_, err := f.Execute(
					t.Context(),
					enginetest.Command(t, "payment/global/was_made", enginetest.Body(`{"tickets":["`+ticket+`"]}`)),
				)
				if err != nil && j17.CodeOf(err) != j17.CodeConflict {
					t.Error(err)
				}
				mu.Lock()
				filed[ticket] = err == nil
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	var numbers []int
	for ticket, ok := range filed {
		s, err := f.Load(t.Context(), tenant, "ticket", ticket, engine.LoadOptions{})
		if ok != (err == nil) {
			t.Errorf("%s: written is %t, then %v", ticket, ok, err)
		}
		if ok {
			numbers = append(numbers, number(t, s.Names))
		}
	}
	slices.Sort(numbers)
	for i, n := range numbers {
		if n != i+1 {
			t.Fatalf("the numbers are %v", numbers)
		}
	}
	if n := f.file(t); n != len(numbers)+1 {
		t.Errorf("then comes %d, want %d", n, len(numbers)+1)
	}
}

func TestNamesThatLeadNowhere(t *testing.T) {
	f := naming(t)
	refund := f.Post(t, "refund/"+id+"/was_made", enginetest.Body(`{}`))
	payment := f.Post(t, "payment/"+id+"/was_made", enginetest.Body(`{}`))
	const unknown = "_123456789abcdef"
	for path, code := range map[string]j17.Code{
		"payment/pmt" + unknown:           j17.CodeAggregateNotFound,
		"payment/xyz" + unknown:           j17.CodeAggregateNotFound, // a handle of nobody's
		"payment/" + refund.Handle:        j17.CodeAggregateNotFound, // of another type
		"refund/" + payment.Handle:        j17.CodeAggregateNotFound,
		"refund/VNO-2":                    j17.CodeAggregateNotFound,
		"refund/VNO-9223372036854775807":  j17.CodeAggregateNotFound,
		"ticket/VNO-1":                    j17.CodeAggregateNotFound, // a refund's
		"refund/vno-1":                    j17.CodeInvalidIdentifier,
		"refund/VNO-01":                   j17.CodeInvalidIdentifier,
		"refund/VNO-0":                    j17.CodeAggregateNotFound,
		"refund/VNO-99999999999999999999": j17.CodeAggregateNotFound,
		"refund/VNO-":                     j17.CodeInvalidIdentifier,
		"refund/VNO-latest":               j17.CodeInvalidIdentifier, // the counter's name
		"refund/VNO-+1":                   j17.CodeInvalidIdentifier,
		"refund/OTHER-1":                  j17.CodeAggregateNotFound, // of another project
		"refund/1":                        j17.CodeInvalidIdentifier,
		"payment/PMT_4K7VX9TZ2NQR8W3":     j17.CodeInvalidIdentifier,
		"payment/" + payment.Handle + "x": j17.CodeInvalidIdentifier,
		"payment/VNO-1":                   j17.CodeAggregateNotFound, // payments have no numbers
		"ticket/" + refund.Handle:         j17.CodeAggregateNotFound, // tickets have no handles
		"note/" + payment.Handle:          j17.CodeAggregateNotFound, // notes have no names at all
		"note/VNO-1":                      j17.CodeAggregateNotFound,
	} {
		typ, name, _ := strings.Cut(path, "/")
		event := map[string]string{"ticket": "was_filed", "note": "was_written"}[typ]
		if event == "" {
			event = "was_made"
		}
		_, wrote := f.Execute(t.Context(), enginetest.Command(t, path+"/"+event, enginetest.Body(`{}`)))
		_, loaded := f.Load(t.Context(), tenant, typ, name, engine.LoadOptions{})
		_, measured := f.Length(t.Context(), tenant, typ, name)
		_, listed := f.Events(t.Context(), tenant, typ, name, j17.StreamID{}, 1)
		for doing, err := range map[string]error{"write": wrote, "load": loaded, "length": measured, "events": listed} {
			if j17.CodeOf(err) != code {
				t.Errorf("%s, %s: error %v, want %s", path, doing, err, code)
			}
		}
	}
	for typ, want := range map[string]int{"payment": 1, "refund": 1, "ticket": 0, "note": 0} {
		if ids, _, err := f.IDs(t.Context(), tenant, typ, "", 10); err != nil || len(ids) != want {
			t.Errorf("%s: %v, %v", typ, ids, err)
		}
	}
	// A name is not an identifier of an actor. In what an event implies it leads nowhere as well.
	body := strings.Replace(enginetest.Body(`{}`), user, payment.Handle, 1)
	if _, err := f.Execute(
		t.Context(), enginetest.Command(t, "note/global/was_written", body),
	); j17.CodeOf(err) != j17.CodeInvalidIdentifier {
		t.Errorf("a handle as the actor: %v", err)
	}
	body = enginetest.Body(`{"tickets":["VNO-1"]}`)
	if _, err := f.Execute(
		t.Context(), enginetest.Command(t, "payment/global/was_made", body),
	); j17.CodeOf(err) != j17.CodeAggregateNotFound {
		t.Errorf("a public id in an implication: %v", err)
	}
}

func TestThePastIsReadByName(t *testing.T) {
	f := naming(t)
	start := f.Clock.Now().Unix()
	first := f.Post(t, "refund/"+id+"/was_made", enginetest.Body(`{"v":1}`))
	f.Clock.Advance(time.Hour)
	f.Post(t, "refund/"+id+"/was_made", enginetest.Body(`{"v":2}`))
	one, hour, before := uint64(1), start+3600, start-1
	for _, name := range []string{id, first.Handle, first.PublicID} {
		for what, c := range map[string]struct {
			o    engine.LoadOptions
			want string
		}{
			"length 1": {engine.LoadOptions{Length: &one}, "1"},
			"at first": {engine.LoadOptions{Until: &start}, "1"},
			"an hour":  {engine.LoadOptions{Until: &hour}, "2"},
			"replayed": {engine.LoadOptions{Replay: true}, "2"},
		} {
			s, err := f.Load(t.Context(), tenant, "refund", name, c.o)
			if err != nil || s.Data.Get("v").String() != c.want || s.Key.ID != id || s.Names != first.Names {
				t.Errorf("%s, %s: %s %+v, %v", name, what, s.JSON, s.Names, err)
			}
		}
		if s := f.State(t, "refund/"+name, engine.LoadOptions{Until: &before}); s != string(j17.CodeAggregateNotFound) {
			t.Errorf("%s before its first event: %s", name, s)
		}
	}
}

func TestNamesGoAlongWithACopy(t *testing.T) {
	f := naming(t)
	f.file(t)
	r := f.Post(t, "refund/"+id+"/was_made", enginetest.Body(`{"v":1}`))
	c, _ := spec.Compile([]byte(enginetest.NamesSpec))
	other := j17.Tenant("ins_other/prod")
	if err := storetest.Copy(t.Context(), f.Store, tenant, f.Store, other); err != nil {
		t.Fatal(err)
	}
	f.Deploy(other, c, nil)
	for _, name := range []string{id, r.Handle, "VNO-2"} {
		if s, err := f.Load(t.Context(), other, "refund", name, engine.LoadOptions{}); err != nil || s.Key.ID != id ||
			s.Names != r.Names {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	cmd := enginetest.Command(t, "ticket/"+fresh()+"/was_filed", enginetest.Body(`{}`))
	cmd.Tenant = other
	if next, err := f.Execute(t.Context(), cmd); err != nil || next.Writes[0].PublicID != "VNO-3" {
		t.Errorf("then comes %+v, %v", next, err)
	}
}

// TestNamesAreStoredAsDocumented compares the items of the store with docs/storage-format.md.
func TestNamesAreStoredAsDocumented(t *testing.T) {
	f := naming(t)
	f.file(t)
	r := f.Post(t, "refund/"+id+"/was_made", enginetest.Body(`{}`))
	for _, item := range [][3]string{
		{"identity.handle", "refund:" + id, r.Handle},
		{"identity.handle.index", r.Handle, "refund:" + id},
		{"identity.number", "refund:" + id, "2"},
		{"identity.number.index", "2", "refund:" + id},
		{"identity.number.index", "latest", "2"},
	} {
		got, err := f.Store.Get(t.Context(), tenant, store.Space(item[0]), item[1])
		if err != nil || string(got.Value) != item[2] || !got.Expires.IsZero() || !got.Due.IsZero() {
			t.Errorf("%s, %s: %+v, %v, want %s", item[0], item[1], got, err, item[2])
		}
	}
}

func TestNamesAreThereAfterARestart(t *testing.T) {
	f := naming(t)
	r := f.Post(t, "refund/"+id+"/was_made", enginetest.Body(`{"v":1}`))
	f.Open(t, engine.Options{})
	f.DeploySource(t, enginetest.NamesSpec)
	for _, name := range []string{id, r.Handle, r.PublicID} {
		if s, err := f.Load(t.Context(), tenant, "refund", name, engine.LoadOptions{}); err != nil || s.Key.ID != id ||
			s.Names != r.Names {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	if n := f.file(t); n != 2 {
		t.Errorf("then comes number %d", n)
	}
}

func TestAnAggregateOlderThanItsTypesIdentity(t *testing.T) {
	f := naming(t)
	withNames := enginetest.NamesSpec
	f.DeploySource(t, strings.ReplaceAll(withNames, `"identity": {"sequence": true, "handle": "rfd"}, `, ""))
	if r := f.Post(t, "refund/"+id+"/was_made", enginetest.Body(`{}`)); r.Names != (j17.Names{}) {
		t.Errorf("names without a spec that asks for them: %+v", r)
	}
	f.DeploySource(t, withNames)
	s, err := f.Load(t.Context(), tenant, "refund", id, engine.LoadOptions{})
	if err != nil || s.Names != (j17.Names{}) {
		t.Errorf("before the next event: %+v, %v", s.Names, err)
	}
	r := f.Post(t, "refund/"+id+"/was_made", enginetest.Body(`{}`))
	if r.PublicID != "VNO-1" || !isHandle("rfd", r.Handle) || r.Length != 2 {
		t.Errorf("with the next event: %+v", r)
	}
	// Who has a name keeps it when the prefix changes.
	f.DeploySource(t, strings.ReplaceAll(withNames, `"rfd"`, `"ref"`))
	if kept := f.Post(t, "refund/"+r.Handle+"/was_made", enginetest.Body(`{}`)); kept.Names != r.Names ||
		kept.ID != id {
		t.Errorf("with another prefix: %+v, was %+v", kept, r)
	}
	if next := f.Create(t, "refund/_new/was_made", enginetest.Body(`{}`)); !isHandle("ref", next.Handle) {
		t.Errorf("a new one with another prefix: %+v", next)
	}
}

func TestTheServerChoosesTheID(t *testing.T) {
	f := naming(t)
	for path, named := range map[string]bool{"refund/_new/was_made": true, "note/_new/was_written": false} {
		r := f.Create(t, path, enginetest.Body(`{"v":1}`))
		typ, _, _ := strings.Cut(path, "/")
		if u, err := uuid.Parse(r.ID); err != nil || u.Version() != 4 || r.Length != 1 || (r.PublicID != "") != named ||
			isHandle("rfd", r.Handle) != named {
			t.Errorf("%s: %+v, %v", path, r, err)
		}
		if s := f.State(t, typ+"/"+r.ID, engine.LoadOptions{}); !strings.Contains(s, `"v":1`) {
			t.Errorf("%s: the state is %s", path, s)
		}
		if again := f.Create(t, path, enginetest.Body(`{"v":1}`)); again.ID == r.ID || again.Length != 1 {
			t.Errorf("%s a second time: %+v", path, again)
		}
		// A retry gets what the first try got.
		var tries [2]enginetest.Receipt
		for i := range tries {
			c := enginetest.Creation(t, path, enginetest.Body(`{"v":2}`))
			c.IdempotencyKey = "once " + path
			r, err := f.Execute(t.Context(), c)
			if tries[i] = enginetest.One(r); err != nil || tries[i].Replayed != (i == 1) {
				t.Errorf("%s, try %d: %+v, %v", path, i, tries[i], err)
			}
		}
		if tries[0].ID != tries[1].ID || tries[0].Names != tries[1].Names || (tries[1].PublicID != "") != named {
			t.Errorf("%s: %+v, retried %+v", path, tries[0], tries[1])
		}
	}
	batch := `{"events":[{"type":"was_made","data":{"v":1}},{"type":"was_made","data":{"v":2}}],` + meta + `}`
	if r := f.Create(t, "refund/_new", batch); r.Length != 2 || len(r.IDs) != 2 ||
		f.Written(t, "refund", r.Handle) != 2 {
		t.Errorf("a batch: %+v", r)
	}
	expecting := func(n int) string {
		return strings.Replace(
			enginetest.Body(`{}`), `"metadata":{`, fmt.Sprintf(`"metadata":{"previous_length":%d,`, n), 1,
		)
	}
	if r := f.Create(t, "refund/_new/was_made", expecting(0)); r.Length != 1 {
		t.Errorf("with previous_length 0: %+v", r)
	}
	if _, err := f.Execute(
		t.Context(), enginetest.Creation(t, "refund/_new/was_made", expecting(1)),
	); j17.CodeOf(err) != j17.CodeConflict {
		t.Errorf("with previous_length 1: %v", err)
	}
	c := enginetest.Creation(t, "refund/_new/was_made", enginetest.Body(`{}`))
	c.IfMatch = []string{"*"}
	if _, err := f.Execute(t.Context(), c); j17.CodeOf(err) != j17.CodePreconditionFailed {
		t.Errorf("with If-Match: %v", err)
	}
}

func TestUUIDVersions(t *testing.T) {
	f := newFixture(t, engine.Options{})
	const v = "0190a5c8-7b1a-%dc3d-9e4f-0123456789ab"
	for versions, accepted := range map[string][]int{
		"": {4, 5}, `[4]`: {4}, `[4, 5]`: {4, 5}, `[4, 5, 7]`: {4, 5, 7}, `[4, 1, 8]`: {1, 4, 8},
	} {
		widened := ""
		if versions != "" {
			widened = `"identity": {"uuid_versions": ` + versions + `},`
		}
		f.DeploySource(t, strings.Replace(enginetest.NamesSpec, `"VNO",`, `"VNO", `+widened, 1))
		for n := 1; n <= 8; n++ {
			u := fmt.Sprintf(v, n)
			want := j17.CodeInvalidIdentifier
			if slices.Contains(accepted, n) {
				want = ""
			}
			actor := func(s string) string { return `{"data":{},"metadata":{"actor":{"type":"user","id":` + s + `}}}` }
			for path, body := range map[string]string{
				"note/" + u + "/was_written":          enginetest.Body(`{}`),
				"note/" + u + ":2026/was_written":     enginetest.Body(`{}`),
				"note/global/was_written":             actor(`"` + u + `"`),
				"note/" + fresh() + "/was_written":    strings.Replace(enginetest.Body(`{}`), `"metadata":{`, `"metadata":{"target":{"type":"user","id":"`+u+`"},`, 1),
				"payment/" + fresh() + "/was_settled": actor(`"` + strings.ToUpper(u) + `"`),
			} {
				if _, err := f.Execute(t.Context(), enginetest.Command(t, path, body)); j17.CodeOf(err) != want {
					t.Errorf("versions %s: %s by version %d: error %v, want %q", versions, path, n, err, want)
				}
			}
		}
		want := uuid.Version(4)
		if slices.Contains(accepted, 7) {
			want = 7
		}
		r := f.Create(t, "note/_new/was_written", enginetest.Body(`{}`))
		if u, err := uuid.Parse(r.ID); err != nil || u.Version() != want {
			t.Errorf("versions %s: the server chose %s, want version %d", versions, r.ID, want)
		}
	}
}

// TestRetriesByAnotherName: a retry is one by whichever name it calls the aggregate, and another aggregate is another
// request.
func TestRetriesByAnotherName(t *testing.T) {
	f := naming(t)
	f.Post(t, "refund/"+id+"/was_made", enginetest.Body(`{}`))
	c := enginetest.Command(t, "refund/"+id+"/was_made", enginetest.Body(`{}`))
	c.IdempotencyKey = "key"
	receipt, err := f.Execute(t.Context(), c)
	first := enginetest.One(receipt)
	if err != nil || first.Handle == "" || first.PublicID == "" {
		t.Fatal(first, err)
	}
	for _, name := range []string{id, first.Handle, first.PublicID} {
		retry := *c
		retry.Writes = []command.Write{c.Writes[0]}
		retry.Writes[0].ID = name
		if r, err := f.Execute(t.Context(), &retry); err != nil || !r.Replayed ||
			r.Writes[0].PublicID != first.PublicID {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	for _, name := range []string{"global", "VNO-77", "rfd_123456789abcdef", "no name"} {
		other := *c
		other.Writes = []command.Write{c.Writes[0]}
		other.Writes[0].ID = name
		if _, err := f.Execute(t.Context(), &other); j17.CodeOf(err) != j17.CodeIdempotencyReuse {
			t.Errorf("%s: %v", name, err)
		}
	}
}
