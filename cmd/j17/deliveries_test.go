package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
)

// scheduleSpec is of carts that are told to a listener, and whose reminder is refused until somebody wants it.
const scheduleSpec = `{
	"agent_types": ["user"],
	"aggregate_types": {"cart": {"events": {
		"was_filled": {"schema": {"type": "object"}, "handler": [],
			"implications": [{"schedule": {"delay": "5m", "emit": {"aggregate_type": "cart", "id": "$.key", "event_type": "had_reminder", "data": {}}}}]},
		"was_wanted": {"schema": {"type": "object"}, "handler": [{"set": {"target": "wanted", "value": true}}]},
		"had_reminder": {"schema": {"type": "object"}, "handler": [],
			"requires": [{"that": {"exists": "$.state.wanted"}, "message": "Nobody wants it.", "code": "unwanted"}]}
	}}},
	"listeners": {"hook": {"url": "ENDPOINT", "events": ["cart.was_filled"]}}
}`

// TestRetriesFromTheCommandLine lets an endpoint and an aggregate refuse what they are told until it is given up, and
// tries it again.
func TestRetriesFromTheCommandLine(t *testing.T) {
	var well atomic.Bool
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !well.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "not today")
		}
	}))
	t.Cleanup(endpoint.Close)
	p, specFile := started(t, strings.ReplaceAll(scheduleSpec, "ENDPOINT", endpoint.URL), "--allow-private-listeners")
	j17 := func(args string) (out string, code int) {
		t.Helper()
		cmd := startable(
			t, "j17", append(
				strings.Fields(args), "--url", p.url, "--data", filepath.Join(filepath.Dir(specFile), "data"),
			)...,
		)
		raw, _ := cmd.CombinedOutput() // the exit code tells
		return string(raw), cmd.ProcessState.ExitCode()
	}
	// shows runs a command that has to succeed, and returns what a pattern finds in what it prints.
	shows := func(args, pattern string) string {
		t.Helper()
		out, code := j17(args)
		found := regexp.MustCompile("(?m)" + pattern).FindString(out)
		if code != exitOK || found == "" {
			t.Fatalf("j17 %s: exit code %d, no match for %s in\n%s", args, code, pattern, out)
		}
		return found
	}
	post := func(typ string) {
		t.Helper()
		shows("events post cart/550e8400-e29b-41d4-a716-446655440000 "+typ+" {} --actor user:global", "stored as")
	}

	// What is refused again and again is given up.
	post("was_filled")
	if s := requested(
		t, p, "POST", "prod", "/_dev/clock/advance", operatorToken(t, p), `{"by":"10m"}`, nil,
	); s != http.StatusOK {
		t.Fatal(s)
	}
	const about = `cart:550e8400-e29b-41d4-a716-446655440000`
	delivery, _, _ := strings.Cut(shows("listener deliveries list --status failed", `^dlv_\w+ +hook +failed +4 +503 +`+about+` was_filled .* -$`), " ")
	reminder, _, _ := strings.Cut(shows("scheduled list --status refused", `^sch_\w+ +refused +.*Nobody wants it\.$`), " ")
	shows("listener deliveries list --listener hook --key "+about+" --json", `^\[{"id":"dlv_\w+","listener":"hook","status":"failed"`)
	shows("listener deliveries list --status pending --json", `^\[\]$`)
	shows("listener deliveries show "+delivery, `^[-\d]+ [\d:]+ UTC +503 +\d+\.\d ms +not today$`)
	shows("listener deliveries show "+delivery+" --json", `^{"delivery":{"id":"dlv_\w+",.*"log":\[{"at":`)

	// Tried again, it is taken.
	well.Store(true)
	post("was_wanted")
	shows("listener deliveries retry "+delivery, `^dlv_\w+ +hook +pending +0 `)
	shows("scheduled retry "+reminder+" --json", `^{"scheduled":{"scheduled_id":"sch_\w+","status":"pending",.*"attempts":0,"last_error":null`)
	for list, status := range map[string]string{"listener deliveries list --status delivered --json": delivery, "scheduled list --status fired --json": reminder} {
		await(
			t, list+" shows what was tried again",
			func() bool { out, _ := j17(list); return strings.Contains(out, status) },
		)
	}

	// The listener itself is stopped, told again, and given another secret.
	shows("listener pause hook", `^hook +paused `)
	if out, code := j17("listener replay hook --after 0"); code != exitConflict {
		t.Errorf("a replay to a listener that is paused: exit code %d: %s", code, out)
	}
	shows("listener resume hook --json", `^{"listener":{"name":"hook","status":"active"`)
	shows("listener replay hook --after 0 --dry-run", `^1 event would be told again$`)
	shows("listener replay hook --after 0 --only failed", `^0 events to be told again$`)
	shows("listener rotate-secret hook", `^whsec_\S+$`)

	// What is not there, and what cannot be asked.
	for args, want := range map[string]int{
		"listener deliveries show dlv_4k7vx9tz2nqr8w3":  exitNotFound,
		"listener deliveries retry dlv_4k7vx9tz2nqr8w3": exitNotFound,
		"listener replay hook":                          exitUsage,
		"listener pause ghost":                          exitNotFound,
		"listener deliveries list --status lost":        exitUsage,
		"listener deliveries list --key cart":           exitFailure,
		"scheduled retry " + reminder:                   exitConflict,
	} {
		if out, code := j17(args); code != want {
			t.Errorf("j17 %s: exit code %d and not %d: %s", args, code, want, out)
		}
	}
}
