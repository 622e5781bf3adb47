package proof

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"j17"
)

// VerifyOptions says what a file is verified against.
type VerifyOptions struct {
	// Keys are verifier keys, one of which must have signed it. Without any, an export is verified with the key that it
	// contains.
	Keys []string
	// Checkpoint, if not "", is an older checkpoint of the log, as a signed note: the export has to extend it.
	Checkpoint string
	// Streams, if not nil, is the list of all streams that an erasure has reached, as it is served: a certificate must
	// be about these.
	Streams io.Reader
	// Progress, if not nil, is called after each event.
	Progress func()
}

// Kind is the kind of a file.
type Kind string

// The kinds of files that can be verified.
const (
	ExportFile      Kind = "export"
	CheckpointFile  Kind = "checkpoint"
	CertificateFile Kind = "certificate"
)

// Report describes what was verified.
type Report struct {
	Kind Kind `json:"kind"`
	// Events, Streams and Erased are the counts of an export, or of a certificate.
	Events  uint64 `json:"events"`
	Streams uint64 `json:"streams,omitempty"`
	Erased  uint64 `json:"erased,omitempty"`
	// Whole reports that an export has all events of the environment up to its end, and the signed head of the log over
	// them. For other exports only the chains were verified, and Partly counts the streams whose beginning is missing.
	Whole  bool   `json:"whole"`
	Partly uint64 `json:"streams_without_beginning,omitempty"`
	// Origin, Size and Root are those of the signed head, Root as 64 hexadecimal digits.
	Origin string `json:"origin,omitempty"`
	Size   uint64 `json:"size,omitempty"`
	Root   string `json:"root,omitempty"`
	// SignedBy are the verifier keys whose signatures are valid; OwnKey reports that it is the key contained in the
	// export.
	SignedBy []string `json:"signed_by,omitempty"`
	OwnKey   bool     `json:"own_key,omitempty"`
	// Extends is the size of the older checkpoint that the export extends.
	Extends *uint64 `json:"extends,omitempty"`
	// AllStreams reports that a certificate was verified against all of its streams, and not only those that it lists.
	AllStreams  bool         `json:"all_streams,omitempty"`
	Certificate *Certificate `json:"certificate,omitempty"`
}

// Failure says why a file does not prove what it claims.
type Failure struct {
	// Line counts from 1; 0 if no single line is wrong. Position and Key are those of the event there, as far as they
	// can be read.
	Line     int
	Position string
	Key      string
	Reason   string
}

// Error names the first event that is wrong.
func (f *Failure) Error() string {
	switch {
	case f.Line == 0:
		return f.Reason
	case f.Position == "":
		return fmt.Sprintf("line %d: %s", f.Line, f.Reason)
	default:
		return fmt.Sprintf("line %d, event %s of %s: %s", f.Line, f.Position, f.Key, f.Reason)
	}
}

// ErrNoKey is the error of a checkpoint or a certificate that is verified without a key.
var ErrNoKey = errors.New("a checkpoint or a certificate is verified by a key: give the verifier key of the log")

// ErrDocument is the error of an export that is one JSON document, which does not have the signed bytes line by line.
var ErrDocument = errors.New("the file is an export with format=json, which is one document: export the events one a line (format=ndjson), as 'j17 data export' does, and verify that")

// isDocument reports whether the first line of a file begins a document with all events.
func isDocument(line []byte) bool {
	line = bytes.TrimSpace(line)
	return bytes.Equal(line, []byte("{")) || bytes.HasPrefix(line, []byte(`{"ok":`)) ||
		bytes.HasPrefix(line, []byte(`{"events":`)) ||
		bytes.Equal(line, []byte("[")) || bytes.HasPrefix(line, []byte("[{"))
}

// isNewest reports whether the first line of a file is an event without a chain: one that is shown in the newest
// generation of its type, however it is stored.
func isNewest(line []byte) bool {
	l, err := ReadLine(line)
	return err == nil && l.Chain == nil && l.Leaf == nil
}

// maxLine bounds a line of a file, in bytes.
const maxLine = 64 << 20

// Verify reads an export, a checkpoint or a certificate and verifies all of it. An invalid file is a *Failure.
func Verify(r io.Reader, o VerifyOptions) (Report, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	const mark = "\uFEFF" // some editors put it first
	if start, _ := in.Peek(len(mark)); string(start) == mark {
		_, _ = in.Discard(len(mark)) // it was peeked
	}
	first, err := in.Peek(1)
	if errors.Is(err, io.EOF) {
		return Report{}, &Failure{Reason: "the file is empty"}
	}
	if err != nil {
		return Report{}, err
	}
	if first[0] == '{' || first[0] == '[' {
		if o.Streams != nil {
			return Report{}, &Failure{Reason: "a list of streams belongs to a certificate, and the file is an export"}
		}
		return verifyExport(in, &o)
	}
	return verifyNote(in, &o)
}

