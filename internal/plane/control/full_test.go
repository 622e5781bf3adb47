package control_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// TestDeletingOnAFullDisk deletes and revokes while nothing can be created. The disk is that of the embedded store,
// which alone knows how much room it has left.
func TestDeletingOnAFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	const floor = 64 << 20 // a twentieth of the disk
	free := func(bytes uint64) { disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 20 * floor}) }
	free(10 * floor)
	clk := clock.NewManual(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	st := testopen.Embedded(disk).Open(t, clk)
	r, err := control.Open(t.Context(), control.Options{Store: st, Clock: clk})
	if err != nil {
		t.Fatal(err)
	}
	app, err := r.Instances.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	other, err := r.Instances.Create(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	op, err := r.Operators.Create(t.Context(), control.NewOperator{
		Email: "a@example.com", Password: "correct horse battery", Role: control.RoleAuditor,
		Instances: []string{app.ID, other.ID},
	})
	if err != nil {
		t.Fatal(err)
	}
	key, token, err := r.Keys.Create(t.Context(), control.NewKey{
		Instance: other.ID, Environment: j17.Prod, Scope: j17.ScopeRead, Name: "k",
	})
	if err != nil {
		t.Fatal(err)
	}
	tenant := j17.TenantOf(app.ID, j17.Prod)
	unit := store.Append{Events: []store.NewEvent{
		{Key: j17.Key{Type: "a", ID: "1"}, Type: "was", Data: []byte("{}"), Metadata: []byte("{}")},
	}}
	if _, err := st.Append(t.Context(), tenant, []store.Append{unit}); err != nil {
		t.Fatal(err)
	}

	free(floor * 3 / 4)
	_, err = r.Instances.Create(t.Context(), "third") // which finds out that there is no room
	want(t, "CreateInstance", err, j17.CodeStorageFull, "")
	if _, err := r.Keys.Revoke(t.Context(), key.ID, time.Time{}); err != nil {
		t.Errorf("RevokeKey: %v", err)
	}
	if _, ok := r.Keys.ByToken(token); ok {
		t.Error("the revoked key works")
	}
	if _, err := r.Operators.Withdraw(t.Context(), op.ID, other.ID); err != nil {
		t.Errorf("Withdraw: %v", err)
	}
	if err := r.Instances.Delete(t.Context(), app.ID, "app"); err != nil {
		t.Errorf("DeleteInstance: %v", err)
	}
	if err := r.Operators.Delete(t.Context(), op.ID); err != nil {
		t.Errorf("DeleteOperator: %v", err)
	}
	if tenants, err := st.Tenants(t.Context()); err != nil || len(tenants) != 1 {
		t.Errorf("tenants that are left: %v, %v", tenants, err)
	}
	_, err = r.Instances.Create(t.Context(), "third")
	want(t, "CreateInstance", err, j17.CodeStorageFull, "")
}
