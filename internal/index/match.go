package index

import (
	"slices"

	"j17/internal/store"
	"j17/internal/value"
	"j17/internal/work"
)

// leading bounds the rows of a word that are sorted in memory.
const leading = 4096

// Words returns up to limit rows, behind a cursor, that have all of some words in index n, the last one as the beginning of a word. They
// come in the order of ids; where there is one word only, in that of the words found and then of ids. words are those of SplitWords.
func (v *View) Words(b *work.Budget, n int, words []string, after string, limit int) (hits []Hit, err error) {
	if len(words) == 1 {
		return v.Scan(b, wordQuery(n, words[0]), after, limit)
	}
	err = v.eachMatch(b, n, words, after, func(id string) bool {
		if limit > 0 {
			hits = append(hits, Hit{ID: id, Cursor: id})
		}
		return len(hits) < limit
	})
	return hits, v.told(err)
}

// CountWords returns how many rows Words finds.
func (v *View) CountWords(b *work.Budget, n int, words []string) (count uint64, err error) {
	if len(words) == 1 {
		return v.Count(b, wordQuery(n, words[0]))
	}
	err = v.eachMatch(b, n, words, "", func(string) bool {
		count++
		return true
	})
	return count, v.told(err)
}

// wordQuery finds what begins with a word.
func wordQuery(n int, word string) Query {
	return Query{Lanes: [][]Range{{All(n, 1).Prefix(word)}}}
}

// eachMatch passes the ids of rows that have several words, in order, until do reports false.
func (v *View) eachMatch(b *work.Budget, n int, words []string, after string, do func(id string) bool) error {
	if len(words) == 0 {
		return nil
	}
	ranges := make([]Range, len(words))
	for i, word := range words {
		ranges[i] = All(n, 1).Equal(value.StringValue(word))
	}
	ranges[len(words)-1] = All(n, 1).Prefix(words[len(words)-1])
	lead, few, err := v.rarest(b, ranges)
	if err != nil {
		return err
	}

	// The rows of the rarest word are looked at one by one.
	look := func(id string) (more bool, err error) {
		rec, err := readRecord(v.moment.Get, v.slot.name, id)
		switch {
		case err != nil || rec == nil:
			return true, err
		case !b.Spend(rec.cost(len(ranges))):
			return false, b.Err()
		case !rec.matches(ranges):
			return true, nil
		}
		return do(id), nil
	}
	if lead == len(ranges)-1 {
		ids, err := v.sorted(b, few, after)
		for _, id := range ids {
			if err != nil {
				return err
			}
			var more bool
			if more, err = look(id); !more {
				return err
			}
		}
		return err
	}
	keys := ranges[lead].in(v.slot.name)
	if after != "" {
		keys = keys.After(v.slot.name + "/" + ranges[lead].head + end + after)
	}
	var failed error
	err = v.each(b, keys, func(key, _ []byte) bool {
		id := string(key[len(v.slot.name)+1+len(ranges[lead].head)+len(end):])
		var more bool
		if more, failed = look(id); failed != nil {
			return false
		}
		return more
	})
	if failed != nil {
		return failed
	}
	return err
}

// matches reports whether the row has an entry in each of some ranges.
func (r *record) matches(ranges []Range) bool {
	for i := range ranges {
		if !slices.ContainsFunc(r.entries, func(e Entry) bool { return ranges[i].has(e.text, e.whole) }) {
			return false
		}
	}
	return true
}

// rarest returns the number of the range with the fewest entries, roughly, and the range itself. The last one, whose entries are not in the
// order of ids, is it only if they are few.
func (v *View) rarest(b *work.Budget, ranges []Range) (lead int, keys store.Range, err error) {
	const first, factor, most = 64, 8, 1 << 24
	for limit := first; ; limit *= factor {
		for i := range ranges {
			if i == len(ranges)-1 && limit > leading {
				continue
			}
			n, err := v.moment.Count(entrySpace, ranges[i].in(v.slot.name), limit)
			if err != nil || n < limit || limit > most {
				return i, ranges[i].in(v.slot.name), err
			}
			if !b.Spend(n) {
				return 0, keys, b.Err()
			}
		}
	}
}

// sorted returns the ids of the rows of a few entries, in order, behind one of them.
func (v *View) sorted(b *work.Budget, keys store.Range, after string) (ids []string, err error) {
	err = v.each(b, keys, func(key, _ []byte) bool {
		if id := idOf(key); id > after {
			ids = append(ids, id)
		}
		return true
	})
	slices.Sort(ids)
	return slices.Compact(ids), err
}
