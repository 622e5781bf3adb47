package listener

import (
	"strings"
	"testing"
)

// TestNoExcerptShowsASecret has bodies that repeat a secret: within, across the end of the excerpt wherever that cuts
// it, and in place of so much text that what follows the excerpt would come into it.
func TestNoExcerptShowsASecret(t *testing.T) {
	const secret = "whsec_0123456789abcdef"
	secrets := []string{secret, strings.TrimPrefix(secret, secretPrefix), "", strings.Repeat("long ", 1000) + "header"}
	shows := func(text string) bool {
		for n := 8; n <= len(secret); n++ {
			if strings.Contains(text, secret[:n]) ||
				strings.Contains(text, secret[len(secretPrefix):][:min(n, len(secret)-len(secretPrefix))]) {
				return true
			}
		}
		return false
	}
	for n := maxExcerpt - 2*len(secret); n <= maxExcerpt; n++ {
		// What was read may end with the excerpt, or go on.
		for _, body := range []string{
			strings.Repeat("x", n) + secret + "and more",
			(strings.Repeat("x", n) + secret)[:min(maxExcerpt, n+len(secret))],
		} {
			got := excerpt([]byte(body), secrets...)
			if shows(got) || len(got) > maxExcerpt || !strings.HasPrefix(got, strings.Repeat("x", n)) {
				t.Fatalf("after %d bytes: ...%s", n, got[maxExcerpt-100:])
			}
		}
	}
	if got := excerpt([]byte(strings.Repeat(secret, 1000)), secrets...); shows(got) {
		t.Error(got)
	}
	if got := excerpt([]byte(strings.Repeat("long ", 1000)+"header"), secrets...); strings.Contains(got, "long") {
		t.Errorf("of a header that is longer than the excerpt: %.100s", got)
	}
	if got := excerpt(
		[]byte("thank you for "+secret+" and "+secret[:9]), secrets...,
	); got != "thank you for [removed] and "+secret[:9] {
		t.Error(got)
	}
}
