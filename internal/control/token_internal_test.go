package control

import (
	"crypto/sha256"
	"testing"

	"pgregory.net/rapid"

	"j17"
)

func TestChecksumFindsMistypedTokensByItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		env := rapid.SampledFrom(j17.Environments()).Draw(t, "environment")
		token, _, hash := newToken(env)
		if got, ok := KeyEnvironment(token); !ok || got != env {
			t.Fatalf("KeyEnvironment(%q) = %q, %v", token, got, ok)
		}
		if got, ok := hashToken(token); !ok || got != hash || got != sha256.Sum256([]byte(token)) {
			t.Fatalf("hashToken(%q) = %x, %v", token, got, ok)
		}
		b := []byte(token)
		i, j := rapid.IntRange(0, len(b)-1).Draw(t, "i"), rapid.IntRange(0, len(b)-1).Draw(t, "j")
		switch rapid.IntRange(0, 2).Draw(t, "mistake") {
		case 0:
			b[i] = rapid.Byte().Draw(t, "byte")
		case 1:
			b[i], b[j] = b[j], b[i]
		default:
			b = append(b[:i], b[i+1:]...)
		}
		if _, ok := hashToken(string(b)); ok && string(b) != token {
			t.Fatalf("hashToken(%q) takes it for a token", b)
		}
	})
}
