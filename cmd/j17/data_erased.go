package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"

	"j17"
	"j17/internal/base/wire"
)

// notErased refuses to add to a file that has events of aggregates that were erased since, which would stay in it. end
// is where the last whole event of the file ends.
func (x *export) notErased(ctx context.Context, o *operating, f io.ReaderAt, end int64) error {
	erased, err := erasedEvents(ctx, o)
	if err != nil || len(erased) == 0 {
		return err
	}
	keys, err := keptEvents(io.NewSectionReader(f, 0, end), erased)
	if err != nil {
		return unreadable(x.output, err)
	}
	if len(keys) == 0 {
		return nil
	}
	says := "was"
	if len(keys) > 1 {
		says = "were"
	}
	return j17.Errorf(j17.CodeConflict, "%s has events of %s that %s erased since, such as %s, and nothing is added to it. Export to another file, and delete this one and its copies",
		fileName(x.output), j17.Count(len(keys), "aggregate"), says, j17.Printable(keys[0]))
}

// erasedEvents returns how many of the first events of aggregates were erased, by the keys of those that have been.
func erasedEvents(ctx context.Context, o *operating) (map[string]uint64, error) {
	path, err := o.opsPath(ctx, "tombstones")
	if err != nil {
		return nil, err
	}
	rows, err := o.rows(ctx, path, nil, "tombstones", 0) // those under way have what is rewritten so far
	if err != nil {
		return nil, err
	}
	erased := map[string]uint64{}
	for _, row := range rows {
		var t wire.Tombstone
		if err := json.Unmarshal(row, &t); err != nil {
			return nil, err
		}
		if t.AffectedCount > uint64(len(t.AffectedStreams)) {
			if t.AffectedStreams, err = affectedStreams(
				ctx, o, append(slices.Clone(path), t.ID, "streams"),
			); err != nil {
				return nil, err
			}
		}
		for _, s := range t.AffectedStreams {
			erased[s.Key] = max(erased[s.Key], s.EventCount)
		}
	}
	return erased, nil
}

// affectedStreams returns all streams that a tombstone has reached.
func affectedStreams(ctx context.Context, o *operating, path []string) ([]wire.AffectedStream, error) {
	rows, err := o.rows(ctx, path, nil, "streams", 0)
	if err != nil {
		return nil, err
	}
	all := make([]wire.AffectedStream, len(rows))
	for i, row := range rows {
		if err := json.Unmarshal(row, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// keptEvents returns the keys of the aggregates of which an export has events as they were before their erasure, in
// order. Events written after the markers of an erasure were not erased.
func keptEvents(export io.Reader, erased map[string]uint64) ([]string, error) {
	in, seen, kept := bufio.NewReaderSize(export, 1<<16), map[string]uint64{}, map[string]bool{}
	for inside := false; ; {
		part, err := in.ReadSlice('\n')
		if !inside {
			key, marker := keyOfLine(part)
			if n, ok := erased[key]; ok {
				if seen[key]++; seen[key] <= n && !marker {
					kept[key] = true
				}
			}
		}
		inside = errors.Is(err, bufio.ErrBufferFull) // the rest of a long line does not have its key
		if errors.Is(err, io.EOF) {
			return slices.Sorted(maps.Keys(kept)), nil
		}
		if err != nil && !inside {
			return nil, err
		}
	}
}

// keyOfLine returns the key of the event that a line of an export begins with, and whether the event is the marker of
// an erased one.
func keyOfLine(line []byte) (key string, marker bool) {
	_, rest, _ := bytes.Cut(line, []byte(`","key":"`))
	of, rest, _ := bytes.Cut(rest, []byte(`","type":"`))
	return string(of), bytes.HasPrefix(rest, []byte(`_was_tombstoned"`))
}
