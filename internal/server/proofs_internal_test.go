package server

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAnchorsAreAppended appends lines to a file that a crash has left without an end.
func TestAnchorsAreAppended(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "anchors")
	keep, err := anchorTo(&Options{AuditAnchor: name})
	if err != nil {
		t.Fatal(err)
	}
	if err := keep(t.Context(), []byte("one\n")); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("half"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := keep(t.Context(), []byte("two\nthree\n")); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(name); err != nil || string(raw) != "one\nhalf\ntwo\nthree\n" {
		t.Errorf("%q, %v", raw, err)
	}

	// What cannot be kept is told at the start.
	for _, to := range []string{filepath.Join(t.TempDir(), "no", "folder"), t.TempDir(), "https://"} {
		if _, err := anchorTo(&Options{AuditAnchor: to}); err == nil {
			t.Errorf("%s is accepted", to)
		}
	}
	if found := (&DevOptions{Options: Options{AuditAnchor: "https://"}}).Check(); len(found) != 1 {
		t.Errorf("%v", found)
	}

	// Addresses of this machine are let through where the operator says so.
	keep, err = anchorTo(&Options{AuditAnchor: "http://127.0.0.1:9/"})
	if err != nil {
		t.Fatal(err)
	}
	if err := keep(t.Context(), []byte("one\n")); err == nil || err.Error()[:19] != "address not allowed" {
		t.Errorf("an address of this machine: %v", err)
	}
}
