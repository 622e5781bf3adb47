package index

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"sort"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/storage/store"
)

const (
	// fewEntries bounds the entries of words with one beginning whose rows are sorted in memory.
	fewEntries = 4096
	// mostWords bounds the words with one beginning whose rows are merged; leastPage is how many rows of each are read
	// at a time at least.
	mostWords = 256
	leastPage = 16
	// heldIDs is about how many IDs such a merge reads ahead in total.
	heldIDs = 16 << 10
	// seekCost is the cost of finding an ID in a list, in units of work.
	seekCost = 3
	// fewLooks is how many records are read before the rest becomes a list.
	fewLooks = 512
)

// Words returns up to limit rows, after a cursor, that have all of some words in index n, where the last one is the
// beginning of a word. They are in the order of IDs; for a single word, in the order of the words found and then of
// IDs. words are those of SplitWords.
func (v *View) Words(b *work.Budget, n int, words []string, after string, limit int) (hits []Hit, err error) {
	if len(words) == 1 {
		return v.Scan(b, WordQuery(n, words[0]), after, limit)
	}
	lists, rest, err := v.lists(b, n, words)
	if err == nil {
		err = v.eachMatch(b, lists, rest, after, func(id string) bool {
			if limit > 0 {
				hits = append(hits, Hit{ID: id, Cursor: id})
			}
			return len(hits) < limit
		})
	}
	return hits, v.told(err)
}

// CountWords returns how many rows Words finds.
func (v *View) CountWords(b *work.Budget, n int, words []string) (count uint64, err error) {
	lists, rest, err := v.lists(b, n, words)
	switch {
	case err != nil:
	case rest != nil && len(words) == 1:
		return v.Count(b, WordQuery(n, words[0]))
	default:
		err = v.eachMatch(b, lists, rest, "", func(string) bool {
			count++
			return true
		})
	}
	return count, v.told(err)
}

// WordQuery returns a query for the words of index n that begin with a text.
func WordQuery(n int, word string) Query {
	return Query{Lanes: [][]Range{{All(n, 1).Prefix(word)}}}
}

// lists returns a list of rows for each word, of which the last one is the beginning of a word. If too many words have
// that beginning, it has no list, and rest is the range of its entries.
func (v *View) lists(b *work.Budget, n int, words []string) (lists []rows, rest *Range, err error) {
	if len(words) == 0 {
		return nil, nil, nil
	}
	last := len(words) - 1
	for _, word := range words[:last] {
		of := All(n, 1).Equal(value.StringValue(word))
		lists = append(lists, v.rowsOf(b, of.head, lastPage))
	}
	begin := All(n, 1).Prefix(words[last])
	list, err := v.beginning(b, &begin)
	if err != nil || list == nil {
		return lists, &begin, err
	}
	return append(lists, list), nil, nil
}

// eachMatch passes the IDs of rows that are in all lists, and have an entry in the rest if there is one, in order until
// do reports false. For the rest it first reads the records of a few rows, which is often enough for a page. After that
// the rows of the rest become a list too. If they are too many, all entries of the rest are read, once for each part of
// the lists' common rows that fits in memory.
func (v *View) eachMatch(b *work.Budget, lists []rows, rest *Range, after string, do func(id string) bool) error {
	if rest == nil {
		return eachCommon(b, lists, after, do)
	}

	// The records of the first common rows of the lists are read. If there are few, that is all.
	var failed error
	looked, most, more := 0, fewLooks, true
	look := func(id string) bool {
		if looked++; looked > most {
			return false
		}
		after = id
		var has bool
		if has, failed = v.has(b, id, rest); failed != nil {
			return false
		}
		more = !has || do(id)
		return more
	}
	if len(rest.tests) > 0 { // cut words can only be compared in their records
		most = math.MaxInt
	}
	err := cmp.Or(eachCommon(b, lists, after, look), failed)
	if err != nil || looked <= most {
		return err
	}

	// There are more: the IDs of the rest become another list, if they fit in memory.
	list, err := v.gathered(b, rest)
	if err != nil {
		return err
	}
	if list != nil {
		return eachCommon(b, append(lists, list), after, do)
	}

	// They do not fit: the common rows of the lists are held in parts as large as fit, and all entries of the rest are
	// read for each part.
	for more {
		some := newIDs(v.held)
		err := eachCommon(b, lists, after, func(id string) bool {
			some.add(id)
			failed = v.room(b, some.len())
			return failed == nil && !some.full()
		})
		if err = cmp.Or(err, failed); err == nil && !some.empty() {
			err = v.each(b, rest.in(v.slot.name), func(key, _ []byte) bool {
				some.mark(idOf(key))
				return b.Spend(idCost)
			})
		}
		if err != nil {
			return err
		}
		some.each(func(id string, marked bool) bool {
			after = id
			more = !marked || do(id)
			return more
		})
		more = more && some.full()
	}
	return nil
}