// maxNote bounds a note, in bytes. A certificate has a line for each stream that was erased.
const maxNote = 256 << 20

// verifyNote verifies a checkpoint or a certificate.
func verifyNote(in io.Reader, o *VerifyOptions) (Report, error) {
	raw, err := io.ReadAll(io.LimitReader(in, maxNote))
	if err != nil {
		return Report{}, err
	}
	text, by, err := Open(string(raw), o.Keys)
	if changed := lineEnds(string(raw), o.Keys, err); changed != "" {
		return Report{}, &Failure{Reason: changed}
	}
	if errors.Is(err, ErrUnsigned) && len(o.Keys) == 0 {
		return Report{}, ErrNoKey
	}
	if err != nil {
		return Report{}, &Failure{Reason: err.Error()}
	}
	if strings.HasPrefix(text, certificateLine+"\n") {
		c, err := ParseCertificate(text)
		if err != nil {
			return Report{}, &Failure{Reason: err.Error()}
		}
		report := Report{
			Kind: CertificateFile, Whole: true, Events: c.Events, Streams: max(c.AffectedCount, uint64(len(c.Streams))),
			SignedBy: by, Certificate: c,
		}
		if o.Streams != nil {
			if err := c.checkStreams(o.Streams); err != nil {
				return report, err
			}
		}
		report.AllStreams = o.Streams != nil || c.AffectedCount == 0
		return report, nil
	}
	if o.Streams != nil {
		return Report{}, &Failure{Reason: "a list of streams belongs to a certificate, and the file is a checkpoint"}
	}
	head, err := ParseTreeHead(text)
	if err != nil {
		return Report{}, &Failure{Reason: err.Error()}
	}
	report := Report{Kind: CheckpointFile, Whole: true, Events: head.Size, SignedBy: by}
	report.head(&head)
	return report, nil
}

// lineEnds says how the line ends of an invalid note were changed, if it would be valid with the signed ones; ""
// otherwise.
func lineEnds(raw string, keys []string, err error) string {
	if err == nil || errors.Is(err, ErrUnsigned) {
		return ""
	}
	mended := strings.ReplaceAll(raw, "\r\n", "\n")
	if !strings.HasSuffix(mended, "\n") {
		mended += "\n"
	}
	_, _, err = Open(mended, keys)
	switch {
	case mended == raw, err != nil && !errors.Is(err, ErrUnsigned):
		return ""
	case strings.Contains(raw, "\r\n"):
		return "its line ends were changed to CRLF since it was signed, and nothing else is wrong with its form. A note is signed byte by byte: take the file as it was served, or turn its line ends back into LF"
	default:
		return "its last line end is missing, and nothing else is wrong with its form. A note is signed byte by byte: take the file as it was served, or add a line end"
	}
}

func (r *Report) head(h *TreeHead) {
	r.Origin, r.Size, r.Root = h.Origin, h.Size, hex.EncodeToString(h.Root[:])
}

// verifier verifies one export.
type verifier struct {
	*VerifyOptions
	Report
	line int
	tree Tree
	last j17.StreamID
	// chains has the current chain of each stream, by its key.
	chains map[string][sha256.Size]byte
	// early is the first event that does not begin its stream although the file has no earlier event of it.
	early *Failure
	// older is the checkpoint to be extended, olderRoot the root of the tree at its size.
	older     *TreeHead
	olderRoot [sha256.Size]byte
	// end is the last line of a whole export.
	end *lastLine
}

// lastLine ends a whole export.
type lastLine struct {
	Checkpoint string `json:"checkpoint"`
	VKey       string `json:"vkey"`
}

// ErrNewest is the error of an export of events in the newest generation of their types.
var ErrNewest = errors.New("the file is an export with generation=newest, which shows events as they are read and has nothing that proves them: export them as they are stored, and verify that")

// verifyExport verifies an export line by line.
func verifyExport(in io.Reader, o *VerifyOptions) (Report, error) {
	v := &verifier{VerifyOptions: o, Report: Report{Kind: ExportFile}, chains: map[string][sha256.Size]byte{}}
	if o.Checkpoint != "" {
		if err := v.readOlder(); err != nil {
			return v.Report, err
		}
	}
	v.noteOlder()

	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 1<<16), maxLine)
	for lines.Scan() {
		if v.line++; v.line == 1 && isDocument(lines.Bytes()) {
			return v.Report, ErrDocument
		}
		if len(lines.Bytes()) == 0 {
			continue
		}
		if v.line == 1 && isNewest(lines.Bytes()) {
			return v.Report, ErrNewest
		}
		if v.end != nil {
			return v.Report, &Failure{Line: v.line, Reason: "there is more behind the checkpoint that ends the export"}
		}
		if bytes.HasPrefix(lines.Bytes(), []byte(`{"checkpoint":`)) {
			v.end = &lastLine{}
			if json.Unmarshal(lines.Bytes(), v.end) != nil {
				return v.Report, &Failure{Line: v.line, Reason: "this is not the line that ends an export"}
			}
			continue
		}
		if err := v.event(lines.Bytes()); err != nil {
			return v.Report, v.firstOf(err, lines)
		}
		if o.Progress != nil {
			o.Progress()
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return v.Report, &Failure{Line: v.line + 1, Reason: "the line is longer than an event can be"}
	}
	if lines.Err() != nil {
		return v.Report, lines.Err()
	}
	return v.Report, v.conclude()
}

