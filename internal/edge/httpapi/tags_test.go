package httpapi_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/edge/httpapi"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// TestStreamsEndWithTheirTags: a stream that asks for a tag ends when a deployment gives it to other events, before any
// of those is sent, or with a heartbeat; all else goes on.
func TestStreamsEndWithTheirTags(t *testing.T) {
	spec := func(declared string) string {
		return `{"agent_types": ["user"], "singletons": ["global"], "aggregate_types": {"note": {"events": {
			"was_written": {"schema": {}, "handler": [], "tags": {` + declared + `}}, "was_coded": {"schema": {}, "handler": []}}}}}`
	}
	const word, other = `"word":"$.data.s"`, `"other":"$.data.t"`
	for _, end := range []string{"event", "heartbeat"} {
		testopen.Bubble(t, func(t *testing.T) {
			var e *engine.Engine
			f := newFixture(t, func(o *httpapi.Options) { e = o.Engine })
			p := f.serve(t)
			tenant := j17.TenantOf(f.instance.ID, j17.Prod)
			e.Deploy(tenant, enginetest.Compiled(t, spec(word)), nil)
			c := f.stream(t, p, "/_events/stream?tags=word:x&heartbeat=5s")
			all := f.stream(t, p, "/_events/stream?heartbeat=5s")
			actors := f.stream(t, p, "/_events/stream?tags=actor:user:global&heartbeat=5s")
			first := f.write(t, "global/was_written", `{"s":"x","t":"y"}`)
			e.Deploy(tenant, enginetest.Compiled(t, spec(word+","+other)), nil)
			second := f.write(t, "global/was_written", `{"s":"x"}`)
			for _, s := range []*client{c, all, actors} {
				if got := []string{s.event(t), s.event(t)}; got[0] != first || got[1] != second {
					t.Errorf("%s: %q, want %s and %s", end, got, first, second)
				}
			}

			// The tag is another one now.
			e.Deploy(tenant, enginetest.Compiled(t, spec(`"word":"$.data.t"`)), nil)
			if end == "event" {
				third := f.write(t, "global/was_written", `{"t":"x"}`)
				for _, s := range []*client{all, actors} {
					if got := s.event(t); got != third {
						t.Errorf("%s, want %s", got, third)
					}
				}
			}
			for {
				data, err := c.next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil || data != "" {
					t.Fatalf("%s: %q, %v", end, data, err)
				}
			}
			if again := f.do(t, "GET", "/_events?tags=word:x&after="+second, ""); again.status != http.StatusOK {
				t.Errorf("%d %s", again.status, again.body)
			}
		})
	}
}

// TestPagesThatWaitEndWithTheirTags: a page that waits for a tag while a deployment gives it to other events is looked
// for anew: it has those that were passed meanwhile.
func TestPagesThatWaitEndWithTheirTags(t *testing.T) {
	spec := func(from string) string {
		return `{"agent_types": ["user"], "singletons": ["global"], "aggregate_types": {"note": {"events": {
			"was_written": {"schema": {}, "handler": [], "tags": {"word": "` + from + `"}}, "was_coded": {"schema": {}, "handler": []}}}}}`
	}
	for _, ends := range []string{"an event", "the time"} {
		testopen.Bubble(t, func(t *testing.T) {
			var e *engine.Engine
			var st store.Store
			f := newFixture(t, func(o *httpapi.Options) {
				e = o.Engine
				st, _ = o.Store.(store.Store)
			})
			tenant := j17.TenantOf(f.instance.ID, j17.Prod)
			e.Deploy(tenant, enginetest.Compiled(t, spec("$.data.s")), nil)
			answered := make(chan feedPage)
			go func() { answered <- f.feed(t, "?tags=word:x&wait=50s") }()
			synctest.Wait()
			first := f.write(t, "global/was_written", `{"t":"x"}`) // which has another tag
			synctest.Wait()
			e.Deploy(tenant, enginetest.Compiled(t, spec("$.data.t")), nil)
			retagged := store.Retagged{Key: j17.Key{Type: "note", ID: "global"}, Version: 1, Tags: []string{"word:x"}}
			if err := st.Retag(t.Context(), tenant, []store.Retagged{retagged}); err != nil {
				t.Fatal(err)
			}
			want := []string{first}
			if ends == "an event" {
				want = append(want, f.write(t, "global/was_written", `{"t":"x"}`))
			}
			var got []string
			p := <-answered
			for _, ev := range p.Events {
				got = append(got, ev.StreamID)
			}
			if !slices.Equal(got, want) || p.Position != want[len(want)-1] {
				t.Errorf("%s: %q, want %q, up to %s", ends, got, want, p.Position)
			}
		})
	}
}