// has reports whether a row has an entry in a range.
func (v *View) has(b *work.Budget, id string, of *Range) (bool, error) {
	rec, err := readRecord(v.moment.Get, v.slot.name, id)
	if err != nil || rec == nil {
		return false, err
	}
	if !b.Spend(rec.cost(1)) {
		return false, b.Err()
	}
	return slices.ContainsFunc(rec.entries, func(e Entry) bool { return of.has(e.text, e.whole) }), nil
}

// rows is a sorted list of row IDs.
type rows interface {
	// seek returns the first ID that is not less than id, "" if there is none. It never moves back.
	seek(id string) (string, error)
}

// eachCommon passes the IDs after a given one that are in all lists, until do reports false.
func eachCommon(b *work.Budget, lists []rows, after string, do func(id string) bool) error {
	if after != "" {
		after += "\x00"
	}
	for at, agreed := after, 0; len(lists) > 0; {
		for i := 0; agreed < len(lists); i = (i + 1) % len(lists) {
			id, err := lists[i].seek(at)
			switch {
			case err != nil || id == "":
				return err
			case !b.Spend(seekCost):
				return b.Err()
			case id != at:
				at, agreed = id, 0
			}
			agreed++
		}
		if !do(at) {
			return nil
		}
		at, agreed = at+"\x00", 0
	}
	return nil
}

// few is a list of rows in memory.
type few []string

func (f *few) seek(id string) (string, error) {
	if *f = (*f)[skip(len(*f), func(i int) bool { return (*f)[i] < id }):]; len(*f) == 0 {
		return "", nil
	}
	return (*f)[0], nil
}

// many is a large list of rows in memory, whose IDs are UUIDs.
type many []uuid

func (m *many) seek(id string) (string, error) {
	sought, ok := uuidOf(id)
	before := func(i int) bool { return (*m)[i].compare(sought) < 0 }
	if !ok {
		before = func(i int) bool { return (*m)[i].String() < id }
	}
	*m = (*m)[skip(len(*m), before):]
	switch {
	case len(*m) == 0:
		return "", nil
	case ok && (*m)[0] == sought:
		return id, nil
	default:
		return (*m)[0].String(), nil
	}
}

// skip returns the first of n places that is not before the sought one, by galloping: it is usually close.
func skip(n int, before func(i int) bool) int {
	near, far := 0, 0
	for far < n && before(far) {
		near, far = far+1, 2*far+1
	}
	return near + sort.Search(min(far, n)-near, func(i int) bool { return !before(near + i) })
}

// posting is the list of the rows of one word, which are read a page at a time.
type posting struct {
	v *View
	b *work.Budget
	// left is the range still to be read, head the part of its keys before the IDs.
	left store.Range
	head string
	page []string
	// size is how many rows are read next, most the limit of that; taken is how many of the present page were used.
	size, most, taken int
	ended             bool
}

// rowsOf returns the rows of one word, given the text of its entries.
func (v *View) rowsOf(b *work.Budget, text string, most int) *posting {
	head := v.slot.name + "/" + text + end
	return &posting{v: v, b: b, left: store.Prefix(head), head: head, size: firstPage, most: most, taken: firstPage}
}

func (p *posting) seek(id string) (string, error) {
	for {
		if p.page = p.page[skip(len(p.page), func(i int) bool { return p.page[i] < id }):]; len(p.page) > 0 {
			p.taken++
			return p.page[0], nil
		}
		if p.ended {
			return "", nil
		}
		if err := p.fill(id); err != nil {
			return "", err
		}
	}
}

// fill reads a page from an ID on: a larger one if most of the last page was used, else a smaller one.
func (p *posting) fill(id string) error {
	const factor = 4
	if p.taken*2 < p.size {
		p.size = max(p.size/factor, min(leastPage, p.most))
	} else {
		p.size = min(p.size*factor, p.most)
	}
	p.left.From, p.taken = max(p.left.From, p.head+id), 0
	if !p.b.Spend(recordCost) {
		return p.b.Err()
	}
	err := p.v.each(p.b, p.left, func(key, _ []byte) bool {
		p.page = append(p.page, string(key[len(p.head):]))
		return len(p.page) < p.size
	})
	if p.ended = len(p.page) < p.size; !p.ended {
		p.left = p.left.After(p.head + p.page[len(p.page)-1])
	}
	return err
}

