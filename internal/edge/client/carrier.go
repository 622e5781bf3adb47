package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// carrier returns what sends requests. Certificates have to be for a name, "" for that of the address.
func (o *Options) carrier(name string) *http.Client {
	var t http.RoundTripper = NewTransport(o.RootCAs, name)
	if o.Around != nil {
		t = o.Around(t)
	}
	return &http.Client{
		Transport: t, Timeout: cmp.Or(o.Timeout, requestTime),
		// A redirect would send the key to wherever it leads.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// NewTransport returns what carries requests over the network. Names below localhost are names of this machine: they
// are not looked up, since few systems know them, and no proxy is asked for them. Certificates have to be for name, or
// where it is "" for the name in the URL, and from roots, or where these are nil from an authority that the machine
// trusts.
func NewTransport(roots *x509.CertPool, name string) *http.Transport {
	return &http.Transport{
		Proxy: func(r *http.Request) (*url.URL, error) {
			if loopback(r.URL.Hostname()) {
				return nil, nil //nolint:nilnil // which is how net/http has it
			}
			return http.ProxyFromEnvironment(r)
		},
		DialContext: dial, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second,
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12},
	}
}

// dial makes a connection.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	host, port, err := net.SplitHostPort(address)
	if err != nil || net.ParseIP(host) != nil || !loopback(host) {
		return d.DialContext(ctx, network, address)
	}
	conn, err := d.DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
	if err != nil && ctx.Err() == nil {
		if other, err := d.DialContext(ctx, network, net.JoinHostPort("::1", port)); err == nil {
			return other, nil
		}
	}
	return conn, err
}

// loopback reports whether a host name is this machine.
func loopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// unreachable is the error of a request to an address that was not answered.
func (c *Client) unreachable(ctx context.Context, to *url.URL, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	at := c.URL()
	if to.Host != c.first.base.Host { // another node has the instance
		at = (&url.URL{Scheme: to.Scheme, Host: to.Host}).String()
	}
	return &Unreachable{URL: at, Err: err}
}
