package pebble_test

import (
	"testing"

	"j17/internal/storage/pebble"
)

func TestInUse(t *testing.T) {
	dir := t.TempDir()
	if pebble.InUse(dir) {
		t.Error("a folder without a store is in use")
	}
	st, err := pebble.Open(pebble.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if !pebble.InUse(dir) {
		t.Error("an open store is not in use")
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if pebble.InUse(dir) {
		t.Error("a closed store is in use")
	}
}
