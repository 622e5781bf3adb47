package outbound

import "testing"

func TestAddressesAreTakenOut(t *testing.T) {
	for text, want := range map[string]string{
		"read tcp 10.0.0.5:54321->93.184.216.34:443: connection reset by peer": "read tcp (address) -> (address): connection reset by peer",
		"lookup x on [fe80::1%eth0]:53: refused":                               "lookup x on (address): refused",
		"dial 2001:db8::1 (192.168.1.1): no":                                   "dial (address) ((address)): no",
		"it was at 12:30 by 1.2.3":                                             "it was at 12:30 by 1.2.3",
	} {
		if got := withoutAddresses(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
