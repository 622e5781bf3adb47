package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/store"
)

func testIsolation(s *suite) {
	t := s.t
	f := s.fixture(t)
	names := []j17.Tenant{"a/prod", "a/staging", "a/test", "ab/prod", j17.System}
	for i, name := range names {
		if got, err := f.Tenants(t.Context()); err != nil || len(got) != i {
			t.Fatalf("tenants %v, %v", got, err)
		}
		for range i + 1 {
			commit(t, f, name, store.Append{
				Command: &store.Command{ID: store.CommandID{byte(i)}}, Pre: []store.Pre{pre(order("x"), 0)},
				Events: events(order("x"), fmt.Sprint(i)), Side: []store.Side{{Op: store.Put, Space: space, Key: "k", Value: []byte(name), Cond: store.IfAbsent}},
			})
			break
		}
	}
	f.reopen(t, t)
	if got, err := f.Tenants(t.Context()); err != nil || !cmp.Equal(got, names) {
		t.Fatalf("tenants %v, %v, want %v", got, err, names)
	}
	for i, name := range names {
		feed := readFeed(t, f, name, j17.StreamID{}, everything)
		if len(feed) != 1 || feed[0].Data != fmt.Sprint(i) {
			t.Errorf("feed of %s: %v", name, feed)
		}
		if item := get(t, f, name, space, "k"); string(item.Value) != string(name) {
			t.Errorf("item of %s: %s", name, item.Value)
		}
		if r, err := f.Command(t.Context(), name, store.CommandID{byte(i + 1)}); r != nil || err != nil {
			t.Errorf("%s knows a command of another tenant: %v, %v", name, r, err)
		}
	}
}

// fill writes some of everything and returns the export.
func fill(t *testing.T, f *fixture, tn j17.Tenant) string {
	t.Helper()
	for i := range 30 {
		f.clock.Advance(time.Millisecond)
		commit(t, f, tn, store.Append{
			Timestamp: int64(i), Command: &store.Command{ID: store.CommandID{byte(i)}, Memo: []byte{0, 1, byte(i)}, Expires: f.clock.Now().Add(time.Hour)},
			Events: append(events(order(fmt.Sprint(i%4)), `{"text":"\"timestamp\":5}"}`), events(j17.Key{Type: "user", ID: "ü<&>"}, `1`)...),
			Side: []store.Side{
				{Op: store.Put, Space: space, Key: fmt.Sprintf("k%d\n\u2028<", i%7), Value: []byte{0xff, byte(i)}, Expires: f.clock.Now().Add(2 * time.Hour)},
				{Op: store.Put, Space: "work", Key: fmt.Sprint(i), Due: f.clock.Now().Add(time.Duration(i) * time.Second)},
				{Op: store.Delete, Space: "work", Key: fmt.Sprint(i - 5)},
			},
		})
	}
	commit(t, f, tn, store.Append{Command: &store.Command{ID: store.CommandID{200}}, Events: []store.NewEvent{
		{Key: order("bare"), Type: "was_made", Data: []byte(`null`), Metadata: []byte(`{}`), Timestamp: -77},
	}})
	commit(t, f, tn, store.Append{Command: &store.Command{ID: store.CommandID{201}}})
	if err := Erase(t.Context(), f, tn, order("1"), []store.Rewritten{{Version: 2, Type: "was_erased", Data: []byte(`{}`), Metadata: []byte(`{}`)}}); err != nil {
		t.Fatal(err)
	}
	return export(t, f, tn)
}

func export(t failer, s store.Store, tn j17.Tenant) string {
	t.Helper()
	var b bytes.Buffer
	if err := s.ExportTenant(t.Context(), tn, &b); err != nil {
		t.Fatalf("export: %v", err)
	}
	return b.String()
}

