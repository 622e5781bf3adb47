package tick

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/schema/format"
)

// nowNode is $now: the event's time in one of three forms.
type nowNode struct {
	seconds node
	form    string
}

func (n *nowNode) eval(e *Env) (value.Value, bool) {
	v, ok := n.seconds.eval(e)
	if !ok || n.form == "seconds" {
		return v, ok
	}
	seconds, _ := v.Int64()
	m := moment{kind: dateKind, wall: time.Unix(seconds, 0).UTC()}
	if n.form == "datetime" {
		m.kind, m.offset = dateTimeKind, "Z"
	}
	return m.value(), e.spend(timeWork)
}

// timeWork is what it takes to read a time and to write it.
const timeWork = 12

func (c *compiler) nowForm(v value.Value, at diag.Pointer, name string, _ bool) node {
	c.shape(v, at, name, []string{name}, nil)
	forms := []string{"seconds", "date", "datetime"}
	form := v.Get(name).Str()
	if !slices.Contains(forms, form) {
		c.unknownWord(at.Key(name), name, form, forms)
	}
	if c.scope.Plain {
		c.errorf(at.Key(name), "%s is the time of an event, and there is none here", name).Hintf("put the time into the state when an event happens")
		return &literal{}
	}
	path, _ := jsonpath.Parse("$.metadata.timestamp")
	return &nowNode{seconds: c.path(path, at.Key(name), false), form: form}
}

// unknownWord reports a word that has to be one of a list.
func (c *compiler) unknownWord(at diag.Pointer, what, word string, known []string) {
	d := c.errorf(at, "%s takes one of %s", what, wordList(known))
	if near := c.l.Nearest(word, known); near != "" {
		d.Hintf("did you mean %q?", near)
	} else {
		d.Hintf("write one of them as a text, such as %q", known[0])
	}
}

// timeKind is a form in which times are written.
type timeKind uint8

const (
	secondsKind timeKind = iota
	dateKind
	dateTimeKind
)

// moment is a time in the form in which it is written: Unix seconds, a date, or a date with a time and an offset.
type moment struct {
	kind timeKind
	// wall is what calendars and clocks show where the time was written, represented in UTC; its seconds are whole.
	wall time.Time
	// rest is the part below seconds: of a number as a number, of a text as its digits with their point.
	rest   value.Value
	digits string
	// offset is the offset from UTC as a text has it.
	offset string
}

// The years that can be written with four digits, and a bound on the seconds in them.
const (
	firstYear  = 0
	lastYear   = 9999
	maxSeconds = 366 * 24 * 60 * 60 * lastYear
)

// readMoment reads a time.
func readMoment(v value.Value) (moment, bool) {
	switch v.Kind() {
	case value.Number:
		whole, err := value.Rounded(v, 0, value.Floor)
		if err != nil {
			return moment{}, false
		}
		rest, err := value.Difference(v, whole)
		seconds, ok := whole.Int64()
		if err != nil || !ok || seconds > maxSeconds || seconds < -maxSeconds {
			return moment{}, false
		}
		m := moment{kind: secondsKind, wall: time.Unix(seconds, 0).UTC(), rest: rest}
		return m, m.written()
	case value.String:
		return parseMoment(v.Str())
	case value.Missing, value.Null, value.Bool, value.Array, value.Object:
	}
	return moment{}, false
}

const (
	dateLayout = "2006-01-02"
	wallLayout = "2006-01-02T15:04:05"
)