// firstOf returns the earlier failure. A missing beginning of a stream is one only in a whole export, so the end of the
// file is looked for.
func (v *verifier) firstOf(found error, rest *bufio.Scanner) error {
	for v.early != nil && rest.Scan() {
		if bytes.HasPrefix(rest.Bytes(), []byte(`{"checkpoint":`)) {
			return v.early
		}
	}
	return found
}

// event verifies a line with an event.
func (v *verifier) event(line []byte) error {
	l, err := ReadLine(line)
	if err != nil {
		failure := &Failure{Line: v.line, Reason: err.Error()}
		if l.Event.Key != (j17.Key{}) {
			failure.Position, failure.Key = l.Event.StreamID.String(), l.Event.Key.String()
		}
		return failure
	}
	e := &l.Event
	key := e.Key.String()
	wrong := func(reason string, args ...any) error {
		return &Failure{Line: v.line, Position: e.StreamID.String(), Key: key, Reason: fmt.Sprintf(reason, args...)}
	}

	// The chain of its stream.
	before, known := v.chains[key]
	if chain := j17.Link(before, j17.Leaf(e.Raw)); l.Chain == nil {
		return wrong("the line has no chain. It is not from an export of events, or was changed")
	} else if *l.Chain != chain {
		if known {
			return wrong("the chain of its stream does not hold: this event was changed, or one before it was changed, moved or left out")
		}
		v.Partly++
		if v.early == nil {
			v.early = &Failure{Line: v.line, Position: e.StreamID.String(), Key: key, Reason: "it is not the first event of its stream, or was changed: the chain does not begin here"}
		}
	}
	if !known {
		v.Report.Streams++
	}
	v.chains[key] = *l.Chain

	// Its place in the feed, and in the log.
	if e.StreamID.Compare(v.last) <= 0 {
		return wrong("it stands behind event %s, which has no smaller position", v.last)
	}
	v.last = e.StreamID
	leaf := j17.Leaf(e.Raw)
	if l.Leaf != nil {
		if !isMarker(e) {
			return wrong("it has the leaf of an erased event, and is no marker of an erasure")
		}
		leaf = *l.Leaf
		v.Erased++
	}
	v.tree.Add(leaf)
	v.Events++
	v.noteOlder()
	return nil
}

// isMarker reports whether an event replaces an erased one.
func isMarker(e *j17.Event) bool {
	var data struct {
		OriginalHash string `json:"original_hash"`
		TombstoneID  string `json:"tombstone_id"`
	}
	if e.Type != "_was_tombstoned" || json.Unmarshal(e.Data, &data) != nil {
		return false
	}
	original, err := hex.DecodeString(data.OriginalHash)
	return err == nil && len(original) == sha256.Size && data.TombstoneID != ""
}

// readOlder reads the checkpoint to be extended. Its signature is verified once a key for it is known.
func (v *verifier) readOlder() error {
	text, _, err := Open(v.Checkpoint, v.Keys)
	if err != nil && (!errors.Is(err, ErrUnsigned) || len(v.Keys) > 0) {
		return &Failure{Reason: "the older checkpoint: " + err.Error()}
	}
	head, err := ParseTreeHead(text)
	if err != nil {
		return &Failure{Reason: "the older checkpoint: " + err.Error()}
	}
	v.older = &head
	return nil
}

// noteOlder stores the root of the tree when it has the size of the older checkpoint.
func (v *verifier) noteOlder() {
	if v.older != nil && v.tree.Size() == v.older.Size {
		v.olderRoot = v.tree.Root()
	}
}

