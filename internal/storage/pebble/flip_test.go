//go:build !race

package pebble_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// readings reads all that a tenant holds in all ways, one text and one error for each.
func readings(ctx context.Context, s *pebble.Store) (texts map[string]string, errs map[string]error) {
	texts, errs = map[string]string{}, map[string]error{}
	note := func(name string, text func(b *strings.Builder) error) {
		var b strings.Builder
		errs[name] = text(&b)
		texts[name] = b.String()
	}
	events := func(read func(yield func(*j17.Event, error) bool)) func(b *strings.Builder) error {
		return func(b *strings.Builder) (failed error) {
			for e, err := range read {
				if err != nil {
					return err
				}
				fmt.Fprintf(b, "%s %s %d %s %s %x\n", e.StreamID, e.Key, e.Version, e.Type, e.Raw, e.Kept)
			}
			return nil
		}
	}
	note("the feed", events(s.ReadFeed(ctx, tenant, j17.StreamID{}, 1000)))
	note("a tag", events(s.ReadTagged(ctx, tenant, store.Tagged{Tags: []string{"even"}}, j17.StreamID{}, 1000, nil)))
	for i := range 4 {
		k := key(fmt.Sprint(i))
		note("stream "+k.String(), events(s.ReadStream(ctx, tenant, k, 1, 0)))
		note("head "+k.String(), func(b *strings.Builder) error {
			heads, err := s.Heads(ctx, tenant, []j17.Key{k})
			fmt.Fprint(b, heads)
			return err
		})
	}
	note("the streams", func(b *strings.Builder) error {
		ids, err := s.Streams(ctx, tenant, "order", "", 10)
		fmt.Fprint(b, ids)
		return err
	})
	note("items", func(b *strings.Builder) error {
		items, err := s.Scan(ctx, tenant, "notes", store.Range{}, 100)
		fmt.Fprint(b, items)
		return err
	})
	note("an archive", func(b *strings.Builder) error {
		a, err := s.Archive(ctx, tenant)
		if err != nil {
			return err
		}
		defer a.Close()
		for c, err := range a.Changes(ctx, j17.StreamID{}) {
			if err != nil {
				return err
			}
			if c.Event != nil {
				fmt.Fprintf(b, "%s %q\n", c.Event.Raw, c.Tags)
			}
		}
		return nil
	})
	return texts, errs
}

// TestFlippedBytes changes single bytes everywhere in the tables of a store: what is read is either what was written,
// or an error that names what is damaged. No changed byte is served.
func TestFlippedBytes(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	// Hardly anything is kept in memory, so that all is read again each time.
	begin := func() *pebble.Store {
		s, err := pebble.Open(pebble.Options{Dir: "data", FS: fs, CacheBytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := begin()
	// Events and items fill blocks of their own, and what is small stands between them: a start reads none of that.
	for i := range 40 {
		list := events(key(fmt.Sprint(i%4)), fmt.Sprintf(`{"n":%0*d}`, 2000, i*7919), `"second"`)
		if i%2 == 0 {
			list[0].Tags = []string{"even"}
		}
		unit := store.Append{Events: list, Side: []store.Side{
			{Op: store.Put, Space: "notes", Key: fmt.Sprint(i), Value: fmt.Appendf(nil, "value %0*d", 2000, i)},
		}}
		if _, err := s.Append(t.Context(), tenant, []store.Append{unit}); err != nil {
			t.Fatal(err)
		}
	}
	if err := storetest.Erase(t.Context(), s, tenant, key("1"), erase(2, 3)); err != nil {
		t.Fatal(err)
	}
	want, errs := readings(t.Context(), s)
	for name, err := range errs {
		if err != nil || want[name] == "" {
			t.Fatalf("%s: %q, %v", name, want[name], err)
		}
	}
	closeStore(t, s)

	names, err := fs.List("data")
	if err != nil {
		t.Fatal(err)
	}
	s = begin()
	defer closeStore(t, s)
	detected := map[string]int{}
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		info, err := fs.Stat("data/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for at := int64(0); at < info.Size(); at += 1 + info.Size()/4 {
			// the engine looks long for the bit that was changed
			flip(t, fs, "data/"+name, at)
			texts, errs := readings(t.Context(), s)
			for what, err := range errs {
				var damage *store.CorruptionError
				switch {
				case err == nil && texts[what] != want[what]:
					t.Errorf("byte %d of %s: %s reads as\n%s\nand is\n%s", at, name, what, texts[what], want[what])
				case err != nil && (!errors.As(err, &damage) || damage.Where == ""):
					t.Errorf("byte %d of %s: %s: %v, want damage that is named", at, name, what, err)
				case err != nil && strings.Contains(err.Error(), "carrier"):
					t.Errorf("byte %d of %s: %s: %v, want what is damaged alone", at, name, what, err)
				case err != nil:
					detected[what]++
				}
			}
			flip(t, fs, "data/"+name, at)
		}
	}
	if len(detected) < 5 {
		t.Errorf("changed bytes were noticed by who reads %v only: the test shows nothing", detected)
	}
}

// flip changes a byte of a file, or changes it back.
func flip(t *testing.T, fs vfs.FS, path string, at int64) {
	t.Helper()
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	_, err = f.ReadAt(one, at)
	if err == nil {
		one[0] ^= 0x10
		_, err = f.WriteAt(one, at)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