// parseMoment reads a date, or a date with a time and an offset as RFC 3339 has them: all that the formats "date" and
// "date-time" let through. "t" and "z" may be small letters. A leap second counts as the last second of its minute.
func parseMoment(text string) (moment, bool) {
	if len(text) == len(dateLayout) {
		wall, err := time.Parse(dateLayout, text)
		m := moment{kind: dateKind, wall: wall}
		return m, err == nil && m.written()
	}
	if len(text) <= len(wallLayout) {
		return moment{}, false
	}
	clock, leap := strings.CutSuffix(strings.ToUpper(text[:len(wallLayout)]), ":60")
	if leap {
		clock += ":59"
	}
	wall, err := time.Parse(wallLayout, clock)
	if err != nil {
		return moment{}, false
	}
	m := moment{kind: dateTimeKind, wall: wall}
	rest := text[len(wallLayout):]
	if rest[0] == '.' {
		end := 1 + len(rest[1:]) - len(strings.TrimLeft(rest[1:], "0123456789"))
		if end == 1 {
			return moment{}, false
		}
		m.digits, rest = rest[:end], rest[end:]
	}
	m.offset = strings.ToUpper(rest)
	offset, ok := parseOffset(m.offset)
	if leap && ok {
		utc := wall.Add(-offset)
		ok = utc.Hour() == 23 && utc.Minute() == 59 // leap seconds are inserted at the end of a day of UTC
	}
	return m, ok && m.written()
}

// parseOffset reads an offset from UTC.
func parseOffset(text string) (time.Duration, bool) {
	if text == "Z" {
		return 0, true
	}
	if len(text) != len("+00:00") || text[0] != '+' && text[0] != '-' {
		return 0, false
	}
	clock, err := time.Parse("15:04", text[1:])
	offset := time.Duration(clock.Hour())*time.Hour + time.Duration(clock.Minute())*time.Minute
	if text[0] == '-' {
		offset = -offset
	}
	return offset, err == nil
}

// written reports whether the time can be written.
func (m *moment) written() bool {
	year := m.wall.Year()
	return year >= firstYear && year <= lastYear
}

// value returns the time in its own form.
func (m *moment) value() value.Value {
	switch m.kind {
	case dateKind:
		return value.StringValue(m.wall.Format(dateLayout))
	case dateTimeKind:
		return value.StringValue(m.wall.Format(wallLayout) + m.digits + m.offset)
	case secondsKind:
	}
	seconds := value.Int(m.wall.Unix())
	if m.rest.Sign() == 0 {
		return seconds
	}
	v, _ := value.Sum(seconds, m.rest)
	return v
}

// duration is an amount of time: months, and seconds beside them.
type duration struct{ months, seconds int64 }

// maxAmount bounds the number of each unit in a duration: a longer one has no result anyway.
const maxAmount = 1_000_000_000_000

const daySeconds = 24 * 60 * 60

// parseDuration reads a number with a unit: seconds, minutes, hours, days, weeks, months ("mo") or years, backwards
// with a "-"; or what the format "duration" lets through, such as "P1M10DT12H".
func parseDuration(text string) (duration, bool) {
	if rest, ok := strings.CutPrefix(text, "P"); ok {
		period, _ := format.Lookup("duration")
		return parsePeriod(rest), period.Valid(text)
	}
	digits, negative := strings.CutPrefix(text, "-")
	end := len(digits) - len(strings.TrimLeft(digits, "0123456789"))
	if end == 0 || end > 18 {
		return duration{}, false
	}
	n := amount(digits[:end])
	if negative {
		n = -n
	}
	return unitsOf(n, digits[end:])
}

// amount reads a number of units.
func amount(digits string) int64 {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return maxAmount
	}
	return min(n, maxAmount)
}

// unitsOf returns a number of units as a duration. It reports false where there is no such unit.
func unitsOf(n int64, unit string) (duration, bool) {
	switch unit {
	case "y":
		return duration{months: 12 * n}, true
	case "mo":
		return duration{months: n}, true
	case "w":
		return duration{seconds: 7 * daySeconds * n}, true
	case "d":
		return duration{seconds: daySeconds * n}, true
	case "h":
		return duration{seconds: 60 * 60 * n}, true
	case "m":
		return duration{seconds: 60 * n}, true
	case "s":
		return duration{seconds: n}, true
	default:
		return duration{}, false
	}
}

