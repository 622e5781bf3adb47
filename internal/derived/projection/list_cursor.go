package projection

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"j17"
)

// A cursor is the place in a list after which a page begins: an ordered key of the index, or an ID. It carries a digest
// of the place and of the list, so that it is invalid for any other list, or when modified.
const (
	digestBytes = 9
	// maxPlace bounds the place in a cursor: keys of side items are not longer.
	maxPlace = 1024
)

// cursorTo returns the cursor of a place in a list.
func cursorTo(list, place string) string {
	sum := digest(list, place)
	return base64.RawURLEncoding.EncodeToString(append(sum[:digestBytes:digestBytes], place...))
}

// placeOf returns the place in a cursor, "" for none.
func placeOf(list, cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	if raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor); err == nil && len(raw) > digestBytes &&
		len(raw) <= digestBytes+maxPlace {
		place := string(raw[digestBytes:])
		if sum := digest(list, place); string(sum[:digestBytes]) == string(raw[:digestBytes]) &&
			utf8.ValidString(place) && strings.IndexByte(place, 0) < 0 {
			return place, nil
		}
	}
	return "", j17.Errorf(j17.CodeInvalidParameter, "'start' is not the 'next' of a page of this list: a list with other filters, another order or another definition has other cursors. Start again without it.").At("start")
}

func digest(list, place string) [sha256.Size]byte {
	h := sha256.New()
	_, _ = h.Write([]byte(list)) // never fails
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(place))
	return [sha256.Size]byte(h.Sum(nil))
}
