package tick_test

import (
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"pgregory.net/rapid"

	"j17/internal/base/value"
)

// operator computes an operator from its definition: numbers are fractions, texts are lists of code points, times are
// counted day by day. It reports false where v is none.
func (n *naive) operator(v value.Value) (value.Value, bool) {
	var name string
	for _, m := range v.Members() {
		if strings.HasPrefix(m.Key, "$") {
			name = m.Key
			break
		}
	}
	o := v.Get(name)
	switch name {
	case "$coalesce":
		for _, item := range o.Elems() {
			if got := n.item(item); !isAbsent(got) {
				return got, true
			}
		}
		return value.NullValue(), true
	case "$if":
		if n.chooses(o) {
			return n.value(v.Get("then")), true
		}
		return n.value(v.Get("else").OrNull()), true
	case "$concat":
		var b strings.Builder
		for _, item := range o.Elems() {
			got := n.value(item)
			if text := got.Str(); got.Kind() == value.String {
				b.WriteString(text)
			} else if got.Kind() != value.Null {
				b.WriteString(got.String())
			}
		}
		return value.StringValue(b.String()), true
	case "$add", "$multiply", "$min", "$max", "$subtract":
		return n.combined(name, o), true
	case "$negate", "$abs":
		d := n.number(o)
		if name == "$negate" || d.Sign() < 0 {
			d.Rat = new(big.Rat).Neg(d.Rat)
		}
		return d.value(), true
	case "$divide", "$round":
		return n.quotient(name, v), true
	case "$sum", "$count":
		return n.folded(name, v), true
	case "$lower", "$upper", "$trim", "$slice":
		return n.text(name, v), true
	case "$split", "$join", "$number", "$case":
		return n.translated(name, v), true
	case "$now":
		seconds, _ := follow(n.event, "metadata.timestamp").Int64()
		layout := map[string]string{"date": "2006-01-02", "datetime": "2006-01-02T15:04:05Z"}[o.Str()]
		if layout == "" {
			return value.Int(seconds), true
		}
		return value.StringValue(time.Unix(seconds, 0).UTC().Format(layout)), true
	case "$add_duration":
		return later(n.value(o.Index(0)), n.value(o.Index(1))), true
	case "$date_trunc":
		return begin(n.value(o), v.Get("to").Str()), true
	default:
		return value.Value{}, false
	}
}

// chooses is decides, but that a predicate which cannot be decided does not fit.
func (n *naive) chooses(p value.Value) bool {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(skipped); !ok {
				panic(r)
			}
			panic(misfit{})
		}
	}()
	return n.decides(p)
}

// fraction is a number with its digits after the point, fewer than none where it ends in zeros before it.
type fraction struct {
	*big.Rat
	scale int
}

func fractionOf(v value.Value) fraction {
	text := v.Num()
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		panic(misfit{})
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	_, digits, _ := strings.Cut(mantissa, ".")
	e, _ := new(big.Int).SetString("0"+strings.TrimLeft(exponent, "+-0"), 10)
	shift := int(e.Int64())
	if strings.HasPrefix(exponent, "-") {
		shift = -shift
	}
	return fraction{r, len(digits) - shift}
}

// value is the number if it is one that operators may have.
func (f fraction) value() value.Value {
	text := f.FloatString(max(f.scale, 0))
	if f.Sign() == 0 {
		text = strings.TrimPrefix(text, "-")
	}
	largest := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(400), nil))
	size := new(big.Rat).Abs(f.Rat)
	if len(strings.Trim(text, "-"))-strings.Count(text, ".") > value.MaxDigits || size.Cmp(largest) > 0 ||
		size.Sign() > 0 && size.Cmp(new(big.Rat).Inv(largest)) < 0 {
		panic(misfit{})
	}
	v, err := value.ParseStored(text)
	if err != nil {
		panic(err)
	}
	return v
}

func (n *naive) number(v value.Value) fraction { return fractionOf(n.value(v)) }

