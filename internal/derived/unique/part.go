package unique

import (
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Part returns what unique values are to the rest of the program.
func (s *Service) Part() part.Part {
	return part.Part{
		Name: "unique",
		Spaces: append(
			part.Spaces(sets, fillings),
			// Digests of values, and keys of their holders.
			part.Space{Declared: store.Declared{Space: held, OfStreams: true}, Void: true},
			part.Space{Declared: store.Declared{Space: values, Whole: true}, Void: true},
			part.Space{Declared: store.Declared{Space: waiting, Whole: true}},
		),
		Commit: part.Commit{Unique: s.Look},
		Deploy: part.Deploy{
			Try: s.Try, Ready: s.Ready, Unready: s.Unready, Fill: s.Fill, Adopt: s.Adopt, Forget: s.Forget,
		},
		Erase: part.Erase{Streams: s.Erase},
	}
}
