package blob

import "j17/internal/base/wire"

// Wire returns the version as clients see it in a list of names, with the number of versions.
func (b *Blob) Wire(versions int) wire.Blob {
	return wire.Blob{
		Name: b.Name, Version: b.Version, Size: b.Size, SHA256: b.SHA256, CreatedAt: b.CreatedAt,
		CreatedBy: b.CreatedBy, Versions: versions,
	}
}