func testDrop(s *suite) {
	t := s.t
	f := s.fixture(t)
	fill(t, f, tenant)
	kept := fill(t, f, other)
	if err := f.DropTenant(t.Context(), "nobody"); err != nil {
		t.Fatal(err)
	}
	// A reader that has begun goes on with what was there.
	n := 0
	for _, err := range f.ReadStream(t.Context(), tenant, order("1"), 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1 {
			if err := f.DropTenant(t.Context(), tenant); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n != 8 {
		t.Fatalf("%d events, want 8", n)
	}
	for _, reopen := range []bool{false, true} {
		if reopen {
			f.reopen(t, t)
		}
		if names, err := f.Tenants(t.Context()); err != nil || !cmp.Equal(names, []j17.Tenant{other}) {
			t.Fatalf("tenants %v, %v", names, err)
		}
		if h := head(t, f, tenant, order("1")); h != (store.Head{}) {
			t.Fatalf("head %+v", h)
		}
		if feed := readFeed(t, f, tenant, j17.StreamID{}, 9); len(feed) != 0 {
			t.Fatalf("feed %v", feed)
		}
		if items, err := f.Scan(t.Context(), tenant, space, store.Range{}, 9); err != nil || len(items) != 0 {
			t.Fatalf("items %v, %v", items, err)
		}
		if err := f.ExportTenant(t.Context(), tenant, &bytes.Buffer{}); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("export: %v, want ErrNotFound", err)
		}
		if diff := cmp.Diff(kept, export(t, f, other)); diff != "" {
			t.Fatalf("another tenant has changed:\n%s", diff)
		}
	}
	// The name can be used again, and begins anew.
	r := commit(t, f, tenant, store.Append{Timestamp: 5, Pre: []store.Pre{pre(order("1"), 0)}, Events: events(order("1"), `1`), Command: &store.Command{ID: store.CommandID{1}}})
	if r.Timestamp != 5 || r.Lengths[0] != 1 {
		t.Fatalf("result %+v", r)
	}
	f.reopen(t, t)
	if feed := readFeed(t, f, tenant, j17.StreamID{}, 9); len(feed) != 1 {
		t.Fatalf("feed %v", feed)
	}
}

func testExport(s *suite) {
	t := s.t
	f := s.fixture(t)
	text := fill(t, f, tenant)
	target := s.fixture(t)
	commit(t, target, other, store.Append{Events: events(order("1"), `1`)})
	if err := target.ImportTenant(t.Context(), tenant, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	for _, reopen := range []bool{false, true} {
		if reopen {
			target.reopen(t, t)
		}
		if diff := cmp.Diff(text, export(t, target, tenant)); diff != "" {
			t.Fatalf("export of the import (-want +got):\n%s", diff)
		}
		want, got := readFeed(t, f, tenant, j17.StreamID{}, everything), readFeed(t, target, tenant, j17.StreamID{}, everything)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("feed (-want +got):\n%s", diff)
		}
	}
	for _, e := range readFeed(t, f, tenant, j17.StreamID{}, everything) {
		if !strings.Contains(text, "\n"+e.Raw+"\n") {
			t.Fatalf("the export does not hold the bytes of %s", e.ID)
		}
	}
	if err := target.ImportTenant(t.Context(), tenant, strings.NewReader(text)); !errors.Is(err, store.ErrNotEmpty) {
		t.Fatalf("second import: %v, want ErrNotEmpty", err)
	}
	// The import is as good as what was written here: commands, conditions, due work and time go on.
	target.clock.Set(f.clock.Now())
	for _, fix := range []*fixture{f, target} {
		if r := appendUnit(t, fix, tenant, store.Append{Command: &store.Command{ID: store.CommandID{3}}}); r.Outcome != store.Duplicate || string(r.Memo) != "\x00\x01\x03" {
			t.Fatalf("command: %+v", r)
		}
		commit(t, fix, tenant, store.Append{Pre: []store.Pre{pre(order("1"), 8)}, Events: events(order("1"), `9`), Side: []store.Side{put("new", "")}})
		fix.clock.Advance(time.Minute)
		if got := claim(t, fix, 2, time.Minute); !cmp.Equal(keysOf(got), []string{"25", "26"}) {
			t.Fatalf("claimed %v", keysOf(got))
		}
		fix.clock.Advance(3 * time.Hour)
		if items, err := fix.Scan(t.Context(), tenant, space, store.Prefix("k"), 9); err != nil || len(items) != 0 {
			t.Fatalf("items that should have expired: %v, %v", items, err)
		}
	}
	if diff := cmp.Diff(export(t, f, tenant), export(t, target, tenant)); diff != "" {
		t.Fatalf("both went on differently:\n%s", diff)
	}
	// A tenant under another name.
	if err := target.ImportTenant(t.Context(), "copy", strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

// testExportUnderWrites takes exports while units are written: each must hold whole units only.
func testExportUnderWrites(s *suite) {
	t := s.t
	f := s.fixture(t)
	commit(t, f, tenant, store.Append{Events: append(events(order("a"), `1`), events(order("b"), `1`)...), Side: []store.Side{put("n", "1")}})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 2; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			commit(worker{t}, f, tenant, store.Append{
				Events: append(events(order("a"), `1`), events(order("b"), `1`)...), Side: []store.Side{put("n", fmt.Sprint(n))},
			})
		}
	})
	for i := range 5 {
		text := export(t, f, tenant)
		name := j17.Tenant(fmt.Sprint("copy", i))
		if err := f.ImportTenant(t.Context(), name, strings.NewReader(text)); err != nil {
			t.Error(err)
			break
		}
		a, b := head(t, f, name, order("a")), head(t, f, name, order("b"))
		if n := fmt.Sprint(a.Length); a.Length != b.Length || string(get(t, f, name, space, "n").Value) != n {
			t.Errorf("export %d holds %d, %d events and the side item %s", i, a.Length, b.Length, get(t, f, name, space, "n").Value)
		}
	}
	close(stop)
	wg.Wait()
}

