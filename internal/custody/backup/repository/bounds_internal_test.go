package repository

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// TestManifestsAreBounded has backups of as many parts as there may be, and manifests that somebody else has made: they
// are refused before they take much memory.
func TestManifestsAreBounded(t *testing.T) {
	t.Parallel()
	r := &Repository{storage: newFolder(t.TempDir()), clock: clock.System{}}
	w, err := r.NewBackup(t.Context(), Head{ID: "bak_1", Scope: OfEnvironment, Kind: Full, CreatedAt: time.Unix(0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	tw := w.Tenant(TenantHead{Tenant: j17.Tenant("ins_1/prod")})
	item := func(key string) error {
		if err := tw.Item(store.ArchivedItem{Space: "s", Item: store.Item{Key: key}}); err != nil {
			return err
		}
		return tw.Cut()
	}
	w.listed = mostParts - 1
	if err := item("a"); err != nil {
		t.Fatalf("the last part: %v", err)
	}
	if err := item("b"); !errors.Is(err, errParts) {
		t.Errorf("one more part: %v", err)
	}

	// What could not be read is not written.
	w.tenants = nil
	for range 2 * mostElements / 1024 / 3 {
		full := &TenantWriter{w: w, head: TenantHead{Tenant: j17.Tenant("ins_1/prod")}, closed: true}
		for range 1024 {
			full.items = append(full.items, &Part{})
		}
		w.tenants = append(w.tenants, full)
	}
	if _, err := w.Finish(time.Unix(1, 0)); !errors.Is(err, errParts) {
		t.Errorf("a manifest of too many elements: %v", err)
	}

	// What has the right sum, and would come to gigabytes.
	for _, feed := range []string{
		strings.Repeat("0,", mostElements) + "0", strings.Repeat("[],", mostElements/2) + "[]",
		strings.Repeat("{},", mostElements/2) + "{}",
	} {
		line := `{"format":1,"id":"bak_1","tenants":[{"feed":[` + feed + `]}]}`
		if _, err := decodeManifest(
			"bak_1", fmt.Appendf(nil, "%s\n%x\n", line, sha256.Sum256([]byte(line))),
		); !errors.Is(err, errTooLarge) {
			t.Errorf("%d bytes: %v", len(line), err)
		}
	}

	// A part takes less room in a manifest than each may have.
	at := j17.StreamID{Ms: 9_999_999_999_999, Seq: 1<<32 - 1}
	m := Manifest{Format: Format, ID: "bak_1", Tenants: []TenantManifest{{}}}
	for range 1000 {
		m.Tenants[0].Feed = append(m.Tenants[0].Feed, Segment{
			Part: Part{Name: strings.Repeat("a", 64), Bytes: maxContent}, First: at, Last: at, Events: maxContent,
		})
	}
	text, err := m.encode()
	if err != nil || len(text) > 1000*maxManifest/mostParts ||
		strings.Count(string(text), ",")+strings.Count(string(text), "{") > 1000*mostElements/mostParts {
		t.Errorf("a thousand parts: %d bytes, %v", len(text), err)
	}
}
