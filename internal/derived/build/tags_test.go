package build_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"j17"
	"j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/worker"
	"j17/internal/custody/loading"
	"j17/internal/derived/build"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// spec returns a spec whose bookings and courses declare tags.
func spec(booking, course string) string {
	return `{"agent_types": ["user"], "aggregate_types": {
		"booking": {"events": {"was_made": {"schema": {}, "handler": [], "tags": {` + booking + `}}}},
		"course": {"events": {"was_defined": {"schema": {}, "handler": [], "tags": {` + course + `}}}}}}`
}

// head is what the fences of deployments are on.
const head store.Space = "test.head"

// tagHouse is an engine whose older events are tagged.
type tagHouse struct {
	*enginetest.Fixture
	tb      testing.TB
	tagging *build.Tagger
	builds  *build.Service
}

func newTagHouse(tb testing.TB) *tagHouse {
	tb.Helper()
	h := &tagHouse{tb: tb}
	h.Fixture = enginetest.New(tb, engine.Options{})
	h.begin()
	return h
}

func (h *tagHouse) begin() {
	h.on(h.Store)
	h.Use(h.tagging.Part())
}

// on makes a tagger on what shows the store.
func (h *tagHouse) on(st build.TaggerStorage) {
	log := slog.New(slog.DiscardHandler)
	h.builds = build.New(build.Options{
		Store: h.Store, Clock: h.Clock, Worker: worker.New(h.Clock, log), Logger: log,
	})
	h.tagging = build.NewTagger(build.TaggerOptions{Store: st, Builds: h.builds, Engine: h.Engine})
}

// deploy deploys a spec, behind a fence on what says that it is deployed.
func (h *tagHouse) deploy(booking, course string) {
	h.tb.Helper()
	if err := h.Store.Write(h.tb.Context(), enginetest.Tenant, []store.Side{
		{Op: store.Put, Space: head, Key: "head", Value: []byte(booking + course)},
	}); err != nil {
		h.tb.Fatal(err)
	}
	it, err := h.Store.Get(h.tb.Context(), enginetest.Tenant, head, "head")
	if err != nil {
		h.tb.Fatal(err)
	}
	h.Deploy(enginetest.Tenant, enginetest.Compiled(h.tb, spec(booking, course)), nil, store.Fence{
		Space: head, Key: "head", Rev: it.Rev,
	})
	if err := h.tagging.Adopt(h.tb.Context(), enginetest.Tenant); err != nil {
		h.tb.Fatal(err)
	}
}

func (h *tagHouse) settle() {
	h.tb.Helper()
	if err := h.builds.Settle(h.tb.Context()); err != nil {
		h.tb.Fatal(err)
	}
}

func id(n int) string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", n) }

func (h *tagHouse) book(n int, data string) {
	h.tb.Helper()
	h.Post(h.tb, "booking/"+id(n)+"/was_made", enginetest.Body(data))
}

// found returns how many events have a tag that somebody asks for, or the code of the error.
func (h *tagHouse) found(tag string) string {
	h.tb.Helper()
	tags, err := h.Tags(h.tb.Context(), enginetest.Tenant, []string{tag})
	if err != nil {
		return string(j17.CodeOf(err))
	}
	n := 0
	for _, err := range h.Store.ReadTagged(
		h.tb.Context(), enginetest.Tenant, store.Tagged{Tags: tags}, j17.StreamID{}, 1<<20, nil,
	) {
		if err != nil {
			h.tb.Fatal(err)
		}
		n++
	}
	return fmt.Sprint(n)
}

func (h *tagHouse) want(wants ...string) {
	h.tb.Helper()
	for _, want := range wants {
		tag, count, _ := strings.Cut(want, " ")
		if got := h.found(tag); got != count {
			h.tb.Errorf("%s: %s, want %s", tag, got, count)
		}
	}
}

const course, student = `"course":"$.data.course"`, `"student":"$.data.student"`

