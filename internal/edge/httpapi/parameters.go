package httpapi

import (
	"cmp"
	"errors"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/command"
	"j17/internal/core/trial"
	"j17/internal/follow/listener"
	"j17/internal/follow/saga"
	"j17/internal/follow/schedule"
	"j17/internal/lang/diag"
	"j17/internal/plane/control"
)

// kind is what the values of a parameter look like.
type kind uint8

const (
	text           kind = iota
	whole               // a whole number
	moment              // a time up to a day ahead, in Unix seconds or as RFC 3339
	flag                // true or false
	choice              // one of a few words
	day                 // a date or a time
	position            // the stream_id of an event
	positionOrZero      // the same, or 0 for before the first one
	positionOrNow       // the same, or now for behind the last one
	agent               // an actor or a target, as type:id
	uuidText            // a UUID
	texts               // texts with commas between them, from least to most
	duration            // a duration between least and most seconds
	latitude            // a number of degrees
	longitude           // the same
	metres              // a distance
	ignored             // any text
	further             // parameters of any other name, which are those of what is read
)

// parameter is a parameter in the query of a route. It has one reader, by its kind, which also has the sentence that
// says what is wrong with a value.
type parameter struct {
	name string
	kind kind
	// least and most bound a whole number, or the seconds of a duration; 0 as the most of a number is no bound.
	least, most uint64
	// choices are the accepted words. A flag with choices counts as true when it has no value.
	choices []string
	about   string
}

// Page sizes of lists.
const (
	defaultCount = 100
	maxCount     = 1000
)

// words returns the accepted words of a parameter.
func words[T ~string](all ...T) []string {
	texts := make([]string, len(all))
	for i, word := range all {
		texts[i] = string(word)
	}
	return texts
}

// anything is for routes that take no parameters and accept any: a check whether a server is alive is always answered.
func anything() []parameter { return []parameter{{kind: ignored}} }

func limited() parameter {
	return parameter{name: "limit", kind: whole, least: 1, most: maxCount, about: "The number of rows to return; 100 by default."}
}

// maxOffset bounds how many rows may be skipped.
const maxOffset = 1_000_000_000

// paged are the parameters of a list.
func paged() []parameter {
	return []parameter{limited(), {name: "offset", kind: whole, most: maxOffset, about: "The number of rows to skip: next of the previous page."}}
}

func pagedKeys() []parameter {
	statuses := words(control.KeyActive, control.KeyScheduled, control.KeyRevoked)
	return append(paged(), parameter{
		name: "status", kind: choice, choices: statuses, about: "Only keys with this status.",
	})
}

func pagedSagas() []parameter {
	return inEnvironment(append(
		paged(),
		parameter{
			name: "status", kind: choice, choices: words(saga.Statuses()...), about: "Only sagas with this status.",
		},
		parameter{name: "type", about: "Only sagas with this name in the spec."},
	)...)
}

func pagedDeliveries() []parameter {
	statuses := words(listener.Pending, listener.Delivered, listener.Failed)
	return append(
		paged(),
		parameter{name: "listener", about: "Only deliveries to this listener."},
		parameter{name: "key", about: "Only deliveries of events of this aggregate, by its key."},
		parameter{name: "status", kind: choice, choices: statuses, about: "Only deliveries with this status."},
	)
}

func pagedScheduled() []parameter {
	return append(paged(), parameter{
		name: "status", kind: choice, choices: words(schedule.Statuses()...), about: "Only events with this status.",
	})
}

func cursor() parameter {
	return parameter{name: "start", about: "Where the page starts: next of the previous page."}
}

func countParameter() parameter {
	return parameter{name: "count", kind: whole, least: 1, most: maxCount, about: "The number of items to return; 100 by default."}
}

// counted are the parameters of a list of ids.
func counted() []parameter {
	return []parameter{{name: "start", about: "The id before the first one to return: next of the previous page."}, countParameter()}
}

func prefixed() []parameter {
	at := parameter{name: "start", about: "The id, handle or public id before the first one to return: next of the previous page."}
	return append([]parameter{at, countParameter()}, parameter{name: "prefix", about: "Only aggregates whose id, handle or public id begins so."})
}

