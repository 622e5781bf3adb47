package pebble

import (
	"bytes"
	"encoding/binary"
	"math"

	"j17"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// The kinds of keys. A key is the number of a tenant (4 bytes), a kind and the parts that the functions below append.
// docs/storage-format.md describes them all; a change there and here needs a new format version.
const (
	kindState   = 's'
	kindEvent   = 'e'
	kindHead    = 'h'
	kindFeed    = 'f'
	kindItem    = 'i'
	kindDue     = 'd'
	kindExpiry  = 'x'
	kindCommand = 'c'
	kindTag     = 'g'
	kindBuild   = 'b'
	kindPurge   = 'r'
)

// The kinds of keys of tenant number 0, which holds the data of the store itself.
const (
	kindFormat  = 'v'
	kindNext    = 'n'
	kindTenant  = 't'
	kindPending = 'p'
	kindChange  = 'q'
	kindScratch = 'z'
	kindSealed  = 's'
)

const (
	// storeNumber is the tenant number of the store itself.
	storeNumber uint32 = 0
	// tenantPrefix is the length of the tenant's number at the start of every key.
	tenantPrefix = 4
	// versionSuffix is the length of the version at the end of an event's key.
	versionSuffix = 8
	// timeBytes is the length of a time in a key.
	timeBytes = 8
	// positionBytes is the length of a position in a key.
	positionBytes = 12
)

func appendPrefix(dst []byte, tenant uint32, kind byte) []byte {
	return append(binary.BigEndian.AppendUint32(dst, tenant), kind)
}

// appendStream appends the name of a stream in its tenant, without the kind.
func appendStream(dst []byte, key j17.Key) []byte {
	dst = append(dst, key.Type...)
	dst = append(dst, 0)
	return append(dst, key.ID...)
}

// splitStream is the inverse of appendStream.
func splitStream(s []byte) (j17.Key, bool) {
	typ, id, ok := bytes.Cut(s, []byte{0})
	if !ok || len(typ) == 0 || len(id) == 0 {
		return j17.Key{}, false
	}
	return j17.Key{Type: string(typ), ID: string(id)}, true
}

func appendHeadKey(dst []byte, tenant uint32, key j17.Key) []byte {
	return appendStream(appendPrefix(dst, tenant, kindHead), key)
}

// appendEventPrefix appends the prefix of all event keys of a stream.
func appendEventPrefix(dst []byte, tenant uint32, key j17.Key) []byte {
	return append(appendStream(appendPrefix(dst, tenant, kindEvent), key), 0)
}

func appendEventKey(dst []byte, tenant uint32, key j17.Key, version uint64) []byte {
	return binary.BigEndian.AppendUint64(appendEventPrefix(dst, tenant, key), version)
}

func appendFeedKey(dst []byte, tenant uint32, id j17.StreamID) []byte {
	return record.AppendPosition(appendPrefix(dst, tenant, kindFeed), id)
}

// feedPosition returns the position that a feed key names.
func feedPosition(key []byte) (j17.StreamID, bool) {
	if len(key) != tenantPrefix+1+8+4 {
		return j17.StreamID{}, false
	}
	key = key[tenantPrefix+1:]
	ms := binary.BigEndian.Uint64(key)
	if ms > math.MaxInt64 {
		return j17.StreamID{}, false
	}
	return j17.StreamID{Ms: int64(ms), Seq: binary.BigEndian.Uint32(key[8:])}, true
}

// tagID stands for a tag in keys.
type tagID record.TagID

func idOfTag(tag []byte) tagID { return tagID(record.IDOfTag(tag)) }

// tagPrefixBytes is the length of the prefix of the keys of a tag's entries.
const tagPrefixBytes = tenantPrefix + 1 + len(tagID{})

func appendTagPrefix(dst []byte, tenant uint32, id tagID) []byte {
	return append(appendPrefix(dst, tenant, kindTag), id[:]...)
}

func appendTagKey(dst []byte, tenant uint32, id tagID, last j17.StreamID) []byte {
	return record.AppendPosition(appendTagPrefix(dst, tenant, id), last)
}

func appendSpace(dst []byte, tenant uint32, kind byte, space store.Space) []byte {
	return append(append(appendPrefix(dst, tenant, kind), space...), 0)
}

func appendItemKey(dst []byte, tenant uint32, space store.Space, key string) []byte {
	return append(appendSpace(dst, tenant, kindItem, space), key...)
}

// appendDueTime appends the part of a due key before the item's key. due is in Unix nanoseconds.
func appendDueTime(dst []byte, tenant uint32, space store.Space, due int64) []byte {
	return appendTime(appendSpace(dst, tenant, kindDue, space), due)
}

func appendDueKey(dst []byte, tenant uint32, space store.Space, due int64, key string) []byte {
	return append(appendDueTime(dst, tenant, space, due), key...)
}

func appendCommandKey(dst []byte, tenant uint32, id store.CommandID) []byte {
	return append(appendPrefix(dst, tenant, kindCommand), id[:]...)
}

// appendExpiryKey appends the expiry entry of the item or command with the given key. expires is in Unix nanoseconds.
func appendExpiryKey(dst []byte, tenant uint32, expires int64, of []byte) []byte {
	return append(appendTime(appendPrefix(dst, tenant, kindExpiry), expires), of[tenantPrefix:]...)
}

func appendTime(dst []byte, t int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(t))
}

func appendTenantKey(dst []byte, name j17.Tenant) []byte {
	return append(appendPrefix(dst, storeNumber, kindTenant), name...)
}

func appendPendingKey(dst []byte, tenant uint32) []byte {
	return binary.BigEndian.AppendUint32(appendPrefix(dst, storeNumber, kindPending), tenant)
}

// after returns the first key that is greater than every key which starts with prefix.
func after(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		end[i]++
		if end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// next returns the first key that is greater than key.
func next(key []byte) []byte { return append(bytes.Clone(key), 0) }

// allOf returns the bounds of everything that a tenant holds.
func allOf(tenant uint32) (lower, upper []byte) {
	lower = binary.BigEndian.AppendUint32(nil, tenant)
	return lower, after(lower)
}
