package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"

	"golang.org/x/crypto/argon2"

	"j17"
)

// The cost of a password hash, as OWASP recommends for argon2id: 19 MiB, two passes, one lane.
const (
	argonMemory  = 19 * 1024 // KiB
	argonTime    = 2
	argonThreads = 1
	argonSalt    = 16
	argonKey     = 32
)

// maxWaiting is how many passwords may wait to be hashed.
const maxWaiting = 64

// hasher hashes passwords, a few at a time: each takes memory and a whole processor for a while.
type hasher struct {
	slots   chan struct{}
	waiting atomic.Int32
	// memory is how many KiB a hash takes.
	memory uint32
	// nobody is a hash that no password has.
	nobody string
}

func newHasher(memory uint32) *hasher {
	memory = cmp.Or(memory, argonMemory)
	random := make([]byte, argonSalt+argonKey)
	_, _ = rand.Read(random) // Never fails: the program ends when the machine has no randomness.
	return &hasher{
		slots:  make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		memory: memory,
		nobody: formatHash(memory, random[:argonSalt], random[argonSalt:]),
	}
}

// hash returns the password's hash with a new salt.
func (h *hasher) hash(ctx context.Context, password string) (string, error) {
	salt := make([]byte, argonSalt)
	_, _ = rand.Read(salt)
	if err := h.acquire(ctx); err != nil {
		return "", err
	}
	defer h.release()
	return formatHash(
		h.memory, salt, argon2.IDKey([]byte(password), salt, argonTime, h.memory, argonThreads, argonKey),
	), nil
}

// verify reports whether hash is that of the password.
func (h *hasher) verify(ctx context.Context, hash, password string) (bool, error) {
	salt, key, cost, err := parseHash(hash)
	if err != nil {
		return false, internal(err)
	}
	if err := h.acquire(ctx); err != nil {
		return false, err
	}
	defer h.release()
	got := argon2.IDKey([]byte(password), salt, cost.time, cost.memory, cost.threads, argonKey)
	return subtle.ConstantTimeCompare(got, key) == 1, nil
}

func (h *hasher) acquire(ctx context.Context) error {
	busy := j17.Errorf(j17.CodeUnavailable, "Too many passwords are being checked. Try again in a few seconds.")
	if h.waiting.Add(1) > maxWaiting {
		h.waiting.Add(-1)
		return busy
	}
	defer h.waiting.Add(-1)
	select {
	case h.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return busy.Because(ctx.Err())
	}
}

func (h *hasher) release() { <-h.slots }

type argonCost struct {
	time, memory uint32
	threads      uint8
}

// formatHash writes a hash in the PHC string format.
func formatHash(memory uint32, salt, key []byte) string {
	enc := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s",
		argon2.Version, memory, argonTime, argonThreads, enc.EncodeToString(salt), enc.EncodeToString(key))
}

// parseHash reads what formatHash wrote, even with a different cost. Its error does not repeat the hash.
func parseHash(hash string) (salt, key []byte, cost argonCost, err error) {
	damaged := errors.New("a stored password hash is damaged")
	parts := strings.Split(hash, "$")
	if len(parts) != 6 || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return nil, nil, cost, damaged
	}
	if _, err := fmt.Sscanf(
		parts[3], "m=%d,t=%d,p=%d", &cost.memory, &cost.time, &cost.threads,
	); err != nil || cost.time == 0 || cost.threads == 0 {
		return nil, nil, cost, damaged
	}
	salt, err = base64.RawStdEncoding.DecodeString(parts[4])
	if err != nil {
		return nil, nil, cost, damaged
	}
	key, err = base64.RawStdEncoding.DecodeString(parts[5])
	if err != nil || len(key) != argonKey {
		return nil, nil, cost, damaged
	}
	return salt, key, cost, nil
}
