// Package outbound sends signed requests to addresses chosen by others. A guard checks each address after its name was
// resolved, when the connection is made, so that no URL reaches into the machine or the networks around it. Redirects
// are not followed, proxies of the environment are not used, and answers are bounded in size and time.
package outbound

import (
	"bytes"
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
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"j17/internal/base/clock"
)

// Options configures a sender.
type Options struct {
	// Clock gives the timestamp of requests, which receivers compare with their own time: the machine's clock.
	Clock clock.Clock
	// Private allows all addresses, for URLs from the server's own configuration.
	Private bool
	// Timeout bounds a whole request; 0 means 10 seconds.
	Timeout time.Duration
}

// Sender sends requests. It is safe for concurrent use.
type Sender struct {
	clock   clock.Clock
	timeout time.Duration
	client  *http.Client
}

// Message is what is sent, by POST.
type Message struct {
	URL string
	// ID is the same in every try.
	ID          string
	ContentType string
	Body        []byte
	// Headers are added to those that every request has.
	Headers map[string]string
	// Keys sign the message, the present one first; without keys it is unsigned. The header webhook-signature has a
	// signature by each key; X-J17-Signature, which covers the body alone, has one by the first.
	Keys [][]byte
}

// Answer is the answer to a request.
type Answer struct {
	// Status is 0 if there was no answer.
	Status int
	// Body is its beginning, at most MaxAnswer bytes.
	Body []byte
}

// MaxAnswer is how much of an answer is kept, in bytes.
const MaxAnswer = 4 << 10

// The other limits of an answer: its headers, and how much of the rest of its body is read so that the connection can
// be reused.
const (
	maxHeaders = 64 << 10
	maxDrained = 64 << 10
)

// Idle connections kept for further requests; to one host as many as are used at once.
const (
	maxIdleEach = 16
	maxIdle     = 256
)

const defaultTimeout = 10 * time.Second

// Dialer returns a dialer for addresses chosen by others, for clients of other protocols than Sender's. Unless private
// is set, it refuses addresses outside the public internet.
func Dialer(private bool) *net.Dialer {
	if private {
		return &net.Dialer{}
	}
	return &net.Dialer{Control: guard}
}

// New returns a sender.
func New(o Options) *Sender {
	dialer := Dialer(o.Private)
	s := &Sender{clock: o.Clock, timeout: o.Timeout, client: &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, ForceAttemptHTTP2: true, DisableCompression: true,
			MaxResponseHeaderBytes: maxHeaders, MaxIdleConnsPerHost: maxIdleEach, MaxIdleConns: maxIdle,
			IdleConnTimeout: 30 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if s.timeout == 0 {
		s.timeout = defaultTimeout
	}
	return s
}

// Send sends a message once. It fails if there is no answer or one whose status is not 2xx; the text of the error does
// not repeat the URL, which may contain a secret. If the guard refuses an address, the error begins with "address not
// allowed".
func (s *Sender) Send(ctx context.Context, m Message) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	r, err := s.request(ctx, m)
	if err != nil {
		return Answer{}, err
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return Answer{}, s.reason(ctx, err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing was written to it

	// The status counts even if the body breaks off.
	a := Answer{Status: resp.StatusCode}
	a.Body, err = io.ReadAll(io.LimitReader(resp.Body, MaxAnswer))
	if err == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxDrained))
	}
	if a.Status/100 != 2 {
		return a, fmt.Errorf("the answer has the status %d", a.Status)
	}
	return a, nil
}

// request creates the request for a message.
func (s *Sender) request(ctx context.Context, m Message) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(m.Body))
	if err != nil || r.URL.Scheme != "https" && r.URL.Scheme != "http" || r.URL.Host == "" {
		return nil, errors.New("the URL is not valid: it must start with https:// or http:// and name a host")
	}
	for name, value := range m.Headers {
		r.Header.Set(name, value)
	}
	at := strconv.FormatInt(s.clock.Now().Unix(), 10)
	r.Header.Set("Content-Type", m.ContentType)
	r.Header.Set("User-Agent", "j17")
	r.Header.Set("Webhook-Id", m.ID)
	r.Header.Set("Webhook-Timestamp", at)
	if len(m.Keys) == 0 {
		return r, nil
	}
	var signatures []string
	for _, key := range m.Keys {
		signatures = append(
			signatures, "v1,"+base64.StdEncoding.EncodeToString(sign(key, []byte(m.ID+"."+at+"."), m.Body)),
		)
	}
	r.Header.Set("Webhook-Signature", strings.Join(signatures, " "))
	r.Header.Set("X-J17-Signature", "sha256="+hex.EncodeToString(sign(m.Keys[0], m.Body)))
	return r, nil
}

// sign returns the HMAC-SHA256 of the concatenated texts.
func sign(key []byte, texts ...[]byte) []byte {
	mac := hmac.New(sha256.New, key)
	for _, text := range texts {
		_, _ = mac.Write(text) // never fails
	}
	return mac.Sum(nil)
}

// reason returns why there is no answer, without the URL, and without addresses: those of the server and of its
// resolvers would disclose its network.
func (s *Sender) reason(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, ErrAddress):
		return ErrAddress
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("there was no answer within %s: %w", s.timeout, context.DeadlineExceeded)
	case ctx.Err() != nil:
		return fmt.Errorf("there was no answer: %w", ctx.Err())
	}
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		if lookup.IsNotFound {
			return errors.New("there was no answer: the name of the host is not known")
		}
		return errors.New("there was no answer: the name of the host could not be looked up")
	}
	if of, ok := errors.AsType[*url.Error](err); ok {
		err = of.Err
	}
	if of, ok := errors.AsType[*net.OpError](err); ok {
		err = of.Err
	}
	return errors.New("there was no answer: " + withoutAddresses(err.Error()))
}

// withoutAddresses removes the addresses from a text.
func withoutAddresses(text string) string {
	words := strings.Split(strings.ReplaceAll(text, "->", " -> "), " ")
	for i, word := range words {
		word = strings.Trim(word, `:,;()"'`)
		_, err := netip.ParseAddrPort(word)
		if err != nil {
			_, err = netip.ParseAddr(strings.Trim(word, "[]"))
		}
		if err == nil {
			words[i] = strings.Replace(words[i], word, "(address)", 1)
		}
	}
	return strings.Join(words, " ")
}
