package restore

import (
	"bufio"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"j17"
)

const (
	// markersHeld is how many bytes of markers are kept in memory before they are sorted and written to the file.
	markersHeld = 16 << 20
	// markerHeld is the memory of a marker beside its bytes.
	markerHeld = 64
	// runBuffer is the buffer for reading one run. There may be thousands of these after billions of bytes.
	runBuffer = 4 << 10
	// maxMarker is larger than any marker.
	maxMarker = 1 << 20
)

// markers sorts the replacements of erased events in the order of the feed, in bounded memory: larger amounts go to a
// file in sorted runs, which are merged when they are read. For each position the marker that was added last is valid.
type markers struct {
	temp string
	// most is markersHeld.
	most int

	fresh []marker
	held  int
	file  *os.File
	size  int64
	runs  []*io.SectionReader

	// reading has the next marker of each run, the first in the order of the feed on top.
	reading runHeap
}

// marker is the replacement of an event: its position and its bytes.
type marker struct {
	at  j17.StreamID
	raw []byte
}

// add adds a marker. It keeps raw.
func (m *markers) add(at j17.StreamID, raw []byte) error {
	m.fresh = append(m.fresh, marker{at, raw})
	if m.held += markerHeld + len(raw); m.held < m.most {
		return nil
	}
	return m.write()
}

// write writes a run of the markers in memory.
func (m *markers) write() (err error) {
	if len(m.fresh) == 0 {
		return nil
	}
	if m.file == nil {
		if m.file, err = os.CreateTemp(m.temp, "markers-*"); err != nil {
			return err
		}
	}
	slices.SortStableFunc(m.fresh, func(a, b marker) int { return a.at.Compare(b.at) })
	out, from := bufio.NewWriter(m.file), m.size
	var head []byte
	for i := range m.fresh {
		f := &m.fresh[i]
		if i+1 < len(m.fresh) && m.fresh[i+1].at == f.at {
			continue
		}
		head = binary.BigEndian.AppendUint64(head[:0], uint64(f.at.Ms))
		head = binary.BigEndian.AppendUint32(head, f.at.Seq)
		head = binary.AppendUvarint(head, uint64(len(f.raw)))
		_, _ = out.Write(head) // Flush returns the error
		_, _ = out.Write(f.raw)
		m.size += int64(len(head) + len(f.raw))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	m.runs = append(m.runs, io.NewSectionReader(m.file, from, m.size-from))
	clear(m.fresh)
	m.fresh, m.held = m.fresh[:0], 0
	return nil
}

// begin ends adding.
func (m *markers) begin() error {
	if err := m.write(); err != nil {
		return err
	}
	m.fresh = nil
	for number, section := range m.runs {
		r := &run{in: bufio.NewReaderSize(section, runBuffer), number: number}
		more, err := r.next()
		if err != nil {
			return err
		}
		if more {
			m.reading = append(m.reading, r)
		}
	}
	heap.Init(&m.reading)
	return nil
}

// of returns the bytes at a position, which must be greater than that of the call before; nil if there are none.
func (m *markers) of(at j17.StreamID) (raw []byte, err error) {
	for len(m.reading) > 0 {
		first := m.reading[0]
		order := first.at.Compare(at)
		if order > 0 {
			break
		}
		if order == 0 && raw == nil {
			raw = first.raw // from the last run with the position
		}
		more, err := first.next()
		if err != nil {
			return nil, err
		}
		if more {
			heap.Fix(&m.reading, 0)
		} else {
			heap.Pop(&m.reading)
		}
	}
	return raw, nil
}

func (m *markers) close() {
	if m.file != nil {
		_ = m.file.Close() // a temporary file
		_ = os.Remove(m.file.Name())
	}
}

// run reads one of the sorted runs.
type run struct {
	marker

	in     *bufio.Reader
	number int
}

// next reads the next marker, and reports whether there is one.
func (r *run) next() (bool, error) {
	var head [12]byte
	if _, err := io.ReadFull(r.in, head[:]); errors.Is(err, io.EOF) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	n, err := binary.ReadUvarint(r.in)
	if err == nil && n > maxMarker {
		err = fmt.Errorf("a marker of %d bytes", n)
	}
	if err != nil {
		return false, err
	}
	r.at = j17.StreamID{Ms: int64(binary.BigEndian.Uint64(head[:])), Seq: binary.BigEndian.Uint32(head[8:])}
	r.raw = make([]byte, n)
	_, err = io.ReadFull(r.in, r.raw)
	return err == nil, err
}

// runHeap has runs in the order of their next markers; for the same position the run that was written last comes first.
type runHeap []*run

func (h runHeap) Len() int { return len(h) }

func (h runHeap) Less(i, j int) bool {
	if order := h[i].at.Compare(h[j].at); order != 0 {
		return order < 0
	}
	return h[i].number > h[j].number
}

func (h runHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is never called: all runs are known when reading begins.
func (h *runHeap) Push(x any) {
	if r, ok := x.(*run); ok {
		*h = append(*h, r)
	}
}

// Pop removes the last one.
func (h *runHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return r
}