func testImportDamaged(s *suite) {
	t := s.t
	f := s.fixture(t)
	lines := strings.SplitAfter(strings.TrimSuffix(fill(t, f, tenant), "\n"), "\n")
	last := len(lines) - 1
	lines[last] += "\n"
	refused := func(what, text string) {
		t.Helper()
		err := f.ImportTenant(t.Context(), other, strings.NewReader(text))
		var damaged *store.ImportError
		if !errors.As(err, &damaged) || damaged.Line < 1 {
			t.Fatalf("%s: %v, want an ImportError", what, err)
		}
		if names, err := f.Tenants(t.Context()); err != nil || len(names) != 1 {
			t.Fatalf("%s: tenants %v, %v", what, names, err)
		}
	}
	text := func(lines ...[]string) string {
		var b strings.Builder
		for _, part := range lines {
			b.WriteString(strings.Join(part, ""))
		}
		return b.String()
	}
	refused("nothing", "")
	refused("no export", "hello\n")
	for i, line := range lines {
		refused(fmt.Sprintf("without line %d", i+1), text(lines[:i], lines[i+1:]))
		refused(fmt.Sprintf("line %d twice", i+1), text(lines[:i+1], lines[i:]))
		refused(fmt.Sprintf("up to line %d", i+1), text(lines[:i], []string{line[:len(line)-1]}))
		if i > 0 {
			refused(fmt.Sprintf("line %d before its neighbour", i+1), text(lines[:i-1], []string{lines[i], lines[i-1]}, lines[i+1:]))
		}
		for _, at := range []int{0, len(line) / 3, len(line) / 2, len(line) - 3} {
			damaged := []byte(line)
			damaged[at] ^= 1
			refused(fmt.Sprintf("line %d with byte %d changed", i+1, at), text(lines[:i], []string{string(damaged)}, lines[i+1:]))
		}
	}
	refused("more", text(lines, []string{"\n"}))
	refused("a newer format", strings.Replace(text(lines), `{"tenant":{"format":2`, `{"tenant":{"format":3`, 1))
	// After all that the export is still good.
	if err := f.ImportTenant(t.Context(), other, strings.NewReader(text(lines))); err != nil {
		t.Fatal(err)
	}
}

// cancelReader cancels a context when it has been read up to some byte.
type cancelReader struct {
	*strings.Reader
	left   int
	cancel context.CancelFunc
}

func (r *cancelReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p[:min(len(p), 512)])
	if r.left -= n; r.left <= 0 {
		r.cancel()
	}
	return n, err
}

type brokenReader struct{}

var errBroken = errors.New("broken pipe")

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

