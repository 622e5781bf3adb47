package pebble_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// contains reports whether a file of a folder contains a text.
func contains(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		found = found || bytes.Contains(content, []byte(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestSealed writes secrets in each way and looks for them in the files of the store, and reads them in each way.
func TestSealed(t *testing.T) {
	t.Parallel()
	const word, plainWord = "a-secret-word", "an-open-word"
	manual := clock.NewManual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	dir := t.TempDir()
	options := pebble.Options{
		Dir: filepath.Join(dir, "store"), Clock: manual, KeyFile: filepath.Join(dir, "key"),
		Sealed: map[store.Space]func([]byte) bool{
			"all": nil, "some": func(v []byte) bool { return bytes.HasPrefix(v, []byte("a-")) },
		},
	}
	s := open(t, options)
	put := func(space store.Space, key, value string) store.Side {
		return store.Side{Op: store.Put, Space: space, Key: key, Value: []byte(value)}
	}
	due := put("all", "due", word)
	due.Due = manual.Now()
	plain := put("all", "plain", word)
	plain.Plain = true
	if err := s.Write(t.Context(), tenant, []store.Side{
		put("all", "k", word), put("some", "k", word), put("some", "l", plainWord), due,
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), tenant, []store.Side{plain}); err != nil {
		t.Fatal(err)
	}

	// A claim writes the item again, a copy loads it.
	claimed, err := s.ClaimDue(t.Context(), tenant, store.Claim{Space: "all", Limit: 9, Lease: time.Minute})
	if err != nil || len(claimed) != 1 || string(claimed[0].Value) != word {
		t.Errorf("%v, %v", claimed, err)
	}
	if err := storetest.Copy(t.Context(), s, tenant, s, "ins_b/prod"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, name := range []j17.Tenant{tenant, "ins_b/prod"} {
			for _, want := range []struct {
				space store.Space
				key   string
				value string
			}{
				{"all", "k", word},
				{"all", "due", word},
				{"all", "plain", word},
				{"some", "k", word},
				{"some", "l", plainWord},
			} {
				it, err := s.Get(t.Context(), name, want.space, want.key)
				if err != nil || string(it.Value) != want.value {
					t.Errorf("%s/%s of %s: %q, %v", want.space, want.key, name, it.Value, err)
				}
			}
			items, err := s.Scan(t.Context(), name, "some", store.Range{}, 9)
			if err != nil || len(items) != 2 || string(items[0].Value) != word {
				t.Errorf("%v, %v", items, err)
			}
			err = s.GetEach(t.Context(), name, "all", []string{"k"}, func(_ int, value []byte) error {
				if string(value) != word {
					t.Errorf("%q", value)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		closeStore(t, s)
		if contains(t, dir, word) || !contains(t, dir, plainWord) {
			t.Error("the files contain what is to be sealed, or not what is not")
		}
		s = open(t, options)
	}
	closeStore(t, s)

	// Without the key it is an error that says so, and the item can be written again.
	if err := os.Remove(options.KeyFile); err != nil {
		t.Fatal(err)
	}
	s = open(t, options)
	it, err := s.Get(t.Context(), tenant, "all", "k")
	if !errors.Is(err, store.ErrSealed) || it.Rev == 0 || it.Value != nil {
		t.Errorf("%+v, %v", it, err)
	}
	again := put("all", "k", word)
	again.Cond, again.Rev = store.IfRev, it.Rev
	if err := s.Write(t.Context(), tenant, []store.Side{again}); err != nil {
		t.Error(err)
	}
	if it, err := s.Get(t.Context(), tenant, "all", "k"); err != nil || string(it.Value) != word {
		t.Errorf("%+v, %v", it, err)
	}
	closeStore(t, s)
}

// TestSealedLater opens a store that has values in clear: they are read and sealed, and keep their revisions.
func TestSealedLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := pebble.Options{Dir: filepath.Join(dir, "store")}
	s := open(t, options)
	if err := s.Write(t.Context(), tenant, []store.Side{
		{Op: store.Put, Space: "all", Key: "k", Value: []byte("a-secret-word")},
	}); err != nil {
		t.Fatal(err)
	}
	before, err := s.Get(t.Context(), tenant, "all", "k")
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	options.KeyFile, options.Sealed = filepath.Join(dir, "key"), map[store.Space]func([]byte) bool{"all": nil}
	for range 2 {
		s = open(t, options)
		if it, err := s.Get(t.Context(), tenant, "all", "k"); err != nil || string(it.Value) != string(before.Value) ||
			it.Rev != before.Rev {
			t.Errorf("%+v, %v", it, err)
		}
		closeStore(t, s)
	}

	// Without the spaces nobody can read it any more.
	s = open(t, pebble.Options{Dir: options.Dir})
	if _, err := s.Get(t.Context(), tenant, "all", "k"); !errors.Is(err, store.ErrSealed) {
		t.Error(err)
	}
	closeStore(t, s)
}
