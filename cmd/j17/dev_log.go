package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/lang/spec"
	"j17/internal/server"
)

// requestLog writes a line for each request. Of similar requests that succeed, the first of a second have lines and the
// others are counted. A request that fails always has its line.
type requestLog struct {
	w       io.Writer
	clock   clock.Clock
	colored bool

	mu sync.Mutex
	// since is when the present second began, zero where nothing has been seen in it.
	since time.Time
	runs  map[requestKind]*requestRun
}

// requestKind is what makes requests similar. There are as many kinds as routes, methods and environments allow.
type requestKind struct {
	method, route string
	status        int
	environment   j17.Environment
}

// requestRun is what has become of similar requests in the present second.
type requestRun struct {
	shown, counted int
	// going reports that there were so many in the second before that none has a line now.
	going bool
}

// How many similar requests have lines, and within what time.
const (
	maxAlike    = 10
	alikeWithin = time.Second
)

// observe writes the line of a request, or counts it.
func (l *requestLog) observe(x server.Exchange) {
	if x.Path == "/livez" || x.Path == "/readyz" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	l.tell(now)

	// A request that went well is shown if there were few like it lately.
	if x.Code == "" && x.Status < http.StatusBadRequest {
		if l.since.IsZero() {
			l.since = now
		}
		kind := requestKind{method: x.Method, route: x.Route, status: x.Status, environment: x.Environment}
		run := l.runs[kind]
		if run == nil {
			if l.runs == nil {
				l.runs = map[requestKind]*requestRun{}
			}
			run = &requestRun{}
			l.runs[kind] = run
		}
		if run.going || run.shown == maxAlike {
			run.counted++
			return
		}
		run.shown++
	}

	// All others are.
	line := l.start(now, x.Status, x.Method) + (&url.URL{Path: x.Path}).EscapedPath() + " " + milliseconds(x.Duration) +
		ofEnvironment(x.Environment)
	if x.Code != "" {
		line += fmt.Sprintf(" %s: %s", x.Code, printable(x.Detail))
	}
	_, _ = io.WriteString(l.w, line+"\n") // there is nowhere else to say it
}

// tell writes how many requests were counted, once their second is over.
func (l *requestLog) tell(now time.Time) {
	if l.since.IsZero() || now.Sub(l.since) < alikeWithin {
		return
	}
	stillGoing := now.Sub(l.since) < 2*alikeWithin
	kinds := slices.SortedFunc(maps.Keys(l.runs), func(a, b requestKind) int {
		return cmp.Or(
			strings.Compare(a.route, b.route), strings.Compare(a.method, b.method), cmp.Compare(a.status, b.status),
			cmp.Compare(a.environment, b.environment),
		)
	})
	for _, kind := range kinds {
		run := l.runs[kind]
		if run.counted > 0 {
			_, _ = fmt.Fprintf(
				l.w, "%s%s: %d more like this%s\n", l.start(now, kind.status, kind.method), printable(kind.route),
				run.counted, ofEnvironment(kind.environment),
			)
		}
		if !stillGoing || run.counted <= maxAlike {
			delete(l.runs, kind)
			continue
		}
		*run = requestRun{going: true}
	}
	l.since = time.Time{}
	if len(l.runs) > 0 {
		l.since = now
	}
}

// follow writes the counts when no request comes after them, until the context ends.
func (l *requestLog) follow(ctx context.Context) {
	for l.clock.Wait(ctx, l.clock.Now().Add(alikeWithin)) == nil {
		l.mu.Lock()
		l.tell(l.clock.Now())
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.since.IsZero() {
		l.tell(l.since.Add(alikeWithin))
	}
}

// start is the start of a line: when, how it ended, and what was asked for.
func (l *requestLog) start(now time.Time, status int, method string) string {
	code := fmt.Sprint(status)
	if l.colored {
		code = "\x1b[" + statusColor(status) + "m" + code + "\x1b[0m"
	}
	return fmt.Sprintf("%s %s %-4s ", now.Local().Format(time.TimeOnly), code, printable(method))
}

// ofEnvironment names an environment at the end of a line, but for prod.
func ofEnvironment(e j17.Environment) string {
	if e == "" || e == j17.Prod {
		return ""
	}
	return " [" + string(e) + "]"
}

// timeOfDay is the time shown beside a message.
func timeOfDay(c clock.Clock) string { return c.Now().Local().Format(time.TimeOnly) }

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

// firstRequests says what to try first: commands that write an event of the spec and read the state that it makes, or
// what is missing for that.
func firstRequests(c *spec.Compiled, beside, base, key string) string {
	if c == nil && beside != "" {
		return fmt.Sprintf("No spec is deployed, so no event can be written. 'j17 dev %s' runs the one in this folder, and deploys it again\nwhenever it changes.\n", beside)
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

// specBeside returns the spec file of the present folder that the development server was not given, "" where there is
// none.
func specBeside() string {
	const usual = "spec.json"
	if _, err := os.Stat(usual); err != nil {
		return ""
	}
	return usual
}

func noTypes(what string) string {
	return what + " 'j17 spec new orders -o spec.json' writes one to start from;\n'j17 dev spec.json' runs it, and deploys it again whenever it changes.\n"
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
