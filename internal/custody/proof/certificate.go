package proof

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"j17"
)

// certificateLine is the first line of a certificate.
const certificateLine = "j17 erasure certificate"

// Certificate says what was erased, when, on what legal basis and at whose request. It holds nothing of the erased
// data. It is signed by the log of the environment and can be verified by anyone who has the key. Roots are 64
// hexadecimal digits.
type Certificate struct {
	ID          string          `json:"id"`
	TombstoneID string          `json:"tombstone_id"`
	Instance    string          `json:"instance"`
	Environment j17.Environment `json:"environment"`
	// Key is the requested aggregate.
	Key         string `json:"key"`
	Status      string `json:"status"`
	LegalBasis  string `json:"legal_basis,omitempty"`
	RequestID   string `json:"request_id,omitempty"`
	RequestedBy any    `json:"requested_by,omitempty"`

	CreatedAt    time.Time `json:"created_at"`
	ExecutableAt time.Time `json:"executable_at"`
	ExecutedAt   time.Time `json:"executed_at"`
	// CompletedAt is when the last of the data had been removed from disk.
	CompletedAt time.Time `json:"completed_at,omitzero"`
	Forced      bool      `json:"forced"`
	// Method is a sentence on how the data were removed from disk, Remains one on the copies that may still have them.
	// A store on a database server adds what was looked at: LSN is the place in the server's log of changes from before
	// which nothing is left on Servers; Unseen says what could not be looked at. Certificates of older versions have
	// none of these.
	Method  string   `json:"method,omitempty"`
	LSN     string   `json:"lsn,omitempty"`
	Servers []string `json:"servers,omitempty"`
	Unseen  []string `json:"unseen,omitempty"`
	Remains string   `json:"remains,omitempty"`
	// PreTombstoneRoot and PreTombstoneSize are the head of the environment's log before the erasure.
	PreTombstoneRoot string `json:"pre_tombstone_root"`
	PreTombstoneSize uint64 `json:"pre_tombstone_size"`
	// Events is the total number of erased events.
	Events  uint64         `json:"events"`
	Streams []ErasedStream `json:"affected_streams"`
	// AffectedCount is the number of affected streams if there are too many to list, AffectedRoot the root of the tree
	// over all of them, in the order of their keys; the leaves are the hashes of their lines in the list.
	AffectedCount uint64 `json:"affected_count,omitempty"`
	AffectedRoot  string `json:"affected_root,omitempty"`
}

// ErasedStream is a stream in which all events were erased, with the roots of its own tree.
type ErasedStream struct {
	Key        string `json:"key"`
	Events     uint64 `json:"event_count"`
	Action     string `json:"action"`
	RootBefore string `json:"root_before"`
	RootAfter  string `json:"root_after"`
}

// Text returns the text to be signed: two lines, the second of which is the certificate as compact JSON.
func (c *Certificate) Text() (string, error) {
	var b strings.Builder
	b.WriteString(certificateLine + "\n")
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(c)
	return b.String(), err
}

// ParseCertificate reads the text of a certificate, and checks that it does not contradict itself.
func ParseCertificate(text string) (*Certificate, error) {
	body, ok := strings.CutPrefix(text, certificateLine+"\n")
	body, rest, line := strings.Cut(body, "\n")
	if !ok || !line || rest != "" {
		return nil, fmt.Errorf("a certificate has two lines: %q, and what it certifies as JSON", certificateLine)
	}
	var compact bytes.Buffer
	var c Certificate
	if json.Compact(&compact, []byte(body)) != nil || compact.String() != body ||
		json.Unmarshal([]byte(body), &c) != nil {
		return nil, errors.New("the second line of the certificate is not the compact JSON that a certificate has")
	}

	// Redundant values must agree.
	events := uint64(0)
	roots := []string{c.PreTombstoneRoot}
	asked := false
	for _, s := range c.Streams {
		events += s.Events
		roots = append(roots, s.RootBefore, s.RootAfter)
		asked = asked || s.Key == c.Key
	}
	switch {
	case c.TombstoneID == "" || c.Key == "" || c.ExecutedAt.IsZero():
		return nil, errors.New("the certificate does not say what was erased, by which tombstone, and when")
	case !asked:
		return nil, fmt.Errorf("the certificate is about %s, and does not have it among what was erased", c.Key)
	case c.AffectedCount > 0 && (c.AffectedCount <= uint64(len(c.Streams)) || events >= c.Events):
		return nil, fmt.Errorf("the certificate lists %d of %d streams with %d of %d events", len(c.Streams), c.AffectedCount, events, c.Events)
	case c.AffectedCount == 0 && events != c.Events:
		return nil, fmt.Errorf("the certificate says that %d events were erased, its streams had %d", c.Events, events)
	}
	if c.AffectedCount > 0 {
		roots = append(roots, c.AffectedRoot)
	}
	for _, root := range roots {
		if raw, err := hex.DecodeString(root); err != nil || len(raw) != sha256.Size {
			return nil, fmt.Errorf("the certificate has a root %.80q that is not 32 bytes in hexadecimal digits", root)
		}
	}
	return &c, nil
}

