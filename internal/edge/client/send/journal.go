package send

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// What the name of a file's journal ends with, and what it ended with when "events send" was called "events import".
const (
	journalSuffix    = ".j17-send"
	oldJournalSuffix = ".j17-import"
)

// journal is the file in which a run keeps what the server has acknowledged. It consists of lines of JSON: a head, then
// one entry for each acknowledged batch and for each batch that had to be cut. A line that a crash has cut off is
// ignored; the idempotency key of its batch still protects it.
type journal struct {
	name string
	head journalHead
	// resumed is true where the journal was there already.
	resumed bool
	done    spans
	cuts    map[span][]int

	mu   sync.Mutex
	file *os.File
	// needed is true once the server may have stored something.
	needed bool
}

type journalHead struct {
	// Target is the server and environment that the events go to.
	Target string `json:"target"`
	// Seed starts the idempotency keys; it is made of the content that the file had at the first run.
	Seed string `json:"seed"`
	// Events is the number of events of that content.
	Events int `json:"events"`
	// Batch is how many events a batch may have: batches must be cut in the same way again.
	Batch int `json:"batch"`
}

type journalEntry struct {
	Done *span `json:"done,omitempty"`
	// Cut is a batch that is sent in parts, which end before the events of these indexes.
	Cut *span `json:"cut,omitempty"`
	At  []int `json:"at,omitempty"`
}

// span is a range of events by their indexes, without the last.
type span struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// spans are ranges in order that do not touch.
type spans []span

func (s spans) has(i int) bool {
	at, found := slices.BinarySearchFunc(s, i, func(e span, i int) int { return cmp.Compare(e.From, i) })
	return found || at > 0 && i < s[at-1].To
}

// merged returns the ranges in order and joined.
func merged(s spans) spans {
	slices.SortFunc(s, func(a, b span) int { return cmp.Compare(a.From, b.From) })
	out := s[:0]
	for _, e := range s {
		if n := len(out); n > 0 && e.From <= out[n-1].To {
			out[n-1].To = max(out[n-1].To, e.To)
			continue
		}
		out = append(out, e)
	}
	return out
}

// JournalNames are the places where the journal of a file may be, the present ones first: beside the file, or in the
// folder state, if there is one, where that cannot be written.
func JournalNames(file, state string) []string {
	var names []string
	for _, suffix := range []string{journalSuffix, oldJournalSuffix} {
		names = append(names, file+suffix)
		if state == "" {
			continue
		}
		if whole, err := filepath.Abs(file); err == nil {
			sum := sha256.Sum256([]byte(whole))
			names = append(names, filepath.Join(state, filepath.Base(file)+"-"+hex.EncodeToString(sum[:8])+suffix))
		}
	}
	return names
}

// errRunning is the error of a run while another run is sending the same file.
var errRunning = errors.New("another run is sending this file: wait until it has ended, or stop it")

