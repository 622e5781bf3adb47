package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"j17"
	"j17/internal/base/wire"
)

// TestRowsDoNotShowCauses: a row that cannot be computed says why in the words of its error, and not what that came
// from.
func TestRowsDoNotShowCauses(t *testing.T) {
	cause := errors.New("block 7 of /data/000012.sst: checksum mismatch")
	says := j17.Errorf(j17.CodeCorruption, "Stored data is damaged.").At("$.by")
	for _, err := range []error{says.Because(cause), fmt.Errorf("of customer:1: %w", says.Because(cause))} {
		if got, want := rowError(err),
			(wire.RowError{Code: j17.CodeCorruption, Error: "$.by: Stored data is damaged."}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	for _, err := range []error{cause, j17.Errorf(j17.CodeInternal, "It failed.").Because(cause)} {
		if got := rowError(err); got.Code != j17.CodeInternal || got.Error != "The row cannot be computed. Read it by its id to see why." {
			t.Errorf("%+v", got)
		}
	}
}

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
