package postgres

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"os"
	"slices"

	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// spool is the items and commands of a snapshot in a file of their own: pages of items in the order of their spaces and
// keys, each a list of records, and then pages of commands. Values are as they are stored, so sealed ones stay sealed.
type spool struct {
	file  *os.File
	items []spooledPage
	// commands are the pages of commands, which have no space.
	commands []spooledPage
	size     int64
}

// spooledPage is where a page is, and the keys of its first and last record.
type spooledPage struct {
	space       store.Space
	first, last string
	at          int64
	bytes       int
}

// spoolOf copies the items and commands of a snapshot to a file.
func spoolOf(from itemSource) (s *spool, err error) {
	// Where a file may be open without a name, nothing is left of it after a crash.
	file, err := os.CreateTemp("", "j17-archive-")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(file.Name())
	s = &spool{file: file}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()

	// The items, space by space.
	spaces, err := from.spacesOf()
	if err != nil {
		return nil, err
	}
	for _, space := range spaces {
		keys := store.Range{}
		for more := true; more; {
			var page []namedItem
			if page, more, err = from.storedItems(space, keys); err != nil {
				return nil, err
			}
			if err := s.add(&s.items, space, page); err != nil {
				return nil, err
			}
			if len(page) > 0 {
				keys = keys.After(page[len(page)-1].key)
			}
		}
	}

	// The commands.
	last := ""
	for more := true; more; {
		var page []namedItem
		if page, more, err = from.storedCommands(last); err != nil {
			return nil, err
		}
		if err := s.add(&s.commands, "", page); err != nil {
			return nil, err
		}
		if len(page) > 0 {
			last = page[len(page)-1].key
		}
	}
	return s, nil
}

// add adds a page to the file.
func (s *spool) add(to *[]spooledPage, space store.Space, page []namedItem) error {
	if len(page) == 0 {
		return nil
	}
	var data []byte
	for i := range page {
		data = page[i].append(data)
	}
	if _, err := s.file.WriteAt(data, s.size); err != nil {
		return err
	}
	*to = append(*to, spooledPage{space, page[0].key, page[len(page)-1].key, s.size, len(data)})
	s.size += int64(len(data))
	return nil
}

// append appends a record: the lengths of key and value, the revision, the times and whether the value is sealed as
// varints, and then key and value.
func (i *namedItem) append(to []byte) []byte {
	sealed := uint64(0)
	if i.sealed {
		sealed = 1
	}
	for _, n := range []uint64{
		uint64(len(i.key)), uint64(len(i.value)), i.Rev, uint64(i.Expires), uint64(i.Due), sealed,
	} {
		to = binary.AppendUvarint(to, n)
	}
	return append(append(to, i.key...), i.value...)
}

// parse reads the record that data begins with, and returns what follows.
func (i *namedItem) parse(data []byte) (rest []byte, err error) {
	var n [6]uint64
	for at := range n {
		number, width := binary.Uvarint(data)
		if width <= 0 {
			return nil, record.ErrShort
		}
		n[at], data = number, data[width:]
	}
	if n[0] > uint64(len(data)) || n[1] > uint64(len(data))-n[0] {
		return nil, record.ErrShort
	}
	i.Rev, i.Expires, i.Due, i.sealed = n[2], int64(n[3]), int64(n[4]), n[5] == 1
	i.key, i.value = string(data[:n[0]]), data[n[0]:n[0]+n[1]]
	return data[n[0]+n[1]:], nil
}

// read reads a page.
func (s *spool) read(p *spooledPage) (page []namedItem, err error) {
	data := make([]byte, p.bytes)
	if _, err := s.file.ReadAt(data, p.at); err != nil {
		return nil, err
	}
	for len(data) > 0 {
		var i namedItem
		if data, err = i.parse(data); err != nil {
			return nil, fmt.Errorf("the copy of an archive's items: %w", err)
		}
		page = append(page, i)
	}
	return page, nil
}

// spacesOf is part of itemSource.
func (s *spool) spacesOf() (spaces []store.Space, err error) {
	for i := range s.items {
		if space := s.items[i].space; len(spaces) == 0 || spaces[len(spaces)-1] != space {
			spaces = append(spaces, space)
		}
	}
	return spaces, nil
}

// storedItems is part of itemSource.
func (s *spool) storedItems(space store.Space, keys store.Range) (items []namedItem, more bool, err error) {
	// The pages that may have keys of the range.
	from, _ := slices.BinarySearchFunc(s.items, keys.From, func(p spooledPage, key string) int {
		return cmp.Or(cmp.Compare(p.space, space), cmp.Compare(p.last, key))
	})
	to := from
	for to < len(s.items) && s.items[to].space == space && (keys.To == "" || s.items[to].first < keys.To) {
		to++
	}
	if from == to {
		return nil, false, nil
	}

	// The first one in the order of the range.
	at := from
	if keys.Backward {
		at = to - 1
	}
	page, err := s.read(&s.items[at])
	for i := range page {
		if key := page[i].key; key >= keys.From && (keys.To == "" || key < keys.To) {
			items = append(items, page[i])
		}
	}
	if keys.Backward {
		slices.Reverse(items)
	}
	return items, to-from > 1, err
}

// storedCommands is part of itemSource.
func (s *spool) storedCommands(after string) (commands []namedItem, more bool, err error) {
	at, _ := slices.BinarySearchFunc(s.commands, after, func(p spooledPage, id string) int {
		if p.last > id {
			return 1
		}
		return -1
	})
	if at == len(s.commands) {
		return nil, false, nil
	}
	page, err := s.read(&s.commands[at])
	for i := range page {
		if page[i].key > after {
			commands = append(commands, page[i])
		}
	}
	return commands, at+1 < len(s.commands), err
}

// Close removes the file.
func (s *spool) Close() {
	_ = s.file.Close()
	_ = os.Remove(s.file.Name()) // if it could not be removed while it was open
}
