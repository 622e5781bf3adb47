package index

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/storage/store"
)

// scalars draws values that are close to each other in an index.
func scalars() *rapid.Generator[value.Value] {
	return rapid.Custom(func(t *rapid.T) value.Value {
		switch rapid.IntRange(0, 8).Draw(t, "kind") {
		case 0:
			return value.Value{}
		case 1:
			return value.NullValue()
		case 2:
			return value.BoolValue(rapid.Bool().Draw(t, "truth"))
		case 3, 4, 5:
			digits := rapid.StringMatching(`[0-9]{1,4}`).Draw(t, "digits")
			if rapid.IntRange(0, 9).Draw(t, "long") == 0 {
				digits += strings.Repeat(
					rapid.SampledFrom([]string{"0", "9", "12"}).Draw(t, "repeated"),
					40+rapid.IntRange(0, 80).Draw(t, "times"),
				)
			}
			text := strings.TrimLeft(digits, "0")
			if text == "" {
				text = "0"
			}
			if fraction := rapid.StringMatching(`[0-9]{0,3}`).Draw(t, "fraction"); fraction != "" {
				text += "." + fraction
			}
			if rapid.Bool().Draw(t, "negative") {
				text = "-" + text
			}
			if rapid.Bool().Draw(t, "scientific") {
				text += fmt.Sprintf("e%d", rapid.IntRange(-400, 400).Draw(t, "exponent"))
			}
			v, err := value.ParseString(text)
			if err != nil {
				t.Fatal(err)
			}
			return v
		default:
			// Texts of few letters, with long parts that they have in common.
			s := rapid.StringOfN(rapid.SampledFrom([]rune("\x00\x01\x02\x03aé~\U0001F600")), 0, 4, -1).Draw(t, "text")
			if rapid.IntRange(0, 2).Draw(t, "long") == 0 {
				s = strings.Repeat("é", rapid.IntRange(40, 70).Draw(t, "times")) + s
			}
			return value.StringValue(s)
		}
	})
}

// rank orders kinds as indexes do.
func rank(v value.Value) int {
	switch v.Kind() {
	case value.Missing, value.Null:
		return 0
	case value.Bool:
		if v.Truth() {
			return 2
		}
		return 1
	case value.Number:
		return 3
	case value.String:
		return 4
	case value.Array, value.Object:
	}
	return 5
}

// order compares values as indexes do.
func order(a, b value.Value) int {
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	if a.Kind() == value.String {
		return strings.Compare(a.Str(), b.Str())
	}
	c, _ := value.Compare(a, b)
	return c
}

// shown reports whether two values differ in what their entries show.
func shown(a, b value.Value, room int) bool {
	x, short := appendValue(nil, a, room)
	y, too := appendValue(nil, b, room)
	return short || too || groupOf(x) != groupOf(y)
}

// TestEntriesHaveTheOrderOfValues: entries are ordered as their values are, except for what was cut, and are the same
// for equal values only. All are keys that a store takes.
func TestEntriesHaveTheOrderOfValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fields := rapid.IntRange(1, MaxFields).Draw(t, "fields")
		a := rapid.SliceOfN(scalars(), fields, fields).Draw(t, "a")
		b := slices.Clone(a)
		b[rapid.IntRange(0, fields-1).Draw(t, "changed")] = scalars().Draw(t, "b")
		x, y := NewEntry(3, a...), NewEntry(3, b...)
		want, all := 0, true
		for i := range a {
			if want = order(a[i], b[i]); want != 0 {
				all = shown(a[i], b[i], roomOf(fields))
				break
			}
		}
		got := strings.Compare(x.text, y.text)
		if (got == 0) != (want == 0) || all && got != want {
			t.Fatalf("%v and %v: %d, want %d\n%q\n%q", a, b, got, want, x.text, y.text)
		}
		if key := entryKey("0123456789", x.text, strings.Repeat("i", 200)); len(key) > store.MaxNameBytes ||
			!utf8.ValidString(key) || strings.Contains(key, "\x00") {
			t.Fatalf("a key of %d bytes, %q", len(key), key)
		}
		for i := range a {
			whole := x.whole
			if whole == "" {
				whole = x.text
			}
			if got, _ := appendValue(nil, a[i], maxWhole); component(whole, i) != string(got) {
				t.Fatalf("value %d of %q is %q, want %q", i, whole, component(whole, i), got)
			}
		}
	})
}