func (n *naive) combined(name string, o value.Value) value.Value {
	var operands []value.Value
	if o.Kind() == value.Array {
		for i, elem := range o.Elems() {
			operands = append(operands, n.value(elem))
			n.fits(name, operands[i], operands[0])
		}
	} else {
		array := n.value(o)
		if array.Kind() != value.Array {
			panic(misfit{})
		}
		operands = array.Elems()
		for _, elem := range operands {
			n.fits(name, elem, operands[0])
		}
	}
	if name == "$min" || name == "$max" {
		if len(operands) == 0 {
			panic(misfit{})
		}
		out := operands[0]
		for _, next := range operands[1:] {
			if order, _ := value.Compare(next, out); order < 0 && name == "$min" || order > 0 && name == "$max" {
				out = next
			}
		}
		if out.Kind() == value.String {
			return out
		}
		f := fractionOf(out)
		got := f.value()
		if f.Sign() != 0 {
			return out // as it is written
		}
		return got
	}
	total := fraction{new(big.Rat), 0}
	if name == "$multiply" {
		total.Rat = big.NewRat(1, 1)
	}
	for i, elem := range operands {
		f := fractionOf(elem)
		switch {
		case name == "$multiply":
			total = fraction{new(big.Rat).Mul(total.Rat, f.Rat), total.scale + f.scale}
			if i > 0 {
				total.scale = max(total.scale, 0) // what is computed has no exponent
			}
		case name == "$subtract" && i > 0:
			total = fraction{new(big.Rat).Sub(total.Rat, f.Rat), max(total.scale, f.scale)}
		default:
			total = fraction{new(big.Rat).Add(total.Rat, f.Rat), max(total.scale, f.scale)}
		}
	}
	return total.value()
}

func (n *naive) fits(name string, v, first value.Value) {
	switch {
	case v.Kind() == value.Number && (first.Kind() == value.Number || name != "$min" && name != "$max"):
	case v.Kind() == value.String && first.Kind() == value.String && (name == "$min" || name == "$max"):
	default:
		panic(misfit{})
	}
}

func (n *naive) quotient(name string, v value.Value) value.Value {
	a, b := v.Get(name), value.Int(1)
	if name == "$divide" {
		a, b = a.Index(0), n.value(v.Get(name).Index(1))
	}
	of := n.value(a)
	if of.Kind() != value.Number || b.Kind() != value.Number || b.Sign() == 0 {
		panic(misfit{})
	}
	q := new(big.Rat).Quo(fractionOf(of).Rat, fractionOf(b).Rat)
	if v.Get("scale").IsMissing() {
		rest := new(big.Int).Set(q.Denom())
		for _, prime := range []int64{2, 5} {
			for new(big.Int).Rem(rest, big.NewInt(prime)).Sign() == 0 {
				rest.Quo(rest, big.NewInt(prime))
			}
		}
		if rest.Cmp(big.NewInt(1)) != 0 {
			panic(misfit{}) // it has no last digit
		}
		for scale := range value.MaxDigits {
			if power := new(big.Int).Exp(
				big.NewInt(10), big.NewInt(int64(scale)), nil,
			); new(big.Int).Rem(power, q.Denom()).Sign() == 0 {
				return fraction{q, scale}.value()
			}
		}
		panic(misfit{})
	}
	given := n.value(v.Get("scale"))
	scale, ok := given.Int64()
	if !ok || scale < 0 || scale > value.MaxScale {
		panic(misfit{})
	}
	// Away from zero, or towards it, by what is cut off.
	power := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(scale), nil))
	scaled := new(big.Rat).Mul(q, power)
	whole := new(big.Int).Quo(scaled.Num(), scaled.Denom())
	rest := new(big.Rat).Abs(new(big.Rat).Sub(scaled, new(big.Rat).SetInt(whole)))
	half := rest.Cmp(big.NewRat(1, 2))
	away := rest.Sign() > 0
	switch v.Get("rounding").Str() {
	case "up":
	case "down":
		away = false
	case "ceiling":
		away = away && q.Sign() > 0
	case "floor":
		away = away && q.Sign() < 0
	case "half_up":
		away = half >= 0
	case "half_down":
		away = half > 0
	default:
		away = half > 0 || half == 0 && whole.Bit(0) == 1
	}
	if away {
		whole.Add(whole, big.NewInt(int64(q.Sign())))
	}
	return fraction{new(big.Rat).Quo(new(big.Rat).SetInt(whole), power), int(scale)}.value()
}