// conclude compares all that was read with what was signed.
func (v *verifier) conclude() error {
	if v.end == nil {
		if len(v.Keys) > 0 || v.older != nil {
			return &Failure{Reason: "the export does not end with a checkpoint: it is not whole, or was cut off, and nothing in it is signed"}
		}
		return nil
	}
	if v.early != nil {
		return v.early
	}

	// The signature.
	keys := v.Keys
	if len(keys) == 0 {
		keys, v.OwnKey = []string{v.end.VKey}, true
	}
	text, by, err := Open(v.end.Checkpoint, keys)
	if err != nil {
		return &Failure{Line: v.line, Reason: "the checkpoint of the export: " + err.Error()}
	}
	head, err := ParseTreeHead(text)
	if err != nil {
		return &Failure{Line: v.line, Reason: err.Error()}
	}
	v.SignedBy = by
	v.head(&head)

	// The older checkpoint first: if it matches, the fault is after it.
	after := ""
	if v.older != nil {
		if after, err = v.extends(); err != nil {
			return err
		}
	}
	root := v.tree.Root()
	switch {
	case v.tree.Size() != head.Size:
		return &Failure{Reason: fmt.Sprintf("the export has %d events, the signed log has %d: events were left out or added%s", v.tree.Size(), head.Size, after)}
	case root != head.Root:
		return &Failure{Reason: fmt.Sprintf("the %d events are not those that were signed: their tree has the root %x, the signed one has %x. Some were changed together with their chains%s", head.Size, root, head.Root, after)}
	}
	v.Whole = true
	return nil
}

// extends compares the events with the older checkpoint.
func (v *verifier) extends() (after string, err error) {
	if len(v.Keys) == 0 {
		// The key of the export may have signed the older checkpoint too.
		if _, _, err := Open(v.Checkpoint, []string{v.end.VKey}); err != nil && !errors.Is(err, ErrUnsigned) {
			return "", &Failure{Reason: "the older checkpoint: " + err.Error()}
		}
	}
	switch {
	case v.older.Size > v.tree.Size():
		return "", &Failure{Reason: fmt.Sprintf("the older checkpoint has %d events, the export has %d: events are missing", v.older.Size, v.tree.Size())}
	case v.older.Root != v.olderRoot:
		return "", &Failure{Reason: fmt.Sprintf("the export does not extend the older checkpoint: its first %d events have the root %x, the checkpoint has %x", v.older.Size, v.olderRoot, v.older.Root)}
	}
	v.Extends = &v.older.Size
	return fmt.Sprintf(". The first %d are those of the older checkpoint", v.older.Size), nil
}

// Line is a line of an export.
type Line struct {
	// Event has the canonical bytes, which are all that was stored.
	Event j17.Event
	// Chain is the chain of the event's stream up to it, Leaf the leaf that an erased event keeps in the log; nil if
	// the line has none.
	Chain, Leaf *[sha256.Size]byte
}

// ReadLine reads a line of an export: the members of the event, followed by those that exports add. The bytes of the
// event are a copy.
func ReadLine(line []byte) (l Line, err error) {
	rest, ok := bytes.CutSuffix(line, []byte("}"))
	if !ok {
		return l, errLine
	}
	if rest, l.Leaf, err = cutHash(rest, `,"leaf":"`); err == nil {
		rest, l.Chain, err = cutHash(rest, `,"chain":"`)
	}
	if err != nil {
		l.Event = sketch(line)
		return l, err
	}
	rest = cutName(rest, `,"public_id":"`)
	rest = cutName(rest, `,"handle":"`)
	if l.Event, err = j17.ParseEvent(append(slices.Clip(rest), '}')); err != nil {
		l.Event = sketch(line)
		return l, errLine
	}
	return l, nil
}

var errLine = errors.New("this is no event in its canonical form, with what an export adds to it")

// cutHash removes a member with a hash from the end. Its digits are in lower case, as in exports.
func cutHash(rest []byte, member string) ([]byte, *[sha256.Size]byte, error) {
	const digits = 2 * sha256.Size
	at := len(rest) - len(member) - digits - 1
	if at < 0 || !bytes.HasPrefix(rest[at:], []byte(member)) || rest[len(rest)-1] != '"' {
		return rest, nil, nil
	}
	var hash [sha256.Size]byte
	written := rest[at+len(member) : len(rest)-1]
	if _, err := hex.Decode(hash[:], written); err != nil || bytes.ContainsAny(written, "ABCDEF") {
		return rest, nil, errLine
	}
	return rest[:at], &hash, nil
}

// cutName removes a member with a name from the end. Names need no escapes.
func cutName(rest []byte, member string) []byte {
	at := bytes.LastIndex(rest, []byte(member))
	if at < 0 || len(rest) < at+len(member)+1 {
		return rest
	}
	if quote := bytes.IndexByte(rest[at+len(member):], '"'); at+len(member)+quote != len(rest)-1 {
		return rest
	}
	return rest[:at]
}

// sketch reads the position and the key, as far as possible, of a line that is not a valid event.
func sketch(line []byte) (e j17.Event) {
	var of struct {
		StreamID string `json:"stream_id"`
		Key      string `json:"key"`
	}
	if json.Unmarshal(line, &of) == nil {
		e.StreamID, _ = j17.ParseStreamID(of.StreamID)
		e.Key, _ = j17.ParseKey(of.Key)
	}
	return e
}
