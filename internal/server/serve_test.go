package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"j17/internal/base/clock"
	"j17/internal/server"
)

// certificate writes a certificate for the names and its key, and returns the files.
func certificate(tb testing.TB, dir, commonName string, names ...string) (certFile, keyFile string) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	now := clock.System{}.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: commonName}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(time.Hour),
		DNSNames: names, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: raw},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return certFile, keyFile
}

// hello makes a TLS handshake and returns the name in the certificate and the version.
func hello(tb testing.TB, address string, highest uint16) (name string, version uint16, err error) {
	tb.Helper()
	d := tls.Dialer{
		Config: &tls.Config{ServerName: "control.example.test", InsecureSkipVerify: true, MaxVersion: highest},
	}
	conn, err := d.DialContext(tb.Context(), "tcp", address)
	if err != nil {
		return "", 0, err
	}
	defer conn.Close()                          //nolint:errcheck // nothing was written
	state := conn.(*tls.Conn).ConnectionState() //nolint:errcheck,forcetypeassert // a tls.Dialer makes no other
	return state.PeerCertificates[0].Subject.CommonName, state.Version, nil
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	o := options(t)
	o.Certificate.CertFile, o.Certificate.KeyFile = certificate(t, dir, "first", "control.example.test")
	o.HTTPListen = "127.0.0.1:0"
	reload := make(chan struct{})
	o.Reload = reload
	n := start(t, o)
	address := n.serve.Ready().Addresses["public"]
	name, version, err := hello(t, address, 0)
	if err != nil || name != "first" || version != tls.VersionTLS13 {
		t.Fatal(name, version, err)
	}
	if _, _, err := hello(t, address, tls.VersionTLS12); err == nil {
		t.Error("TLS 1.2 is accepted")
	}

	certificate(t, dir, "second", "control.example.test")
	reload <- struct{}{}
	reload <- struct{}{} // taken when the first has been dealt with
	if name, _, err = hello(t, address, 0); err != nil || name != "second" {
		t.Errorf("after a reload: %s, %v", name, err)
	}
	if err := os.WriteFile(o.Certificate.CertFile, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	reload <- struct{}{}
	reload <- struct{}{}
	if name, _, err = hello(t, address, 0); err != nil || name != "second" {
		t.Errorf("after a damaged file: %s, %v", name, err)
	}

	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, address)
		},
	}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://control.example.test/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	client.CloseIdleConnections()
	if resp.StatusCode != 200 || resp.ProtoMajor != 2 ||
		!strings.HasPrefix(resp.Header.Get("Strict-Transport-Security"), "max-age=31536000") {
		t.Errorf("%d %s %v", resp.StatusCode, resp.Proto, resp.Header)
	}

	plain := "http://" + n.serve.Ready().Addresses["http"]
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		method, host, path string
		headers            map[string]string
		status             int
		location           string
	}{
		{"GET", "control.example.test", "/setup?a=b", nil, 308, "https://control.example.test:" + port + "/setup?a=b"},
		{"GET", "CONTROL.example.test:80", "/", nil, 308, "https://control.example.test:" + port + "/"},
		{"GET", "evil.test", "/", nil, 404, ""},
		{"GET", "none.example.test", "/", nil, 404, ""},
		{"GET", "example.test.evil.test", "/", nil, 404, ""},
		{"POST", "control.example.test", "/api/login", nil, 403, ""},
		{"GET", "control.example.test", "/api/me", map[string]string{"Authorization": "Bearer x"}, 403, ""},
	} {
		status, location := noRedirect(t, test.method, plain+test.path, test.host, test.headers)
		if status != test.status || location != test.location {
			t.Errorf("%s %s%s: %d %s", test.method, test.host, test.path, status, location)
		}
	}
}

func noRedirect(tb testing.TB, method, url, host string, headers map[string]string) (status int, location string) {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), method, url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	r.Host = host
	for name, v := range headers {
		r.Header.Set(name, v)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		tb.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Location")
}