func (n *naive) folded(name string, v value.Value) value.Value {
	array := n.array(v.Get(name))
	if array.Kind() != value.Array {
		panic(misfit{})
	}
	total := fraction{new(big.Rat), 0}
	for _, elem := range array.Elems() {
		inner := n.with(binding(v), elem)
		if where := v.Get("where"); name == "$count" {
			if where.IsMissing() || inner.decides(where) {
				total.Add(total.Rat, big.NewRat(1, 1))
			}
			continue
		}
		if of := v.Get("of"); !of.IsMissing() {
			elem = inner.value(of)
		}
		f := fractionOf(elem)
		total = fraction{new(big.Rat).Add(total.Rat, f.Rat), max(total.scale, f.scale)}
	}
	return total.value()
}

func (n *naive) text(name string, v value.Value) value.Value {
	of := n.value(v.Get(name))
	if of.Kind() != value.String {
		panic(misfit{})
	}
	runes := []rune(of.Str())
	switch name {
	case "$lower", "$upper":
		for i, r := range runes {
			if runes[i] = unicode.ToLower(r); name == "$upper" {
				runes[i] = unicode.ToUpper(r)
			}
		}
	case "$trim":
		for len(runes) > 0 && unicode.IsSpace(runes[0]) {
			runes = runes[1:]
		}
		for len(runes) > 0 && unicode.IsSpace(runes[len(runes)-1]) {
			runes = runes[:len(runes)-1]
		}
	default:
		place := func(key string, missing int) int {
			given := v.Get(key)
			if given.IsMissing() {
				return missing
			}
			at := n.number(given)
			if !at.IsInt() {
				panic(misfit{})
			}
			if at.Sign() < 0 {
				at.Rat = new(big.Rat).Add(at.Rat, big.NewRat(int64(len(runes)), 1))
			}
			if at.Sign() < 0 {
				return 0
			}
			if at.Cmp(big.NewRat(int64(len(runes)), 1)) > 0 {
				return len(runes)
			}
			return int(at.Num().Int64())
		}
		from, to := place("from", 0), place("to", len(runes))
		runes = runes[from:max(from, to)]
	}
	return value.StringValue(string(runes))
}

// aTime is a time taken apart: what clocks and calendars show, and how to write another one like it.
type aTime struct {
	time.Time
	write func(t time.Time, fraction bool) value.Value
	date  bool
}

func timeOf(v value.Value) aTime {
	if v.Kind() == value.Number {
		f := fractionOf(v)
		whole := new(big.Int).Div(f.Num(), f.Denom())
		if !whole.IsInt64() || whole.BitLen() > 40 {
			panic(misfit{})
		}
		rest := fraction{new(big.Rat).Sub(f.Rat, new(big.Rat).SetInt(whole)), f.scale}
		return inYears(aTime{Time: time.Unix(whole.Int64(), 0).UTC(), write: func(t time.Time, with bool) value.Value {
			if !with || rest.Sign() == 0 {
				return value.Int(t.Unix())
			}
			return fraction{new(big.Rat).Add(rest.Rat, new(big.Rat).SetInt64(t.Unix())), f.scale}.value()
		}})
	}
	parts := regexp.MustCompile(`^(\d{4}-\d{2}-\d{2})(?:T(\d{2}:\d{2}:\d{2})(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))?$`).FindStringSubmatch(strings.ToUpper(v.Str()))
	if parts == nil {
		panic(misfit{})
	}
	clock := parts[2]
	if strings.HasSuffix(clock, ":60") {
		// A leap second is the one after 23:59:59 in UTC.
		clock = strings.TrimSuffix(clock, "60") + "59"
		t, err := time.Parse(time.RFC3339, parts[1]+"T"+clock+parts[4])
		if err != nil || !strings.HasSuffix(t.UTC().Format("15:04:05"), "23:59:59") {
			panic(misfit{})
		}
	}
	if clock == "" {
		clock = "00:00:00"
	}
	t, err := time.Parse("2006-01-02 15:04:05", parts[1]+" "+clock)
	if err != nil {
		panic(misfit{})
	}
	return inYears(aTime{Time: t, date: parts[2] == "", write: func(t time.Time, with bool) value.Value {
		switch {
		case parts[2] == "":
			return value.StringValue(t.Format("2006-01-02"))
		case with:
			return value.StringValue(t.Format("2006-01-02T15:04:05") + parts[3] + parts[4])
		default:
			return value.StringValue(t.Format("2006-01-02T15:04:05") + parts[4])
		}
	}})
}

