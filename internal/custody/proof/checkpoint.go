package proof

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// TreeHead is the size and the root of a log, as in a C2SP checkpoint.
type TreeHead struct {
	// Origin names the log: it is the name of its key.
	Origin string
	Size   uint64
	Root   [sha256.Size]byte
}

// Text returns the text of the checkpoint, which is signed.
func (h TreeHead) Text() string {
	return h.Origin + "\n" + strconv.FormatUint(h.Size, 10) + "\n" + base64.StdEncoding.EncodeToString(h.Root[:]) + "\n"
}

// ParseTreeHead reads the text of a checkpoint. Lines after the first three are extensions and are ignored.
func ParseTreeHead(text string) (h TreeHead, err error) {
	lines := strings.SplitN(text, "\n", 4)
	if len(lines) < 4 || lines[0] == "" {
		return h, errors.New("a checkpoint has three lines: the origin, the size and the root of the log")
	}
	h.Origin = lines[0]
	if h.Size, err = strconv.ParseUint(lines[1], 10, 63); err != nil || strconv.FormatUint(h.Size, 10) != lines[1] {
		return h, fmt.Errorf("the size %.40q of the checkpoint is no decimal number", lines[1])
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != sha256.Size {
		return h, fmt.Errorf("the root %.60q of the checkpoint is not 32 bytes in base64", lines[2])
	}
	h.Root = [sha256.Size]byte(root)
	return h, nil
}

// CheckKey returns an error for an invalid verifier key, usually a mistyped one.
func CheckKey(vkey string) error {
	_, err := parseKey(vkey)
	return err
}

func parseKey(vkey string) (note.Verifier, error) {
	v, err := note.NewVerifier(vkey)
	if err != nil {
		return nil, fmt.Errorf("%.120q is no verifier key: it has the form name+hash+key", vkey)
	}
	return v, nil
}

// Open returns the text of a signed note, and those of the given verifier keys that have signed it. A wrong signature
// by one of them is an error, and so is a note without a signature by any.
func Open(signed string, vkeys []string) (text string, by []string, err error) {
	var known []note.Verifier
	names := map[string]string{}
	for _, vkey := range vkeys {
		v, err := parseKey(vkey)
		if err != nil {
			return "", nil, err
		}
		if id := keyID(v.Name(), v.KeyHash()); names[id] == "" {
			names[id], known = vkey, append(known, v)
		}
	}

	n, err := note.Open([]byte(signed), note.VerifierList(known...))
	if unknown, ok := errors.AsType[*note.UnverifiedNoteError](err); ok {
		if len(known) == 0 {
			return unknown.Note.Text, nil, ErrUnsigned
		}
		return unknown.Note.Text, nil,
			fmt.Errorf("%w: it is signed by %s", ErrUnsigned, signers(unknown.Note.UnverifiedSigs))
	}
	if wrong, ok := errors.AsType[*note.InvalidSignatureError](err); ok {
		return "", nil, fmt.Errorf("the signature by the key %s does not hold: the text is not the one that was signed", keyID(wrong.Name, wrong.Hash))
	}
	if err != nil {
		return "", nil, errors.New("it is no signed note: a text, an empty line, and lines with signatures")
	}
	for _, s := range n.Sigs {
		if _, err := base64.StdEncoding.Strict().DecodeString(s.Base64); err != nil {
			return "", nil, errors.New("a signature is not written as it was made")
		}
		by = append(by, names[keyID(s.Name, s.Hash)])
	}
	return n.Text, by, nil
}

// ErrUnsigned is the error of a note that none of the given keys has signed.
var ErrUnsigned = errors.New("no key that is given has signed it")

func keyID(name string, hash uint32) string { return fmt.Sprintf("%s+%08x", name, hash) }

func signers(of []note.Signature) string {
	var ids []string
	for _, s := range of {
		ids = append(ids, keyID(s.Name, s.Hash))
	}
	return strings.Join(ids, ", ")
}
