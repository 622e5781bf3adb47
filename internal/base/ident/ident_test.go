package ident_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"j17"
	"j17/internal/base/ident"
)

const (
	v1 = "a0000000-0000-1000-a000-000000000001"
	v4 = "a0000000-0000-4000-a000-000000000001"
	v5 = "b0000000-0000-5000-8000-00000000000f"
	v7 = "0190a5c8-7b1a-7c3d-9e4f-0123456789ab"
)

func rules(tb testing.TB, versions []int, singletons ...string) *ident.Rules {
	tb.Helper()
	r, err := ident.NewRules(versions, singletons)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func TestCheckAccepts(t *testing.T) {
	r := rules(t, nil, "dashboard", "twilio_webhook", "Stripe-2.0", "ABC123XYZ", strings.ToUpper(v5))
	for _, c := range []struct {
		in, want string
		kind     ident.Kind
	}{
		{v4, v4, ident.UUID},
		{v5, v5, ident.UUID},
		{strings.ToUpper(v4), v4, ident.UUID},
		{"A0000000-0000-4000-a000-000000000001", v4, ident.UUID},
		{v4 + ":2026", v4 + ":2026", ident.TaggedUUID},
		{v4 + ":a", v4 + ":a", ident.TaggedUUID},
		{v5 + ":abcdefghij", v5 + ":abcdefghij", ident.TaggedUUID},
		{strings.ToUpper(v4) + ":q1", v4 + ":q1", ident.TaggedUUID},
		{"ABC123XY0", "ABC123XY0", ident.HumaneCode},
		{"BLOCK01U9", "B10CK01V9", ident.HumaneCode},
		{"b10ck01v9", "B10CK01V9", ident.HumaneCode},
		{"iIlLoOuU0", "11110" + "0VV0", ident.HumaneCode},
		{"000000000", "000000000", ident.HumaneCode},
		{"global", "global", ident.Singleton},
		{"twilio_webhook", "twilio_webhook", ident.Singleton},
		{"Stripe-2.0", "Stripe-2.0", ident.Singleton},
		// Nine letters that are declared stay as they are; spelled otherwise they are a code.
		{"dashboard", "dashboard", ident.Singleton},
		{"Dashboard", "DASHB0ARD", ident.HumaneCode},
		// A declared name that is a code as well is one and the same aggregate, however it is typed.
		{"ABC123XYZ", "ABC123XYZ", ident.Singleton},
		{"abc123xyz", "ABC123XYZ", ident.Singleton},
		{strings.ToUpper(v5), strings.ToUpper(v5), ident.Singleton},
	} {
		got, kind, err := r.Check(c.in)
		if err != nil || got != c.want || kind != c.kind {
			t.Errorf("Check(%q) = %q, %d, %v; want %q, %d", c.in, got, kind, err, c.want, c.kind)
		}
		if n := r.Normalize(c.in); n != c.want {
			t.Errorf("Normalize(%q) = %q, want %q", c.in, n, c.want)
		}
	}
}

func TestCheckRejects(t *testing.T) {
	r := rules(t, nil, "twilio_webhook")
	const forms = ` Use a UUID (version 4 or 5), optionally with a tag such as ":2026", a humane code of 9 letters and digits, ` +
		`"global", or a singleton that the spec declares.`
	for in, want := range map[string]string{
		"":                                     `The identifier is empty.`,
		v1:                                     `The identifier "` + v1 + `" is a UUID of version 1, which the spec does not accept.`,
		v7:                                     `The identifier "` + v7 + `" is a UUID of version 7, which the spec does not accept.`,
		v7 + ":x":                              `The identifier "` + v7 + `:x" is a UUID of version 7, which the spec does not accept.`,
		strings.ToUpper(v7):                    `The identifier "` + strings.ToUpper(v7) + `" is a UUID of version 7, which the spec does not accept.`,
		v4[:14] + "0" + v4[15:]:                `The identifier "` + v4[:14] + "0" + v4[15:] + `" is no UUID of RFC 9562: its 15th character is '0' and must be its version.`,
		v4[:14] + "f" + v4[15:]:                `The identifier "` + v4[:14] + "f" + v4[15:] + `" is no UUID of RFC 9562: its 15th character is 'f' and must be its version.`,
		v4[:19] + "c" + v4[20:]:                `The identifier "` + v4[:19] + "c" + v4[20:] + `" is no UUID of RFC 9562: its 20th character is 'c' and must be 8, 9, a or b.`,
		"g" + v4[1:]:                           `The identifier "g` + v4[1:] + `" is no UUID: it takes 8-4-4-4-12 hexadecimal digits, and 'g' is none.`,
		"é" + v4[1:]:                           `The identifier "é` + v4[1:] + `" is no UUID: it takes 8-4-4-4-12 hexadecimal digits, and 'é' is none.`,
		v4[:35]:                                `The identifier "` + v4[:35] + `" is no UUID: it takes 8-4-4-4-12 hexadecimal digits, 36 characters with hyphens, and this has 35.`,
		v4 + "0":                               `The identifier "` + v4 + `0" goes on after its UUID with '0'; a tag is set off by a colon.`,
		"a000-0000000004000-a000-00000-000001": `The identifier "a000-0000000004000-a000-00000-000001" is no UUID: it takes 8-4-4-4-12 hexadecimal digits.`,
		strings.ReplaceAll(v4, "-", ""):        `The identifier "` + strings.ReplaceAll(v4, "-", "") + `" looks like a UUID without its hyphens.`,
		"{" + v4 + "}":                         `The identifier "{` + v4 + `}" is not written as a UUID is: leave out everything but the 36 digits and hyphens.`,
		"urn:uuid:" + v4:                       `The identifier "urn:uuid:` + v4 + `" is not written as a UUID is: leave out everything but the 36 digits and hyphens.`,
		v4 + ":":                               `The identifier "` + v4 + `:" has a colon but no tag after it.`,
		v4 + ":UP":                             `The identifier "` + v4 + `:UP" has 'U' in its tag, which takes lower-case letters and digits only.`,
		v4 + ":a:b":                            `The identifier "` + v4 + `:a:b" has ':' in its tag, which takes lower-case letters and digits only.`,
		v4 + ":é":                              `The identifier "` + v4 + `:é" has 'é' in its tag, which takes lower-case letters and digits only.`,
		v4 + ":toolongtag1":                    `The identifier "` + v4 + `:toolongtag1" has a tag longer than 10 characters.`,
		"ABC123XY":                             `The identifier "ABC123XY" is no humane code: it has 8 characters in place of 9.`,
		"ABC123XYZ0":                           `The identifier "ABC123XYZ0" is no humane code: it has 10 characters in place of 9.`,
		"ABC123XY!":                            `The identifier "ABC123XY!" is no humane code: '!' is neither a letter nor a digit.`,
		"twilio":                               `The identifier "twilio" is none of the accepted kinds; a fixed name must be declared under singletons in the spec.`,
		"Global":                               `The identifier "Global" is none of the accepted kinds; a fixed name must be declared under singletons in the spec.`,
		"ord_123":                              `The identifier "ord_123" is none of the accepted kinds; a fixed name must be declared under singletons in the spec.`,
		"a b\n\"c":                             `The identifier "a b\n\"c" is none of the accepted kinds.`,
		"\xff\xfe":                             `The identifier "\xff\xfe" is none of the accepted kinds.`,
		strings.Repeat("é", 99):                `The identifier "` + strings.Repeat("é", 32) + `" (cut) is none of the accepted kinds.`,
	} {
		canonical, kind, err := r.Check(in)
		e, ok := errors.AsType[*j17.Error](err)
		if !ok || canonical != "" || kind != 0 {
			t.Errorf("Check(%q) = %q, %d, %v; want a *j17.Error", in, canonical, kind, err)
			continue
		}
		if diff := cmp.Diff(&j17.Error{Code: j17.CodeInvalidIdentifier, Message: want + forms}, e); diff != "" {
			t.Errorf("Check(%q) (-want +got):\n%s", in, diff)
		}
	}
}

func TestUUIDVersionsCanBeWidened(t *testing.T) {
	r := rules(t, []int{4, 5, 7})
	for in, want := range map[string]ident.Kind{
		v4: ident.UUID, v5: ident.UUID, v7: ident.UUID, strings.ToUpper(v7) + ":x": ident.TaggedUUID, v1: 0,
	} {
		if _, kind, err := r.Check(in); kind != want || (err == nil) != (want != 0) {
			t.Errorf("Check(%q) = %d, %v; want kind %d", in, kind, err, want)
		}
	}
	_, _, err := r.Check("")
	if !strings.Contains(err.Error(), "(version 4, 5 or 7)") {
		t.Errorf("%v does not list the versions", err)
	}
	if _, _, err = rules(t, []int{7}).Check(v4); err == nil || !strings.Contains(err.Error(), "(version 7)") {
		t.Errorf("Check under version 7 alone = %v", err)
	}
}

func TestNewRulesReportsEveryFault(t *testing.T) {
	_, err := ident.NewRules([]int{0, 4, 9}, []string{
		"", "fine", "_new", "..", "a b", "ü", `"`, strings.Repeat("x", 65),
	})
	want := strings.Join([]string{
		`there are no UUIDs of version 0; versions run from 1 to 8`,
		`there are no UUIDs of version 9; versions run from 1 to 8`,
		`a singleton needs a name of at least one character`,
		`the singleton name "_new" starts with an underscore, which is reserved`,
		`a singleton cannot be named "..", because URLs give that a meaning of their own`,
		`the singleton name "a b" contains ' '; use letters, digits and underscores`,
		`the singleton name "ü" contains 'ü'; use letters, digits and underscores`,
		`the singleton name "\"" contains '"'; use letters, digits and underscores`,
		`the singleton name "` + strings.Repeat("x", 64) + `" (cut) is longer than 64 characters`,
	}, "\n")
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// To declare what exists anyway does no harm, and the longest name is a name.
	r := rules(t, nil, "global", strings.Repeat("x", 64))
	if !r.IsSingleton("global") || !r.IsSingleton(strings.Repeat("x", 64)) || r.IsSingleton(strings.Repeat("x", 65)) {
		t.Error("singletons are not what was declared")
	}
}

// identifiers draws strings that are identifiers, nearly so, or nothing of the sort.
func identifiers() *rapid.Generator[string] {
	mixedCase := func(s string, bits uint64) string {
		b := []byte(s)
		for i := range b {
			if bits>>(i%64)&1 == 1 {
				b[i] = strings.ToUpper(string(b[i]))[0]
			}
		}
		return string(b)
	}
	uuids := rapid.Custom(func(t *rapid.T) string {
		var id uuid.UUID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
		if rapid.Bool().Draw(t, "sound") {
			id[6] = id[6]&0x0f | 0x40
			id[8] = id[8]&0x3f | 0x80
		}
		return mixedCase(id.String(), rapid.Uint64().Draw(t, "case"))
	})
	return rapid.OneOf(
		uuids,
		rapid.Custom(func(t *rapid.T) string {
			return uuids.Draw(t, "half") + ":" + rapid.StringMatching(`[a-z0-9A-Z:]{0,11}`).Draw(t, "tag")
		}),
		rapid.StringMatching(`[0-9A-Za-z]{9}`),
		rapid.StringMatching(`[0-9A-Za-z_!]{7,11}`),
		rapid.SampledFrom([]string{"global", "dashboard", "ABC123XYZ", "twilio_webhook"}),
		rapid.String(),
	)
}

func TestNormalizeIsIdempotentAndCheckIsStable(t *testing.T) {
	r := rules(t, nil, "dashboard", "ABC123XYZ", "twilio_webhook")
	rapid.Check(t, func(t *rapid.T) { stable(t, r, identifiers().Draw(t, "id")) })
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{
		"", v1, v4, strings.ToUpper(v5), v7 + ":x", v4 + ":", "BLOCK01U9", "dashboard", "global", "ABC123XY!", "\xff",
		"{" + v4 + "}",
	} {
		f.Add(s)
	}
	r := rules(f, nil, "dashboard", "ABC123XYZ", "twilio_webhook")
	f.Fuzz(func(t *testing.T, s string) { stable(t, r, s) })
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func stable(t failer, r *ident.Rules, s string) {
	t.Helper()
	n := r.Normalize(s)
	if again := r.Normalize(n); again != n {
		t.Fatalf("Normalize(%q) = %q, and again %q", s, n, again)
	}
	id, kind, err := r.Check(s)
	id2, kind2, err2 := r.Check(n)
	if id != id2 || kind != kind2 || (err == nil) != (err2 == nil) {
		t.Fatalf("Check(%q) = %q %d %v, but Check(%q) = %q %d %v", s, id, kind, err, n, id2, kind2, err2)
	}
	switch {
	case err == nil && (kind < ident.UUID || kind > ident.TaggedUUID || id != n):
		t.Fatalf("Check(%q) = %q, %d; Normalize says %q", s, id, kind, n)
	case err != nil && (id != "" || kind != 0 || j17.CodeOf(err) != j17.CodeInvalidIdentifier):
		t.Fatalf("Check(%q) = %q, %d, %v", s, id, kind, err)
	case err == nil && strings.ContainsAny(id, "\"\\/ \x00"):
		t.Fatalf("Check(%q) lets %q through, which JSON or a URL would have to escape", s, id)
	}
}

func TestCanonicalIdentifiersAreCheckedWithoutAllocation(t *testing.T) {
	r := rules(t, nil, "dashboard")
	for _, id := range []string{v4, v5, v4 + ":2026", "ABC123XY0", "global", "dashboard"} {
		if n := testing.AllocsPerRun(100, func() { _, _, _ = r.Check(id) }); n != 0 {
			t.Errorf("Check(%q) allocates %v times", id, n)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	r := rules(b, nil, "dashboard", "twilio_webhook")
	for _, id := range []string{v4, strings.ToUpper(v4), v4 + ":2026", "ABC123XY0", "dashboard"} {
		b.Run(id, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _, _ = r.Check(id)
			}
		})
	}
}

func TestReservedTokens(t *testing.T) {
	for typ, want := range map[string]bool{
		"system_agent": true, "system_": true, "system": false, "user": false, "SYSTEM_agent": false,
	} {
		if got := ident.IsSystemActorType(typ); got != want {
			t.Errorf("IsSystemActorType(%q) = %v", typ, got)
		}
	}
	for typ, want := range map[string]bool{"_was_tombstoned": true, "_": true, "was_placed": false, "": false} {
		if got := ident.IsReservedEventType(typ); got != want {
			t.Errorf("IsReservedEventType(%q) = %v", typ, got)
		}
	}
	for _, id := range ident.SystemAgents() {
		if err := ident.CheckSystemAgent(id); err != nil {
			t.Errorf("CheckSystemAgent(%q) = %v", id, err)
		}
	}
	for _, id := range []string{"", v4, "global", "event_schedule", "EVENT_SCHEDULER"} {
		err := ident.CheckSystemAgent(id)
		if j17.CodeOf(err) != j17.CodeInvalidIdentifier || !strings.Contains(err.Error(), `"event_scheduler", "test_data_importer", "saga_coordinator" and "saga_compensator"`) {
			t.Errorf("CheckSystemAgent(%q) = %v", id, err)
		}
	}
}
