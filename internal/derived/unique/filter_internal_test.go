package unique

import (
	"fmt"
	"testing"
)

// TestFilter: a key that was written is never taken for one that was not; the other way about it happens seldom.
func TestFilter(t *testing.T) {
	const keys = 100_000
	f := newFilter()
	for n := range keys {
		f.add(fmt.Sprint("a", n))
	}
	wrong := 0
	for n := range keys {
		if f.lacks(fmt.Sprint("a", n)) {
			t.Fatalf("key %d was written", n)
		}
		if !f.lacks(fmt.Sprint("b", n)) {
			wrong++
		}
	}
	if wrong > keys/100 {
		t.Errorf("%d of %d keys are taken for written", wrong, keys)
	}
	var none *filter
	if none.lacks("a") {
		t.Error("without a filter nothing is known")
	}
}
