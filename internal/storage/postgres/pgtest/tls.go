package pgtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"j17/internal/base/clock"
)

// Encrypt lets the server take connections with TLS too. Its certificate is for a host, which is a name or an IP
// address, and signed by itself. Encrypt returns it in PEM format.
func (s *Server) Encrypt(tb testing.TB, host string) (certificate []byte) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	now := clock.System{}.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})

	// The server reads the files when it reads its settings. It refuses a key that others may read.
	s.Configure(tb, "ssl", "off")
	for name, content := range map[string][]byte{"ssl_cert_file": certificate, "ssl_key_file": private} {
		file := filepath.Join(s.folder, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			tb.Fatal(err)
		}
		if as := s.home.as; as != nil {
			if err := os.Chown(file, int(as.Uid), int(as.Gid)); err != nil {
				tb.Fatal(err)
			}
		}
		s.Configure(tb, name, file)
	}
	s.Configure(tb, "ssl", "on")
	return certificate
}
