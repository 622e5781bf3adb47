package index

import "strings"

// Cost returns how many of some rows are there, how many entries an index has of them, and the bytes that are stored
// for both.
func Cost(rows []Row) (there, entries, bytes uint64) {
	c := &changes{slot: strings.Repeat("x", nameBytes)}
	for i := range rows {
		c.replace(rows[i].ID, nil, recordOf(&rows[i]))
	}
	return uint64(c.rows), uint64(c.entries), uint64(c.bytes)
}