// TestOlderEventsAreTagged adds, changes and drops tags, and asks for them before, while and after older events have
// them.
func TestOlderEventsAreTagged(t *testing.T) {
	h := newTagHouse(t)
	h.deploy(course, "")
	h.want("course:a 0")
	for n := range 600 {
		h.book(n, fmt.Sprintf(`{"course":"%c","student":"s%d","both":["x",%d]}`, 'a'+n%2, n%3, n%5))
	}
	h.want("course:a 300")

	// One more tag: what has not changed is found at once, the new one is when all have it.
	h.deploy(course+","+student, course)
	h.want("student:s0 index_not_ready", "course:a index_not_ready") // courses may have it now
	h.book(600, `{"course":"a","student":"s0"}`)
	h.settle()
	h.want("student:s0 201", "course:a 301")
	h.deploy(course+","+student+`,"more":"$.data.both"`, course)
	h.want("student:s0 201", "course:a 301", "more:x index_not_ready")

	// Conditions wait as well, and those on other tags do not.
	write := func(tag string) string {
		_, err := h.Execute(t.Context(), enginetest.Command(t, "booking/"+id(700)+"/was_made",
			`{"data":{},"conditions":[{"fail_if_events_match":{"tags":["`+tag+`"]}}],`+enginetest.Meta+`}`))
		return string(j17.CodeOf(err))
	}
	if got := []string{write("more:y"), write("course:none"), write("course:a")}; !slices.Equal(got, []string{
		"index_not_ready", "", "condition_failed",
	}) {
		t.Errorf("%q", got)
	}
	h.settle()
	h.want("more:x 600", "more:4 120")
	if got := []string{write("more:y"), write("more:4")}; !slices.Equal(got, []string{"", "condition_failed"}) {
		t.Errorf("%q", got)
	}

	// Another path under the same name, and none.
	h.deploy(`"course":"$.data.student"`, "")
	h.want("more:x invalid_field", "course:s1 index_not_ready")
	h.settle()
	h.want("course:s1 200", "course:a 0")
	h.deploy("", course)
	h.settle()
	h.want("course:s1 0")
	h.deploy(course, course)
	h.settle()
	h.want("course:a 301")

	// The same spec again is nothing to do.
	before := h.tagging.Stats()
	h.deploy(course, course)
	h.settle()
	if h.tagging.Stats() != before || before.Ended != 5 || before.Events < 5*600 {
		t.Errorf("%+v, and %+v although no tag has changed", before, h.tagging.Stats())
	}
}

// TestTagsAreListed shows whoever asks how far the tags of older events are.
func TestTagsAreListed(t *testing.T) {
	h := newTagHouse(t)
	list := func() string {
		all, err := h.tagging.Tags(t.Context(), enginetest.Tenant)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := list(); got != "[]" {
		t.Errorf("nothing is deployed: %s", got)
	}
	h.deploy(course, "")
	h.book(1, `{"course":"a"}`)
	h.book(2, `{"course":"a"}`)
	h.deploy(course+","+student, student)
	const declared = `[{"name":"course","aggregate_types":["booking"],"status":"ready"},` +
		`{"name":"student","aggregate_types":["booking","course"],"status":`
	if got, want := list(), declared+`"building","build":{"status":"running","done":0,"total":2}}]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	h.settle()
	if got, want := list(), declared+`"ready"}]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// interrupted is a store of which a build sees the end after some commits.
type interrupted struct {
	build.TaggerStorage
	left  int
	after func()
}

func (s *interrupted) Retag(ctx context.Context, t j17.Tenant, events []store.Retagged, fences ...store.Fence) error {
	if s.left--; s.left < 0 {
		if s.after != nil {
			s.after()
			s.after = nil
			return s.TaggerStorage.Retag(ctx, t, events, fences...)
		}
		return context.Canceled
	}
	return s.TaggerStorage.Retag(ctx, t, events, fences...)
}

// TestTaggingIsCutShort ends a build in its middle: by a crash, by another deployment, and while events are erased.
func TestTaggingIsCutShort(t *testing.T) {
	for _, what := range []string{"crash", "deployment", "erasure"} {
		t.Run(what, func(t *testing.T) {
			h := newTagHouse(t)
			h.deploy("", "")
			for n := range 700 {
				h.book(n, `{"course":"a","student":"s"}`)
			}
			cut := &interrupted{TaggerStorage: h.Store, left: 1}
			h.on(cut)
			first := h.builds
			h.deploy(course, "")
			want := []string{"course:a 700", "student:s invalid_field"}
			switch what {
			case "deployment":
				cut.after = func() { h.deploy(student, "") }
				want = []string{"student:s 700", "course:a invalid_field"}
			case "erasure":
				cut.after = func() {
					erased := []store.Rewritten{
						{Version: 1, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)},
					}
					for _, n := range []int{0, 300, 699} {
						if err := storetest.Erase(
							t.Context(), h.Store, enginetest.Tenant, j17.Key{Type: "booking", ID: id(n)}, erased,
						); err != nil {
							t.Error(err)
						}
					}
				}
				want = []string{"course:a 697"}
			}
			_ = first.Settle(t.Context()) // it does not come to an end
			if what == "crash" {
				h.want("course:a index_not_ready")
				h.Open(t, engine.Options{})
			}

			// Somebody else goes on when the lease is over.
			h.begin()
			if what != "deployment" {
				h.deploy(course, "")
			}
			h.Clock.Advance(1 << 40)
			h.settle()
			h.want(want...)
		})
	}
}

