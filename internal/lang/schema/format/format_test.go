//go:build !race

package format_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"j17/internal/base/work/worktest"
	"j17/internal/lang/schema/format"
)

func TestValid(t *testing.T) {
	label := strings.Repeat("a", 63)
	tests := map[string]struct{ yes, no []string }{
		"date": {
			[]string{"2024-02-29", "0000-01-01", "9999-12-31"},
			[]string{
				"", "2023-02-29", "2024-13-01", "2024-00-01", "2024-01-00", "2024-04-31", "24-01-01", "2024/01/01",
				"2024-1-1", "2024-01-01Z", "１２３４-01-01",
			},
		},
		"time": {
			[]string{"00:00:00Z", "23:59:59.5z", "23:59:60Z", "01:29:60+01:30", "12:00:00-00:00", "00:29:60-23:30"},
			[]string{
				"", "00:00:00", "24:00:00Z", "23:58:60Z", "23:59:60+01:00", "00:00:61Z", "0:00:00Z", "00:00:00.Z",
				"00:00:00+1:00", "00:00:00+24:00", "00:00:00 Z",
			},
		},
		"date-time": {
			[]string{"2024-02-29T08:30:00Z", "2024-02-29t08:30:00.123456789+02:00", "1998-12-31T23:59:60Z"},
			[]string{
				"", "2024-02-29", "2024-02-29 08:30:00Z", "2023-02-29T08:30:00Z", "2024-02-29T08:30:00", "2024-02-29T",
			},
		},
		"duration": {
			[]string{"P1D", "P1Y2M3DT4H5M6S", "PT36H", "P2W", "P1M2D", "PT0S"},
			[]string{
				"", "P", "PT", "P1", "1D", "P1YT", "P1Y2D", "PT1H2S", "P2D1Y", "P1W2D", "P1D1D", "PT0.5S", "P-1D",
				"P1S", "PT1D", "P1D2",
			},
		},
		"email": {
			[]string{
				"ada@example.com", "a.b+c@x", `"a @ b"@example.com`, `"a\"b"@example.com`, "a@[127.0.0.1]",
				"a@[IPv6:::1]",
			},
			[]string{
				"", "@", "a@", "@b", "a.@b", ".a@b", "a..b@c", "a b@c", "a@b c", "a@-b", "a@b_c", "a@[127.0.0.300]",
				"a@[IPv6:x]", `"a"b"@c`, `"a\"@c`, "ä@b", "a@ä", strings.Repeat("a", 65) + "@b", "a@b@c",
				"a@" + label + "a",
			},
		},
		"idn-email": {
			[]string{"ada@example.com", "ä@ö.example", `"ä b"@example.com`},
			[]string{"", "ä", "ä@", "ä b@c", "ä@-b"},
		},
		"hostname": {
			[]string{
				"a", "api.example.com", "1.2.3.4", "a--b", "r3---sn.example", "XN--MNCHEN-3YA.example",
				"xn--mnchen-3ya", label + "." + label + "." + label + "." + label[:61],
			},
			[]string{
				"", ".", "a.", ".a", "a..b", "-a", "a-", "a_b", "a b", "münchen", label + "a", "xn--", "xn--x",
				"xn--a-", label + "." + label + "." + label + "." + label[:62],
			},
		},
		"idn-hostname": {
			[]string{"münchen.example", "a。b", "xn--mnchen-3ya", "r3---sn.example", "例え.テスト"},
			[]string{
				"", ".", "a。", "MÜNCHEN", "a\u0308", "ü--ü", "üü--ü", "\u0301a", "☃", "ﬁ", "a\u00b7b",
				strings.Repeat("ü", 2000), "xn--zzzzzzzzzzz",
			},
		},
		"ipv4": {
			[]string{"0.0.0.0", "255.255.255.255", "192.0.2.1"},
			[]string{
				"", "1.2.3", "1.2.3.4.5", "256.1.1.1", "01.2.3.4", "1.2.3.4 ", "1..2.3", "1.2.3.", "0x1.2.3.4",
				"1.2.3.4/24", "::1",
			},
		},
		"ipv6": {
			[]string{"::", "::1", "2001:db8::1", "::ffff:192.0.2.1", "1:2:3:4:5:6:7:8"},
			[]string{
				"", ":", ":::", "1:2:3:4:5:6:7", "1::2::3", "12345::", "::1%eth0", "1.2.3.4", "::ffff:192.0.2.01",
				"[::1]",
			},
		},
		"uri": {
			[]string{
				"https://example.com", "urn:isbn:0451450523", "mailto:a@b", "http://[::1]:80/", "http://[v1.x:y]/",
				"a:", "http://u:p@h:/?q#f", "file:///etc", "http://%41/",
			},
			[]string{
				"", "/a", "//a", "a", "1a:b", "a b:c", "http://a b", "http://[::1", "http://[::1]x", "http://a:b",
				"http://a:1:2", "http://%4", "http://ü", "a:\\", "a:#b#c", "http://[v.x]", "http://[vx.y]",
				"http://[v1.]", "http://[v1.%41]", "a:[b]", ":a",
			},
		},
		"uri-reference": {
			[]string{"", "/a", "//h/p", "?q", "#f", "a/b:c", "../x", "https://example.com"},
			[]string{"1:b", "a b", "#a#b", "/ü", "//[x]", "%"},
		},
		"iri": {
			[]string{"https://exämple.com/ö?\uE000#ü", "urn:ü"},
			[]string{"", "/ö", "http://a/\uE000", "http://a/#\uE000", "a:\uFFFF", "a:\U000E0001", "a: "},
		},
		"iri-reference": {[]string{"", "/ö", "//ü"}, []string{"a b", "1:ö"}},
		"uri-template": {
			[]string{"", "/orders/{id}", "{?a,b*,c:3}", "{+x}{#y}", "ü", "{a.b}", "{%41}", "%41", "a'b"},
			[]string{
				"{", "}", "{}", "{a", "{a:0}", "{a:10000}", "{a:x}", "{a:}", "{a*b}", "{a..b}", "{.}", "{a.}", "{-a}",
				"{%4}", "%4", "a b", "\"", "\uFFFF",
			},
		},
		"uuid": {
			[]string{
				"550e8400-e29b-41d4-a716-446655440000", "550E8400-E29B-41D4-A716-446655440000",
				"00000000-0000-0000-0000-000000000000",
			},
			[]string{"", "550e8400e29b41d4a716446655440000", "{550e8400-e29b-41d4-a716-446655440000}", "550e8400-e29b-41d4-a716-44665544000g", "550e8400-e29b-41d4-a716_446655440000"},
		},
		"json-pointer": {[]string{"", "/", "/a~0~1/0", "/ü"}, []string{"a", "/~", "/~2", "#/a"}},
		"relative-json-pointer": {
			[]string{"0", "1/a", "12#", "0/"},
			[]string{"", "/a", "01", "-1", "0#/a", "0a", "#"},
		},
		"regex": {[]string{"", "^a+$", "(?<n>x)"}, []string{"(", "a++", `\a`}},
	}
	for _, name := range format.Names() {
		f, ok := format.Lookup(name)
		tt, tested := tests[name]
		if !ok || !tested || f.Phrase == "" {
			t.Errorf("%s is not known, not tested or not described", name)
			continue
		}
		for _, s := range tt.yes {
			if !f.Valid(s) {
				t.Errorf("%s refuses %q", name, s)
			}
		}
		for _, s := range tt.no {
			if f.Valid(s) {
				t.Errorf("%s accepts %q", name, s)
			}
		}
	}
	if _, ok := format.Lookup("quaternion"); ok {
		t.Error("there is a format quaternion")
	}
}