// beginning returns the rows of all words with one beginning, nil if these are too many to be merged.
func (v *View) beginning(b *work.Budget, of *Range) (rows, error) {
	keys := of.in(v.slot.name)
	if len(of.tests) > 0 {
		return nil, nil // cut words can only be compared in their records
	}
	n, err := v.moment.Count(entrySpace, keys, fewEntries)
	if err != nil {
		return nil, err
	}
	if !b.Spend(n) {
		return nil, b.Err()
	}
	if n < fewEntries {
		ids, err := v.sorted(b, keys)
		return (*few)(&ids), err
	}

	// Each word is found behind the last row of the previous one.
	var texts []string
	for {
		text := ""
		err := v.each(b, keys, func(key, _ []byte) bool {
			text = string(key[len(v.slot.name)+1 : len(key)-len(idOf(key))-len(end)])
			return false
		})
		switch {
		case err != nil:
			return nil, err
		case !b.Spend(recordCost):
			return nil, b.Err()
		case text == "":
			return v.either(b, texts), nil
		case len(texts) == mostWords:
			return nil, nil
		}
		texts = append(texts, text)
		keys.From = v.slot.name + "/" + text + end + beyond
	}
}

// sorted returns the IDs of the rows of a few entries, sorted.
func (v *View) sorted(b *work.Budget, keys store.Range) (ids []string, err error) {
	err = v.each(b, keys, func(key, _ []byte) bool {
		ids = append(ids, idOf(key))
		return true
	})
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// gathered returns the rows of very many words, nil if they have more entries than may be held.
func (v *View) gathered(b *work.Budget, of *Range) (rows, error) {
	var list many
	var odd few // rows whose IDs are not UUIDs, such as singletons
	var failed error
	err := v.each(b, of.in(v.slot.name), func(key, _ []byte) bool {
		if id, ok := uuidOf(key[bytes.LastIndexByte(key, end[0])+len(end):]); ok {
			list = append(list, id)
			failed = v.room(b, len(list))
		} else {
			odd = append(odd, idOf(key))
		}
		return failed == nil && len(list) <= v.held && len(odd) <= fewEntries
	})
	if err = cmp.Or(err, failed); err != nil || len(list) > v.held || len(odd) > fewEntries {
		return nil, err
	}
	if !b.Spend(sortCost * len(list)) {
		return nil, b.Err()
	}
	slices.SortFunc(list, uuid.compare)
	list = slices.Compact(list)
	slices.Sort(odd)
	return &either{words: []*word{{rows: &list}, {rows: &odd}}}, nil
}

// either merges the rows of several words, each row once. words is a heap by the next row.
type either struct {
	words []*word
	begun bool
}

// word is a list of rows, and the next of them.
type word struct {
	rows

	next string
}

// either returns the rows that have an entry under one of some texts. The more texts there are, the smaller are the
// pages.
func (v *View) either(b *work.Budget, texts []string) *either {
	e := &either{}
	most := min(max(heldIDs/max(len(texts), 1), leastPage), lastPage)
	for _, text := range texts {
		e.words = append(e.words, &word{rows: v.rowsOf(b, text, most)})
	}
	return e
}

func (e *either) seek(id string) (string, error) {
	if !e.begun {
		e.begun = true
		for i := range slices.Backward(e.words) {
			if err := e.advance(i, id); err != nil {
				return "", err
			}
		}
	}
	for len(e.words) > 0 && e.words[0].next < id {
		if err := e.advance(0, id); err != nil {
			return "", err
		}
	}
	if len(e.words) == 0 {
		return "", nil
	}
	return e.words[0].next, nil
}

// advance moves one of the words to an ID, or removes it if it has no further rows. The words below it in the heap must
// be in order; it is afterwards.
func (e *either) advance(i int, id string) (err error) {
	w := e.words[i]
	if w.next, err = w.seek(id); err != nil {
		return err
	}
	if last := len(e.words) - 1; w.next == "" {
		e.words[i] = e.words[last]
		e.words = e.words[:last]
	}
	for {
		least := i
		for _, below := range []int{2*i + 1, 2*i + 2} {
			if below < len(e.words) && e.words[below].next < e.words[least].next {
				least = below
			}
		}
		if least == i {
			return nil
		}
		e.words[i], e.words[least] = e.words[least], e.words[i]
		i = least
	}
}
