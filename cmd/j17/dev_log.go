package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
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

// firstRequests returns commands that write an event of the spec and read the state it makes; "" where no example can be
// made up.
func firstRequests(c *spec.Compiled, base, key string) string {
	if c == nil {
		return ""
	}
	x, ok := c.Example()
	if !ok {
		return ""
	}
	body := fmt.Sprintf(`{"data": %s, "metadata": {"actor": {"type": %q, "id": %q}}}`, x.Data, x.ActorType, x.ActorID)
	aggregate := base + "/" + url.PathEscape(x.AggregateType) + "/" + url.PathEscape(x.ID)
	return fmt.Sprintf(`  curl %s/%s \
    -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' \
    -d '%s'
  curl %s -H 'Authorization: Bearer %s'
`, aggregate, url.PathEscape(x.EventType), key, strings.ReplaceAll(body, "'", `'\''`), aggregate, key)
}