func inYears(t aTime) aTime {
	if t.Year() < 0 || t.Year() > 9999 {
		panic(misfit{})
	}
	return t
}

func later(from, by value.Value) value.Value {
	t := timeOf(from)
	if iso := regexp.MustCompile(`^P(?:(\d+)W|(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?)$`).FindStringSubmatch(by.Str()); iso != nil {
		return laterByPeriod(from, t.date, iso)
	}
	parts := regexp.MustCompile(`^(-?)(\d{1,18})(s|m|h|d|w|mo|y)$`).FindStringSubmatch(by.Str())
	if parts == nil {
		panic(misfit{})
	}
	n, _ := strconv.Atoi(parts[2])
	if n > 400_000_000_000 { // seconds of all years
		panic(misfit{})
	}
	if parts[1] != "" {
		n = -n
	}
	switch unit := parts[3]; unit {
	case "mo", "y":
		if unit == "y" {
			n *= 12
		}
		if n > 200_000 || n < -200_000 {
			panic(misfit{})
		}
		day := t.Day()
		for time.Date(t.Year(), t.Month()+time.Month(n), day, 0, 0, 0, 0, time.UTC).Day() != day {
			day-- // there is no such day in the month
		}
		t.Time = time.Date(t.Year(), t.Month()+time.Month(n), day, t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
	default:
		seconds := n * map[string]int{"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}[unit]
		if t.date && seconds%86400 != 0 {
			panic(misfit{})
		}
		if seconds/86400 > 4_000_000 || seconds/86400 < -4_000_000 {
			panic(misfit{})
		}
		t.Time = t.AddDate(0, 0, seconds/86400).Add(time.Duration(seconds%86400) * time.Second)
	}
	return t.write(inYears(t).Time, true)
}

// laterByPeriod adds the parts of a duration of ISO 8601: weeks, or years, months, days, hours, minutes and seconds.
func laterByPeriod(from value.Value, date bool, parts []string) value.Value {
	if strings.HasSuffix(parts[0], "T") || parts[0] == "P" {
		panic(misfit{})
	}
	count := func(i int) int {
		n, err := strconv.Atoi("0" + parts[i])
		if err != nil || n > 400_000_000_000 {
			panic(misfit{})
		}
		return n
	}
	// What is between two units cannot be left out.
	for _, gap := range [][]int{{2, 3, 4}, {5, 6, 7}} {
		if parts[gap[0]] != "" && parts[gap[1]] == "" && parts[gap[2]] != "" {
			panic(misfit{})
		}
	}
	months := 12*count(2) + count(3)
	seconds := 86400*(7*count(1)+count(4)) + 3600*count(5) + 60*count(6) + count(7)
	if date && seconds%86400 != 0 {
		panic(misfit{})
	}
	if months > 0 {
		from = later(from, value.StringValue(strconv.Itoa(months)+"mo"))
	}
	if date {
		return later(from, value.StringValue(strconv.Itoa(seconds/86400)+"d"))
	}
	return later(from, value.StringValue(strconv.Itoa(seconds)+"s"))
}

func begin(of value.Value, unit string) value.Value {
	t := timeOf(of)
	back := func(step time.Duration, until func() bool) {
		for !until() {
			t.Time = t.Add(-step)
		}
	}
	if unit != "second" {
		back(time.Second, func() bool { return t.Second() == 0 })
	}
	if unit != "second" && unit != "minute" {
		back(time.Minute, func() bool { return t.Minute() == 0 })
	}
	if unit != "second" && unit != "minute" && unit != "hour" {
		back(time.Hour, func() bool { return t.Hour() == 0 })
	}
	switch unit {
	case "week":
		back(24*time.Hour, func() bool { return t.Weekday() == time.Monday })
	case "month":
		back(24*time.Hour, func() bool { return t.Day() == 1 })
	case "year":
		back(24*time.Hour, func() bool { return t.YearDay() == 1 })
	}
	return t.write(inYears(t).Time, false)
}

// optional leaves the operation out where an optional path of a value leads nowhere. Those in operators are looked at
// when they are computed.
func (n *naive) optional(v value.Value) {
	switch v.Kind() {
	case value.String:
		if isPathText(v.Str()) {
			n.path(v.Str())
		}
	case value.Array:
		for _, elem := range v.Elems() {
			n.optional(elem)
		}
	case value.Object:
		if p := v.Get("$"); !p.IsMissing() {
			n.path(p.Str())
			return
		}
		if slices.ContainsFunc(v.Members(), func(m value.Member) bool { return strings.HasPrefix(m.Key, "$") }) {
			return
		}
		for _, m := range v.Members() {
			n.optional(m.Value)
		}
	case value.Missing, value.Null, value.Bool, value.Number:
	}
}

// operator draws an operator that computes a number, and mostly has one.
func (g *generator) operator(depth int) value.Value {
	operand := func() value.Value {
		switch {
		case depth > 0 && g.one(4):
			return g.operator(depth - 1)
		case g.one(8):
			return str(g.path())
		case g.one(3):
			return g.numberLiteral()
		default:
			return str(g.pick("number path", "$.data.n", "@.n", "@.k", "$.data.n?", "$.state.k"))
		}
	}
	array := str(g.pick("array path", "@.t", "$.data.l", "@.l", "$.data.v"))
	var out value.Value
	switch rapid.IntRange(0, 11).Draw(g.T, "operator") {
	case 0, 1:
		items := []value.Value{str("@.k"), operand()}
		for g.one(3) {
			items = append(items, operand())
		}
		out = obj(g.pick("numbers", "$add", "$multiply", "$min", "$max"), value.ArrayValue(items...))
	case 2:
		out = obj(g.pick("array", "$add", "$multiply", "$min", "$max"), array)
	case 3:
		out = obj("$subtract", value.ArrayValue(operand(), str("@.k")))
	case 4:
		out = obj("$divide", value.ArrayValue(str("@.k"), operand()))
	case 5:
		out = obj("$divide", value.ArrayValue(operand(), str("$.data.n")), "scale",
			value.Int(int64(rapid.IntRange(0, 20).Draw(g.T, "scale"))),
			"rounding", g.pick("rounding", value.Roundings()...))
	case 6:
		out = obj("$round", operand(), "scale", g.pick("scale path", "@.k", "$.data.n"))
	case 7:
		out = obj(g.pick("sign", "$negate", "$abs"), operand())
	case 8:
		pairs := []any{"$sum", array}
		var of value.Value
		g.named(&pairs, func() {
			of = obj(
				"$multiply",
				value.ArrayValue(str(g.bindings[len(g.bindings)-1]+g.pick("part", "", ".n", ".id")), operand()),
			)
		})
		out = obj(append(pairs, "of", of)...)
	case 9:
		pairs := []any{"$count", array}
		var where value.Value
		g.named(&pairs, func() { where = g.predicate(1) })
		out = obj(append(pairs, "where", where)...)
	case 10:
		out = obj(g.pick("fold", "$sum", "$count"), array)
	default:
		out = obj("$coalesce", value.ArrayValue(str(g.path()), operand()))
	}
	return out
}

// text draws an operator that computes a text, or a time.
func (g *generator) text() value.Value {
	from := str(g.pick("text path", "$.data.s", "@.s", "$.type", "$.key", "$.data.v"))
	at := str(g.pick("time path", "$.metadata.timestamp", "@.n", "$.data.n", "$.data.s"))
	switch rapid.IntRange(0, 6).Draw(g.T, "text") {
	case 5:
		return obj("$add_duration", value.ArrayValue(
			at, str(
				g.pick("duration", "90s", "-30m", "25h", "40d", "-2w", "11mo", "-1y", "P1M10DT12H", "P2W", "$.data.s"),
			),
		))
	case 6:
		return obj("$date_trunc", at, "to", g.pick("unit", "second", "minute", "hour", "day", "week", "month", "year"))
	case 0:
		return obj(g.pick("case", "$lower", "$upper", "$trim"), from)
	case 1:
		return obj(
			"$slice", from, "from", value.Int(int64(rapid.IntRange(-9, 9).Draw(g.T, "from"))), "to",
			value.Int(int64(rapid.IntRange(-9, 9).Draw(g.T, "to"))),
		)
	case 2:
		return obj("$slice", from, "from", str("@.n"))
	case 3:
		return obj("$now", g.pick("now", "seconds", "date", "datetime"))
	default:
		return obj("$concat", value.ArrayValue(from, str("-"), str(g.path())))
	}
}
