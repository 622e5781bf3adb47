package repository

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
)

// TestErrorsOfTheNetworkAreReadable has the errors that a broken network gives, as the client of the bucket passes them
// on.
func TestErrorsOfTheNetworkAreReadable(t *testing.T) {
	t.Parallel()
	const brokenOff = "broken the connection off"
	b := &bucket{name: "backups"}
	of := func(err error) error { return &url.Error{Op: "Put", URL: "http://10.1.2.3/backups/a", Err: err} }
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"refused": {of(&net.OpError{
			Op: "dial", Net: "tcp", Err: errors.New("10.1.2.3: refused"),
		}), brokenOff},
		"ended":               {of(errors.New("Connection closed by foreign host http://10.1.2.3/backups/a. Retry again.")), brokenOff},
		"ended in its answer": {fmt.Errorf("read: %w", io.ErrUnexpectedEOF), brokenOff},
		"of another authority": {of(&tls.CertificateVerificationError{
			Err: errors.New("10.1.2.3: unknown authority"),
		}), "trust the authority"},
		"nothing of the network": {errors.New("10.1.2.3 is odd"), "the request to the server failed"},
	} {
		if got := b.readable(test.err).Error(); !strings.Contains(got, test.want) || strings.Contains(got, "10.1") {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
