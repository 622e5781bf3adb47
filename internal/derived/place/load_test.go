package place_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/base/geo"
	"j17/internal/core/command"
	"j17/internal/core/engine/enginetest"
	"j17/internal/custody/loading"
)

// TestPlacesOfAColdStart: aggregates that are loaded past the engine are where their last events say, also where the
// slots were there before, and nowhere else.
func TestPlacesOfAColdStart(t *testing.T) {
	h := newHouse(t, shops)
	if err := h.places.Adopt(t.Context(), enginetest.Tenant); err != nil {
		t.Fatal(err)
	}
	near, far := geo.Point{Lat: 48, Lng: 11}, geo.Point{Lat: -30, Lng: 100}
	var b strings.Builder
	opened := func(n int, p geo.Point) {
		fmt.Fprintf(&b, `{"key":"shop:%s","type":"was_opened","data":%s,"metadata":{"actor":{"type":"user","id":"%s"}}}`+"\n", id(n), at(p), enginetest.User)
	}
	for n := range 600 { // several batches
		opened(n, far)
	}
	for _, n := range []int{3, 5, 599} {
		opened(n, near)
	}
	l := &loading.Loader{Engine: h.Engine, Store: h.Store}
	if done, err := l.ColdStart(
		t.Context(), enginetest.Tenant, command.NewFileReader(strings.NewReader(b.String())),
	); err != nil || done.Streams != 600 {
		t.Fatalf("%+v, %v", done, err)
	}
	if diff := cmp.Diff([]int{3, 5, 599}, h.near(near, 1000, 10)); diff != "" {
		t.Error(diff)
	}
	if got := h.near(far, 1000, 100); len(got) != 597 {
		t.Errorf("%d are where they were before", len(got))
	}
	h.put("shop", 5, "was_opened", at(far))
	if diff := cmp.Diff([]int{3, 599}, h.near(near, 1000, 10)); diff != "" {
		t.Error(diff)
	}
}
