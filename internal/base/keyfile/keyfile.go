// Package keyfile seals texts with a key that is in a file beside the store, or made of a secret: sealed texts are
// useless to anyone who has only the store, or a copy of it.
package keyfile

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// File is a key file, which is made when it is first needed, or a key that is known without one.
type File struct {
	name string

	mu  sync.Mutex
	key []byte
}

// At returns the key file of that name.
func At(name string) *File { return &File{name: name} }

// Of returns what has the given key, of Bytes bytes, and is in no file.
func Of(key []byte) *File { return &File{key: key} }

// OfSecret returns what has a key made of a secret, which must be too long to be guessed.
func OfSecret(secret string) *File {
	key := sha256.Sum256([]byte(secret))
	return Of(key[:])
}

// Exists reports whether the key is known, or its file is there.
func (f *File) Exists() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.key != nil {
		return true
	}
	_, err := os.Stat(f.name)
	return err == nil
}

// Bytes is the length of keys.
const Bytes = 32

// ErrOther is the error for a text that was sealed with another key, or for another place.
var ErrOther = errors.New("it was sealed with the key of another data folder")

// open reads the key, or makes it.
func (f *File) open() ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.key != nil {
		return f.key, nil
	}
	key, err := os.ReadFile(f.name)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, Bytes)
		_, _ = rand.Read(key) // never fails
		err = Write(f.name, key)
	}
	if err != nil {
		return nil, fmt.Errorf("the key file of the data folder cannot be read or made: %w", err)
	}
	if len(key) != Bytes {
		return nil, fmt.Errorf("%s is damaged: it has %d bytes and not %d. Put the file of an earlier copy of the data folder back, or restore a backup", f.name, len(key), Bytes)
	}
	f.key = key
	return key, nil
}

// Write writes a file that only its owner may read, in one step: after a failure it is what it was.
func Write(name string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// Derived returns a key for one purpose.
func (f *File) Derived(purpose string) ([]byte, error) {
	key, err := f.open()
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(purpose)) // never fails
	return mac.Sum(nil), nil
}

// Box returns a box that seals texts for one purpose.
func (f *File) Box(purpose string) (*Box, error) {
	key, err := f.Derived(purpose)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &Box{aead}, nil
}

// Box seals texts.
type Box struct{ aead cipher.AEAD }

// Seal encrypts a text. It can be opened only where the same place is named.
func (b *Box) Seal(place string, text []byte) []byte {
	nonce := make([]byte, b.aead.NonceSize(), b.aead.NonceSize()+len(text)+b.aead.Overhead())
	_, _ = rand.Read(nonce) // never fails
	return b.aead.Seal(nonce, nonce, text, []byte(place))
}

// Open decrypts what Seal has made. The error is ErrOther.
func (b *Box) Open(place string, sealed []byte) ([]byte, error) {
	if len(sealed) < b.aead.NonceSize() {
		return nil, ErrOther
	}
	text, err := b.aead.Open(nil, sealed[:b.aead.NonceSize()], sealed[b.aead.NonceSize():], []byte(place))
	if err != nil {
		return nil, ErrOther
	}
	return text, nil
}
