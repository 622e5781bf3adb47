package blob

import (
	"j17/internal/core/part"
)

// Part returns blobs as a part of the program.
func (s *Store) Part() part.Part {
	return part.Part{
		Name:   "blob",
		Spaces: part.Spaces(headSpace, versionSpace, chunkSpace, uploadSpace),
		Work:   part.Work{Run: s.Run},
	}
}