// parsePeriod reads what follows the "P" of a duration of ISO 8601. The text must be valid.
func parsePeriod(text string) duration {
	var d duration
	units := map[byte]string{'Y': "y", 'M': "mo", 'W': "w", 'D': "d"}
	for start, i := 0, 0; i < len(text); i++ {
		switch {
		case text[i] == 'T':
			units = map[byte]string{'H': "h", 'M': "m", 'S': "s"}
			start = i + 1
		case text[i] > '9':
			part, _ := unitsOf(amount(text[start:i]), units[text[i]])
			d.months, d.seconds = d.months+part.months, d.seconds+part.seconds
			start = i + 1
		}
	}
	return d
}

// add returns the time later by a duration: months first, then the rest. It reports false where the result cannot be
// written, or where a date cannot take the duration because that is no whole number of days.
func (m moment) add(d duration) (moment, bool) {
	if m.kind == dateKind && d.seconds%daySeconds != 0 {
		return m, false
	}
	if d.months != 0 {
		var ok bool
		if m, ok = m.addMonths(d.months); !ok {
			return m, false
		}
	}
	if d.seconds > maxSeconds || d.seconds < -maxSeconds {
		return m, false
	}
	m.wall = time.Unix(m.wall.Unix()+d.seconds, 0).UTC()
	return m, m.written()
}

// addMonths goes to the same day of another month, or to its last day where there is no such day.
func (m moment) addMonths(n int64) (moment, bool) {
	year, month, day := m.wall.Date()
	if n > 12*lastYear || n < -12*lastYear {
		return m, false
	}
	first := time.Date(year, month+time.Month(n), 1, 0, 0, 0, 0, time.UTC)
	last := first.AddDate(0, 1, -1).Day()
	clock := time.Duration(m.wall.Unix()-time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()) * time.Second
	m.wall = first.AddDate(0, 0, min(day, last)-1).Add(clock)
	return m, m.written()
}

// timeUnits are what times can be cut down to.
func timeUnits() []string {
	return []string{"second", "minute", "hour", "day", "week", "month", "year"}
}

// truncate returns the beginning of the unit that the time is in. It reports false for a week that begins before the
// first year.
func (m moment) truncate(unit string) (moment, bool) {
	m.rest, m.digits = value.Value{}, ""
	year, month, day := m.wall.Date()
	hour, minute, second := m.wall.Clock()
	switch unit {
	case "year":
		month, day, hour, minute, second = 1, 1, 0, 0, 0
	case "month":
		day, hour, minute, second = 1, 0, 0, 0
	case "week":
		day -= (int(m.wall.Weekday()) + 6) % 7 // Monday is the first
		hour, minute, second = 0, 0, 0
	case "day":
		hour, minute, second = 0, 0, 0
	case "hour":
		minute, second = 0, 0
	case "minute":
		second = 0
	}
	m.wall = time.Date(year, month, day, hour, minute, second, 0, time.UTC)
	return m, m.written()
}

// durationNode is $add_duration.
type durationNode struct {
	at       diag.Pointer
	time, by node
}

func (n *durationNode) eval(e *Env) (value.Value, bool) {
	m, ok := e.moment(n.time, n.at, "$add_duration")
	if !ok {
		return value.Value{}, false
	}
	by, ok := n.by.eval(e)
	if !ok {
		return value.Value{}, false
	}
	if !e.spend(len(by.Str()) / textPerUnit) {
		return value.Value{}, false
	}
	d, ok := parseDuration(by.Str())
	if !ok {
		return e.misfits(n.at, `the duration of $add_duration is %s; it is a text like "30m", "7d", "-1mo" or "P1DT12H"`, otherText(by))
	}
	later, ok := m.add(d)
	switch {
	case ok:
		return later.value(), true
	case m.kind == dateKind && d.seconds%daySeconds != 0:
		return e.misfits(n.at, "the time of $add_duration is a date, which takes whole days")
	default:
		return e.misfits(n.at, "the result of $add_duration would not be in the years from %d to %d", firstYear, lastYear)
	}
}

