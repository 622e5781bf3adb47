package keyfile_test

import (
	"errors"
	"path/filepath"
	"testing"

	"j17/internal/base/keyfile"
)

// TestBox seals and opens texts, here and with another key.
func TestBox(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "key")
	box := func(name, purpose string) *keyfile.Box {
		t.Helper()
		b, err := keyfile.At(name).Box(purpose)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	same := box(name, "a purpose")
	sealed := same.Seal("here", []byte("a secret"))
	for name, c := range map[string]struct {
		by    *keyfile.Box
		place string
		want  error
	}{
		"the same":        {same, "here", nil},
		"after a start":   {box(name, "a purpose"), "here", nil},
		"another place":   {same, "there", keyfile.ErrOther},
		"another purpose": {box(name, "another one"), "here", keyfile.ErrOther},
		"another key":     {box(name+"2", "a purpose"), "here", keyfile.ErrOther},
	} {
		text, err := c.by.Open(c.place, sealed)
		if !errors.Is(err, c.want) || err == nil && string(text) != "a secret" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if _, err := same.Open("here", sealed[:5]); !errors.Is(err, keyfile.ErrOther) {
		t.Error(err)
	}
}
