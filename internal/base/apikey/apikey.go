// Package apikey defines the form of API keys, by which they are generated, distinguished and looked up. It does not
// know which keys are valid: code that inspects a key before it is stored or sent needs no control plane.
package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"strings"

	"j17"
)

// An API key is "j17_0_", the environment, "_", 32 random characters of 5 bits each, and 7 characters that hold the
// CRC-32 of everything before them, so that a mistyped key is distinguished from a wrong one without a look-up.
const (
	prefix         = "j17_0_"
	alphabet       = "123456789abcdefghjkmnpqrstuvwxyz"
	randomLength   = 32
	checksumLength = 7
	maxLength      = len(prefix) + len(j17.Staging) + 1 + randomLength + checksumLength
	// shownLength is how many random characters the displayed prefix of a key gives away.
	shownLength = 4
)

// New returns a key for an environment, and the part of it that may be shown.
func New(env j17.Environment) (token, shown string) {
	var random [randomLength]byte
	_, _ = rand.Read(random[:]) // Never fails: the program ends when the machine has no randomness.
	b := make([]byte, 0, maxLength)
	b = append(b, prefix...)
	b = append(b, env...)
	b = append(b, '_')
	for _, r := range random {
		b = append(b, alphabet[r%byte(len(alphabet))])
	}
	shown = string(b[:len(b)-randomLength+shownLength])
	sum := checksum(string(b))
	b = append(b, sum[:]...)
	return string(b), shown
}

// Is reports whether a credential is meant to be an API key, good or not.
func Is(token string) bool { return strings.HasPrefix(token, prefix) }

// Environment returns the environment that an API key is for; false for what cannot be one, by its form or its
// checksum. It does not allocate.
func Environment(token string) (j17.Environment, bool) {
	if len(token) > maxLength || !strings.HasPrefix(token, prefix) {
		return "", false
	}
	body := len(token) - checksumLength
	random := body - randomLength
	if random <= len(prefix) || token[random-1] != '_' {
		return "", false
	}
	env := j17.Environment(token[len(prefix) : random-1])
	switch env {
	case j17.Prod, j17.Staging, j17.Test:
	default:
		return "", false
	}
	if sum := checksum(token[:body]); string(sum[:]) != token[body:] {
		return "", false
	}
	return env, true
}

// Hash returns the SHA-256 of an API key, which is all that is kept of it; false for what cannot be one. It does not
// allocate.
func Hash(token string) ([sha256.Size]byte, bool) {
	if _, ok := Environment(token); !ok {
		return [sha256.Size]byte{}, false
	}
	var buf [maxLength]byte
	return sha256.Sum256(buf[:copy(buf[:], token)]), true
}

// checksum returns the CRC-32 of s in the alphabet of keys. Package crc32 itself would make s escape to the heap.
func checksum(s string) (chars [checksumLength]byte) {
	crc := ^uint32(0)
	for i := range len(s) {
		crc = crc32.IEEETable[byte(crc&0xff)^s[i]] ^ crc>>8
	}
	crc = ^crc
	for i := range chars {
		chars[len(chars)-1-i] = alphabet[crc&31]
		crc >>= 5
	}
	return chars
}
