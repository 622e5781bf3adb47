package httpapi

import (
	"net/http"
	"strings"
	"testing"
)

// FuzzHostname checks that a name is never made up: it stands in the host as it was sent, but for capitals.
func FuzzHostname(f *testing.F) {
	for _, seed := range []string{
		"", "app.localhost", "APP.localhost.:80", "[::1]:80", "::1", "a:b:c", "a:99999", ":80", "[", "]", "..",
		"127.0.0.1:1", "[fe80::1%eth0]:1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, host string) {
		name, ok := hostname(host)
		if !ok {
			return
		}
		if name != strings.ToLower(name) || !strings.Contains(strings.ToLower(host), name) {
			t.Errorf("%q is read as %q", host, name)
		}
	})
}

// FuzzForwarded checks that no header leads to a crash or to an address that it does not hold.
func FuzzForwarded(f *testing.F) {
	for _, seed := range []string{"", ",", "1.2.3.4", "1.2.3.4:5, [::1]:6", `for="[2001:db8::1]:80";proto=https, for=_x`, "for=unknown", `for="`, "for==;=", "FOR = 1.2.3.4"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, name := range []ForwardedHeader{XForwardedFor, Forwarded} {
			for _, hop := range forwardedFor(http.Header{string(name): {value}}, name) {
				addr, ok := hopAddress(hop)
				if ok != addr.IsValid() {
					t.Errorf("%q: %q is %v, %v", value, hop, addr, ok)
				}
				if ok && !strings.Contains(value, strings.Trim(strings.TrimSpace(hop), "[]")) {
					t.Errorf("%q does not hold %q", value, hop)
				}
			}
		}
	})
}