func countedEvents() []parameter {
	return []parameter{
		{name: "start", kind: position, about: "The stream_id before the first event to return: next of the previous page."},
		countParameter(), generationParameter(),
	}
}

// generationParameter asks for events as they are stored.
func generationParameter() parameter {
	return parameter{
		name: "generation", kind: choice, choices: []string{generationNewest, generationStored},
		about: "stored: events as they are stored and hashed, instead of in the newest generation of their types.",
	}
}

// importing says what events of a file mean that do not say it themselves.
func importing() []parameter {
	return []parameter{{name: "generation", about: "The generation of the data of events that have no stream_id and do not say it: a number, or newest."}}
}

// The forms in which events are shown.
const (
	generationNewest = "newest"
	generationStored = "stored"
)

// stored reports whether events are asked for as they are stored.
func (q query) stored() bool { return q["generation"] == generationStored }

// moments say which state of an aggregate is meant.
func moments() []parameter {
	return []parameter{
		{name: "at", kind: moment, about: "The state at the end of this second, in Unix seconds or as RFC 3339; at most a day ahead."},
		{name: "length", kind: whole, most: math.MaxInt64, about: "The state after this number of events."},
		{name: "synchronous", kind: flag, choices: []string{""}, about: "Apply all events from the first on, without snapshots or caches."},
	}
}

// viewed select a value of a projection; the projection's own parameters are accepted beside them.
func viewed() []parameter {
	return append(
		slices.DeleteFunc(moments(), func(p parameter) bool { return p.name == "length" }),
		parameter{kind: further, about: "the parameters of the projection"},
	)
}

func readiness() []parameter {
	return []parameter{{name: "for", kind: choice, choices: []string{"reads", "writes"}, about: "What the server is to be ready for; by default writes."}}
}

func span() []parameter {
	return []parameter{
		{name: "from", kind: day, about: "The first time."}, {name: "to", kind: day, about: "The last time."},
	}
}

// audited select records of the audit log.
func audited() []parameter {
	outcomes := words(control.Done, control.Refused, control.Failed)
	return append(
		span(),
		parameter{name: "actor", about: "The id or e-mail address of the operator who acted."},
		parameter{name: "action", about: "The action, or its prefix up to a dot."},
		parameter{name: "target", about: "The id or name of the object of the action."},
		parameter{name: "outcome", kind: choice, choices: outcomes, about: "The outcome of the action."},
	)
}

func anyInstance() parameter {
	return parameter{name: "instance", about: "Only records about this instance, by its id."}
}

// inEnvironment adds the environment that a route is about to its other parameters.
func inEnvironment(more ...parameter) []parameter {
	return append(more, parameter{
		name: "environment", kind: choice, choices: words(j17.Environments()...),
		about: "The environment; prod by default.",
	})
}

func compared() []parameter {
	return []parameter{
		{name: "from", kind: whole, least: 1, about: "The version to compare with; by default the previous one."},
		{name: "to", kind: whole, least: 1, about: "The version to compare; by default the deployed one."},
	}
}

// trying are the parameters of requests that can be tried out before they are carried out.
func trying() []parameter {
	return []parameter{
		{name: "dry_run", kind: flag, about: "Report what would change, and change nothing."},
		{name: "aggregates", kind: whole, least: 1, most: trial.MaxAggregates, about: "The number of aggregates that a dry run replays; 100 by default."},
	}
}

// tryable is the parameter of writes that can be tried out first.
func tryable() []parameter {
	return []parameter{{name: "dry_run", kind: flag, about: "Report what the write would do, and write nothing."}}
}

// tryingPlace is the parameter of settings whose place can be tried before they are stored.
func tryingPlace() []parameter {
	return []parameter{{name: "try", kind: flag, about: "First write, read and remove a file at the backup destination, and change nothing if that fails."}}
}

