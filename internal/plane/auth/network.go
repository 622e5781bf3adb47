package auth

import "net/netip"

// Network returns the network that identifies a client: the address itself, but for IPv6 the first address of its /64
// network, since one client has all addresses of that.
func Network(addr netip.Addr) netip.Addr {
	addr = addr.Unmap()
	if addr.Is6() {
		if network, err := addr.WithZone("").Prefix(64); err == nil {
			return network.Addr()
		}
	}
	return addr
}