// TestRanges: a range has the entries that its bounds say, also where values were cut.
func TestRanges(t *testing.T) {
	text := func(v value.Value) string { return v.Str() }
	rapid.Check(t, func(t *rapid.T) {
		fields := rapid.IntRange(1, MaxFields).Draw(t, "fields")
		values := rapid.SliceOfN(scalars(), fields, fields).Draw(t, "values")
		given := rapid.IntRange(0, fields-1).Draw(t, "given")
		head := slices.Clone(values[:given])
		if given > 0 && rapid.IntRange(0, 4).Draw(t, "other") == 0 {
			head[0] = scalars().Draw(t, "head")
		}
		v, r := values[given], All(1, fields).Equal(head...)
		want := true
		for i := range head {
			want = want && order(head[i], values[i]) == 0
		}
		near := func(label string) value.Value {
			if v.Kind() == value.String && rapid.Bool().Draw(t, "near") {
				return value.StringValue(text(v) + rapid.SampledFrom([]string{"", "a", "\x01"}).Draw(t, label))
			}
			return scalars().Draw(t, label)
		}
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			prefix := text(near("prefix"))
			want = want && v.Kind() == value.String && strings.HasPrefix(text(v), prefix)
			r = r.Prefix(prefix)
		case 1:
			var low, high Bound
			if rapid.Bool().Draw(t, "low") {
				low = Bound{near("low"), rapid.Bool().Draw(t, "exclusive")}
			}
			if rapid.Bool().Draw(t, "high") {
				high = Bound{near("high"), rapid.Bool().Draw(t, "exclusive")}
			}
			same := func(b Bound) bool {
				a, b2 := rank(b.Value), rank(v)
				return a == b2 || (a == 1 || a == 2) && (b2 == 1 || b2 == 2)
			}
			if low.Value.IsMissing() && high.Value.IsMissing() {
				want = want && rank(v) == 0
			}
			if !low.Value.IsMissing() {
				c := order(v, low.Value)
				want = want && same(low) && (c > 0 || c == 0 && !low.Exclusive)
			}
			if !high.Value.IsMissing() {
				c := order(v, high.Value)
				want = want && same(high) && (c < 0 || c == 0 && !high.Exclusive)
			}
			r = r.Between(low, high)
		}
		e := NewEntry(1, values...)
		if got := r.has(e.text, e.whole); got != want {
			t.Fatalf("%v in %+v: %v, want %v", values, r, got, want)
		}
	})
}

