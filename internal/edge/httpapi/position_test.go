package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"j17/internal/storage/testopen"
)

// TestBeforeTheFirstEvent: the position before the first event is "0" in all answers, and may be spelt as those of
// events in requests.
func TestBeforeTheFirstEvent(t *testing.T) {
	a := administer(t)
	for _, query := range []string{"", "?after=0", "?after=0000000000000-0"} {
		if p := a.feed(t, query); p.Position != "0" || p.Next != nil {
			t.Errorf("%q: %+v", query, p)
		}
	}
	for what, got := range map[string]answer{
		"lines":  a.do(t, "GET", "/_events", "", "Accept: application/x-ndjson"),
		"states": a.ops(t, "GET", "export?of=aggregates", ""),
	} {
		if at := got.header.Get("X-J17-Position"); got.status != http.StatusOK || at != "0" {
			t.Errorf("%s: %d, position %q", what, got.status, at)
		}
	}
	for _, kind := range []string{"checkpoints", "root-checkpoints"} {
		if got := a.ops(t, "POST", kind, ""); got.status != http.StatusCreated ||
			!strings.Contains(got.body, `"position":"0"`) {
			t.Errorf("%s: %d %s", kind, got.status, got.body)
		}
	}
	testopen.Bubble(t, func(t *testing.T) {
		f := newFixture(t, nil)
		p := f.serve(t)
		for path, last := range map[string]string{
			"/_events/stream": "", "/_events/stream?after=0000000000000-0": "", "/note/global/events/stream": "",
			"/_events/stream?event=was_coded":   "0",
			"/_events/stream?event=was_written": "0000000000000-0",
		} {
			var headers []string
			if last != "" {
				headers = append(headers, "Last-Event-ID: "+last)
			}
			c := f.stream(t, p, path, headers...)
			if _, err := c.next(); err != nil || c.last != "0" && !strings.Contains(path, "after") {
				t.Errorf("%s begins at %q, %v", path, c.last, err)
			}
			_ = c.conn.Close()
		}
	})
}
