package backup_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"j17"
	"j17/internal/base/keyfile"
	"j17/internal/custody/backup"
	"j17/internal/storage/store"
)

// TestSettings changes settings, in ways that can and that cannot be.
func TestSettings(t *testing.T) {
	h := newHouse(t, nil)
	change := func(amend func(*backup.Settings)) (backup.Settings, error) {
		return h.Change(t.Context(), h.app.ID, amend)
	}
	s3 := backup.S3{Endpoint: "https://s3.example.com", Bucket: "bucket", AccessKey: "key", SecretKey: "very secret"}
	set, err := change(func(s *backup.Settings) { s.KeepLast, s.S3 = 3, &s3 })
	if err != nil || set.KeepLast != 3 || set.S3.SecretKey != "very secret" {
		t.Fatalf("%+v %v", set, err)
	}

	// What is stored does not show the secret, and is of no use without the key file.
	items, err := h.store.Scan(t.Context(), h.prod, "backup.settings", store.Range{}, 10)
	if err != nil || len(items) != 1 || bytes.Contains(items[0].Value, []byte("very secret")) {
		t.Errorf("%d items, %v", len(items), err)
	}
	same := func(prefix, endpoint string) backup.S3 {
		return backup.S3{Endpoint: endpoint, Bucket: "bucket", Prefix: prefix, AccessKey: "key"}
	}
	moved := same("elsewhere", s3.Endpoint)
	if set, err := change(func(s *backup.Settings) { s.S3 = &moved }); err != nil ||
		set.S3.SecretKey != "very secret" || set.S3.Prefix != "elsewhere" {
		t.Errorf("the secret is not kept: %+v %v", set.S3, err)
	}
	other := same("", "https://other.example.com")
	if _, err := change(func(s *backup.Settings) { s.S3 = &other }); j17.CodeOf(err) != j17.CodeInvalidField {
		t.Errorf("the secret went to another server: %v", err)
	}
	for name, amend := range map[string]func(*backup.Settings){
		"a negative number": func(s *backup.Settings) { s.KeepDays = -1 },
		"no recipient":      func(s *backup.Settings) { s.Recipients = []string{"age1nonsense"} },
		"no bucket": func(s *backup.Settings) {
			s.S3 = &backup.S3{Endpoint: s3.Endpoint, AccessKey: "a", SecretKey: "b"}
		},
		"no URL": func(s *backup.Settings) {
			s.S3 = &backup.S3{Endpoint: "s3", Bucket: "b", AccessKey: "a", SecretKey: "b"}
		},
		"a long text": func(s *backup.Settings) {
			s.S3 = &backup.S3{Endpoint: s3.Endpoint, Bucket: "b", AccessKey: "a", SecretKey: strings.Repeat("x", 2000)}
		},
	} {
		if _, err := change(amend); j17.CodeOf(err) != j17.CodeInvalidField {
			t.Errorf("%s: %v", name, err)
		}
	}
	if set, err := h.Settings(t.Context(), h.app.ID); err != nil || set.KeepLast != 3 || set.S3.Prefix != "elsewhere" {
		t.Errorf("%+v %v", set, err)
	}

	// Without its key the server says so, and can be told again.
	h.options.Key = keyfile.OfSecret("another key")
	h.open(t)
	h.run(t)
	if set, err := h.Settings(t.Context(), h.app.ID); err != nil || set.S3.SecretKey != "" {
		t.Errorf("%+v %v", set, err)
	}
	if _, err := change(func(s *backup.Settings) { s.KeepLast = 4 }); err != nil {
		t.Error(err)
	}
	if b := h.make(t, h.prod, ""); b.Status != backup.Failed || !strings.Contains(b.Error, "secret_key") {
		t.Errorf("%+v", b)
	}
	if _, err := change(func(s *backup.Settings) { s.S3 = nil }); err != nil {
		t.Error(err)
	}
	if b := h.make(t, h.prod, ""); b.Status != backup.Completed {
		t.Errorf("%+v", b)
	}
}