// TestOthers: what is neither a scalar nor an array of scalars stands in one place, behind all others; elements of
// arrays stand for themselves, each once.
func TestOthers(t *testing.T) {
	parse := func(text string) value.Value {
		v, err := value.ParseString(text)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for text, want := range map[string]int{
		`[]`: 1, `{}`: 1, `[1, 1.0, "1"]`: 2, `[[1], {"a": 1}, null]`: 2, `"a"`: 1, `null`: 1,
	} {
		entries, ok := Entries(1, parse(text), parse(`[1, 2]`))
		if !ok || len(entries) != 2*want {
			t.Errorf("%s has %d entries, want %d", text, len(entries), 2*want)
		}
	}
	other := NewEntry(1, parse(`[]`))
	if other != NewEntry(1, parse(`{"a": 1}`)) || other.text < NewEntry(1, value.StringValue("\U0010FFFF")).text ||
		other == NewEntry(1, value.NullValue()) {
		t.Errorf("others are %q", other)
	}
	many := value.ArrayValue(slices.Collect(func(yield func(value.Value) bool) {
		for i := range 101 {
			if !yield(value.Int(int64(i))) {
				return
			}
		}
	})...)
	if _, ok := Entries(1, many, many); ok {
		t.Error("there is no bound")
	}
}

// TestWords: words are those of Unicode, without case, each once, however letters with marks are written.
func TestWords(t *testing.T) {
	for text, want := range map[string][]string{
		"The quick (“brown”) fox can’t jump 32.3 feet, right?": {"the", "quick", "brown", "fox", "can’t", "jump", "32.3", "feet", "right"},
		"the THE The": {"the"},
		"Straße STRASSE ΣΊΣΥΦΟΣ σίσυφος": {"strasse", "σίσυφοσ"},
		"東京 タワー":                             {"東", "京", "タワー"},
		" ... – \n":                          nil,
		"café cafe\u0301 CAFÉ Cafe":          {"café", "cafe"},
		"Å A\u030a \u212b \u212a k":          {"å", "k"},
		"\u01f0 j\u030c J\u030c":             {"\u01f0"}, // its capital has no character of its own
		"\u1100\u1161\u11a8 각":               {"각"},
		"ﬁn FIN q\u0323\u0307 q\u0307\u0323": {"fin", "q\u0323\u0307"},
	} {
		if got := SplitWords(text); !slices.Equal(got, want) {
			t.Errorf("%q has the words %q, want %q", text, got, want)
		}
	}
	if !strings.Contains(WordsVersion(), norm.Version) {
		t.Errorf("%q does not change with the tables of letters", WordsVersion())
	}
	if _, ok := Words(1, strings.Repeat("a", 10)); !ok {
		t.Error("one word is too many")
	}
}

// TestAskedWords: the last word of a question is the last one of its text, whatever stands before it.
func TestAskedWords(t *testing.T) {
	for text, want := range map[string][]string{
		"blue ki":            {"blue", "ki"},
		"Blue kit BLUE":      {"blue", "kit", "blue"},
		"kit kit":            {"kit", "kit"},
		"a b a b c b":        {"a", "b", "c", "b"},
		"kit, kit and, kit!": {"kit", "and", "kit"},
		" ... ":              nil,
	} {
		if got := AskedWords(text); !slices.Equal(got, want) {
			t.Errorf("%q asks for %q, want %q", text, got, want)
		}
	}
}

// TestRecords: a record is read as it was written, and what is no record is refused.
func TestRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var row Row
		for range rapid.IntRange(0, 4).Draw(t, "entries") {
			row.Entries = append(
				row.Entries,
				NewEntry(rapid.IntRange(0, 3).Draw(t, "n"), scalars().Draw(t, "v"), scalars().Draw(t, "w")),
			)
		}
		for _, id := range rapid.SliceOfN(rapid.StringMatching("[a-z]{1,3}"), 0, 3).Draw(t, "sources") {
			row.Sources = append(row.Sources, j17.Key{Type: "source", ID: id})
		}
		rec := recordOf(&row)
		back, err := parseRecord(rec.encode())
		if err != nil || !slices.Equal(back.entries, rec.entries) || !slices.Equal(back.names, rec.names) {
			t.Fatalf("%+v, %v, want %+v", back, err, rec)
		}
		// Whatever it is, it is refused or read, and does not panic or take much room.
		_, _ = parseRecord(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
	})
}

// TestMeasureAgreesWithEntries: how many entries there are, and how many bytes, is what they are when they are made.
func TestMeasureAgreesWithEntries(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := make([]value.Value, rapid.IntRange(1, MaxFields).Draw(t, "fields"))
		for i := range values {
			values[i] = scalars().Draw(t, "value")
			if rapid.Bool().Draw(t, "array") {
				values[i] = value.ArrayValue(rapid.SliceOfN(
					scalars(), 0, rapid.SampledFrom([]int{3, 30, 200}).Draw(t, "most"),
				).Draw(t, "elements")...)
			}
		}
		entries, ok := Entries(1, values...)
		size := 0
		for _, e := range entries {
			size += e.Size()
		}
		n, bytes, measured := Measure(work.Counted(work.Replay), values...)
		if measured != ok || ok && (n != len(entries) || bytes != size) {
			t.Fatalf("%d entries of %d bytes, %t; measured %d of %d, %t", len(entries), size, ok, n, bytes, measured)
		}
	})
	if _, _, ok := Measure(work.Counted(10), value.ArrayValue(value.NullValue(), value.NullValue())); ok {
		t.Error("a budget that is used up is passed over")
	}
}
