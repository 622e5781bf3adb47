package pebble

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"sync/atomic"

	"j17"
)

// What there are filters over: the tags of a tenant's events, and its streams.

// filters makes the filters of tenants.
type filters struct {
	*core

	// making says that a filter is being made, and held is the size of all. Both are guarded by mu.
	making bool
	held   int
	// streamSeed is that of the hashes by which streams are in filters.
	streamSeed maphash.Seed
}

// FilterBytes returns the size of the filters over tags and streams.
func (s *filters) FilterBytes() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(s.held)
}

// tagFilters are over tags. Of a tag with many entries the first one is enough.
func tagFilters() filterKind {
	return filterKind{
		kind: kindTag, what: "the index of tags",
		whole: func(t *tenant) bool { return t.building == 0 && t.linking == 0 },
		of:    func(t *tenant) *atomic.Pointer[filter] { return &t.tagFilter },
		named: func(_ *filters, key []byte) (filtered, int, bool) {
			if len(key) != tagPrefixBytes+positionBytes {
				return filtered{}, 0, false
			}
			return tagID(key[tenantPrefix+1:]).filtered(), tagPrefixBytes, true
		},
	}
}

// filtered is a tag in filters.
func (id tagID) filtered() filtered {
	return filtered{binary.BigEndian.Uint64(id[:]), binary.BigEndian.Uint64(id[8:])}
}

// streamFilters are over streams, by the keys of their heads.
func streamFilters() filterKind {
	return filterKind{
		kind: kindHead, what: "the heads of streams",
		whole: func(*tenant) bool { return true },
		of:    func(t *tenant) *atomic.Pointer[filter] { return &t.streamFilter },
		named: func(s *filters, key []byte) (filtered, int, bool) { return s.filteredStream(key), 0, true },
	}
}

// filteredStream is a stream in filters, by the key of its head. A filter takes the lower bits of both hashes: those of
// the second one are the upper ones of the first, on which they do not depend.
func (s *filters) filteredStream(headKey []byte) filtered {
	h := maphash.Bytes(s.streamSeed, headKey)
	return filtered{h, bits.RotateLeft64(h, 32)}
}

// lacks reports whether it is certain that the tenant never had the stream whose head has a key.
func (r *reader) lacks(headKey []byte) bool {
	return r.streamFilter.lacks(r.tenant, r.store.filters.filteredStream(headKey))
}

// filterTags begins to make a filter over tags for a tenant where one would help, which somebody has found who had to
// ask the index.
func (s *filters) filterTags(name j17.Tenant) { s.makeFilter(tagFilters(), name) }

// missedPart is which part of a tenant's events new streams are that no filter knew of when a filter over streams is
// made: to read all heads takes less than to look for so many.
const missedPart = 8

// missed counts a new stream of which no filter has told that it is new.
func (b *batch) missed(t *tenant) {
	if t.missed++; t.missed >= max(minFiltered, t.next.Events/missedPart) &&
		b.store.filters.makeFilter(streamFilters(), t.name) {
		t.missed = 0
	}
}