// TestPhrases checks that the examples in the phrases are valid.
func TestPhrases(t *testing.T) {
	for _, name := range format.Names() {
		f, _ := format.Lookup(name)
		_, examples, ok := strings.Cut(f.Phrase, "such as ")
		if !ok {
			continue
		}
		for example := range strings.SplitSeq(examples, " or ") {
			if !f.Valid(example) {
				t.Errorf("%s: the example %q is not valid", name, example)
			}
		}
	}
}

func FuzzFormats(f *testing.F) {
	for _, s := range []string{
		"", "2024-02-29T23:59:60.5+01:00", "P1Y2M3DT4H5M6S", `"a\b"@[IPv6:::1]`, "xn--mnchen-3ya.ü。", "1.2.3.4",
		"::ffff:1.2.3.4",
		"http://u@[v1.a]:1/%41?q#f", "{+a,b*:3}%41", "550e8400-e29b-41d4-a716-446655440000", "/a~0", "1#",
		`(?<n>[^\w])\k<n>`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "?")
		is := map[string]bool{}
		for _, name := range format.Names() {
			f, _ := format.Lookup(name)
			start := worktest.ProcessorTime(t)
			is[name] = f.Valid(s)
			if took := worktest.Since(t, start); took > 5*time.Second {
				t.Fatalf("%s of %q took %v", name, s, took)
			}
		}
		for _, wider := range [][2]string{
			{"uri", "uri-reference"},
			{"uri", "iri"},
			{"iri", "iri-reference"},
			{"uri-reference", "iri-reference"},
			{"email", "idn-email"},
			{"hostname", "idn-hostname"},
			{"ipv4", "hostname"},
		} {
			if is[wider[0]] && !is[wider[1]] {
				t.Errorf("%q is a %s, but no %s", s, wider[0], wider[1])
			}
		}
		if _, err := time.Parse(time.DateOnly, s); (err == nil) != is["date"] {
			t.Errorf("%q is a date: %v; package time says %v", s, is["date"], err)
		}
		addr, err := netip.ParseAddr(s)
		if (err == nil && addr.Is4()) != is["ipv4"] || (err == nil && addr.Is6() && addr.Zone() == "") != is["ipv6"] {
			t.Errorf("%q is IPv4 %v, IPv6 %v; package netip says %v", s, is["ipv4"], is["ipv6"], err)
		}
		if err := uuid.Validate(s); len(s) == 36 && (err == nil) != is["uuid"] {
			t.Errorf("%q is a UUID: %v; package uuid says %v", s, is["uuid"], err)
		}
	})
}
