package repository_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/custody/backup/repository"
	"j17/internal/custody/proof"
)

// benchEvents returns about 128 MiB of events with text that compresses to half.
func benchEvents(b *testing.B) (events []j17.Event, size int64, root [32]byte) {
	b.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var tree proof.Tree
	for i := 0; size < 128<<20; i++ {
		text := make([]byte, 200)
		for j := range text {
			text[j] = 'a' + byte(random.Uint32()%16)
		}
		raw, _ := j17.AppendEvent(
			nil, at(i+1), j17.Key{Type: "note", ID: fmt.Sprint(i)}, "was_written", fmt.Appendf(
				nil, `{"text":%q,"n":%d}`, text, i,
			), []byte(`{"actor":{"type":"user","id":"u1"}}`), 1_700_000_000,
		)
		e, err := j17.ParseEvent(raw)
		if err != nil {
			b.Fatal(err)
		}
		e.Version = 1
		events = append(events, e)
		tree.Add(e.Leaf())
		size += int64(len(raw))
	}
	return events, size, tree.Root()
}

// BenchmarkBackup writes events into a folder, and beside it the same bytes as dd with fsync would.
func BenchmarkBackup(b *testing.B) {
	events, size, root := benchEvents(b)
	b.Run("dd", func(b *testing.B) {
		buffer := make([]byte, 1<<20)
		b.SetBytes(size)
		for i := 0; b.Loop(); i++ {
			f, err := os.Create(filepath.Join(b.TempDir(), fmt.Sprint(i)))
			if err != nil {
				b.Fatal(err)
			}
			for range size / int64(len(buffer)) {
				if _, err := f.Write(buffer); err != nil {
					b.Fatal(err)
				}
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
			_ = f.Close()
		}
	})
	_, recipient, err := repository.NewIdentity()
	if err != nil {
		b.Fatal(err)
	}
	sealed, err := repository.NewSeal([]string{recipient}, nil)
	if err != nil {
		b.Fatal(err)
	}
	for name, seal := range map[string]repository.Seal{"clear": {}, "encrypted": sealed} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				r := repository.OpenFolder(b.TempDir(), clock.NewManual(start()))
				w, err := r.NewBackup(b.Context(), repository.Head{ID: "bak_1", Kind: repository.Full, Seal: seal})
				if err != nil {
					b.Fatal(err)
				}
				last := events[len(events)-1].StreamID
				tw := w.Tenant(repository.TenantHead{
					Tenant: tenant, Position: last, Moment: last, Size: uint64(len(events)), Root: root,
				})
				for i := range events {
					if err := tw.Event(&events[i], nil); err != nil {
						b.Fatal(err)
					}
				}
				if err := tw.Close(); err != nil {
					b.Fatal(err)
				}
				if _, err := w.Finish(start()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
