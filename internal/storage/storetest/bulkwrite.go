package storetest

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"j17"
	"j17/internal/storage/store"
)

// testBulkWrite writes many plain items at once, over and beside others: none is visible before Write, and none is left
// if that is refused or the bulk write is discarded.
func testBulkWrite(s *suite) {
	t := s.t
	f := s.fixture(t)
	if _, err := f.BulkWrite(t.Context(), "no/prod"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("a bulk write of a tenant that holds nothing: %v", err)
	}
	begin := func() store.BulkWrite {
		t.Helper()
		p, err := f.BulkWrite(t.Context(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	add := func(p store.BulkWrite, sp store.Space, key, value string) {
		t.Helper()
		if err := p.Put(sp, key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	listed := func(sp store.Space) (all []string) {
		t.Helper()
		items, err := f.Scan(t.Context(), tenant, sp, store.Range{}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range items {
			all = append(all, it.Key+"="+string(it.Value))
		}
		return all
	}
	write(
		t, f, tenant, store.Side{Op: store.Put, Space: space, Key: "k050", Value: []byte("old"), Plain: true},
		put("mark", "1"),
	)
	write(t, f, other, put("k001", "another's"))

	// Put items out of order, in several spaces, some of them twice.
	p := begin()
	var want []string
	for i := range 100 {
		key := "k" + strconv.Itoa(1000 + i*37%100)[1:]
		add(p, space+"2", key, "")
		add(p, space, key, "early")
		add(p, space, key, strconv.Itoa(i))
	}
	for n := range 100 {
		for i := range 100 {
			if i*37%100 == n {
				want = append(want, "k"+strconv.Itoa(1000 + n)[1:]+"="+strconv.Itoa(i))
			}
		}
	}
	if err := p.Put(space, "", nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("an item without a name: %v", err)
	}
	if got := listed(space); !slices.Equal(got, []string{"k050=old", "mark=1"}) {
		t.Fatalf("before the write there is %q", got)
	}
	before := moment(t, f, tenant)
	rev := get(t, f, tenant, space, "mark").Rev
	if err := p.Write(t.Context(), []store.Side{put("mark", "2")}, store.Fence{
		Space: space, Key: "mark", Rev: rev,
	}); err != nil {
		t.Fatal(err)
	}
	if n, err := before.Count(space, store.Range{}, 1000); err != nil || n != 2 {
		t.Errorf("a moment from before has %d items, %v", n, err)
	}
	before.Close()
	want = append(want, "mark=2")
	for range 2 {
		if got := listed(space); !slices.Equal(got, want) || len(listed(space+"2")) != 100 {
			t.Fatalf("after the write there is %q and %q", got, listed(space+"2"))
		}
		f.reopen(t, t)
	}
	if got := get(t, f, other, space, "k001"); string(got.Value) != "another's" {
		t.Errorf("another tenant has %q", got.Value)
	}

	// A refused or discarded bulk write leaves nothing, and none is usable after its end.
	p = begin()
	add(p, space, "k001", "refused")
	conflict := (*store.SideConflict)(nil)
	if err := p.Write(t.Context(), []store.Side{put("mark", "3")}, store.Fence{
		Space: space, Key: "mark", Rev: rev,
	}); !errors.As(err, &conflict) || conflict.Key != "mark" {
		t.Errorf("a fence that does not hold: %v", err)
	}
	if err := p.Put(space, "k001", nil); err == nil {
		t.Error("an ended bulk write takes items")
	}
	p.Discard()
	p = begin()
	add(p, space, "k001", "given up")
	p.Discard()
	if err := p.Write(t.Context(), nil); err == nil {
		t.Error("an ended bulk write is written")
	}
	if got := listed(space); !slices.Equal(got, want) {
		t.Errorf("there is %q", got)
	}

	// Its items are plain ones: they can be cleared, and written again by others.
	if err := f.Clear(t.Context(), tenant, space, store.Prefix("k")); err != nil {
		t.Fatal(err)
	}
	p = begin()
	add(p, space, "k002", "anew")
	if err := p.Write(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	write(t, f, tenant, store.Side{Op: store.Put, Space: space, Key: "k002", Value: []byte("again"), Plain: true})
	if got := listed(space); !slices.Equal(got, []string{"k002=again", "mark=2"}) {
		t.Errorf("there is %q", got)
	}

	// The tenant is dropped: the bulk write is refused.
	p = begin()
	add(p, space, "k003", "late")
	if err := f.DropTenant(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	if err := p.Write(t.Context(), nil); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a bulk write of a tenant that was removed: %v", err)
	}
	if got := listed(space); got != nil {
		t.Errorf("there is %q", got)
	}
}

// testReadStreams reads the first events of several streams at once, in any order, and compares them with what
// ReadStream yields.
func testReadStreams(s *suite) {
	t := s.t
	f := s.fixture(t)
	large := strings.Repeat("x", 100<<10)
	var units []store.Append
	for i := range 40 {
		for n := range 1 + i%7 {
			text := strconv.Itoa(n)
			if i == 12 { // more than is read at a time
				text = large
			}
			units = append(units, store.Append{Events: events(order(strconv.Itoa(i)), text)})
		}
	}
	if _, err := f.Append(t.Context(), tenant, units); err != nil {
		t.Fatal(err)
	}
	read := func(of j17.Tenant, keys []j17.Key, most uint64) (got []string) {
		t.Helper()
		for ev, err := range f.ReadStreams(t.Context(), of, keys, most) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, ev.Key.String()+" "+strconv.FormatUint(ev.Version, 10)+" "+string(ev.Raw))
		}
		return got
	}

	// One does not exist, and the names of some begin like those of others.
	var keys []j17.Key
	for _, i := range []int{3, 5, 4, 39, 40, 6, 1, 12, 13, 20} {
		keys = append(keys, order(strconv.Itoa(i)))
	}
	for _, most := range []uint64{1, 3, 5, 100} {
		var want []string
		for _, key := range keys {
			for ev, err := range f.ReadStream(t.Context(), tenant, key, 1, most) {
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, key.String()+" "+strconv.FormatUint(ev.Version, 10)+" "+string(ev.Raw))
			}
		}
		if got := read(tenant, keys, most); !slices.Equal(got, want) {
			t.Errorf("the first %d: there are %d events, want %d", most, len(got), len(want))
		}
	}
	for ev, err := range f.ReadStreams(t.Context(), tenant, keys, 9) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Version == 2 {
			break // an iteration may end early
		}
	}
	if got := read(tenant, nil, 9); got != nil {
		t.Errorf("of no streams: %q", got)
	}
	if got := read("nobody/prod", keys, 9); got != nil {
		t.Errorf("of an environment without events: %q", got)
	}

	// An invalid key is an error.
	for _, err := range f.ReadStreams(t.Context(), tenant, []j17.Key{keys[0], {Type: "order"}}, 9) {
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
	}
}