// checkStreams compares the list of all erased streams with the certificate. A difference is a *Failure.
func (c *Certificate) checkStreams(list io.Reader) error {
	listed := map[string]ErasedStream{}
	for _, s := range c.Streams {
		listed[s.Key] = s
	}
	var tree Tree
	events := uint64(0)
	err := eachStream(list, func(s ErasedStream) error {
		if own, ok := listed[s.Key]; ok && own != s {
			return &Failure{Reason: fmt.Sprintf("the list of streams says something else of %s than the certificate", s.Key)}
		}
		delete(listed, s.Key)
		line, err := json.Marshal(s)
		if err != nil {
			return err
		}
		tree.Add(j17.Leaf(line))
		events += s.Events
		return nil
	})
	if err != nil {
		return err
	}

	// The root covers the streams that the certificate does not list.
	root := tree.Root()
	all := max(c.AffectedCount, uint64(len(c.Streams)))
	switch {
	case tree.Size() != all || events != c.Events:
		return &Failure{Reason: fmt.Sprintf("the list has %d streams with %d events, the certificate is about %d with %d", tree.Size(), events, all, c.Events)}
	case len(listed) > 0:
		return &Failure{Reason: fmt.Sprintf("the list lacks %d of the streams that the certificate lists", len(listed))}
	case c.AffectedCount > 0 && hex.EncodeToString(root[:]) != c.AffectedRoot:
		return &Failure{Reason: fmt.Sprintf("the streams of the list are not those of the certificate: their tree has the root %x, the signed one is %s", root, c.AffectedRoot)}
	}
	return nil
}

// eachStream calls do with the streams of a list: consecutive JSON arrays of them, or objects with one as their member
// "streams".
func eachStream(list io.Reader, do func(ErasedStream) error) error {
	d := json.NewDecoder(list)
	rows := func() error {
		for d.More() {
			var s ErasedStream
			if err := d.Decode(&s); err != nil {
				return err
			}
			if err := do(s); err != nil {
				return err
			}
		}
		_, err := d.Token() // its end
		return err
	}
	for {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
		case token == json.Delim('['):
			err = rows()
		case token == json.Delim('{'):
			err = inObject(d, rows)
		default:
			err = errStreams
		}
		if err != nil {
			return streamsFailure(err)
		}
	}
}

// inObject reads the rest of an object and calls rows at its member "streams".
func inObject(d *json.Decoder, rows func() error) error {
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		if name != "streams" {
			var other json.RawMessage
			if err := d.Decode(&other); err != nil {
				return err
			}
			continue
		}
		if begin, err := d.Token(); err != nil || begin != json.Delim('[') {
			return errors.Join(err, errStreams)
		}
		if err := rows(); err != nil {
			return err
		}
	}
	_, err := d.Token() // its end
	return err
}

var errStreams = errors.New("it is no list of streams")

// streamsFailure returns the failure of a list that cannot be parsed; other errors are those of its reader.
func streamsFailure(err error) error {
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, typed := errors.AsType[*json.UnmarshalTypeError](err)
	if syntax || typed || errors.Is(err, errStreams) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return &Failure{Reason: "the list of streams cannot be read: " + err.Error() + ". It is to be what 'j17 tombstone streams ID --json' prints"}
	}
	return err
}
