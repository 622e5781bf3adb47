package httpapi_test

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"j17"
	"j17/internal/engine"
	"j17/internal/engine/enginetest"
	"j17/internal/httpapi"
)

// TestStreamsEndWithTheirTags: a stream that asks for a tag ends when a deployment gives it to other events, before any of those is sent, or with
// a heartbeat; all else goes on.
func TestStreamsEndWithTheirTags(t *testing.T) {
	spec := func(declared string) string {
		return `{"agent_types": ["user"], "singletons": ["global"], "aggregate_types": {"note": {"events": {
			"was_written": {"schema": {}, "handler": [], "tags": {` + declared + `}}, "was_coded": {"schema": {}, "handler": []}}}}}`
	}
	const word, other = `"word":"$.data.s"`, `"other":"$.data.t"`
	for _, end := range []string{"event", "heartbeat"} {
		synctest.Test(t, func(t *testing.T) {
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