func TestTLSBetweenNodes(t *testing.T) {
	dir := t.TempDir()
	var pair server.Certificate
	pair.CertFile, pair.KeyFile = certificate(t, dir, "node")
	o := options(t)
	o.Role, o.NodeSecretFile, o.InternalCertificate = server.RoleHeadnode, file(t, nodeSecret), pair
	o.OperatorEmail, o.OperatorPasswordFile = adminEmail, file(t, adminPass)
	head := start(t, o)
	if !strings.HasPrefix(head.internal(), "https://127.0.0.1:") {
		t.Fatal(head.internal())
	}
	w := workerOptions(t, "one", head.internal())
	w.InternalCertificate, w.InternalCAFile = pair, pair.CertFile
	start(t, w)
	w = workerOptions(t, "two", head.internal()) // which does not know the authority
	if found := w.Check(); len(found) > 0 {
		t.Fatal(found)
	}
	_, err := server.OpenServe(t.Context(), w)
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
		t.Errorf("%v %v", unknown, err)
	}
	w = workerOptions(t, "three", head.internal())
	w.InternalCAFile, w.NodeSecretFile = pair.CertFile, file(t, strings.Repeat("wrong", 10))
	if found := w.Check(); len(found) > 0 {
		t.Fatal(found)
	}
	if _, err := server.OpenServe(t.Context(), w); err == nil || !strings.Contains(err.Error(), "node secret") {
		t.Errorf("with a wrong secret: %v", err)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, dir, "x")
	for _, test := range []struct {
		name   string
		change func(*server.ServeOptions)
		want   []string
	}{
		{"good", func(*server.ServeOptions) {}, nil},
		{"all interfaces in clear", func(o *server.ServeOptions) { o.Listen = ":0" }, []string{"without TLS"}},
		{"an address in clear", func(o *server.ServeOptions) { o.Listen = "192.0.2.1:80" }, []string{"without TLS"}},
		{
			"behind a proxy",
			func(o *server.ServeOptions) { o.Listen, o.Proxies = ":0", []string{"10.0.0.0/8", "192.0.2.1"} }, nil,
		},
		{
			"everyone is a proxy", func(o *server.ServeOptions) { o.Listen, o.Proxies = ":0", []string{"0.0.0.0/0"} },
			[]string{"every address"},
		},
		{
			"no proxy", func(o *server.ServeOptions) { o.Proxies = []string{"proxy.example.com"} },
			[]string{`"proxy.example.com" is no network`},
		},
		{
			"half a certificate", func(o *server.ServeOptions) { o.Certificate.CertFile = cert },
			[]string{"tls-key: it is missing"},
		},
		{"no certificate", func(o *server.ServeOptions) {
			o.HTTPListen = ":0"
			o.Certificate = server.Certificate{CertFile: key, KeyFile: cert}
		}, []string{"cannot be used"}},
		{"two certificates", func(o *server.ServeOptions) {
			o.HTTPListen, o.ACME.On, o.Certificate = ":0", true, server.Certificate{CertFile: cert, KeyFile: key}
		}, []string{"use one of the two"}},
		{
			"ACME for no domain", func(o *server.ServeOptions) {
				o.HTTPListen, o.ACME.On, o.BaseDomain = ":0", true, "localhost"
			}, []string{"no authority"},
		},
		{"ACME in clear", func(o *server.ServeOptions) {
			o.HTTPListen, o.ACME.On, o.ACME.Directory = ":0", true, "http://example.com"
		}, []string{"https://"}},
		{
			"settings of ACME without it", func(o *server.ServeOptions) { o.ACME.Email = "a@example.com" },
			[]string{"add --acme"},
		},
		{"TLS 1.1", func(o *server.ServeOptions) { o.TLSMin = "1.1" }, []string{"1.3 or 1.2"}},
		{
			"a domain that is none", func(o *server.ServeOptions) { o.BaseDomain = "Example.com/" },
			[]string{"no domain name"},
		},
		{
			"a domain that is an address", func(o *server.ServeOptions) { o.BaseDomain = "192.0.2.1" },
			[]string{"no domain name"},
		},
		{
			"half an operator", func(o *server.ServeOptions) { o.OperatorEmail = adminEmail },
			[]string{"operator-password-file: it is missing"},
		},
		{
			"a short password", func(o *server.ServeOptions) {
				o.OperatorEmail, o.OperatorPasswordFile = adminEmail, file(t, "short")
			}, []string{"the password in " + os.TempDir()},
		},
		{
			"a short secret", func(o *server.ServeOptions) { o.NodeSecretFile = file(t, "short") },
			[]string{"node-secret-file: " + os.TempDir()},
		},
		{"no secret", func(o *server.ServeOptions) { o.Role = server.RoleHeadnode }, []string{"node-secret-file"}},
		{"no such role", func(o *server.ServeOptions) { o.Role = "king" }, []string{"all, headnode or worker"}},
		{"settings of a worker", func(o *server.ServeOptions) { o.Node = "one" }, []string{"settings of a worker"}},
		{"plans", func(o *server.ServeOptions) { o.PlansFile = file(t, `[{"name":"pro","events_per_month":5}]`) }, nil},
		{"no plans", func(o *server.ServeOptions) { o.PlansFile = file(t, `{"name":"pro"}`) }, []string{"JSON array"}},
		{
			"a misspelt plan", func(o *server.ServeOptions) { o.PlansFile = file(t, `[{"name":"pro","events":5}]`) },
			[]string{`"events"`},
		},
		{
			"a negative plan", func(o *server.ServeOptions) {
				o.PlansFile = file(t, `[{"name":"pro","storage_bytes":-5}]`)
			}, []string{"negative"},
		},
		{
			"a webhook that is none", func(o *server.ServeOptions) { o.Webhook.URL = "example.com" },
			[]string{"alert-webhook"},
		},
		{
			"a secret for no webhook", func(o *server.ServeOptions) { o.WebhookSecretFile = file(t, "x") },
			[]string{"alert-webhook: it is missing"},
		},
		{
			"mail without a server", func(o *server.ServeOptions) { o.Mail.From = "a@example.com" },
			[]string{"alert-mail-host"},
		},
		{
			"mail without a sender", func(o *server.ServeOptions) { o.Mail.Host = "mail.example.com" },
			[]string{"alert-mail"},
		},
		{"mail", func(o *server.ServeOptions) { o.Mail.Host, o.Mail.From = "mail.example.com", "a@example.com" }, nil},
		{
			"one address twice", func(o *server.ServeOptions) {
				o.Listen, o.InternalListen = "127.0.0.1:1", "127.0.0.1:1"
			}, []string{"already"},
		},
		{
			"negative limits", func(o *server.ServeOptions) { o.KeyRate, o.AddressRate = -1, -2 },
			[]string{"rate-limit-per-key: -1 is negative", "rate-limit-per-ip: -2 is negative"},
		},
		{"ports that are none", func(o *server.ServeOptions) { o.Listen, o.InternalListen = "127.0.0.1:99999", "127.0.0.1:-1" }, []string{"listen: \"127.0.0.1:99999\" has no port", "internal-listen: \"127.0.0.1:-1\" has no port"}},
		{"waiting", func(o *server.ServeOptions) { o.WriteWait, o.ReadWait = time.Minute, time.Millisecond }, nil},
		{
			"waiting for less than nothing", func(o *server.ServeOptions) { o.WriteWait, o.ReadWait = -1, -1 },
			[]string{"write-wait: ", "read-wait: "},
		},
		{
			"waiting for too long", func(o *server.ServeOptions) { o.WriteWait, o.ReadWait = time.Hour, time.Hour },
			[]string{"write-wait: 1h", "read-wait: 1h"},
		},
		{
			"caches without room", func(o *server.ServeOptions) { o.StoreCacheMiB, o.ProjectionCacheMiB = 79, -1 },
			[]string{"store-cache: 79", "projection-cache: -1"},
		},
		{"everything at once", func(o *server.ServeOptions) {
			o.Dir, o.BaseDomain, o.Listen, o.InternalListen, o.TLSMin, o.Role = "", "", "x", "y", "z", server.RoleWorker
		}, []string{
			"data", "base-domain", "listen", "internal-listen", "tls-min", "node-secret-file", "node", "headnode",
		}},
	} {
		o := options(t)
		test.change(&o)
		found := o.Check()
		if len(found) != len(test.want) {
			t.Errorf("%s: %q", test.name, found)
			continue
		}
		for i, want := range test.want {
			if !strings.Contains(found[i].Error(), want) {
				t.Errorf("%s: %q does not say %q", test.name, found[i], want)
			}
		}
		if _, err := os.Stat(o.Dir); o.Dir != "" && !os.IsNotExist(err) {
			t.Errorf("%s: the check has opened the data folder", test.name)
		}
	}
}