// preparing adds the parameter that has the needed indexes built first.
func preparing(more ...parameter) []parameter {
	return append(more, parameter{name: "prepare", kind: flag, about: "Build the necessary indexes first; the deployment takes effect after that."})
}

// listingFailures adds the parameter of deployments under which stored events may fail.
func listingFailures(more ...parameter) []parameter {
	return append(more, parameter{name: "failures", kind: whole, least: 1, most: maxFailures, about: "The number of stored events to list that cannot be read under the spec; 100 by default."})
}

func deploying() []parameter {
	return inEnvironment(append(trying(), parameter{name: "note", about: "A comment on the version."})...)
}

func version() []parameter {
	return []parameter{{name: "version", about: "The version, counted from 1; by default the latest."}}
}

func exported() []parameter {
	return []parameter{
		{name: "of", kind: choice, choices: []string{"events", "aggregates"}, about: "Events, or present states; by default events."},
		{name: "type", about: "Only events or states of this aggregate type."},
		{name: "after", kind: positionOrZero, about: "The stream_id of the event after which to begin; 0 for the first one."},
		{name: "format", kind: choice, choices: []string{"ndjson", "json", "cloudevents"}, about: "One object per line, one document, or one CloudEvent per line; ndjson by default."},
		{name: "checkpoint", kind: flag, about: "Whether an export that continues another one also ends with the signed checkpoint."},
		{
			name: "generation", kind: choice, choices: []string{generationStored, generationNewest},
			about: "newest: events in the newest generation of their types, without chains and checkpoint, to be read and not to be imported.",
		},
	}
}

// filtered are the parameters that pick events of an environment.
func filtered() []parameter {
	return []parameter{
		{name: "after", kind: positionOrZero, about: "The stream_id of the event after which to begin; 0 for the first one."},
		{name: "type", about: "Only events of this aggregate type."},
		{name: "event", about: "Only events of this type."},
		{name: "actor", kind: agent, about: "Only events caused by this actor, as type:id."},
		{name: "target", kind: agent, about: "Only events about this target, as type:id."},
		{name: "types", kind: texts, least: 1, most: command.MaxConditionTypes, about: "Only events of one of these types: type.event or type.*, with commas between them."},
		{name: "tags", kind: texts, least: 1, most: command.MaxConditionTags, about: "Only events that have all of these tags: name:value, actor:type:id or target:type:id, with commas between them; in a tag \\, is a comma and \\\\ a backslash."},
		{name: "correlation", kind: uuidText, about: "Only events with this correlation id."},
		generationParameter(),
	}
}

func fed() []parameter {
	return append(filtered(), sinceParameter(), countParameter(), parameter{
		name: "before", kind: positionOrNow, about: "Only events before this stream_id, the newest first; now for the newest of all. Not with after, since or wait.",
	}, parameter{name: "wait", kind: duration, most: 60, about: "How long to wait for an event if none is available."})
}

// sinceParameter is a time to begin at, in place of a position.
func sinceParameter() parameter {
	return parameter{name: "since", kind: moment, about: "Begin with the first event of this time, in Unix seconds or as RFC 3339. Not with after."}
}

// streamed adds the parameters of every stream to others.
func streamed(more ...parameter) []parameter {
	return append(more, parameter{name: "heartbeat", kind: duration, least: 1, most: 60, about: "The longest silence on the stream, after which a comment is sent; 15s by default."})
}

