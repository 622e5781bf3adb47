package httpapi

import (
	"fmt"
	"net/http"
	"testing"
)

// TestHeadersDoNotTouchEachOther sets more headers than a call has room for, adds to each of them, and sets one again.
func TestHeadersDoNotTouchEachOther(t *testing.T) {
	c, h := &call{}, http.Header{}
	name := func(i int) string { return fmt.Sprintf("X-%d", i) }
	for i := range 2 * len(c.texts) {
		c.show(h, name(i), fmt.Sprint(i))
	}
	for i := range 2 * len(c.texts) {
		h.Add(name(i), "more")
	}
	c.show(h, name(0), "again")
	for i := range 2 * len(c.texts) {
		want := []string{fmt.Sprint(i), "more"}
		if i == 0 {
			want = []string{"again"}
		}
		if got := h[name(i)]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s is %q, not %q", name(i), got, want)
		}
	}
}
