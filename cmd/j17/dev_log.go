package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"j17"
	"j17/internal/clock"
	"j17/internal/server"
	"j17/internal/spec"
)

// requestLog returns what writes a line for each request, with colors if w may have them.
func requestLog(w io.Writer, c clock.Clock, colored bool) func(server.Exchange) {
	return func(x server.Exchange) {
		if x.Path == "/livez" || x.Path == "/readyz" {
			return
		}
		status := fmt.Sprint(x.Status)
		if colored {
			status = "\x1b[" + statusColor(x.Status) + "m" + status + "\x1b[0m"
		}
		line := fmt.Sprintf("%s %s %-4s %s %s", c.Now().Local().Format(time.TimeOnly), status, printable(x.Method), (&url.URL{Path: x.Path}).EscapedPath(), milliseconds(x.Duration))
		if x.Environment != "" && x.Environment != j17.Prod {
			line += " [" + string(x.Environment) + "]"
		}
		if x.Code != "" {
			line += fmt.Sprintf(" %s: %s", x.Code, printable(x.Detail))
		}
		_, _ = io.WriteString(w, line+"\n") // there is nowhere else to say it
	}
}

func statusColor(status int) string {
	switch {
	case status >= http.StatusInternalServerError:
		return "31" // red
	case status >= http.StatusBadRequest:
		return "33" // yellow
	default:
		return "32" // green
	}
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// printable is text from outside on one line of a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// globalID is an id that every aggregate type and every agent type has.
const globalID = "global"

// firstRequests says what to try first: commands that write an event of the spec and read the state that it makes, or what
// is missing for that.
func firstRequests(c *spec.Compiled, beside, base, key string) string {
	if c == nil && beside != "" {
		return fmt.Sprintf("No spec is deployed, so no event can be written. 'j17 dev %s' runs the one in this folder, and deploys it anew\nwhenever it changes.\n", beside)
	}
	if c == nil {
		return noTypes("There is no spec yet, so no event can be written.")
	}
	if len(c.Types) == 0 {
		return noTypes("The spec has no aggregate types, so no event can be written.")
	}
	if x, ok := c.Example(); ok {
		body := fmt.Sprintf(`{"data": %s, "metadata": {"actor": {"type": %q, "id": %q}}}`, x.Data, x.ActorType, x.ActorID)
		return "Write an event and read the state that it makes:\n\n" + curls(base, key, x.AggregateType, x.ID, x.EventType, body)
	}
	for _, typ := range slices.Sorted(maps.Keys(c.Types)) {
		for _, event := range slices.Sorted(maps.Keys(c.Types[typ].Events)) {
			if c.Types[typ].Events[event].System {
				continue
			}
			body := fmt.Sprintf(`{"data": DATA, "metadata": {"actor": {"type": %q, "id": %q}}}`, slices.Concat(c.AgentTypes.Sorted(), []string{"AGENT_TYPE"})[0], globalID)
			return "Write an event and read the state that it makes. No data could be made up for the schemas of this spec: put what fits the schema of\n" +
				event + " in the place of DATA.\n\n" + curls(base, key, typ, globalID, event, body)
		}
	}
	return noTypes("The spec has no event types, so no event can be written.")
}

// specBeside is the spec file of the present folder that a development server was not told of, "" where there is none.
func specBeside() string {
	const usual = "spec.json"
	if _, err := os.Stat(usual); err != nil {
		return ""
	}
	return usual
}

func noTypes(what string) string {
	return what + " 'j17 spec new orders -o spec.json' writes one to start from;\n'j17 dev spec.json' runs it, and deploys it anew whenever it changes.\n"
}

// curls returns commands that write an event and read the state of its aggregate.
func curls(base, key, aggregateType, id, eventType, body string) string {
	aggregate := base + "/" + url.PathEscape(aggregateType) + "/" + url.PathEscape(id)
	return fmt.Sprintf(`  curl %s/%s \
    -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' \
    -d '%s'
  curl %s -H 'Authorization: Bearer %s'
`, aggregate, url.PathEscape(eventType), key, strings.ReplaceAll(body, "'", `'\''`), aggregate, key)
}
