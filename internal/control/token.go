package control

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"strings"

	"j17"
)

// An API key's token is "j17_0_", the environment, "_", 32 random characters of 5 bits each, and 7 characters that
// hold the CRC-32 of everything before them, so that a mistyped token is told apart from a wrong one without a look-up.
const (
	tokenPrefix   = "j17_0_"
	tokenAlphabet = "123456789abcdefghjkmnpqrstuvwxyz"
	tokenRandom   = 32
	tokenChecksum = 7
	maxToken      = len(tokenPrefix) + len(j17.Staging) + 1 + tokenRandom + tokenChecksum
	// tokenShown is how many random characters the displayed prefix of a token gives away.
	tokenShown = 4
)

// tokenHash is the SHA-256 of a token, which is all that is kept of it.
type tokenHash [sha256.Size]byte

// newToken returns a token, the part of it that may be shown, and its hash.
func newToken(env j17.Environment) (token, shown string, hash tokenHash) {
	var random [tokenRandom]byte
	_, _ = rand.Read(random[:]) // Never fails: the program ends when the machine has no randomness.
	b := make([]byte, 0, maxToken)
	b = append(b, tokenPrefix...)
	b = append(b, env...)
	b = append(b, '_')
	for _, r := range random {
		b = append(b, tokenAlphabet[r%byte(len(tokenAlphabet))])
	}
	shown = string(b[:len(b)-tokenRandom+tokenShown])
	sum := checksum(string(b))
	b = append(b, sum[:]...)
	return string(b), shown, sha256.Sum256(b)
}

// IsKeyToken reports whether a credential is meant to be the token of an API key, good or not.
func IsKeyToken(token string) bool { return strings.HasPrefix(token, tokenPrefix) }

// KeyEnvironment returns the environment that the token of an API key is for; false for what cannot be a token, by its form or its
// checksum. It does not allocate.
func KeyEnvironment(token string) (j17.Environment, bool) {
	if len(token) > maxToken || !strings.HasPrefix(token, tokenPrefix) {
		return "", false
	}
	body := len(token) - tokenChecksum
	random := body - tokenRandom
	if random <= len(tokenPrefix) || token[random-1] != '_' {
		return "", false
	}
	env := j17.Environment(token[len(tokenPrefix) : random-1])
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

// hashToken returns the hash of a token; false for what cannot be a token. It does not allocate.
func hashToken(token string) (tokenHash, bool) {
	if _, ok := KeyEnvironment(token); !ok {
		return tokenHash{}, false
	}
	var buf [maxToken]byte
	return sha256.Sum256(buf[:copy(buf[:], token)]), true
}

// checksum returns the CRC-32 of s in the token alphabet. Package crc32 itself would make s escape to the heap.
func checksum(s string) (chars [tokenChecksum]byte) {
	crc := ^uint32(0)
	for i := range len(s) {
		crc = crc32.IEEETable[byte(crc&0xff)^s[i]] ^ crc>>8
	}
	crc = ^crc
	for i := range chars {
		chars[len(chars)-1-i] = tokenAlphabet[crc&31]
		crc >>= 5
	}
	return chars
}
