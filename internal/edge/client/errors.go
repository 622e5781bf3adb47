package client

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"j17"
	"j17/internal/base/wire"
)

// Error is a reply that refuses a request. It wraps what the server said as a *j17.Error, details as json.RawMessage.
type Error struct {
	Problem *j17.Error
	Status  int
	// ErrorID names the failure in the server's log, "" where the fault is the request's.
	ErrorID string
	// RetryAfter is how long the server asks to wait; 0 where it does not say.
	RetryAfter time.Duration
	// Node is the address of the node that has the instance, "" where the request came to the right one.
	Node string
	// Advice is what Options.Advice returned.
	Advice string
}

// Error returns the message with what helps to find the fault.
func (e *Error) Error() string {
	s := e.Problem.Error()
	if e.ErrorID != "" {
		s += " (" + e.ErrorID + ")"
	}
	if e.Node != "" {
		s += " It is at " + e.Node + "."
	}
	if e.Advice != "" {
		s = strings.TrimSuffix(s, ".") + ". " + e.Advice
	}
	return s
}

// Unwrap returns the *j17.Error.
func (e *Error) Unwrap() error { return e.Problem }

// Unreachable is a request that got no reply: whether it was carried out is not known.
type Unreachable struct {
	URL string
	Err error
}

// Error returns a sentence with the address.
func (e *Unreachable) Error() string {
	hint := cmp.Or(e.lasting(), "Is the server running, and is this its address?")
	return fmt.Sprintf("There is no answer from %s: %v. %s", e.URL, e.Err, hint)
}

// Unwrap returns the cause.
func (e *Unreachable) Unwrap() error { return e.Err }

// lasting says why an address will not answer a second time either, "" where it may.
func (e *Unreachable) lasting() string {
	if dns, ok := errors.AsType[*net.DNSError](e.Err); ok && dns.IsNotFound {
		return "There is no host with that name. Check the address."
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](e.Err); ok {
		return "Its certificate cannot be trusted: check the address, or have this machine trust the authority that has signed the certificate, or name a file with the certificate of that authority (--ca-file)."
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](e.Err); ok || errors.Is(e.Err, http.ErrSchemeMismatch) {
		return "It does not speak HTTPS there: try the address with http:// in front."
	}
	// net/http has no type for these. The second is that of a server that speaks before it is asked.
	if text := e.Err.Error(); strings.Contains(text, "malformed HTTP") ||
		strings.Contains(text, "readLoopPeekFailLocked: %!w(<nil>)") {
		return "What answers there is no HTTP server. Check scheme and port of the address."
	}
	return ""
}

// failure turns a reply that is no success into an error.
func (c *Client) failure(r reply) error {
	var b struct {
		wire.Problem
		Details json.RawMessage `json:"details"`
	}
	if err := json.Unmarshal(r.body, &b); err != nil || b.Code == "" {
		return notOurs(r, err)
	}
	e := &Error{
		Problem: &j17.Error{
			Code: b.Code, Message: b.Error, Path: b.Path, EventIndex: b.EventIndex, WriteIndex: b.WriteIndex,
			Errors: b.Errors,
		},
		Status: r.status, ErrorID: b.ErrorID, RetryAfter: retryHeader(r),
	}
	if len(b.Details) > 0 {
		e.Problem.Details = b.Details
	}
	if c.o.Advice != nil {
		e.Advice = c.o.Advice(b.Code)
	}
	var node struct {
		URL string `json:"url"`
	}
	if b.Code == j17.CodeMisdirected && json.Unmarshal(b.Details, &node) == nil {
		e.Node = node.URL
	}
	return e
}

// nodeOf returns the place that a refusal names for the instance, nil where it names none or where the place might not
// belong to the same set of servers. Over HTTPS it certainly does: the server there has to show a certificate for the
// host name that the request is for. Without TLS, only this machine and the same host are trusted.
func (c *Client) nodeOf(err error) *place {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Node == "" {
		return nil
	}
	u, err := url.Parse(e.Node)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	host := cmp.Or(c.o.Host, c.first.base.Host)
	name := (&url.URL{Host: host}).Hostname()
	switch from, to := c.first.base.Hostname(), u.Hostname(); {
	case u.Scheme == "https":
		return &place{base: u, host: host, http: c.o.carrier(name)}
	case u.Scheme == "http" && c.first.base.Scheme == "http" && (from == to || loopback(from) && loopback(to)):
		return &place{base: u, host: host, http: c.o.carrier("")}
	default:
		return nil
	}
}

// refused reports whether nothing listens at the address that a request went to.
func refused(err error) bool {
	_, unreachable := errors.AsType[*Unreachable](err)
	return unreachable && errors.Is(err, syscall.ECONNREFUSED)
}

// notOurs is the error of a reply that does not have the API's form.
func notOurs(r reply, err error) error {
	if codeOf(r.status) == j17.CodeHeaderTooLarge {
		return &Error{
			Problem: j17.Errorf(j17.CodeHeaderTooLarge, "The URL and the header of the request are longer than is accepted on the way (status %d). Ask for less at a time.", r.status).Because(err),
			Status:  r.status,
		}
	}
	return &Error{
		Problem: j17.Errorf(codeOf(r.status), "The reply, with status %d, is not that of a j17 server. Check the address, and any proxy in between.", r.status).Because(err),
		Status:  r.status, RetryAfter: retryHeader(r),
	}
}

// codeOf returns the code nearest to a status, for replies of proxies. 404 has none: it would say that an aggregate
// does not exist.
func codeOf(status int) j17.Code {
	switch status {
	case http.StatusUnauthorized:
		return j17.CodeUnauthorized
	case http.StatusForbidden:
		return j17.CodeForbidden
	case http.StatusRequestEntityTooLarge:
		return j17.CodePayloadTooLarge
	case http.StatusRequestHeaderFieldsTooLarge, http.StatusRequestURITooLong:
		return j17.CodeHeaderTooLarge
	case http.StatusTooManyRequests:
		return j17.CodeRateLimited
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return j17.CodeUnavailable
	default:
		return j17.CodeInternal
	}
}

// retryHeader reads Retry-After in seconds, the form that the API uses.
func retryHeader(r reply) time.Duration {
	seconds, err := strconv.ParseUint(r.header.Get("Retry-After"), 10, 31)
	if err != nil {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, mostRetryAfter)
}

// retryAfter reports whether a failed request may be sent again and how long the server asks to wait. A request refused
// for its rate is always safe to repeat: nothing was done.
func retryAfter(err error, repeatable bool) (time.Duration, bool) {
	if u, ok := errors.AsType[*Unreachable](err); ok {
		return 0, repeatable && u.lasting() == ""
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return 0, false
	}
	switch e.Status {
	case http.StatusTooManyRequests:
		return e.RetryAfter, true
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		// A spec has to be deployed, and room to be made, by a person.
		return e.RetryAfter, repeatable && e.Problem.Code != j17.CodeNoSpec && e.Problem.Code != j17.CodeStorageFull
	default: // a 500 is a fault that would be there again, and in the log twice
		return 0, false
	}
}

// isBusy reports whether a server has refused a request since it has too much to do.
func isBusy(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Problem.Code == j17.CodeBusy
}
