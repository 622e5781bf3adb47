package store

import (
	"context"
	"encoding/json"
	"iter"
	"slices"

	"j17"
)

// Items yields the side items of a space whose keys are in a range, in the order of the range, until an error has been
// yielded. It reads page of them at a time, each page as of the moment when it is read: the next page shows what was
// written or removed meanwhile.
func Items(
	ctx context.Context, from Sides, t j17.Tenant, space Space, keys Range, page int,
) iter.Seq2[*Item, error] {
	return func(yield func(*Item, error) bool) {
		for {
			items, err := from.Scan(ctx, t, space, keys, page)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range items {
				if !yield(&items[i], nil) {
					return
				}
			}
			if len(items) < page {
				return
			}
			keys = keys.Beyond(items[len(items)-1].Key)
		}
	}
}

// Sequence turns a function that calls yield until it returns false, or fails, into an iterator.
func Sequence[T any](read func(yield func(T) bool) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		stopped := false
		err := read(func(t T) bool {
			stopped = !yield(t, nil)
			return !stopped
		})
		if err != nil && !stopped {
			var none T
			yield(none, err)
		}
	}
}

// Places yields what follows a prefix in the keys of a space that begin with it, in byte order. See Items.
func Places(
	ctx context.Context, from Sides, t j17.Tenant, space Space, prefix string, page int,
) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for it, err := range Items(ctx, from, t, space, Prefix(prefix), page) {
			if err != nil {
				yield("", err)
				return
			}
			if !yield(it.Key[len(prefix):], nil) {
				return
			}
		}
	}
}

// Merge yields the elements of several lists in the order of before. Each list must be in that order. It ends with the
// first error that one of them yields.
func Merge[T any](before func(a, b T) bool, lists ...iter.Seq2[T, error]) iter.Seq2[T, error] {
	type head struct {
		first T
		next  func() (T, error, bool)
	}
	return func(yield func(T, error) bool) {
		// The first ones of all lists that are not at their ends.
		var heads []*head
		for _, list := range lists {
			next, stop := iter.Pull2(list)
			defer stop()
			first, err, ok := next()
			if err != nil {
				yield(first, err)
				return
			}
			if ok {
				heads = append(heads, &head{first, next})
			}
		}

		for len(heads) > 0 {
			least := 0
			for i := range heads {
				if before(heads[i].first, heads[least].first) {
					least = i
				}
			}
			h := heads[least]
			if !yield(h.first, nil) {
				return
			}
			var err error
			var ok bool
			if h.first, err, ok = h.next(); err != nil {
				yield(h.first, err)
				return
			}
			if !ok {
				heads = slices.Delete(heads, least, least+1)
			}
		}
	}
}

// Decode reads the value of an item that is JSON. The error is a *CorruptionError.
func Decode[T any](space Space, it *Item) (v T, err error) {
	if err := json.Unmarshal(it.Value, &v); err != nil {
		return v, &CorruptionError{Where: string(space) + "/" + it.Key, Err: err}
	}
	return v, nil
}

// On returns a side write that is made only if the item has a revision; 0 means that the item must be absent.
func (s Side) On(rev uint64) Side {
	if s.Cond, s.Rev = IfRev, rev; rev == 0 {
		s.Cond = IfAbsent
	}
	return s
}
