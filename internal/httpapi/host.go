package httpapi

import (
	"net"
	"net/netip"
	"strings"

	"j17"
	"j17/internal/store"
)

// controlHost is the label of the control plane's host.
const controlHost = "control"

// resolveHost finds out what a request's host names: the control plane, or an environment of an instance.
func (a *API) resolveHost(c *call, host string) error {
	host = hostname(host)
	if host == a.BaseDomain || isAddress(host) {
		c.target(a.DefaultInstance, j17.Prod)
		return nil
	}
	label, ok := strings.CutSuffix(host, "."+a.BaseDomain)
	if !ok || strings.Contains(label, ".") {
		return j17.Errorf(j17.CodeNotFound, "This server does not answer for the host in the request. Hosts are {instance}.%s, {instance}-staging.%[1]s, {instance}-test.%[1]s and %s.%[1]s.", a.BaseDomain, controlHost)
	}
	if label == controlHost {
		c.control = true
		return nil
	}
	env := j17.Prod
	for _, e := range []j17.Environment{j17.Staging, j17.Test} {
		if name, ok := strings.CutSuffix(label, "-"+string(e)); ok {
			label, env = name, e
			break
		}
	}
	instance, ok := a.Registry.InstanceByName(label)
	if !ok {
		return j17.Errorf(j17.CodeNotFound, "There is no instance of that name on this server")
	}
	c.target(instance.ID, env)
	return nil
}

// target sets the environment that the call is about.
func (c *call) target(instance string, env j17.Environment) {
	c.instance, c.env = instance, env
	c.tenant = store.TenantOf(instance, env)
}

// hostname is the host without port, trailing dot and capitals.
func hostname(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
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
