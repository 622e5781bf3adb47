package outbound_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"j17/internal/base/clock"
	"j17/internal/follow/outbound"
)

// hook is a receiver.
type hook struct {
	*httptest.Server
	got    *http.Request
	body   string
	calls  atomic.Int64
	answer http.HandlerFunc
}

func listen(tb testing.TB) *hook {
	tb.Helper()
	h := &hook{answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.calls.Add(1)
		raw, _ := io.ReadAll(r.Body)
		h.got, h.body = r, string(raw)
		h.answer(w, r)
	}))
	tb.Cleanup(h.Close)
	return h
}

func sender(o outbound.Options) *outbound.Sender {
	o.Clock = clock.NewManual(time.Unix(1_800_000_000, 0))
	return outbound.New(o)
}

// TestSend sends over loopback, which the configuration allows, and checks what arrives.
func TestSend(t *testing.T) {
	h := listen(t)
	s := sender(outbound.Options{Private: true})
	m := outbound.Message{
		URL: h.URL + "/hook", ID: "dlv_1", ContentType: "application/json", Body: []byte(`{"n":1}`),
		Headers: map[string]string{"X-Correlation-Id": "c", "Webhook-Id": "forged"},
		Keys:    [][]byte{[]byte("present"), []byte("previous")},
	}
	if a, err := s.Send(t.Context(), m); err != nil || a.Status != http.StatusNoContent {
		t.Fatal(a, err)
	}
	mac := func(key, text string) []byte {
		sum := hmac.New(sha256.New, []byte(key))
		_, _ = sum.Write([]byte(text))
		return sum.Sum(nil)
	}
	signed := "dlv_1.1800000000." + h.body
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Webhook-Id": "dlv_1", "Webhook-Timestamp": "1800000000",
		"X-Correlation-Id": "c", "User-Agent": "j17",
		"X-J17-Signature": "sha256=" + hex.EncodeToString(mac("present", h.body)),
		"Webhook-Signature": "v1," + base64.StdEncoding.EncodeToString(mac("present", signed)) +
			" v1," + base64.StdEncoding.EncodeToString(mac("previous", signed)),
	} {
		if got := h.got.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if h.body != `{"n":1}` || h.got.Method != http.MethodPost || h.got.URL.Path != "/hook" {
		t.Errorf("%s %s: %s", h.got.Method, h.got.URL, h.body)
	}
	m.Keys = nil
	if _, err := s.Send(t.Context(), m); err != nil ||
		h.got.Header.Get("Webhook-Signature")+h.got.Header.Get("X-J17-Signature") != "" {
		t.Errorf("without a key: %v, %v", h.got.Header, err)
	}
}

// TestGuard checks that nothing connects to what is not public, however the address is written, and that the receiver
// on this machine hears nothing.
func TestGuard(t *testing.T) {
	h := listen(t)
	_, port, err := net.SplitHostPort(h.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := sender(outbound.Options{})
	for _, host := range []string{
		"127.0.0.1", "localhost", "127.1.2.3", "0.0.0.0", "[::]", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
		"[0:0:0:0:0:ffff:127.0.0.1]", "2130706433", "0x7f000001", "0177.0.0.1",
		"127.1", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "[fe80::1%25lo]",
	} {
		a, err := s.Send(t.Context(), outbound.Message{URL: "http://" + host + ":" + port + "/"})
		if err == nil || a.Status != 0 {
			t.Errorf("%s: %+v, %v", host, a, err)
		}
		resolves := !strings.HasPrefix(host, "2130") && !strings.HasPrefix(host, "0") && host != "127.1" ||
			host == "0.0.0.0"
		if resolves && !strings.HasPrefix(err.Error(), "address not allowed") {
			t.Errorf("%s: %v", host, err)
		}
	}
	if n := h.calls.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

// TestRedirectsAreNotFollowed checks that the status of a redirect is the answer.
func TestRedirectsAreNotFollowed(t *testing.T) {
	h, elsewhere := listen(t), listen(t)
	s := sender(outbound.Options{Private: true})
	for _, status := range []int{301, 302, 303, 307, 308} {
		h.answer = func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, status) }
		if a, err := s.Send(t.Context(), outbound.Message{URL: h.URL}); err == nil || a.Status != status {
			t.Errorf("%d: %+v, %v", status, a, err)
		}
	}
	for _, status := range []int{400, 410, 500, 503} {
		h.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
		if a, err := s.Send(t.Context(), outbound.Message{URL: h.URL}); err == nil || a.Status != status ||
			!strings.Contains(err.Error(), fmt.Sprint(status)) {
			t.Errorf("%d: %+v, %v", status, a, err)
		}
	}
	if n := elsewhere.calls.Load(); n != 0 {
		t.Errorf("%d requests were redirected", n)
	}
}

