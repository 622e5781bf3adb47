package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"j17"
)

// controlHost is the label of the control plane's host.
const controlHost = "control"

// resolveHost determines what a request's host names: the control plane, or an environment of an instance. Only the
// host of the request itself counts, never headers such as X-Forwarded-Host.
func (a *API) resolveHost(c *call, host string) error {
	host, ok := hostname(host)
	if !ok {
		return j17.Errorf(j17.CodeNotFound, "The host in the request is malformed.")
	}

	// The host of the server itself.
	if host == a.BaseDomain || isAddress(host) {
		if a.DefaultInstance == "" && !aboutServer(c.request.URL.Path) {
			return j17.Errorf(j17.CodeNotFound, "This server has no default instance. Use the host of an instance, such as {instance}.%s, or %s.%[1]s.", a.BaseDomain, controlHost)
		}
		c.target(a.DefaultInstance, j17.Prod)
		return nil
	}

	// The control plane is a host below it.
	label, ok := strings.CutSuffix(host, "."+a.BaseDomain)
	if !ok || strings.Contains(label, ".") {
		return j17.Errorf(j17.CodeNotFound, "This server does not answer for the host in the request. Hosts are {instance}.%s, {instance}-staging.%[1]s, {instance}-test.%[1]s and %s.%[1]s.", a.BaseDomain, controlHost)
	}
	if label == controlHost {
		c.control = true
		return a.headnodeOnly()
	}

	// An environment is a suffix of the name, but prod.
	env := j17.Prod
	for _, e := range []j17.Environment{j17.Staging, j17.Test} {
		if name, ok := strings.CutSuffix(label, "-"+string(e)); ok {
			label, env = name, e
			break
		}
	}

	instance, ok := a.Registry.Instances.ByName(label)
	if !ok {
		return j17.Errorf(j17.CodeNotFound, "There is no instance of that name on this server")
	}
	c.target(instance.ID, env)
	return c.api.guard.onThisNode(c, instance)
}

// aboutServer reports whether a path is about the server and not about an instance.
func aboutServer(path string) bool { return path == "/" || path == "/livez" || path == "/readyz" }

// target sets the environment that the call is about.
func (c *call) target(instance string, env j17.Environment) {
	c.instance, c.env = instance, env
	c.tenant = j17.TenantOf(instance, env)
	c.slot.Open(c.api.resources.turns, string(c.tenant))
}

// hostOf is the name of the host of an environment.
func (a *API) hostOf(instance string, env j17.Environment) string {
	if env != j17.Prod {
		instance += "-" + string(env)
	}
	return instance + "." + a.BaseDomain
}

// origin is the URL that the client has sent the request to: the host with its port, with https where this server or
// the proxy in front of it has TLS.
func (c *call) origin() string {
	if c.encrypted() {
		return "https://" + c.request.Host
	}
	return "http://" + c.request.Host
}

// encrypted reports whether the client's request came over TLS: to this server, or to the proxy in front of it.
func (c *call) encrypted() bool {
	return c.api.Encrypted ||
		c.api.trusted(c.peer()) && strings.EqualFold(c.request.Header.Get("X-Forwarded-Proto"), "https")
}

// hostname returns the host in lower case, without port and trailing dot; false where its port is invalid.
func hostname(host string) (string, bool) {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		h, port, err := net.SplitHostPort(host)
		if err == nil {
			host = h
			if _, err := strconv.ParseUint(port, 10, 16); err != nil && port != "" {
				return "", false
			}
		}
	}
	return strings.ToLower(strings.TrimSuffix(host, ".")), true
}

func isAddress(host string) bool {
	if host == "" {
		return true // HTTP/1.0 without a Host header
	}
	if c := host[0]; c != '[' && c != ':' && (c < '0' || c > '9') && !strings.Contains(host, ":") {
		return false
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}

// ForwardedHeader names the header in which trusted proxies pass on the addresses of clients.
type ForwardedHeader string

// The headers in use. A proxy sets one of them and passes on whatever a client puts into the other, so only the one
// that the proxies are known to set may be read.
const (
	XForwardedFor ForwardedHeader = "X-Forwarded-For"
	Forwarded     ForwardedHeader = "Forwarded"
)

// maxForwarded is the number of addresses in the header that are examined, from the right.
const maxForwarded = 32

// clientAddress is the address that the request came from: the peer's, or, where the peer is a trusted proxy, the
// right-most one in the proxies' header that is not trusted itself. Addresses to the left of that were sent by the
// client and may be false.
func (c *call) clientAddress() netip.Addr {
	ap, err := netip.ParseAddrPort(c.request.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	client := ap.Addr().Unmap()
	if !c.api.trusted(client) {
		return client
	}
	hops := forwardedFor(c.request.Header, c.api.ForwardedHeader)
	for i := range min(len(hops), maxForwarded) {
		addr, ok := hopAddress(hops[len(hops)-1-i])
		if !ok {
			break // A proxy that hides its client is taken for the client.
		}
		if client = addr; !c.api.trusted(addr) {
			break
		}
	}
	return client
}

// peer is the address at the other end of the connection.
func (c *call) peer() netip.Addr {
	ap, _ := netip.ParseAddrPort(c.request.RemoteAddr) // the zero address where there is no connection, as in tests
	return ap.Addr().Unmap()
}

func (a *API) trusted(addr netip.Addr) bool {
	for _, p := range a.TrustedProxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// forwardedFor returns the hops that the header lists, the client's first. Several headers are one list, and empty
// elements of it mean nothing (RFC 9110, 5.6.1).
func forwardedFor(h http.Header, name ForwardedHeader) []string {
	if name == "" {
		name = XForwardedFor
	}
	var hops []string
	for element := range strings.SplitSeq(strings.Join(h.Values(string(name)), ","), ",") {
		element = strings.TrimSpace(element)
		switch {
		case element == "":
		case name == XForwardedFor:
			hops = append(hops, element)
		default:
			hop := ""
			for pair := range strings.SplitSeq(element, ";") {
				if name, v, ok := strings.Cut(pair, "="); ok && strings.EqualFold(strings.TrimSpace(name), "for") {
					hop = strings.Trim(strings.TrimSpace(v), `"`)
				}
			}
			hops = append(hops, hop)
		}
	}
	return hops
}

// hopAddress reads an address with or without port and brackets; false for names and obfuscated identifiers.
func hopAddress(hop string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(hop); err == nil {
		return ap.Addr().Unmap(), true
	}
	addr, err := netip.ParseAddr(strings.Trim(hop, "[]"))
	return addr.Unmap(), err == nil
}