// TestSchedule makes backups by the clock and removes those that are kept no longer.
func TestSchedule(t *testing.T) {
	h := newHouse(t, nil)
	h.run(t)
	h.write(t, h.prod, "one", "first")
	if _, err := h.Change(
		t.Context(), h.app.ID, func(s *backup.Settings) { s.EveryHours, s.KeepLast = 24, 2 },
	); err != nil {
		t.Fatal(err)
	}
	completed := func() (n int) {
		all, err := h.List(t.Context(), h.prod, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range all {
			if b.Status == backup.Completed {
				n++
			}
		}
		return n
	}
	settled := func() bool { // A look that is under way is due again when its lease is over, far sooner than a day.
		before := h.Stats()
		next, err := h.NextDue(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		stats := h.Stats() // A backup that ends in between makes a look due that was not yet.
		return stats == before && stats.Running+stats.Waiting == 0 && next.Sub(h.clock.Now()) > time.Hour
	}
	h.await(t, func() bool { return completed() == 1 })
	for n := 2; n <= 4; n++ {
		h.await(t, settled)
		newest := h.ids(t, h.prod)[0]
		h.clock.Advance(25 * time.Hour)
		h.await(t, func() bool { return h.ids(t, h.prod)[0] != newest })
		h.await(t, settled)
		if got := h.ids(t, h.prod); len(got) != 2 || completed() != 2 || got[1] != newest {
			t.Errorf("after %d backups there are %v", n, got)
		}
	}
}

// TestScheduleGoesOn checks that a backup that cannot be removed holds up neither the one that is due nor the removal
// of others.
func TestScheduleGoesOn(t *testing.T) {
	h := newHouse(t, nil)
	h.run(t)
	h.write(t, h.prod, "one", "first")
	stuck := h.make(t, h.prod, "")
	h.clock.Advance(time.Minute)
	h.stop()

	// The newer ones go elsewhere, and where the first one is nobody answers.
	if err := os.RemoveAll(h.folder); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.folder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.options.Folder = filepath.Join(t.TempDir(), "new")
	h.open(t)
	h.run(t)
	removed := h.make(t, h.prod, "")
	h.clock.Advance(time.Minute)
	kept := h.make(t, h.prod, "")
	h.stop()
	h.open(t)
	if _, err := h.Change(
		t.Context(), h.app.ID, func(s *backup.Settings) { s.EveryHours, s.KeepLast = 1, 1 },
	); err != nil {
		t.Fatal(err)
	}
	h.clock.Advance(3 * time.Hour)
	if err := h.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.ids(t, h.prod); len(got) != 3 || got[1] != kept.ID || got[2] != stuck.ID {
		t.Errorf("of %s, %s and %s there are %v", stuck.ID, removed.ID, kept.ID, got)
	}
	if !strings.Contains(h.log.String(), "cannot be removed") {
		t.Error("nobody is told: " + h.log.String())
	}
}

// TestEncrypted makes backups that only who has the key can read.
func TestEncrypted(t *testing.T) {
	h := newHouse(t, nil)
	h.run(t)
	h.write(t, h.prod, "one", "first")
	if b := h.make(t, h.prod, ""); b.Encrypted {
		t.Errorf("%+v", b)
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Change(
		t.Context(), h.app.ID, func(s *backup.Settings) { s.Recipients = []string{id.Recipient().String()} },
	); err != nil {
		t.Fatal(err)
	}
	a := h.make(t, h.prod, "")
	b := h.make(t, h.prod, "")
	if !a.Encrypted || string(a.Kind) != "full" || string(b.Kind) != "incremental" || b.Parent != a.ID {
		t.Errorf("%+v\n%+v", a, b)
	}

	// What one instance wants to be encrypted is so in a backup of the server too.
	if b := h.make(t, j17.System, ""); !b.Encrypted {
		t.Errorf("%+v", b)
	}
}