// moment evaluates an operand that has to be a time.
func (e *Env) moment(of node, at diag.Pointer, name string) (moment, bool) {
	v, ok := of.eval(e)
	if !ok || !e.spend(timeWork+value.QuotientWork(v, value.Int(1))+len(v.Str())/textPerUnit) {
		return moment{}, false
	}
	m, ok := readMoment(v)
	if !ok {
		e.misfits(at, `the time of %s is %s; it takes Unix seconds, or a text like "2023-11-14" or "2023-11-14T22:13:20Z"`, name, otherText(v))
	}
	return m, ok
}

// otherText names a value by its kind, where a text of another form was needed.
func otherText(v value.Value) string {
	if v.Kind() == value.String {
		return "another text"
	}
	return kindOf(v)
}

// quoted is a value of a spec in a message: a number or a text as it is, where it is short, any other by its kind.
func quoted(v value.Value) string {
	if v.Kind() == value.String {
		return diag.Quote(v.Str())
	}
	return shown(v)
}

func (c *compiler) durationForm(v value.Value, at diag.Pointer, name string, _ bool) node {
	c.shape(v, at, name, []string{name}, nil)
	n := &durationNode{at: at.Key(name)}
	operands := v.Get(name)
	if operands.Kind() != value.Array || operands.Len() != 2 {
		c.errorf(n.at, "%s takes a time and a duration", name).Hintf(`write {"%s": ["$.metadata.timestamp", "7d"]}`, name)
		return &literal{}
	}
	n.time = c.time(operands.Index(0), n.at.Index(0), name)
	at = n.at.Index(1)
	n.by = c.operand(operands.Index(1), at, "a duration", value.String)
	if lit, ok := n.by.(*literal); ok && lit.v.Kind() == value.String {
		if _, ok := parseDuration(lit.v.Str()); !ok {
			c.errorf(at, "%s is no duration", quoted(lit.v)).
				Hintf(`write a number with one of the units s, m, h, d, w, mo and y, as in "90s", "7d" or "-1mo", or a duration of ISO 8601 such as "P1DT12H"`)
		}
	}
	return n
}

// time compiles an operand that has to be a time.
func (c *compiler) time(v value.Value, at diag.Pointer, name string) node {
	n := c.operand(v, at, "the time of "+name, value.Number, value.String)
	if lit, ok := n.(*literal); ok && (lit.v.Kind() == value.Number || lit.v.Kind() == value.String) {
		if _, ok := readMoment(lit.v); !ok {
			c.errorf(at, "%s is no time", quoted(lit.v)).Hintf(`write Unix seconds, or a text like "2023-11-14" or "2023-11-14T22:13:20Z"`)
		}
	}
	return n
}

// truncateNode is $date_trunc.
type truncateNode struct {
	at   diag.Pointer
	time node
	to   string
}

func (n *truncateNode) eval(e *Env) (value.Value, bool) {
	m, ok := e.moment(n.time, n.at, "$date_trunc")
	if !ok {
		return value.Value{}, false
	}
	begin, ok := m.truncate(n.to)
	if !ok {
		return e.misfits(n.at, "the result of $date_trunc would not be in the years from %d to %d", firstYear, lastYear)
	}
	return begin.value(), true
}

func (c *compiler) truncateForm(v value.Value, at diag.Pointer, name string, _ bool) node {
	c.shape(v, at, name, []string{name, "to"}, nil)
	n := &truncateNode{at: at.Key(name), time: c.time(v.Get(name), at.Key(name), name), to: v.Get("to").Str()}
	if to := v.Get("to"); !to.IsMissing() && !slices.Contains(timeUnits(), n.to) {
		c.unknownWord(at.Key("to"), `"to"`, n.to, timeUnits())
	}
	return n
}