// TestFoldersAreTried: where nothing can be written no server begins. One that has data starts without a place for
// backups, which --check finds.
func TestFoldersAreTried(t *testing.T) {
	o := options(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wants := func(what string, wants ...string) {
		t.Helper()
		found := o.Check()
		if len(found) != len(wants) {
			t.Errorf("%s: %q", what, found)
			return
		}
		for i, want := range wants {
			if !strings.Contains(found[i].Error(), want) {
				t.Errorf("%s: %q does not say %q", what, found[i], want)
			}
		}
	}
	o.Backups = file
	wants("no folder for backups", "backups: "+file+" cannot be written: ")
	o.Backups = filepath.Join(file, "backups")
	wants("a folder that cannot be made", "backups: ")
	o.NoBackups = true
	wants("no backups")
	o.Dir = filepath.Join(file, "data")
	wants("no folder for data", "data: ")

	// Now there is data.
	o = options(t)
	start(t, o).end(t)
	o.Backups = file
	wants("a server with data")
	o.CheckOnly = true
	wants("the settings of a server with data", "backups: ")
}

// TestBackupsByDefault starts a server that nobody has told anything. It makes a backup, and goes on where there is no
// place for one.
func TestBackupsByDefault(t *testing.T) {
	o := options(t)
	n := start(t, o)
	system := clock.System{}
	for {
		made, err := filepath.Glob(filepath.Join(o.Dir+"-backups", "manifests", "*"))
		if err != nil {
			t.Fatal(err)
		}
		if len(made) > 0 {
			break
		}
		if err := system.Wait(t.Context(), system.Now().Add(20*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	n.end(t)
}

func TestSecured(t *testing.T) {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for _, test := range []struct {
		peer, proto string
		encrypted   bool
		status      int
		strict      bool
	}{
		{"192.0.2.1:1", "", true, 204, true},
		{"192.0.2.1:1", "https", false, 403, false},
		{"127.0.0.1:1", "https", false, 204, false},
		{"[::1]:1", "", false, 204, false},
		{"10.1.2.3:1", "http", false, 204, false},
		{"10.1.2.3:1", "https", false, 204, true},
		{"[::ffff:10.1.2.3]:1", "https", false, 204, true},
		{"", "https", false, 403, false},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.RemoteAddr = test.peer
		r.Header.Set("X-Forwarded-Proto", test.proto)
		status, header := server.Secured(next, test.encrypted, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, r)
		if _, strict := header["Strict-Transport-Security"]; status != test.status || strict != test.strict {
			t.Errorf("%+v: %d %v", test, status, header)
		}
	}
}
