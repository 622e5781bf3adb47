package apikey_test

import (
	"crypto/sha256"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"j17"
	"j17/internal/base/apikey"
)

func TestTheChecksumFindsMistypedKeysByItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		env := rapid.SampledFrom(j17.Environments()).Draw(t, "environment")
		token, shown := apikey.New(env)
		if !apikey.Is(token) || !strings.HasPrefix(token, shown) || len(shown) != len("j17_0__")+len(env)+4 {
			t.Fatalf("New(%q) = %q, %q", env, token, shown)
		}
		if got, ok := apikey.Environment(token); !ok || got != env {
			t.Fatalf("Environment(%q) = %q, %v", token, got, ok)
		}
		if got, ok := apikey.Hash(token); !ok || got != sha256.Sum256([]byte(token)) {
			t.Fatalf("Hash(%q) = %x, %v", token, got, ok)
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
		if _, ok := apikey.Hash(string(b)); ok && string(b) != token {
			t.Fatalf("Hash(%q) takes it for a key", b)
		}
	})
}
