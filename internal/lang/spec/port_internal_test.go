package spec

import (
	"net/url"
	"testing"
)

// TestPorts tells ports that can be connected to from numbers that are none.
func TestPorts(t *testing.T) {
	for text, want := range map[string]bool{
		"https://h/": true, "https://h:1/": true, "https://h:65535/": true, "https://[::1]/": true,
		"https://[::1]:443/": true,
		"https://h:0/":       false, "https://h:00/": false, "https://h:65536/": false, "https://h:99999/": false,
		"https://[::1]:99999/": false,
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := validPort(u); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
