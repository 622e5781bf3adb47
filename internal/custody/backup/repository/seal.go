package repository

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
)

// Seal determines the names of parts and the recipients that they are encrypted to. The zero Seal encrypts nothing.
type Seal struct {
	recipients []string
	to         []age.Recipient
	// names is the key of the names of encrypted parts: without it, a guess at their content cannot be confirmed.
	names []byte
}

// RecipientError reports that a text is no age recipient.
type RecipientError struct {
	// Index is the recipient's place in the list.
	Index int
	Err   error
}

// Error describes the mistake.
func (e *RecipientError) Error() string {
	return fmt.Sprintf("recipient %d is no public key of age, which begins with age1 (j17 backup keygen makes one)", e.Index+1)
}

func (e *RecipientError) Unwrap() error { return e.Err }

// MaxRecipients is the number of recipients that backups can be encrypted to.
const MaxRecipients = 20

// NewSeal returns the seal for age recipients; without any, parts stay readable. With the same secret the same contents
// have the same names. An invalid recipient is a *RecipientError.
func NewSeal(recipients []string, secret []byte) (Seal, error) {
	if len(recipients) == 0 {
		return Seal{}, nil
	}
	if len(recipients) > MaxRecipients {
		return Seal{}, fmt.Errorf("backups can be encrypted to %d recipients, these are %d", MaxRecipients, len(recipients))
	}

	// Each is a public key on a single line.
	s := Seal{recipients: slices.Clone(recipients)}
	for i, r := range recipients {
		parsed, err := age.ParseRecipients(strings.NewReader(r))
		if err == nil && (len(parsed) != 1 || strings.TrimSpace(r) != r) {
			err = errors.New("it is not one key")
		}
		if err != nil {
			return Seal{}, &RecipientError{Index: i, Err: err}
		}
		s.to = append(s.to, parsed...)
	}
	slices.Sort(s.recipients)
	s.recipients = slices.Compact(s.recipients)

	// Some kinds of keys cannot be mixed.
	if _, err := age.Encrypt(io.Discard, s.to...); err != nil {
		return Seal{}, fmt.Errorf("the recipients cannot be used together: %w", err)
	}
	mac := hmac.New(sha256.New, secret)
	_, _ = fmt.Fprintf(mac, "j17 backup parts\n%s", strings.Join(s.recipients, "\n")) // a hash takes everything
	s.names = mac.Sum(nil)
	return s, nil
}

// Encrypted reports whether parts are encrypted.
func (s Seal) Encrypted() bool { return len(s.to) > 0 }

// Recipients returns the recipients, in order.
func (s Seal) Recipients() []string { return slices.Clone(s.recipients) }

// nameOf returns the name of the part with a content.
func nameOf(names, content []byte) string {
	if names == nil {
		sum := sha256.Sum256(content)
		return hex.EncodeToString(sum[:])
	}
	mac := hmac.New(sha256.New, names)
	_, _ = mac.Write(content) // a hash takes everything
	return hex.EncodeToString(mac.Sum(nil))
}

// packer makes files from contents. It is for one goroutine.
type packer struct {
	seal    Seal
	encoder *zstd.Encoder
	packed  []byte
}

// packer returns a packer. Its compression is fast, so that a backup is limited by the disk instead.
func (s Seal) packer() (*packer, error) {
	encoder, err := zstd.NewWriter(
		nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true),
	)
	return &packer{seal: s, encoder: encoder}, err
}

// pack compresses a content and, if the seal encrypts, encrypts it. The file is valid until the next call.
func (p *packer) pack(content []byte) ([]byte, error) {
	p.packed = p.encoder.EncodeAll(content, p.packed[:0])
	p.packed = appendSum(p.packed, p.packed)
	if !p.seal.Encrypted() {
		return p.packed, nil
	}
	return p.seal.encrypt(p.packed)
}

func (s Seal) encrypt(content []byte) ([]byte, error) {
	var out bytes.Buffer
	out.Grow(len(content) + len(content)/1024 + 1024)
	w, err := age.Encrypt(&out, s.to...)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Identities are the private keys that open encrypted backups.
type Identities struct {
	keys []age.Identity
}

// ReadIdentities reads private keys in the file format of age.
func ReadIdentities(in io.Reader) (Identities, error) {
	keys, err := age.ParseIdentities(in)
	return Identities{keys}, err
}

// NewIdentity makes a private key. It returns the text of an age file with it, and the matching recipient.
func NewIdentity() (text, recipient string, err error) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return "", "", err
	}
	recipient = key.Recipient().String()
	return fmt.Sprintf("# public key: %s\n%s\n", recipient, key), recipient, nil
}

// IdentityError reports that encrypted files cannot be opened with the given keys.
type IdentityError struct {
	// Recipients are those that the files are encrypted to; nil if unknown.
	Recipients []string
	// Given reports that there was a key, but not one of those.
	Given bool
}

// Error says what to do.
func (e *IdentityError) Error() string {
	to := ""
	if len(e.Recipients) > 0 {
		to = " to " + strings.Join(e.Recipients, ", ")
	}
	if e.Given {
		return "the backup is encrypted" + to + ", and the identity is not one of them: name the file of the right one with --identity"
	}
	return "the backup is encrypted" + to + ": name the file with the identity of one of them with --identity"
}

// decrypt opens an encrypted file.
func (i Identities) decrypt(content []byte) ([]byte, error) {
	if len(i.keys) == 0 {
		return nil, &IdentityError{}
	}
	r, err := age.Decrypt(bytes.NewReader(content), i.keys...)
	if _, none := errors.AsType[*age.NoIdentityMatchError](err); none {
		return nil, &IdentityError{Given: true}
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// unpack reverses pack, for a content of so many bytes.
func (i Identities) unpack(decoder *zstd.Decoder, packed []byte, encrypted bool, size int64) ([]byte, error) {
	if encrypted {
		var err error
		if packed, err = i.decrypt(packed); err != nil {
			return nil, err
		}
	}
	frame, err := cutSum(packed)
	if err != nil {
		return nil, err
	}
	return decoder.DecodeAll(frame, make([]byte, 0, size))
}

// sumBytes is the length of a skippable zstd frame with four bytes, which other programs ignore.
const sumBytes = 12

// sumHead begins such a frame.
func sumHead() []byte { return []byte{0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0} }

// appendSum appends a frame with the CRC-32C of content, since not every bit of a zstd frame affects its decompressed
// content.
func appendSum(dst, content []byte) []byte {
	sum := crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli))
	return binary.LittleEndian.AppendUint32(append(dst, sumHead()...), sum)
}

// cutSum reverses appendSum.
func cutSum(packed []byte) ([]byte, error) {
	n := len(packed) - sumBytes
	if n < 0 || !bytes.Equal(appendSum(nil, packed[:n]), packed[n:]) {
		return nil, errors.New("its checksum is wrong: it was changed or cut short")
	}
	return packed[:n], nil
}

// newDecoder returns a decompressor. It refuses output that is larger than any part.
func newDecoder() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxContent))
}