// TestTagsOfBefore: after a restoration nobody knows which tags events have. Those of a type that declares none any
// longer are gone.
func TestTagsOfBefore(t *testing.T) {
	h := newTagHouse(t)
	h.deploy(`"course": "$.data.course"`, `"course": "$.data.course"`)
	h.book(1, `{"course":"a"}`)
	h.settle()
	h.want("course:a 1")

	// The state is not part of a backup.
	if err := h.Store.Write(t.Context(), enginetest.Tenant, []store.Side{
		{Op: store.Delete, Space: "tagging", Key: "tags"},
	}); err != nil {
		t.Fatal(err)
	}
	h.Fixture = &enginetest.Fixture{Store: h.Store, Clock: h.Clock, Data: h.Data}
	h.Open(t, engine.Options{})
	h.begin()
	h.deploy("", `"course": "$.data.course"`)
	condition := func(want string) {
		t.Helper()
		_, err := h.Execute(t.Context(), enginetest.Command(t, "course/"+id(9)+"/was_defined",
			`{"data":{},"conditions":[{"fail_if_events_match":{"tags":["course:a"]}}],`+enginetest.Meta+`}`))
		if got := string(j17.CodeOf(err)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	condition("index_not_ready")
	h.settle()
	h.want("course:a 0")
	condition("")
	h.deploy(`"course": "$.data.course"`, `"course": "$.data.course"`)
	condition("index_not_ready")
	h.settle()
	condition("condition_failed")

	// What is erased has no tags any longer, and gets none.
	erased := []store.Rewritten{{Version: 1, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)}}
	if err := storetest.Erase(
		t.Context(), h.Store, enginetest.Tenant, j17.Key{Type: "booking", ID: id(1)}, erased,
	); err != nil {
		t.Fatal(err)
	}
	condition("")
	h.deploy(`"course": "$.data.student", "student": "$.data.course"`, "")
	h.settle()
	h.want("student:a 0")
}

// recorded imports a file of history, or loads an empty environment with it.
func (h *tagHouse) recorded(cold bool, text string) {
	h.tb.Helper()
	open := func() (*command.FileReader, error) { return command.NewFileReader(strings.NewReader(text)), nil }
	l := &loading.Loader{Engine: h.Engine, Store: h.Store}
	var err error
	if cold {
		in, _ := open()
		_, err = l.ColdStart(h.tb.Context(), enginetest.Tenant, in)
	} else {
		_, err = l.Import(h.tb.Context(), &loading.History{
			Tenant: enginetest.Tenant, ID: sha256.Sum256([]byte(text)), Open: open,
		})
	}
	if err != nil {
		h.tb.Fatal(err)
	}
}

// TestTagsOfTime finds events by the second in which they happened: written now, behind one whose clock is ahead,
// loaded, imported, and tagged later.
func TestTagsOfTime(t *testing.T) {
	const at, by = `"at":"$.metadata.timestamp"`, `"by":"$.metadata.actor.id"`
	happened := func(n, second int) string {
		return fmt.Sprintf(`{"key":"booking:%s","type":"was_made","data":{},"metadata":{"actor":{"type":"user","id":%q},"timestamp":%d}}`+"\n", id(n), enginetest.User, second)
	}
	for _, cold := range []bool{true, false} {
		h := newTagHouse(t)
		h.deploy(at+","+by, at)
		h.recorded(cold, happened(1, 1_600_000_000)+happened(1, 1_600_000_001))
		h.book(2, `{}`)
		h.want("at:1600000000 1", "at:1600000001 1", "at:1700000000 1", "by:"+enginetest.User+" 3")

		// A write that was decided before the latest event is decided again.
		if _, err := h.Store.Append(t.Context(), enginetest.Tenant, []store.Append{{
			Events: []store.NewEvent{{
				Key: j17.Key{Type: "course", ID: id(1)}, Type: "was_defined", Data: []byte(`{}`),
				Metadata: []byte(`{}`),
			}}, Timestamp: 1_700_000_100,
		}}); err != nil {
			t.Fatal(err)
		}
		h.book(3, `{}`)
		h.want("at:1700000000 1", "at:1700000100 1")

		// So have those who get the tag later.
		h.deploy("", "")
		h.settle()
		h.deploy(at+","+by, at)
		h.settle()
		h.want("at:1600000000 1", "at:1600000001 1", "at:1700000000 1", "at:1700000100 2", "by:"+enginetest.User+" 4")
	}
}
