package server_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/custody/backup/repository"
	"j17/internal/custody/proof"
	"j17/internal/server"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
)

const backedUp = j17.Tenant("ins_1abc/staging")

func backupTime() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }

// backUp makes a backup of an environment with events at two moments.
func backUp(t *testing.T, dir string) (*repository.Repository, repository.Manifest) {
	t.Helper()
	r := repository.OpenFolder(dir, clock.System{})
	w, err := r.NewBackup(t.Context(), repository.Head{
		ID: "bak_1", Scope: repository.OfEnvironment, Kind: repository.Full, CreatedAt: backupTime(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()

	var tree proof.Tree
	var events []j17.Event
	for i := range 10 {
		at := j17.StreamID{Ms: backupTime().UnixMilli() + int64(i)*60_000}
		raw, _ := j17.AppendEvent(
			nil, at, j17.Key{Type: "note", ID: "a"}, "was_written", []byte(`{}`),
			[]byte(`{"actor":{"type":"user","id":"u"}}`), at.Ms/1000,
		)
		e, err := j17.ParseEvent(raw)
		if err != nil {
			t.Fatal(err)
		}
		e.Version = uint64(i + 1)
		events = append(events, e)
		tree.Add(e.Leaf())
	}
	tw := w.Tenant(repository.TenantHead{
		Tenant: backedUp, Instance: "ins_1abc", Name: "shop", Plan: "gone", InstanceCreatedAt: backupTime(),
		Environment: j17.Staging,
		Position:    events[9].StreamID, Moment: events[9].StreamID, Time: events[9].StreamID.Ms + 5000, Size: 10,
		Root: tree.Root(),
	})
	for i := range events {
		if err := tw.Event(&events[i], nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Item(store.ArchivedItem{
		Space: "blob.heads", Item: store.Item{Key: "x", Value: []byte("y"), Rev: 1},
	}); err != nil {
		t.Fatal(err)
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := w.Finish(backupTime().Add(20 * time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return r, m
}

func restoreTo(
	t *testing.T, r *repository.Repository, dir string, change func(*server.RestoreOptions),
) (server.Restored, error) {
	t.Helper()
	o := server.RestoreOptions{Repository: r, Dir: dir, Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	return server.Restore(t.Context(), o)
}

// names lists a folder.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// A link to an empty folder stays one: what is restored is where it leads.
func TestRestoreBehindALink(t *testing.T) {
	root := t.TempDir()
	r, _ := backUp(t, filepath.Join(root, "backups"))
	disk, link := filepath.Join(root, "other", "disk"), filepath.Join(root, "data")
	if err := os.MkdirAll(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(disk, link); err != nil {
		t.Fatal(err)
	}
	if _, err := restoreTo(t, r, link, nil); err != nil {
		t.Fatal(err)
	}
	if leads, err := os.Readlink(link); err != nil || leads != disk {
		t.Errorf("the link leads to %q: %v", leads, err)
	}
	if got := names(t, disk); !slices.Contains(got, "store") {
		t.Errorf("behind the link there is %v", got)
	}
}

func TestRestoreMakesAFolderOrNothing(t *testing.T) {
	root := t.TempDir()
	r, m := backUp(t, filepath.Join(root, "backups"))
	beside := func(want ...string) {
		t.Helper()
		if got := names(t, root); !slices.Equal(got, want) {
			t.Fatalf("there is %v, want %v", got, want)
		}
	}

	// What is in the way stays as it is.
	full := filepath.Join(root, "full")
	if err := os.Mkdir(full, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{full, filepath.Join(full, "x")} {
		if _, err := restoreTo(t, r, dir, nil); err == nil || !strings.Contains(err.Error(), dir) {
			t.Fatal(err)
		}
	}
	if got := names(t, full); !slices.Equal(got, []string{"x"}) {
		t.Fatal(got)
	}
	beside("backups", "full")

	// What fails leaves nothing, or the empty folder that was there.
	part := m.Tenants[0].Items[0].Name
	file := filepath.Join(root, "backups", "parts", part[:2], part)
	if err := os.Rename(file, file+".away"); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(root, "empty")
	if err := os.Mkdir(empty, 0o750); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(root, "new"), empty} {
		_, err := restoreTo(t, r, dir, nil)
		if damaged, ok := errors.AsType[*repository.DamagedError](err); !ok || damaged.File != file {
			t.Fatal(err)
		}
	}
	beside("backups", "empty", "full")
	if err := os.Rename(file+".away", file); err != nil {
		t.Fatal(err)
	}

	// What another restoration has left goes, but not what one works on: an embedded store in a folder.
	left, used := filepath.Join(root, ".j17-restoring-new-1"), filepath.Join(root, ".j17-restoring-new-2")
	for _, dir := range []string{left, used} {
		st, err := pebble.Open(pebble.Options{Dir: filepath.Join(dir, "store")})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		}()
		if dir == left {
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, dir := range []string{filepath.Join(root, "new"), empty, filepath.Join(root, "deep", "er")} {
		out, err := restoreTo(t, r, dir, nil)
		if err != nil || len(out.Tenants) != 1 || out.Tenants[0].Events != 10 {
			t.Fatal(out, err)
		}
	}
	beside(".j17-restoring-new-2", "backups", "deep", "empty", "full", "new")
}

func TestARestoredEnvironmentIsServed(t *testing.T) {
	root := t.TempDir()
	r, _ := backUp(t, filepath.Join(root, "backups"))
	dir := filepath.Join(root, "restored")
	if _, err := restoreTo(t, r, dir, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time with the credentials of the first
		dev, err := server.OpenDev(t.Context(), server.DevOptions{Options: server.Options{
			Dir: dir, Listen: "127.0.0.1:0", InternalListen: "127.0.0.1:0", Clock: clock.System{},
			Logger: slog.New(slog.DiscardHandler),
		}})
		if err != nil {
			t.Fatal(err)
		}
		ready := dev.Ready()
		if err := dev.Close(); err != nil {
			t.Fatal(err)
		}
		if ready.Instance.ID != "ins_1abc" || ready.Instance.Name != "shop" || len(ready.Keys) != 3 {
			t.Fatalf("%+v", ready)
		}
	}
}

func TestWhereARestorationEnds(t *testing.T) {
	root := t.TempDir()
	r, m := backUp(t, filepath.Join(root, "backups"))
	last := m.Tenants[0].Position
	second := j17.StreamID{Ms: backupTime().UnixMilli() + 60_000}
	for name, c := range map[string]struct {
		until  server.Until
		events uint64
		past   bool
	}{
		"nothing said":         {server.Until{}, 10, false},
		"its last event":       {server.Until{Position: last}, 10, false},
		"an earlier event":     {server.Until{Position: second}, 2, true},
		"between two events":   {server.Until{Position: j17.StreamID{Ms: second.Ms + 1}}, 2, true},
		"the second of one":    {server.Until{Time: second.Ms + 999}, 2, true},
		"before that":          {server.Until{Time: second.Ms - 1}, 1, true},
		"when it was made":     {server.Until{Time: last.Ms + 5000}, 10, false},
		"before, with nothing": {server.Until{Time: last.Ms + 1}, 10, true},
	} {
		out, err := restoreTo(t, r, filepath.Join(root, name), func(o *server.RestoreOptions) { o.Until = c.until })
		if err != nil || out.Tenants[0].Events != c.events || out.Tenants[0].Past != c.past {
			t.Errorf("%s: %+v, %v", name, out.Tenants, err)
		}
	}
	for name, change := range map[string]func(*server.RestoreOptions){
		"beyond": func(o *server.RestoreOptions) { o.Until.Position = last.Next() },
		"long after": func(o *server.RestoreOptions) {
			o.Until.Time = backupTime().Add(time.Hour).UnixMilli()
		},
		"before all":          func(o *server.RestoreOptions) { o.Until.Time = 1999 },
		"another backup":      func(o *server.RestoreOptions) { o.Backup = "bak_2" },
		"another environment": func(o *server.RestoreOptions) { o.Environment = "ins_1abc/prod" },
		"a repository with no backup": func(o *server.RestoreOptions) {
			o.Repository = repository.OpenFolder(root, clock.System{})
		},
	} {
		_, err := restoreTo(t, r, filepath.Join(root, "none"), change)
		if j17.CodeOf(err) != j17.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := restoreTo(
		t, r, filepath.Join(root, "named"), func(o *server.RestoreOptions) { o.Environment = "shop/staging" },
	); err != nil {
		t.Error(err)
	}
	if slices.Contains(names(t, root), "none") {
		t.Error("a folder was made for nothing")
	}
}

func TestVerifyBackups(t *testing.T) {
	root, temp := t.TempDir(), t.TempDir()
	r, m := backUp(t, root)
	o := server.VerifyOptions{Repository: r, Temp: temp, Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler)}
	all, err := server.Verify(t.Context(), o)
	if err != nil || len(all) != 1 || all[0].ID != "bak_1" {
		t.Fatal(all, err)
	}
	name := m.Tenants[0].Feed[0].Name
	if err := os.Truncate(filepath.Join(root, "parts", name[:2], name), 30); err != nil {
		t.Fatal(err)
	}
	_, err = server.Verify(t.Context(), o)
	if damaged, ok := errors.AsType[*repository.DamagedError](err); !ok || !strings.Contains(damaged.File, name) {
		t.Fatal(err)
	}
	if got := names(t, temp); len(got) > 0 {
		t.Errorf("%v is left", got)
	}
	o.Backup = "bak_2"
	if _, err := server.Verify(t.Context(), o); j17.CodeOf(err) != j17.CodeNotFound {
		t.Fatal(err)
	}
}

// TestErasedAgainWithoutASpec: what was erased after a backup is not left in it because nobody knows any more what else
// shows it.
func TestErasedAgainWithoutASpec(t *testing.T) {
	root := t.TempDir()
	r, m := backUp(t, filepath.Join(root, "backups"))
	key := j17.Key{Type: "note", ID: "a"}
	at := m.Tenants[0].Position.Next()
	raw, _ := j17.AppendEvent(
		nil, j17.StreamID{Ms: backupTime().UnixMilli()}, key, "_was_tombstoned", []byte(`{}`), []byte(`{}`),
		backupTime().Unix(),
	)
	marker, err := j17.ParseEvent(raw)
	if err != nil {
		t.Fatal(err)
	}
	marker.Version, marker.Kept = 1, make([]byte, 32)
	err = r.PutErasure(t.Context(), repository.Erasure{
		Tenant: backedUp, At: backupTime(), Note: store.Note{
			Position: at, Streams: []store.Generation{{Key: key, Number: 1}},
		}, Events: []*j17.Event{&marker},
	}, repository.Seal{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = restoreTo(t, r, filepath.Join(root, "restored"), nil)
	if j17.CodeOf(err) != j17.CodeNoSpec || !strings.Contains(err.Error(), "The spec of shop/staging in the backup is not valid for this version of j17") {
		t.Error(err)
	}
	if slices.Contains(names(t, root), "restored") {
		t.Error("a folder was left behind")
	}
}
