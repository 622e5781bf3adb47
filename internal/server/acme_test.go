package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"j17/internal/base/clock"
	"j17/internal/server"
)

// authority is a certificate authority with as much of ACME (RFC 8555) as a client needs. It proves that it was asked
// by who answers for a name with TLS-ALPN-01 (RFC 8737) or HTTP-01, and does not check signatures.
type authority struct {
	*httptest.Server
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	// left is how long its certificates are good for; 1000 hours of their life are over.
	left time.Duration
	// address is where names are looked for, plain where over plain HTTP. challenge is the kind of proof that it asks
	// for.
	address, plain, challenge string

	mu     sync.Mutex
	orders []string // names, by number of the order
	proven []bool
	issued []string
	chains map[int][]byte
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	now := clock.System{}.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(1000 * time.Hour), IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	a := &authority{key: key, chains: map[int][]byte{}, challenge: "tls-alpn-01", left: 1000 * time.Hour}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	a.Server = httptest.NewTLSServer(http.HandlerFunc(a.serve))
	tb.Cleanup(a.Close)
	return a
}

func (a *authority) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Replay-Nonce", rand.Text())
	var signed struct {
		Payload string `json:"payload"`
	}
	var payload struct {
		Identifiers []struct{ Value string }
		CSR         string
	}
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&signed); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if raw, err := base64.RawURLEncoding.DecodeString(signed.Payload); err == nil && len(raw) > 0 {
			_ = json.Unmarshal(raw, &payload)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	at := func(what string, n int) string { return fmt.Sprintf("%s/%s/%d", a.URL, what, n) }
	reply := func(status int, body map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	what, number := r.URL.Path, 0
	if i := strings.LastIndexByte(what, '/'); i > 0 {
		if _, err := fmt.Sscanf(what[i+1:], "%d", &number); err != nil || number >= len(a.orders) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		what = what[:i]
	}
	order := func() map[string]any {
		status := "pending"
		switch {
		case a.chains[number] != nil:
			status = "valid"
		case a.proven[number]:
			status = "ready"
		}
		return map[string]any{
			"status": status, "identifiers": []map[string]string{{"type": "dns", "value": a.orders[number]}},
			"authorizations": []string{at("authz", number)}, "finalize": at("finalize", number),
			"certificate": at("cert", number),
		}
	}
	challenge := func() map[string]any {
		status := "pending"
		if a.proven[number] {
			status = "valid"
		}
		return map[string]any{"type": a.challenge, "url": at("challenge", number), "token": "token", "status": status}
	}
	switch what {
	case "/dir":
		reply(http.StatusOK, map[string]any{
			"newNonce": a.URL + "/nonce", "newAccount": a.URL + "/account", "newOrder": a.URL + "/order",
		})
	case "/nonce":
	case "/account":
		w.Header().Set("Location", a.URL+"/account")
		reply(http.StatusCreated, map[string]any{"status": "valid"})
	case "/order":
		if len(payload.Identifiers) == 1 { // a new one; else it is looked at
			number = len(a.orders)
			a.orders, a.proven = append(a.orders, payload.Identifiers[0].Value), append(a.proven, false)
			w.Header().Set("Location", at("order", number))
			reply(http.StatusCreated, order())
			return
		}
		reply(http.StatusOK, order())
	case "/authz":
		status := "pending"
		if a.proven[number] {
			status = "valid"
		}
		reply(http.StatusOK, map[string]any{
			"status": status, "identifier": map[string]string{"type": "dns", "value": a.orders[number]},
			"challenges": []any{challenge()},
		})
	case "/challenge":
		if err := a.prove(r.Context(), a.orders[number]); err != nil {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		a.proven[number] = true
		reply(http.StatusOK, challenge())
	case "/finalize":
		chain, err := a.issue(payload.CSR, a.orders[number])
		if err != nil {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		a.chains[number] = chain
		a.issued = append(a.issued, a.orders[number])
		w.Header().Set("Location", at("order", number))
		reply(http.StatusOK, order())
	case "/cert":
		w.Header().Set("Content-Type", "application/pem-certificate-chain")
		_, _ = w.Write(a.chains[number])
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// prove asks the server of a name whether it has asked for the certificate.
func (a *authority) prove(ctx context.Context, name string) error {
	if a.challenge == "http-01" {
		return a.proveOverHTTP(ctx, name)
	}
	// As RFC 8737 has it.
	d := tls.Dialer{Config: &tls.Config{ServerName: name, NextProtos: []string{"acme-tls/1"}, InsecureSkipVerify: true}}
	conn, err := d.DialContext(ctx, "tcp", a.address)
	if err != nil {
		return err
	}
	state := conn.(*tls.Conn).ConnectionState() //nolint:errcheck,forcetypeassert // a tls.Dialer makes no other
	if err := conn.Close(); err != nil {
		return err
	}
	for _, e := range state.PeerCertificates[0].Extensions {
		if e.Id.String() == "1.3.6.1.5.5.7.1.31" && state.NegotiatedProtocol == "acme-tls/1" {
			return nil
		}
	}
	return errors.New("the server does not answer the challenge")
}

func (a *authority) proveOverHTTP(ctx context.Context, name string) error {
	r, err := http.NewRequestWithContext(
		ctx, http.MethodGet, "http://"+a.plain+"/.well-known/acme-challenge/token", nil,
	)
	if err != nil {
		return err
	}
	r.Host = name
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	raw, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !strings.HasPrefix(string(raw), "token.")) {
		err = fmt.Errorf("the server does not answer the challenge: %d %s", resp.StatusCode, raw)
	}
	return err
}

func (a *authority) issue(csr, name string) ([]byte, error) {
	raw, err := base64.RawURLEncoding.DecodeString(csr)
	if err != nil {
		return nil, err
	}
	request, err := x509.ParseCertificateRequest(raw)
	if err != nil {
		return nil, err
	}
	if len(request.DNSNames) != 1 || request.DNSNames[0] != name {
		return nil, fmt.Errorf("the request is for %v", request.DNSNames)
	}
	now := clock.System{}.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(a.issued) + 2)), NotBefore: now.Add(-1000 * time.Hour),
		NotAfter: now.Add(a.left), DNSNames: request.DNSNames,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, request.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// get asks the server of a name whether it is ready, with certificates of the authority.
func (a *authority) get(ctx context.Context, name string) (int, error) {
	return a.getAt(ctx, a.address, name)
}

// getAt is get of the server at an address.
func (a *authority) getAt(ctx context.Context, address, name string) (int, error) {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, address)
		},
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+name+"/readyz", nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// customer returns the options of a server that gets its certificates from the authority.
func (a *authority) customer(t *testing.T) server.ServeOptions {
	t.Helper()
	o := options(t)

	// A renewal in the background may write its last file after the server has ended, which t.TempDir would call a
	// failure.
	dir, err := os.MkdirTemp("", "j17-acme") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o.Dir = filepath.Join(dir, "data")
	o.HTTPListen = "127.0.0.1:0"
	o.OperatorEmail, o.OperatorPasswordFile = adminEmail, file(t, adminPass)
	o.ACME.On, o.ACME.Directory = true, a.URL+"/dir"
	o.ACME.CAFile = file(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})))
	return o
}