// readParameters reads the query of a request, in which only known names are accepted: a misspelt one would otherwise
// be ignored and the answer be a different one.
func (c *call) readParameters(known []parameter) error {
	raw := c.request.URL.RawQuery
	if raw == "" || len(known) == 1 && known[0].kind == ignored {
		return nil
	}
	query, err := url.ParseQuery(raw)
	if err != nil {
		return j17.Errorf(j17.CodeInvalidParameter, "The query string is malformed")
	}
	c.query = make(map[string]string, len(query))
	others := slices.ContainsFunc(known, func(p parameter) bool { return p.kind == further })
	for name, values := range query {
		at := slices.IndexFunc(known, func(p parameter) bool { return p.name == name })
		switch {
		case name == "":
			return j17.Errorf(j17.CodeInvalidParameter, "A query parameter has no name: write what it is called before the \"=\"")
		case at < 0 && !others:
			return unknownParameter(name, known)
		case at < 0 && !utf8.ValidString(name):
			return j17.Errorf(j17.CodeInvalidParameter, "The name of a query parameter is not UTF-8").At(safe(name))
		case len(values) > 1:
			return j17.Errorf(j17.CodeInvalidParameter, "The query parameter is given more than once").At(safe(name))
		case at < 0:
			if c.further == nil {
				c.further = map[string]string{}
			}
			c.further[name] = values[0]
			continue
		}
		if says := known[at].fault(values[0], c.api.Clock.Now()); says != "" {
			return j17.Errorf(j17.CodeInvalidParameter, "'%s' must be %s", name, says).At(name)
		}
		c.query[name] = values[0]
	}
	return nil
}

// unknownParameter is the error of a parameter that a route does not know.
func unknownParameter(name string, takes []parameter) error {
	names, all := knownHere(takes)
	e := j17.Errorf(j17.CodeInvalidParameter, "Unknown query parameter; %s", all)
	if meant := cmp.Or(wire.CalledHere(name, names), diag.Nearest(name, names)); meant != "" {
		e.Message = "Unknown query parameter; did you mean '" + meant + "'?"
	}
	return e.At(safe(name))
}

// namesOf returns the names of those parameters that have names of their own.
func namesOf(takes []parameter) []string {
	names, _ := knownHere(takes)
	return names
}

// knownHere returns the names of parameters, and text on parameters that have no fixed names.
func knownHere(takes []parameter) (names []string, all string) {
	names = make([]string, 0, len(takes))
	var others []string
	for _, p := range takes {
		switch {
		case p.kind != further:
			names = append(names, p.name)
		case p.about != "":
			others = append(others, p.about)
		}
	}
	return names, "known here: " + orNone(slices.Concat(names, others))
}

// fault says what a value must be, "" where it is valid.
func (p *parameter) fault(v string, now time.Time) string {
	switch p.kind {
	// Any text, and several of them.
	case text, ignored, further:
	case texts:
		elems := wire.SplitList(v)
		if uint64(len(elems)) > p.most || slices.Contains(elems, "") {
			return "a list of 1 to " + strconv.FormatUint(p.most, 10) + " texts with commas between them"
		}

	// Numbers and times.
	case whole:
		// Bounds are part of the sentence only where they are numbers that somebody might type.
		n, err := strconv.ParseUint(v, 10, 63)
		switch {
		case err == nil && n >= p.least && (p.most == 0 || n <= p.most):
		case p.most == 0 || p.most == math.MaxInt64:
			return "a whole number from " + strconv.FormatUint(p.least, 10) + " on"
		default:
			return "a whole number from " + strconv.FormatUint(p.least, 10) + " to " + strconv.FormatUint(p.most, 10)
		}
	case moment:
		_, says := momentOf(v, now)
		return says

	// One of some words.
	case flag:
		if !slices.Contains([]string{"true", "1", "false", "0"}, v) && !slices.Contains(p.choices, v) {
			return "true or false"
		}
	case choice:
		if !slices.Contains(p.choices, v) {
			return orList(p.choices)
		}

	// Values that name a moment, or an actor.
	case day:
		if _, err := dayOf(v); err != nil {
			return "a date such as 2026-11-21 or a time such as 2026-11-21T08:00:00Z"
		}
	case position:
		if _, err := j17.ParseStreamID(v); err != nil {
			return "the stream_id of an event, such as 1706789012345-0"
		}
	case positionOrNow:
		if _, err := j17.ParseStreamID(v); err != nil && v != "now" {
			return "the stream_id of an event, such as 1706789012345-0, or now"
		}
	case positionOrZero:
		if _, err := j17.ParsePosition(v); err != nil {
			return "the stream_id of an event, such as 1706789012345-0, or 0"
		}
	case agent:
		if _, ok := j17.ParseKey(v); !ok {
			return "a type and an id with a colon between them, such as user:global"
		}
	case uuidText:
		if j17.CorrelationTag(v) == "" {
			return "a UUID, such as 0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"
		}

	// Places, and how long something takes.
	case latitude:
		if n, ok := decimal(v); !ok || !(math.Abs(n) <= 90) {
			return "a number of degrees from -90 to 90"
		}
	case longitude:
		if n, ok := decimal(v); !ok || !(math.Abs(n) <= 180) {
			return "a number of degrees from -180 to 180"
		}
	case metres:
		if n, ok := decimal(v); !ok || !(n > 0) {
			return "a number of metres greater than 0"
		}
	case duration:
		if d, err := time.ParseDuration(v); err != nil || d < time.Duration(p.least)*time.Second ||
			d > time.Duration(p.most)*time.Second {
			return durationFault(p)
		}
	}
	return ""
}

