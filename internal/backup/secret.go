package backup

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

// secrets has the key that stands in a file beside the store: what is sealed with it is of no use to who has the store, or a backup of
// it, alone. The file is made when it is needed first.
type secrets struct {
	file string

	mu  sync.Mutex
	key []byte
}

// keyBytes is the length of the key.
const keyBytes = 32

// errSealed is the error of what was sealed with another key.
var errSealed = errors.New("it was sealed with the key of another data folder")

// open reads the key, or makes it.
func (s *secrets) open() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key != nil {
		return s.key, nil
	}
	key, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, keyBytes)
		_, _ = rand.Read(key) // never fails
		err = writeNew(s.file, key)
	}
	if err != nil {
		return nil, fmt.Errorf("the key file of backups cannot be read or made: %w", err)
	}
	if len(key) != keyBytes {
		return nil, fmt.Errorf("%s is damaged: it has %d bytes and not %d. Restore it, or remove it and set the secret keys of S3 anew", s.file, len(key), keyBytes)
	}
	s.key = key
	return key, nil
}

// writeNew writes a file that only its owner may read, in one step.
func writeNew(name string, data []byte) error {
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

// derived returns a key for one purpose.
func (s *secrets) derived(purpose string) ([]byte, error) {
	key, err := s.open()
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(purpose)) // never fails
	return mac.Sum(nil), nil
}

// The purposes of keys.
const (
	forSecretKeys = "secret keys of S3"
	forNames      = "names of parts"
)

// seal encrypts a text. It can be opened only where the same place is named.
func (s *secrets) seal(place, text string) ([]byte, error) {
	box, err := s.box()
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, box.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return box.Seal(nonce, nonce, []byte(text), []byte(place)), nil
}

// unseal opens what seal has made.
func (s *secrets) unseal(place string, sealed []byte) (string, error) {
	box, err := s.box()
	if err != nil {
		return "", err
	}
	if len(sealed) < box.NonceSize() {
		return "", errSealed
	}
	text, err := box.Open(nil, sealed[:box.NonceSize()], sealed[box.NonceSize():], []byte(place))
	if err != nil {
		return "", errSealed
	}
	return string(text), nil
}

func (s *secrets) box() (cipher.AEAD, error) {
	key, err := s.derived(forSecretKeys)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