func testImportCancelled(s *suite) {
	t := s.t
	f := s.fixture(t)
	text := fill(t, f, tenant)
	ctx, cancel := context.WithCancel(t.Context())
	if err := f.ImportTenant(ctx, other, &cancelReader{strings.NewReader(text), len(text) / 2, cancel}); !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled import: %v", err)
	}
	if err := f.ImportTenant(t.Context(), other, brokenReader{}); !errors.Is(err, errBroken) {
		t.Fatalf("an import from a broken pipe: %v", err)
	}
	if names, err := f.Tenants(t.Context()); err != nil || len(names) != 1 {
		t.Fatalf("tenants %v, %v", names, err)
	}
	// Somebody writes to the tenant while it is imported.
	started := &hookReader{Reader: strings.NewReader(text), hook: func() {
		commit(t, f, other, store.Append{Events: events(order("a"), `1`)})
	}}
	if err := f.ImportTenant(t.Context(), other, started); !errors.Is(err, store.ErrNotEmpty) {
		t.Fatalf("an import into a tenant that came to life: %v, want ErrNotEmpty", err)
	}
	if h := head(t, f, other, order("a")); h.Length != 1 {
		t.Fatalf("head %+v", h)
	}
	f.reopen(t, t)
	if feed := readFeed(t, f, other, j17.StreamID{}, 9); len(feed) != 1 {
		t.Fatalf("feed %v", feed)
	}
}

// hookReader calls hook once, at the first read.
type hookReader struct {
	*strings.Reader
	hook func()
	once sync.Once
}

func (r *hookReader) Read(p []byte) (int, error) {
	r.once.Do(r.hook)
	return r.Reader.Read(p)
}

func testRewrite(s *suite) {
	t := s.t
	f := s.fixture(t)
	key := order("a")
	secret := event(key, `{"name":"Ada Lovelace"}`)
	commit(t, f, tenant, store.Append{Timestamp: 9, Events: []store.NewEvent{event(key, `1`), secret, event(key, `3`), secret}})
	commit(t, f, tenant, store.Append{Events: events(order("b"), `1`)})
	before, beforeHead := readStream(t, f, tenant, key, 1, 0), head(t, f, tenant, key)
	rewritten := []store.Rewritten{
		{Version: 4, Type: "was_erased", Data: []byte(`{"gone":true,"why":"a longer text than there was before, much longer"}`), Metadata: []byte(`{"actor":{"type":"system","id":"system"}}`)},
		{Version: 2, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)},
	}
	want := append([]record(nil), before...)
	for _, r := range rewritten {
		e := &want[r.Version-1]
		leaf := sha256.Sum256(append([]byte{0}, e.Raw...))
		e.Kept = string(leaf[:])
		raw, layout := j17.AppendEvent(nil, e.ID, key, r.Type, r.Data, r.Metadata, e.Timestamp)
		e.Type, e.Raw, e.Data, e.Metadata = r.Type, string(raw), string(r.Data), string(layout.MetadataOf(raw))
	}
	for round := range 3 {
		if round == 2 {
			f.reopen(t, t)
		} else if err := Erase(t.Context(), f, tenant, key, rewritten); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, readStream(t, f, tenant, key, 1, 0)); diff != "" {
			t.Fatalf("round %d: events (-want +got):\n%s", round, diff)
		}
		got := head(t, f, tenant, key)
		if got.Generation != min(uint64(round)+1, 2) {
			t.Fatalf("round %d: generation %d", round, got.Generation)
		}
		if got.Generation, got.Present = 0, [32]byte{}; got != beforeHead {
			t.Fatalf("round %d: head %+v, want %+v", round, got, beforeHead)
		}
		if feed := readFeed(t, f, tenant, j17.StreamID{}, everything); len(feed) != 5 || feed[1].Raw != want[1].Raw {
			t.Fatalf("round %d: feed %v", round, feed)
		}
		text := export(t, f, tenant)
		if strings.Contains(text, "Lovelace") {
			t.Fatal("the export holds what was erased")
		}
		if err := f.ImportTenant(t.Context(), j17.Tenant(fmt.Sprint("copy", round)), strings.NewReader(text)); err != nil {
			t.Fatalf("an export with rewritten events does not verify: %v", err)
		}
	}
	commit(t, f, tenant, store.Append{Pre: []store.Pre{pre(key, 4)}, Events: events(key, `5`)})
	// All or nothing.
	for name, list := range map[string][]store.Rewritten{
		"missing": {{Version: 1, Type: "t", Data: []byte(`0`), Metadata: []byte(`{}`)}, {Version: 9, Type: "t", Data: []byte(`0`), Metadata: []byte(`{}`)}},
		"zero":    {{Version: 0, Type: "t", Data: []byte(`0`), Metadata: []byte(`{}`)}},
	} {
		if err := Erase(t.Context(), f, tenant, key, list); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", name, err)
		}
	}
	if err := Erase(t.Context(), f, tenant, key, []store.Rewritten{{Version: 1, Type: "t"}}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("invalid: %v", err)
	}
	many := make([]store.Rewritten, store.MaxUnitEvents+1)
	if err := Erase(t.Context(), f, tenant, key, many); !errors.Is(err, store.ErrLimit) {
		t.Errorf("many: %v, want ErrLimit", err)
	}
	if err := Erase(t.Context(), f, tenant, key, nil); err != nil {
		t.Errorf("nothing: %v", err)
	}
	if got := readStream(t, f, tenant, key, 1, 1); got[0] != before[0] {
		t.Errorf("a rewrite that failed has changed %+v", got[0])
	}
}