// TestProxiesAreNotUsed names a proxy as an environment does.
func TestProxiesAreNotUsed(t *testing.T) {
	proxy := listen(t)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	_, err := sender(outbound.Options{Private: true}).Send(t.Context(), outbound.Message{
		URL: "http://nowhere.invalid/",
	})
	if err == nil || proxy.calls.Load() != 0 {
		t.Errorf("%v, %d requests at the proxy", err, proxy.calls.Load())
	}
}

// TestAnswersAreBounded has a receiver that sends without an end, one with endless headers, and one that sends nothing.
func TestAnswersAreBounded(t *testing.T) {
	h := listen(t)
	s := sender(outbound.Options{Private: true, Timeout: 5 * time.Minute}) // far more than any machine takes for it
	h.answer = func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write([]byte(strings.Repeat("x", 4096))); err != nil {
				return
			}
		}
	}
	a, err := s.Send(t.Context(), outbound.Message{URL: h.URL})
	if err != nil || a.Status != http.StatusOK || len(a.Body) != outbound.MaxAnswer {
		t.Errorf("%d, %d bytes: %v", a.Status, len(a.Body), err)
	}
	h.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 1<<20))
		w.WriteHeader(http.StatusOK)
	}
	if a, err := s.Send(t.Context(), outbound.Message{URL: h.URL}); err == nil {
		t.Errorf("headers of 1 MiB: %+v", a)
	}

	// Silence ends by the timeout, or with the context.
	h.answer = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	quick := sender(outbound.Options{Private: true, Timeout: time.Millisecond})
	if _, err := quick.Send(t.Context(), outbound.Message{URL: h.URL}); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "within 1ms") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Send(ctx, outbound.Message{URL: h.URL}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestErrorsDoNotRepeatURLs sends to what cannot be reached.
func TestErrorsDoNotRepeatURLs(t *testing.T) {
	h := listen(t)
	h.Close()
	s := sender(outbound.Options{Private: true})
	for _, url := range []string{
		h.URL + "/hush", "http://\x00hush", "nonsense://hush", "hush", "https:///hush", "ftp://example.com/hush",
		"http://nowhere.invalid/hush?hush",
	} {
		a, err := s.Send(t.Context(), outbound.Message{URL: url})
		if err == nil || a.Status != 0 || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %+v, %v", url, a, err)
		}
	}
}

// TestErrorsDoNotTellAddresses sends to a port where nobody listens, to a receiver that breaks off before and within
// its answer, one that speaks another protocol, and to names that cannot be looked up. No error names an address: the
// server's own would be among them.
func TestErrorsDoNotTellAddresses(t *testing.T) {
	closed := listen(t)
	closed.Close()
	breaking := listen(t)
	breaking.answer = func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, and no orderly end
		}
		_ = conn.Close()
	}
	s := sender(outbound.Options{Private: true})
	for url, want := range map[string]string{
		closed.URL:   "refused",
		breaking.URL: "there was no answer: ",
		strings.Replace(breaking.URL, "http", "https", 1): "there was no answer: ",
		"http://nowhere.invalid/":                         "the name of the host",
	} {
		a, err := s.Send(t.Context(), outbound.Message{URL: url})
		if err == nil || a.Status != 0 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", url, a, err)
			continue
		}
		if strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), ":53") ||
			strings.Contains(err.Error(), "->") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
