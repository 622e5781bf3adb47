package outbound

import (
	"errors"
	"net/netip"
	"syscall"
)

// ErrAddress means that the guard refused an address. It does not name the address, which would disclose networks to
// users who may only choose the URL.
var ErrAddress = errors.New("address not allowed: it is none of the public internet (loopback, private, link-local, shared and reserved addresses are refused)")

// guard is called by the dialer after a name was resolved, with the address about to be connected to.
func guard(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil || !public(a.Addr()) {
		return ErrAddress
	}
	return nil
}

// public reports whether an address is on the public internet: neither of this machine, nor of the networks around it,
// nor translated to such an address on the way.
func public(a netip.Addr) bool {
	if a = a.Unmap(); !a.IsValid() || a.Zone() != "" {
		return false
	}
	for _, p := range reserved() {
		if p.Contains(a) {
			return false
		}
	}
	if nat64 := netip.MustParsePrefix("64:ff9b::/96"); nat64.Contains(a) {
		b := a.As16()
		return public(netip.AddrFrom4([4]byte(b[12:])))
	}
	return a.Is4() || netip.MustParsePrefix("2000::/3").Contains(a)
}

// reserved lists prefixes outside the public internet, by the IANA registries of special-purpose addresses. Of IPv6,
// public admits little else than 2000::/3; the list has the exceptions within that.
func reserved() []netip.Prefix {
	var all []netip.Prefix
	for _, p := range []string{
		"0.0.0.0/8",        // this network
		"10.0.0.0/8",       // private
		"100.64.0.0/10",    // shared by providers; the metadata of Alibaba Cloud
		"127.0.0.0/8",      // loopback
		"168.63.129.16/32", // Azure's host, though the address is a public one
		"169.254.0.0/16",   // link-local; the metadata of most clouds
		"172.16.0.0/12",    // private
		"192.0.0.0/24",     // protocol assignments; the metadata of Oracle Cloud
		"192.0.2.0/24",     // documentation
		"192.88.99.0/24",   // relays of 6to4
		"192.168.0.0/16",   // private
		"198.18.0.0/15",    // benchmarks
		"198.51.100.0/24",  // documentation
		"203.0.113.0/24",   // documentation
		"224.0.0.0/4",      // multicast
		"240.0.0.0/4",      // reserved, broadcast
		"2001::/23",        // protocol assignments; Teredo, which holds an IPv4 address
		"2001:db8::/32",    // documentation
		"2002::/16",        // 6to4, which holds an IPv4 address
		"3fff::/20",        // documentation
	} {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}