// testImportCrafted imports files whose hashes and counts are right and which no export has written.
func testImportCrafted(s *suite) {
	t := s.t
	f := s.fixture(t)
	first := func(last string, time int64) string {
		return fmt.Sprintf(`{"tenant":{"format":1,"name":"a/prod","last":"%s","time":%d,"rev":2}}`, last, time)
	}
	none := first("0000000000000-0", 0)
	event := func(position, typ string) []string {
		line := fmt.Sprintf(`{"stream_id":"%s","key":"order:a","type":"%s","data":1,"metadata":{"timestamp":1}}`, position, typ)
		leaf := sha256.Sum256(append([]byte{0}, line...))
		chain := sha256.Sum256(append(make([]byte, sha256.Size), leaf[:]...))
		return []string{fmt.Sprintf(`{"stream":{"key":"order:a","length":1,"chain":"%x"}}`, chain), line}
	}
	const item = `{"item":{"space":"work","key":"%s","rev":%d,"value":"dg=="}}`
	const command = `{"command":{"id":"%032x","time":0}}`
	for name, c := range map[string]struct {
		lines []string
		good  bool
	}{
		"an event":                          {append([]string{first("0000000000001-0", 1)}, event("0000000000001-0", "was_made")...), true},
		"things in their order":             {[]string{none, fmt.Sprintf(item, "a", 2), fmt.Sprintf(item, "z", 1), fmt.Sprintf(command, 1), fmt.Sprintf(command, 2)}, true},
		"an item twice":                     {[]string{none, fmt.Sprintf(item, "k", 1), fmt.Sprintf(item, "k", 2)}, false},
		"items out of order":                {[]string{none, fmt.Sprintf(item, "z", 1), fmt.Sprintf(item, "a", 2)}, false},
		"a command twice":                   {[]string{none, fmt.Sprintf(command, 1), fmt.Sprintf(command, 1)}, false},
		"commands out of order":             {[]string{none, fmt.Sprintf(command, 2), fmt.Sprintf(command, 1)}, false},
		"an event without type":             {append([]string{first("0000000000001-0", 1)}, event("0000000000001-0", "")...), false},
		"a last position that no event has": {[]string{first("1700000000000-0", 0)}, false},
		"a time that no event has":          {append([]string{first("0000000000001-0", 9223372036854775807)}, event("0000000000001-0", "was_made")...), false},
		"the end of all positions":          {append([]string{first("9999999999999-4294967295", 1)}, event("9999999999999-4294967295", "was_made")...), false},
	} {
		body := strings.Join(c.lines, "\n") + "\n"
		count := func(of string) int { return strings.Count(body, `{"`+of+`":`) }
		body += fmt.Sprintf(`{"end":{"streams":%d,"events":%d,"items":%d,"commands":%d,"sha256":"%x"}}`+"\n",
			count("stream"), count("stream_id"), count("item"), count("command"), sha256.Sum256([]byte(body)))
		err := f.ImportTenant(t.Context(), other, strings.NewReader(body))
		var refused *store.ImportError
		switch {
		case c.good && err != nil:
			t.Errorf("%s: %v", name, err)
		case !c.good && !errors.As(err, &refused):
			t.Errorf("%s: %v, want an ImportError", name, err)
		}
		if err := f.DropTenant(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
}
