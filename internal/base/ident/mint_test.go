package ident_test

import (
	"math"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/ident"
)

func minter() (*ident.Minter, *clock.Manual) {
	c := clock.NewManual(time.Date(2026, 11, 21, 12, 0, 0, 123_456_789, time.UTC))
	return ident.NewMinter(c.Now), c
}

func TestUUIDv7CarriesTheTimeAndOnlyGrows(t *testing.T) {
	m, c := minter()
	first := uuid.MustParse(m.UUIDv7())
	if first.Version() != 7 || first.Variant() != uuid.RFC4122 {
		t.Errorf("%s is version %v, variant %v", first, first.Version(), first.Variant())
	}
	sec, nsec := first.Time().UnixTime()
	if got, want := time.Unix(sec, nsec).UnixMilli(), c.Now().UnixMilli(); got != want {
		t.Errorf("the UUID carries %d ms, the clock shows %d", got, want)
	}

	last := first.String()
	grow := func(when string, n int) {
		t.Helper()
		for range n {
			id := m.UUIDv7()
			if id <= last {
				t.Fatalf("%s: %s comes after %s", when, id, last)
			}
			last = id
		}
	}
	grow("standing still, past the end of the sequence", 10_000)
	c.Advance(-time.Hour)
	grow("running backward", 10)
	c.Advance(2 * time.Hour)
	grow("running on", 10)
	c.Set(time.Unix(-math.MaxInt32, 0))
	grow("before 1970", 10)
}

func TestMintingIsSafeForConcurrentUse(t *testing.T) {
	m, _ := minter()
	const workers, each = 8, 500
	ids := make([][]string, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range each {
				ids[w] = append(ids[w], m.UUIDv7())
			}
		})
	}
	wg.Wait()
	for w, l := range ids {
		if !slices.IsSorted(l) {
			t.Errorf("worker %d saw ids out of order", w)
		}
	}
	all := slices.Sorted(slices.Values(slices.Concat(ids...)))
	if n := len(slices.Compact(all)); n != workers*each {
		t.Errorf("%d different ids of %d", n, workers*each)
	}
}

func TestMintedIdentifiersAreIdentifiers(t *testing.T) {
	m, _ := minter()
	r := rules(t, nil)
	used := map[byte]bool{}
	for range 500 {
		id := m.UUIDv4()
		if got, kind, err := r.Check(id); got != id || kind != ident.UUID || err != nil {
			t.Fatalf("Check(%q) = %q, %d, %v", id, got, kind, err)
		}
		code := m.HumaneCode()
		if got, kind, err := r.Check(code); got != code || kind != ident.HumaneCode || err != nil {
			t.Fatalf("Check(%q) = %q, %d, %v", code, got, kind, err)
		}
		for i := range len(code) {
			used[code[i]] = true
		}
	}
	if len(used) != 32 {
		t.Errorf("500 codes use %d characters, not 32", len(used))
	}
}

func TestPrefixesAreUniqueAndWellFormed(t *testing.T) {
	seen := map[ident.Prefix]bool{}
	for _, p := range ident.Prefixes() {
		if !regexp.MustCompile(`^[a-z]{3}$`).MatchString(string(p)) {
			t.Errorf("%q is not 3 lower-case letters", p)
		}
		if seen[p] {
			t.Errorf("%q is registered twice", p)
		}
		seen[p] = true
	}
}

func TestHandles(t *testing.T) {
	m, _ := minter()
	shape := regexp.MustCompile(`^[a-z]{3}_[1-9a-hjkmnp-z]{15}$`)
	seen := map[string]bool{}
	for range 50 {
		for _, p := range append(ident.Prefixes(), "pmt") {
			h := m.Handle(p)
			if !shape.MatchString(h) || seen[h] {
				t.Fatalf("Handle(%q) = %q", p, h)
			}
			seen[h] = true
			if got, err := ident.ParseHandle(h); got != p || err != nil {
				t.Fatalf("ParseHandle(%q) = %q, %v", h, got, err)
			}
		}
	}
	for _, s := range []string{
		"", "_", "ins", "ins_", "ins_4k7vx9tz2nqr8w", "ins_4k7vx9tz2nqr8w33", "ins_4k7vx9tz2nqr8w0",
		"ins_4k7vx9tz2nqr8wl", "INS_4k7vx9tz2nqr8w3",
		"in_4k7vx9tz2nqr8w3", "inst_4k7vx9tz2nqr8w3", "ins-4k7vx9tz2nqr8w3", "i1s_4k7vx9tz2nqr8w3",
		"ins_4k7vx9t_2nqr8w3", "ins_4k7vx9é2nqr8w3", v4,
	} {
		p, err := ident.ParseHandle(s)
		if p != "" || j17.CodeOf(err) != j17.CodeInvalidIdentifier {
			t.Errorf("ParseHandle(%q) = %q, %v", s, p, err)
		}
	}
	_, err := ident.ParseHandle("nope")
	if diff := cmp.Diff(`"nope" is no handle: a handle is 3 lower-case letters, an underscore and 15 characters, such as ins_4k7vx9tz2nqr8w3.`, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParsePrefix(t *testing.T) {
	if p, err := ident.ParsePrefix("pmt"); p != "pmt" || err != nil {
		t.Errorf("ParsePrefix(pmt) = %q, %v", p, err)
	}
	for _, s := range []string{"", "pm", "pmts", "PMT", "UP1", "p_t", "toolong", "é1"} {
		if p, err := ident.ParsePrefix(s); p != "" || j17.CodeOf(err) != j17.CodeInvalidIdentifier {
			t.Errorf("ParsePrefix(%q) = %q, %v", s, p, err)
		}
	}
}

func FuzzParseHandle(f *testing.F) {
	f.Add("ins_4k7vx9tz2nqr8w3")
	f.Add("é_\xff")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ident.ParseHandle(s)
		if (err == nil) != (len(p) == 3) {
			t.Fatalf("ParseHandle(%q) = %q, %v", s, p, err)
		}
	})
}

func BenchmarkMint(b *testing.B) {
	m := ident.NewMinter(clock.System{}.Now)
	b.Run("UUIDv7", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = m.UUIDv7()
		}
	})
	b.Run("Handle", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = m.Handle(ident.InstancePrefix)
		}
	})
}
