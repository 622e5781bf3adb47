package spec

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/tick"
)

// listenerCompiler reads listeners.
type listenerCompiler struct{ resolver }

func (c listenerCompiler) listener(name string, v value.Value, at diag.Pointer) *Listener {
	c.name(name, at, "a listener")
	l := &Listener{Name: name, URLs: map[j17.Environment]string{}, Headers: map[string]string{}}
	if !c.object(v, at, shape{
		what: "a listener", required: []string{"url", "events"},
		optional: []string{"condition", "when", "headers", "format"},
	}) {
		return l
	}
	c.urls(l, v.Get("url"), at.Key("url"))
	events := v.Get("events")
	if events.Kind() == value.Array && events.Len() == 0 {
		c.Report(at.Key("events"), empty, "events")
	}
	c.elems(events, at.Key("events"), "the events of a listener", maxPatterns,
		func(_ int, v value.Value, at diag.Pointer) {
			if p, ok := c.pattern(v, at); ok {
				l.Events = append(l.Events, p)
			}
		})
	l.Format = c.choice(v.Get("format"), at.Key("format"), "the format of a listener", FormatJ17, FormatCloudEvents)
	l.Condition = c.condition(v, at, tick.Scope{Members: []string{"key", "type", "data", "metadata"}})
	c.members(v.Get("headers"), at.Key("headers"), "headers", maxHeaders,
		func(name string, v value.Value, at diag.Pointer) {
			if s, ok := c.header(name, v, at); ok {
				l.Headers[name] = s
			}
		})
	return l
}

// countListeners adds to each event type how many listeners select it. A listener counts once, however many of its
// patterns do.
func (c *Compiled) countListeners() {
	var all int
	types, events := map[string]int{}, map[eventName]int{}
	for _, l := range c.Listeners {
		if slices.ContainsFunc(l.Events, func(p Pattern) bool { return p.AggregateType == "" }) {
			all++
			continue
		}
		whole := map[string]bool{}
		for _, p := range l.Events {
			if p.EventType == "" && !whole[p.AggregateType] {
				whole[p.AggregateType] = true
				types[p.AggregateType]++
			}
		}
		once := map[eventName]bool{}
		for _, p := range l.Events {
			if at := (eventName{p.AggregateType, p.EventType}); p.EventType != "" && !whole[p.AggregateType] &&
				!once[at] {
				once[at] = true
				events[at]++
			}
		}
	}
	for _, t := range c.Types {
		for _, e := range t.Events {
			e.Listeners = all + types[e.AggregateType] + events[eventName{e.AggregateType, e.Name}]
		}
	}
}

func (c listenerCompiler) urls(l *Listener, v value.Value, at diag.Pointer) {
	if v.Kind() != value.Object {
		if u := c.url(v, at); u != "" {
			for _, env := range j17.Environments() {
				l.URLs[env] = u
			}
		}
		return
	}
	if v.Len() == 0 {
		c.Report(at, empty, "url")
	}
	var known []string
	for _, env := range j17.Environments() {
		known = append(known, string(env))
	}
	c.object(v, at, shape{what: "url", optional: known})
	for _, env := range j17.Environments() {
		if u := c.url(v.Get(string(env)), at.Key(string(env))); u != "" {
			l.URLs[env] = u
		}
	}
}

// validPort reports whether the port of a URL, if it names one, is one that can be connected to.
func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return true
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && n > 0
}

func (c listenerCompiler) url(v value.Value, at diag.Pointer) string {
	text, ok := c.text(v, at, "a listener's URL")
	if !ok {
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Opaque != "" || (u.Scheme != "https" && u.Scheme != "http"):
		c.Report(at, badURL, text)
	case !validPort(u):
		c.Report(at, badPort, u.Port())
	case u.User != nil:
		c.Report(at, urlWithPassword)
	case u.Fragment != "" || strings.HasSuffix(text, "#"):
		c.Report(at, urlWithFragment)
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		c.Report(at, urlNotSecure, text)
	default:
		return text
	}
	return ""
}

// OnThisMachine reports whether the listener is at an address of the server's own machine in any environment, as far as
// its URLs say so.
func (l *Listener) OnThisMachine() bool {
	for _, text := range l.URLs {
		if u, err := url.Parse(text); err == nil && isLoopback(u.Hostname()) {
			return true
		}
	}
	return false
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// pattern reads "type.event", "type.*" or "*".
func (c listenerCompiler) pattern(v value.Value, at diag.Pointer) (Pattern, bool) {
	text, ok := c.text(v, at, "a pattern of events")
	if !ok {
		return Pattern{}, false
	}
	p, ok := ParsePattern(text)
	if !ok {
		c.Report(at, badPattern, text)
		return Pattern{}, false
	}
	if p.AggregateType == "" {
		return p, true
	}
	if _, ok := c.aggregateTypeRef(value.StringValue(p.AggregateType), at); !ok {
		return Pattern{}, false
	}
	if p.EventType != "" && p.EventType != tombstoned {
		c.eventDeclared(at, p.AggregateType, p.EventType)
	}
	return p, true
}

// ParsePattern reads "type.event", "type.*" or "*". What it names need not exist.
func ParsePattern(text string) (Pattern, bool) {
	if text == "*" {
		return Pattern{}, true
	}
	aggregateType, event, ok := strings.Cut(text, ".")
	if !ok || aggregateType == "" || aggregateType == "*" || event == "" {
		return Pattern{}, false
	}
	if event == "*" {
		event = ""
	}
	return Pattern{AggregateType: aggregateType, EventType: event}, true
}

func (c listenerCompiler) header(name string, v value.Value, at diag.Pointer) (string, bool) {
	const special = "!#$%&'*+-.^_`|~"
	token := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(special, r)
	}
	if name == "" || len(name) > MaxNameLength || strings.ContainsFunc(name, func(r rune) bool { return !token(r) }) {
		c.Report(at, badHeaderName, name)
		return "", false
	}
	lower := strings.ToLower(name)
	if slices.Contains(reservedHeaders(), lower) || strings.HasPrefix(lower, "x-j17-") ||
		strings.HasPrefix(lower, "webhook-") {
		c.Report(at, reservedHeader, name)
		return "", false
	}
	if lower == "x-correlation-id" {
		// History may have no correlation id, and specs from before this warning have to remain valid.
		c.Report(at, replacedHeader, name)
	}
	s, ok := c.text(v, at, "a header")
	if !ok {
		return "", false
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }) ||
		strings.TrimSpace(s) != s {
		c.Report(at, badHeaderValue)
		return "", false
	}
	return s, true
}

// reservedHeaders lists, in lower case, what each delivery sets itself.
func reservedHeaders() []string {
	return []string{
		"accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host",
		"keep-alive", "te", "trailer",
		"transfer-encoding", "upgrade", "user-agent",
	}
}