// orList lists words as a sentence does: "a, b or c".
func orList(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func orNone(known []string) string {
	if len(known) == 0 {
		return "none"
	}
	return strings.Join(known, ", ")
}

// safe returns a name from outside in a form that is safe in an answer.
func safe(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "?")
}

// query has the values of parameters, which readParameters has checked against the table.
type query map[string]string

// number returns a whole number, or fallback without the parameter.
func (q query) number(name string, fallback int) int {
	v, ok := q[name]
	if !ok {
		return fallback
	}
	n, _ := strconv.Atoi(v) // checked
	return n
}

// isSet returns whether a flag is true.
func (q query) isSet(name string) bool {
	v, ok := q[name]
	return ok && v != "false" && v != "0"
}

// moment returns a time in Unix seconds, nil without the parameter.
func (c *call) moment(name string) *int64 {
	v, ok := c.query[name]
	if !ok {
		return nil
	}
	seconds, _ := momentOf(v, c.api.Clock.Now()) // checked
	return &seconds
}

// streamID returns the position of an event, the zero one without the parameter.
func (q query) streamID(name string) j17.StreamID {
	id, _ := j17.ParsePosition(q[name]) // checked
	return id
}

// duration returns a duration, or fallback without the parameter.
func (q query) duration(name string, fallback time.Duration) time.Duration {
	v, ok := q[name]
	if !ok {
		return fallback
	}
	d, _ := time.ParseDuration(v) // checked
	return d
}

// day returns a time, the zero one without the parameter.
func (q query) day(name string) time.Time {
	t, _ := dayOf(q[name]) // checked
	return t
}

// maxAhead is how far in the future the moment of a state may be: clocks differ, and a later time is hardly intended.
const maxAhead = 24 * time.Hour

// momentOf reads a time and cuts off fractions of a second. says is what the text must be, "" where it is valid.
func momentOf(v string, now time.Time) (seconds int64, says string) {
	const must = "a time in Unix seconds, such as 1705312800, or as RFC 3339, such as 2024-01-15T10:00:00Z"
	seconds, err := strconv.ParseInt(v, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && wire.LooksLikeMilliseconds(seconds):
		return 0, must + ". This one looks like milliseconds: divide it by 1000"
	case err != nil:
		t, err := time.Parse(time.RFC3339, strings.ToUpper(v))
		if _, unescaped := time.Parse(time.RFC3339, strings.Replace(strings.ToUpper(v), " ", "+", 1)); err != nil &&
			unescaped == nil {
			return 0, must + `. The "+" of an offset is written as %2B in a URL`
		}
		if err != nil {
			return 0, must
		}
		seconds = t.Unix()
	}
	if seconds < 0 {
		return 0, must + ", and not before 1970"
	}
	if ahead := now.Add(maxAhead); seconds > ahead.Unix() {
		return 0, must + ", and at most a day ahead: the time is " + now.UTC().Format(time.RFC3339) + " here"
	}
	return seconds, ""
}

// dayOf reads a time as RFC 3339 or as a date, which means its beginning in UTC.
func dayOf(v string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, v); err == nil {
		return t, nil
	}
	return time.Parse(time.DateOnly, v)
}
