package backup_test

import (
	"strings"
	"sync"
	"testing"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/custody/backup"
	"j17/internal/custody/backup/repository"
)

// TestTwoServersShareAFolder has a server make a backup, delete another one and collect while a backup of another
// server is on its way in the same folder, whose parts no manifest names yet.
func TestTwoServersShareAFolder(t *testing.T) {
	hold := held{read: make(chan struct{}), goOn: make(chan struct{}), once: new(sync.Once)}
	one := newHouse(t, func(o *backup.Options) {
		hold.Storage = o.Store
		o.Store = hold
	})
	goOn := sync.OnceFunc(func() { close(hold.goOn) })
	two := newHouse(t, func(o *backup.Options) { o.Folder = one.folder })
	two.folder = one.folder
	t.Cleanup(goOn) // before the services are stopped, which wait for it
	one.run(t)
	two.run(t)

	// What both have is stored once.
	const text = "what both servers have"
	one.write(t, one.prod, "same", text, "of the first")
	two.write(t, two.prod, "same", text, "of the second")
	old := two.make(t, two.prod, "")
	b, err := one.Create(t.Context(), one.prod, "")
	if err != nil {
		t.Fatal(err)
	}
	<-hold.read

	// The other one makes a backup meanwhile, and removes one with what it no longer needs.
	two.write(t, two.prod, "same", "more")
	fresh := two.make(t, two.prod, repository.Full)
	if err := two.Delete(t.Context(), two.prod, old.ID); err != nil {
		t.Fatal(err)
	}
	goOn()
	if b = one.ended(t, one.prod, b.ID); b.Status != backup.Completed || fresh.Status != backup.Completed {
		t.Fatalf("%+v\n%+v", b, fresh)
	}
	two.stop()
	one.stop()

	// Each has all of its own, and none of the other's.
	for _, of := range []struct {
		h         *house
		id        string
		t         j17.Tenant
		has, lack string
	}{{one, b.ID, one.prod, "of the first", "of the second"}, {two, fresh.ID, two.prod, "more", "of the first"}} {
		if text := of.h.read(t, of.id, of.t); !strings.Contains(text, "what both servers have") ||
			!strings.Contains(text, of.has) || strings.Contains(text, of.lack) {
			t.Errorf("%s has %s", of.id, text)
		}
		if ids := of.h.ids(t, of.t); len(ids) != 1 || ids[0] != of.id {
			t.Errorf("%v are listed, want %s", ids, of.id)
		}
	}
	all, damaged, err := repository.OpenFolder(one.folder, clock.System{}).Manifests(t.Context())
	if err != nil || len(all) != 2 || len(damaged) != 0 {
		t.Errorf("%v, %v, %v", all, damaged, err)
	}
}