// TestACMEOverPlainHTTP: an authority that asks over plain HTTP gets its answer there.
func TestACMEOverPlainHTTP(t *testing.T) {
	a := newAuthority(t)
	a.challenge = "http-01"
	n := start(t, a.customer(t))
	a.address, a.plain = n.serve.Ready().Addresses["public"], n.serve.Ready().Addresses["http"]
	if status, err := a.get(t.Context(), "control.example.test"); status != 200 || err != nil {
		t.Fatal(status, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.issued) != 1 {
		t.Errorf("issued: %v", a.issued)
	}
}

func TestACME(t *testing.T) {
	a := newAuthority(t)
	o := a.customer(t)
	n := start(t, o)
	a.address = n.serve.Ready().Addresses["public"]
	get := func(name string) (int, error) { return a.get(t.Context(), name) }
	for range 2 { // the second time from memory
		if status, err := get("control.example.test"); status != 200 || err != nil {
			t.Fatal(status, err)
		}
	}
	for _, name := range []string{
		"none.example.test", "evil.test", "a.control.example.test", "example.test.evil.test",
	} {
		if _, err := get(name); err == nil {
			t.Errorf("%s has a certificate", name)
		}
	}
	a.mu.Lock()
	if got := strings.Join(a.orders, " "); got != "control.example.test" {
		t.Errorf("ordered: %s", got)
	}
	a.mu.Unlock()
	kept, err := filepath.Glob(filepath.Join(o.Dir, "acme", "control.example.test*"))
	if err != nil || len(kept) == 0 {
		t.Error("the certificate is not kept", err)
	}
	for _, name := range kept {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s can be read by others: %v", name, err)
		}
	}
	// Without the authority, the certificate is still there after a restart.
	n.end(t)
	a.CloseClientConnections()
	n = start(t, o)
	a.address = n.serve.Ready().Addresses["public"]
	if status, err := get("control.example.test"); status != 200 || err != nil {
		t.Error("after a restart:", status, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.issued) != 1 {
		t.Errorf("issued: %v", a.issued)
	}
}

// lockedText is what several goroutines write.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestACMEFailuresAreTold: whoever connects learns nothing of why there is no certificate, so the log has it.
func TestACMEFailuresAreTold(t *testing.T) {
	a := newAuthority(t)
	a.left = 100 * time.Hour
	o := a.customer(t)
	var log lockedText
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	n := start(t, o)
	public := n.serve.Ready().Addresses["public"]
	reached := func(address string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.address = address
	}
	const (
		missing   = "no certificate could be got from the authority"
		unrenewed = "should have been renewed"
	)

	// The authority does not reach the server. What strangers ask for is not told.
	reached("127.0.0.1:1")
	for _, name := range []string{"none.example.test", "example.test", "example.test"} {
		if _, err := a.getAt(t.Context(), public, name); err == nil {
			t.Fatal("a certificate that nobody has given")
		}
	}
	if got := log.String(); strings.Count(got, missing) != 1 || !strings.Contains(got, "host=example.test") {
		t.Errorf("the log: %s", got)
	}

	// A certificate that nears its end is handed out, and told once.
	for _, address := range []string{public, "127.0.0.1:1"} {
		reached(address)
		if status, err := a.getAt(t.Context(), public, "control.example.test"); status != 200 || err != nil {
			t.Fatal(status, err)
		}
	}
	if got := log.String(); strings.Count(got, unrenewed) != 1 ||
		!strings.Contains(got, "host=control.example.test expires=") {
		t.Errorf("the log: %s", got)
	}
}
