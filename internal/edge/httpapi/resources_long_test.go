//go:build !race

package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/plane/control"
	"j17/internal/storage/testopen"
)

// TestBodiesThatArriveSlowlyTakeWhatThereIs fills an environment's share with bodies that stop in their middle. Another
// large one of that environment is refused in time, a small one and those of other environments are not.
func TestBodiesThatArriveSlowlyTakeWhatThereIs(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newFixture(t, nil)
		more := make(chan struct{})
		var slow sync.WaitGroup
		for range 4 { // of 10 MiB each, where 32 MiB are the share
			body := batchOf(10<<20 - 1000)
			r := f.request(t, "http://app.j17.example/note/global", f.key, &stalled{
				Reader: strings.NewReader(body[:100_000]), more: more, rest: strings.NewReader(body[100_000:]),
			}, int64(len(body)))
			slow.Go(func() {
				w := httptest.NewRecorder()
				f.handler.ServeHTTP(w, r)
				if w.Code != http.StatusCreated && w.Code != http.StatusServiceUnavailable {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			})
		}
		synctest.Wait()

		large := f.do(t, http.MethodPost, "/note/global", batchOf(9<<20))
		if large.status != http.StatusServiceUnavailable || large.member(t, "code") != "busy" ||
			large.header.Get("Retry-After") == "" {
			t.Errorf("one more: %d %.200s", large.status, large.body)
		}
		if strings.Contains(large.body, "error_id") {
			t.Errorf("being busy is recorded as a fault: %s", large.body)
		}
		if small := f.do(t, http.MethodPost, "/note/global", batchOf(1000)); small.status != http.StatusCreated {
			t.Errorf("a small one: %d %s", small.status, small.body)
		}
		other, err := f.registry.Instances.Create(t.Context(), "other")
		if err != nil {
			t.Fatal(err)
		}
		_, key, err := f.registry.Keys.Create(t.Context(), control.NewKey{
			Instance: other.ID, Environment: j17.Prod, Scope: j17.ScopeWrite, Name: "k",
		})
		if err != nil {
			t.Fatal(err)
		}
		body := batchOf(9 << 20)
		w := httptest.NewRecorder()
		f.handler.ServeHTTP(
			w, f.request(t, "http://other.j17.example/note/global", key, strings.NewReader(body), int64(len(body))),
		)
		if !strings.Contains(w.Body.String(), "no_spec") { // it has none, but was read
			t.Errorf("another environment: %d %s", w.Code, w.Body)
		}
		close(more)
		slow.Wait()
		if a := f.do(t, http.MethodPost, "/note/global", batchOf(9<<20)); a.status != http.StatusCreated {
			t.Errorf("afterwards: %d %.200s", a.status, a.body)
		}
	})
}

// TestExportsTakeTurns exports much while heavy requests of others have all turns on a processor: the export waits in
// its middle, for as long as that takes, and is whole in the end.
func TestExportsTakeTurns(t *testing.T) {
	for target, states := range map[string]int{
		"export?of=aggregates": 30, "export?of=aggregates&format=json": 30, "export": 5, "export?format=json": 5,
	} {
		testopen.Bubble(t, func(t *testing.T) {
			a := administer(t)
			for range states {
				if got := a.do(t, "POST", "/note/_new", batchOf(200<<10)); got.status != http.StatusCreated {
					t.Fatal(got.status, got.body)
				}
			}
			turns, all := a.Turns(), 0
			for i := 0; ; i++ {
				if _, ok := turns.TryTake(fmt.Sprint("other", i), 1); !ok {
					break
				}
				all++
			}
			answered := make(chan answer, 1)
			go func() { answered <- a.ops(t, "GET", target, "") }()
			for range 10 {
				synctest.Wait()
				if len(answered) > 0 || !turns.Wanted() {
					t.Fatalf("%s does not wait for a turn", target)
				}
				if err := (clock.System{}).Wait(t.Context(), time.Now().Add(7*time.Second)); err != nil {
					t.Fatal(err)
				}
			}
			for i := range all {
				turns.Give(fmt.Sprint("other", i), 1)
			}
			got := <-answered
			if n := strings.Count(got.body, `"key":`); got.status != http.StatusOK || n != states {
				t.Errorf(
					"%s: %d with %d of %d, %s", target, got.status, n, states, got.body[max(0, len(got.body)-200):],
				)
			}
			if strings.Contains(target, "json") && !json.Valid([]byte(got.body)) {
				t.Errorf("%s is no document", target)
			}
			if turns.Used() != 0 {
				t.Errorf("%d turns are left taken", turns.Used())
			}
		})
	}
}
