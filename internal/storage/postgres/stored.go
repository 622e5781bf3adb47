package postgres

import (
	"bytes"

	"j17"
	"j17/internal/storage/store"
)

// storedChanges are the changes of a batch to stored events of one tenant, as by erasures and Retag.
type storedChanges struct {
	t int32
	// rewritten reports whether the content of events is replaced.
	rewritten bool
	replaced  struct {
		ms, n, generation        []int64
		types, raw, kept, chains [][]byte
		dataAt, metadataAt       []int32
	}
	heads struct {
		ms, n, generation []int64
		chains            [][]byte
	}
	retagged struct {
		ms, n []int64
		tags  [][]byte
	}
	untagged struct {
		tags  [][]byte
		ms, n []int64
	}
	// noted is the record of a note for the position note, nil for none.
	note  j17.StreamID
	noted []byte
	// forgotten are the ids of commands whose results are removed.
	forgotten [][]byte
	// rows has the index of each event in replaced.
	rows map[j17.StreamID]int
}

// replace replaces the content of an event.
func (c *storedChanges) replace(id j17.StreamID, typ string, raw []byte, layout j17.Layout, kept []byte) {
	r := &c.replaced
	if c.rows == nil {
		c.rows = map[j17.StreamID]int{}
	}
	c.rows[id] = len(r.ms)
	r.ms, r.n, r.generation = append(r.ms, id.Ms), append(r.n, int64(id.Seq)), append(r.generation, 0)
	r.types, r.raw = append(r.types, []byte(typ)), append(r.raw, raw)
	r.kept, r.chains = append(r.kept, kept), append(r.chains, nil)
	r.dataAt, r.metadataAt = append(r.dataAt, int32(layout.Data)), append(r.metadataAt, int32(layout.Metadata))
}

// head sets the generation and present chain of a stream, which are stored with its last event. A statement can change
// a row only once, so they are set together with the event's new content if it has one.
func (c *storedChanges) head(h *store.Head) {
	chain := bytes.Clone(h.Present[:])
	if at, replaced := c.rows[h.Last]; replaced {
		c.replaced.generation[at], c.replaced.chains[at] = int64(h.Generation), chain
		return
	}
	c.heads.ms, c.heads.n = append(c.heads.ms, h.Last.Ms), append(c.heads.n, int64(h.Last.Seq))
	c.heads.generation, c.heads.chains = append(c.heads.generation, int64(h.Generation)), append(c.heads.chains, chain)
}

// retag replaces the tags of an event that do not come from its metadata.
func (c *storedChanges) retag(id j17.StreamID, tags []byte) {
	r := &c.retagged
	r.ms, r.n, r.tags = append(r.ms, id.Ms), append(r.n, int64(id.Seq)), append(r.tags, tags)
}

// untag removes the row of a tag of an event.
func (c *storedChanges) untag(id j17.StreamID, tag string) {
	u := &c.untagged
	u.tags, u.ms, u.n = append(u.tags, tagID(tag)), append(u.ms, id.Ms), append(u.n, int64(id.Seq))
}

const (
	replaceEvents = `rp AS (
	UPDATE events x SET type = u.type, raw = u.raw, data_at = u.data_at, metadata_at = u.metadata_at, kept = u.kept,
		tags = '', generation = CASE WHEN u.generation = 0 THEN x.generation ELSE u.generation END,
		present = CASE WHEN u.generation = 0 THEN x.present ELSE u.present END
	FROM unnest(?::bigint[], ?::bigint[], ?::bytea[], ?::bytea[], ?::int[], ?::int[], ?::bytea[], ?::bigint[],
		?::bytea[]) u (ms, n, type, raw, data_at, metadata_at, kept, generation, present)
	WHERE x.t = ? AND x.ms = u.ms AND x.n = u.n AND EXISTS (SELECT 1 FROM h)
)`
	updateHeads = `hd AS (
	UPDATE events x SET generation = u.generation, present = u.present
	FROM unnest(?::bigint[], ?::bigint[], ?::bigint[], ?::bytea[]) u (ms, n, generation, present)
	WHERE x.t = ? AND x.ms = u.ms AND x.n = u.n AND EXISTS (SELECT 1 FROM h)
)`
	updateTags = `rt AS (
	UPDATE events x SET tags = u.tags FROM unnest(?::bigint[], ?::bigint[], ?::bytea[]) u (ms, n, tags)
	WHERE x.t = ? AND x.ms = u.ms AND x.n = u.n AND EXISTS (SELECT 1 FROM h)
)`
	deleteTags = `dt AS (
	DELETE FROM tags x USING unnest(?::bytea[], ?::bigint[], ?::bigint[]) u (tag, ms, n)
	WHERE x.t = ? AND x.tag = u.tag AND x.ms = u.ms AND x.n = u.n AND EXISTS (SELECT 1 FROM h)
)`
	insertNote = `nt AS (
	INSERT INTO events (t, ms, n, kind, raw)
	SELECT h.t, ?::bigint, ?::bigint, 1, ?::bytea FROM h
)`
	deleteCommands = `dc AS (
	DELETE FROM commands x USING unnest(?::bytea[]) u (id)
	WHERE x.t = ? AND x.id = u.id AND EXISTS (SELECT 1 FROM h)
)`
)

// compose adds the changes to a statement, which must change no other tenant.
func (c *storedChanges) compose(s *text) {
	if r := &c.replaced; len(r.ms) > 0 {
		s.add(
			replaceEvents, r.ms, r.n, r.types, r.raw, r.dataAt, r.metadataAt, r.kept, r.generation, r.chains, c.t,
		)
	}
	if h := &c.heads; len(h.ms) > 0 {
		s.add(updateHeads, h.ms, h.n, h.generation, h.chains, c.t)
	}
	if r := &c.retagged; len(r.ms) > 0 {
		s.add(updateTags, r.ms, r.n, r.tags, c.t)
	}
	if u := &c.untagged; len(u.ms) > 0 {
		s.add(deleteTags, u.tags, u.ms, u.n, c.t)
	}
	if c.noted != nil {
		s.add(insertNote, c.note.Ms, int64(c.note.Seq), c.noted)
	}
	if len(c.forgotten) > 0 {
		s.add(deleteCommands, c.forgotten, c.t)
	}
}

// keys adds the keys of the changed rows to the maps.
func (c *storedChanges) keys(events, tags, commands map[rowKey]bool) {
	for _, list := range [][2][]int64{
		{c.replaced.ms, c.replaced.n}, {c.heads.ms, c.heads.n}, {c.retagged.ms, c.retagged.n},
	} {
		for i := range list[0] {
			events[rowKey{t: c.t, x: list[0][i], y: list[1][i]}] = true
		}
	}
	if c.noted != nil {
		events[rowKey{t: c.t, x: c.note.Ms, y: int64(c.note.Seq)}] = true
	}
	for i, tag := range c.untagged.tags {
		tags[rowKey{t: c.t, text: string(tag), x: c.untagged.ms[i], y: c.untagged.n[i]}] = true
	}
	for _, id := range c.forgotten {
		commands[rowKey{t: c.t, text: string(id)}] = true
	}
}
