package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"

	"j17/internal/base/clock"
	"j17/internal/server"
)

// scriptServe starts j17 serve on free ports with the data folder $WORK/data and waits until it is ready. It sets URL,
// INTERNAL, HOST (the control plane's) and SETUPTOKEN, which is empty where the server is set up.
func scriptServe(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("serve does not take !")
	}
	args = append([]string{
		"serve", "--json", "--data", ts.Getenv("WORK") + "/data", "--base-domain", "example.test",
		"--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0", "--http-listen", "",
	}, args...)
	p := &process{cmd: child(scriptContext(ts), ts.Getenv("WORK"), ts.Defer, "j17", args...)}
	p.cmd.Dir = ts.Getenv("WORK")
	p.cmd.Stderr = &p.err
	out, err := said(p.cmd.StdoutPipe)
	ts.Check(err)
	ts.Check(p.cmd.Start())
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		_ = p.cmd.Wait()
		ts.Fatalf("j17 serve did not become ready: %v\n%s", err, p.err.String())
	}
	var ready server.ServeReady
	ts.Check(json.Unmarshal(line, &ready))
	serverOf(ts).process = p
	scheme, _, _ := strings.Cut(ready.URLs["control"], ":")
	ts.Setenv("URL", scheme+"://"+ready.Addresses["public"])
	ts.Setenv("INTERNAL", ready.URLs["internal"])
	ts.Setenv("HOST", "control.example.test")
	_, port, err := net.SplitHostPort(ready.Addresses["public"])
	ts.Check(err)
	ts.Setenv("PORT", port)
	ts.Setenv("SETUPTOKEN", "")
}

// scriptServeLog ends the server with SIGTERM, puts its standard error on stdout, and sets SETUPTOKEN to the token in
// it.
func scriptServeLog(ts *testscript.TestScript, neg bool, _ []string) {
	if neg {
		ts.Fatalf("servelog does not take !")
	}
	s := serverOf(ts)
	ts.Check(s.end(os.Interrupt))
	text := s.err.String()
	s.process = nil
	ts.Setenv("SETUPTOKEN", "")
	if _, after, ok := strings.Cut(text, "#token="); ok {
		token, _, _ := strings.Cut(after, `"`)
		ts.Setenv("SETUPTOKEN", token)
	}
	_, err := ts.Stdout().Write([]byte(text))
	ts.Check(err)
}

// scriptCertificate writes cert.pem and key.pem for *.example.test.
func scriptCertificate(ts *testscript.TestScript, neg bool, _ []string) {
	if neg {
		ts.Fatalf("certify does not take !")
	}
	ts.Check(certify(ts.MkAbs("cert.pem"), ts.MkAbs("key.pem")))
}

// certify writes a certificate for *.example.test, and its key.
func certify(certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := clock.System{}.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "example.test"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(time.Hour),
		DNSNames: []string{"example.test", "*.example.test"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600),
	)
}

// TestHangupsDoNotEndServers: SIGHUP, which `systemctl reload` sends, has certificates read anew as often as it comes.
// It ends any other command.
func TestHangupsDoNotEndServers(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := certify(certFile, keyFile); err != nil {
		t.Fatal(err)
	}
	cmd := startable(t, "j17", "serve", "--data", filepath.Join(dir, "data"), "--base-domain", "example.test",
		"--listen", "127.0.0.1:0",
		"--internal-listen", "127.0.0.1:0", "--http-listen", "", "--tls-cert", certFile, "--tls-key", keyFile)
	stdout, stderr := begun(t, cmd)
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	lines := bufio.NewScanner(stderr)
	for i := range 2 {
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		for read := false; !read; read = strings.Contains(lines.Text(), "certificate reloaded") {
			if !lines.Scan() {
				t.Fatalf("signal %d: the server has ended: %v", i+1, lines.Err())
			}
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		continue // until it has said all
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestServeSettingsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/guides/self-hosting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Settings")
	serveCommand((&env{})).Flags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(table, "`--"+f.Name+"`") {
			t.Errorf("--%s is not in the table", f.Name)
		}
	})
}