// openJournal opens the journal of a file, or makes one with head. It is locked until it is closed.
func openJournal(names []string, head journalHead) (*journal, error) {
	// An earlier run may have left one.
	for _, name := range names {
		j, err := lockJournal(name, os.O_RDWR)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, errRunning):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("the progress of an earlier run cannot be read: %w", err)
		}
		return j.begin(head)
	}

	// There is none: it is made in the first place that can be written.
	var errs []error
	for i, name := range names {
		if strings.HasSuffix(name, oldJournalSuffix) {
			break
		}
		if i > 0 {
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		j, err := lockJournal(name, os.O_RDWR|os.O_CREATE)
		if errors.Is(err, errRunning) {
			return nil, err
		}
		if err == nil {
			j, err = j.begin(head)
		}
		if err == nil {
			return j, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("the progress cannot be kept: %w", errors.Join(errs...))
}

// lockJournal opens a file that no other run has open.
func lockJournal(name string, flag int) (*journal, error) {
	for {
		f, err := os.OpenFile(name, flag, 0o600) //nolint:gosec // beside the file that the caller names
		if err != nil {
			return nil, err
		}
		if err := lock(f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		opened, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if now, err := os.Stat(name); err == nil && os.SameFile(opened, now) {
			return &journal{name: name, cuts: map[span][]int{}, file: f}, nil
		}
		if err := f.Close(); err != nil { // the run that had it has removed it at its end
			return nil, err
		}
	}
}

// begin reads what the journal tells of an earlier run, or makes it one with head.
func (j *journal) begin(head journalHead) (_ *journal, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, j.file.Close())
		}
	}()
	raw, err := io.ReadAll(j.file)
	if err != nil {
		return nil, err
	}

	// What a crash has cut off is left out.
	whole := int64(bytes.LastIndexByte(raw, '\n') + 1)
	if whole > 0 {
		if err := j.read(raw[:whole], head); err != nil {
			return nil, err
		}
	}
	// Without a head, a crash came before it was written. A journal for another target where nothing is known to be
	// stored does not bind the file to that target.
	fresh := whole == 0 || j.head.Target != head.Target
	if fresh {
		whole = 0
	}

	_, seekErr := j.file.Seek(whole, io.SeekStart)
	if err := errors.Join(j.file.Truncate(whole), seekErr); err != nil {
		return nil, err
	}
	if !fresh {
		j.resumed, j.needed = true, true
		return j, nil
	}

	j.head, j.cuts = head, map[span][]int{}
	if err := j.write(head); err != nil {
		return nil, errors.Join(err, os.Remove(j.name))
	}
	return j, nil
}

// read takes over the lines of a journal. They have to be of a run that can go on with head, or of one that has stored
// nothing in another target.
func (j *journal) read(raw []byte, head journalHead) error {
	name := j.name
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, len(raw)+1)
	lines.Scan()
	if err := json.Unmarshal(lines.Bytes(), &j.head); err != nil || j.head.Seed == "" || j.head.Batch < 1 {
		return fmt.Errorf("%s is damaged. Delete it to send the file from its start; what was stored within the last 24 hours is not stored twice", name)
	}
	if j.head.Target == head.Target && j.head.Events != head.Events {
		return fmt.Errorf("the file has %d events now, but had %d when it was sent first: lines may be corrected in between, but not added or removed. Restore the file, or delete %s to send it from its start", head.Events, j.head.Events, name)
	}
	for n := 2; lines.Scan(); n++ {
		var e journalEntry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("%s is damaged in line %d. Remove the line to go on; what was stored within the last 24 hours is not stored twice", name, n)
		}
		if e.Done != nil {
			j.done = append(j.done, *e.Done)
		}
		if e.Cut != nil {
			j.cuts[*e.Cut] = e.At
		}
	}
	j.done = merged(j.done)
	if j.head.Target != head.Target && len(j.done) > 0 {
		return fmt.Errorf("this file is not sent to its end to %s. Finish that, or delete %s, before you send it to %s", j.head.Target, name, head.Target)
	}
	return nil
}

func (j *journal) write(entry any) error {
	raw, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, err = j.file.Write(append(raw, '\n'))
	return err
}

// stored notes that the server has acknowledged events.
func (j *journal) stored(s span) error {
	j.need()
	return j.kept(j.write(journalEntry{Done: &s}))
}

// need notes that the server may have stored something.
func (j *journal) need() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.needed = true
}

// cut notes that a batch is sent in parts.
func (j *journal) cut(s span, at []int) error { return j.kept(j.write(journalEntry{Cut: &s, At: at})) }

func (j *journal) kept(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the progress cannot be kept in %s: %w", j.name, err)
}

// close closes the journal, and removes its file if nothing is left to do or nothing was done.
func (j *journal) close(finished bool) error {
	var err error
	if finished || !j.needed {
		err = os.Remove(j.name) // while it is locked
	}
	return errors.Join(err, j.file.Close())
}
