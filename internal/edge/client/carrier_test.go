package client_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"j17/internal/base/clock"
	"j17/internal/edge/client"
)

// certified starts a server over TLS, whose certificate is for names, and returns its port and who has signed it.
func certified(t *testing.T, answers http.Handler, names ...string) (port string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := clock.System{}.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), DNSNames: names,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(answers)
	s.TLS = &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	_, port, err = net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(parsed)
	return port, roots
}

// TestNamesOfThisMachine: a name below localhost is reached on this machine, and the certificate is checked against it
// and no other.
func TestNamesOfThisMachine(t *testing.T) {
	var asked []string
	port, roots := certified(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Host)
		answer(w, 200, `{"ok":true,"length":3}`)
	}), "j17.localhost", "*.j17.localhost")
	for name, want := range map[string]string{
		"shop.j17.localhost": "", "j17.localhost": "", "SHOP.j17.localhost": "",
		"localhost": "not localhost", "shop.localhost": "not shop.localhost", "127.0.0.1": "127.0.0.1",
	} {
		asked = nil
		c, err := client.New(client.Options{
			URL: "https://" + name + ":" + port, Clock: clock.System{}, RootCAs: roots, Attempts: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		n, err := c.Length(t.Context(), note)
		switch {
		case want == "" && (err != nil || n != 3 || len(asked) != 1 || asked[0] != name+":"+port):
			t.Errorf("%s: %d, %v, asked for %q", name, n, err, asked)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || len(asked) > 0):
			t.Errorf("%s: %v, asked for %q", name, err, asked)
		}
	}

	// No proxy is asked for them, whatever the environment says.
	for _, name := range []string{"localhost", "shop.localhost", "127.0.0.1", "[::1]"} {
		proxy, err := client.NewTransport(nil, "").Proxy(&http.Request{
			URL: &url.URL{Scheme: "http", Host: name + ":17000"},
		})
		if proxy != nil || err != nil {
			t.Errorf("%s: the proxy %v, %v", name, proxy, err)
		}
	}
}

// TestTheNodeThatDoesNotAnswer: where a request is led on to another node, and that one does not answer, its address is
// named.
func TestTheNodeThatDoesNotAnswer(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	node := "http://worker-1.j17.localhost:" + gone.URL[strings.LastIndexByte(gone.URL, ':')+1:]
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 421, `{"ok":false,"error":"The instance is on another node.","code":"misdirected","details":{"url":"`+node+`"}}`)
	}))
	t.Cleanup(first.Close)
	c, err := client.New(client.Options{URL: first.URL, Host: "shop.j17.localhost", Clock: clock.System{}, Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Length(t.Context(), note); err == nil ||
		!strings.HasPrefix(err.Error(), "There is no answer from "+node+": ") {
		t.Error(err)
	}
}
