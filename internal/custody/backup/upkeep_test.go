package backup_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/custody/backup"
)

// byDefault makes a backup of the whole server each day unless somebody has said otherwise.
func byDefault(o *backup.Options) {
	o.ByDefault = func(instance string) backup.Settings {
		if instance == "" {
			return backup.Daily()
		}
		return backup.Settings{}
	}
}

// TestByDefault: a server that nobody has told anything makes a backup of all that it has each day, and keeps seven.
func TestByDefault(t *testing.T) {
	h := newHouse(t, byDefault)
	h.write(t, h.prod, "one", "first")
	if set, err := h.Settings(t.Context(), ""); err != nil || set.EveryHours != 24 || set.KeepLast != 7 {
		t.Errorf("%+v %v", set, err)
	}
	if set, err := h.Settings(t.Context(), h.app.ID); err != nil || set.EveryHours != 0 {
		t.Errorf("%+v %v", set, err)
	}
	h.run(t)
	ended := func() bool {
		all, err := h.List(t.Context(), j17.System, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		return len(all) > 0 && all[0].Status == backup.Completed && h.idle(t)
	}
	h.await(t, ended)
	for n := 2; n <= 9; n++ {
		newest := h.ids(t, j17.System)[0]
		h.clock.Advance(25 * time.Hour)
		h.await(t, func() bool { return h.ids(t, j17.System)[0] != newest })
		h.await(t, ended)
		if got, want := len(h.ids(t, j17.System)), min(n, 7); got != want {
			t.Errorf("after %d days there are %d backups, want %d", n, got, want)
		}
	}
	if got := h.ids(t, h.prod); len(got) != 0 {
		t.Errorf("the environment has backups of its own: %v", got)
	}
	h.stop()

	// When the last one was completed is known after a restart, and only of the server there is one.
	want := h.Stats().LastServer
	h.open(t)
	if got := h.Stats(); want == 0 || got.LastServer != want || got.LastEnvironment != 0 {
		t.Errorf("%+v, want %d", got, want)
	}
}

// TestSettingsCountBeforeTheDefault: whoever has set anything keeps that, also when it says that no backups are made.
func TestSettingsCountBeforeTheDefault(t *testing.T) {
	h := newHouse(t, nil)
	if _, err := h.Change(t.Context(), "", func(s *backup.Settings) { s.KeepDays = 30 }); err != nil {
		t.Fatal(err)
	}
	byDefault(&h.options)
	h.open(t)
	if set, err := h.Settings(t.Context(), ""); err != nil || set.EveryHours != 0 || set.KeepLast != 0 ||
		set.KeepDays != 30 {
		t.Errorf("%+v %v", set, err)
	}

	// What is not named in a change of the default stays.
	h = newHouse(t, byDefault)
	if set, err := h.Change(
		t.Context(), "", func(s *backup.Settings) { s.KeepLast = 3 },
	); err != nil || set.EveryHours != 24 || set.KeepLast != 3 {
		t.Errorf("%+v %v", set, err)
	}
}

// TestLastOfEnvironments: the last backup of an environment is known after a restart, too.
func TestLastOfEnvironments(t *testing.T) {
	h := newHouse(t, nil)
	h.run(t)
	h.write(t, h.prod, "one", "first")
	made := h.make(t, h.prod, "")
	h.stop()
	h.clock.Advance(time.Hour)
	h.open(t)
	h.run(t)
	h.await(t, func() bool { return h.Stats().LastEnvironment == made.CompletedAt.Unix() })
	if got := h.Stats().LastServer; got != 0 {
		t.Errorf("a backup of the server at %d", got)
	}
}

// TestFolderThatCannotBeWritten: it is told once, and again when the folder is good.
func TestFolderThatCannotBeWritten(t *testing.T) {
	h := newHouse(t, byDefault)
	h.stop()
	if err := os.WriteFile(h.folder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.run(t)
	h.await(t, func() bool { return !h.Stats().FolderWritable })
	again := func(is func() bool) {
		// The clock may have been moved before the round that is waited for has begun to wait. It stands still while a
		// look is under way, which would lose its lease otherwise.
		t.Helper()
		h.await(t, func() bool {
			if h.idle(t) {
				h.clock.Advance(25 * time.Hour)
			}
			return is()
		})
	}
	again(func() bool { return h.Stats().Failed > 1 })
	if said := strings.Count(h.log.String(), "no backups can be made in their folder"); said != 1 {
		t.Errorf("told %d times:\n%s", said, h.log)
	}

	if err := os.Remove(h.folder); err != nil {
		t.Fatal(err)
	}
	again(func() bool { return h.Stats().FolderWritable && h.Stats().Completed > 0 })
	if !strings.Contains(h.log.String(), "backups can be written to their folder again") {
		t.Errorf("nobody is told: %s", h.log)
	}
}

// TestTry tries where backups go, and leaves everything as it was.
func TestTry(t *testing.T) {
	h := newHouse(t, nil)
	hourly := func(s *backup.Settings) { s.EveryHours = 1 }
	if err := h.Try(t.Context(), h.app.ID, hourly); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(h.folder, "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if set, err := h.Settings(t.Context(), h.app.ID); err != nil || set.EveryHours != 0 {
		t.Errorf("%+v %v", set, err)
	}
	if err := os.RemoveAll(h.folder); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.folder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Try(t.Context(), h.app.ID, hourly); j17.CodeOf(err) != j17.CodeUnavailable {
		t.Errorf("%v", err)
	}
	if err := h.Try(
		t.Context(), h.app.ID, func(s *backup.Settings) { s.KeepLast = -1 },
	); j17.CodeOf(err) != j17.CodeInvalidField {
		t.Errorf("%v", err)
	}
}
