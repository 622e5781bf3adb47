package httpapi

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// taken returns how many bytes the other side of a connection has taken so far. known is false where that cannot be
// found out, and before it has taken anything.
func taken(conn net.Conn) (bytes uint64, known bool) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return 0, false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if known = err == nil && info.Bytes_acked > 0; known { // some systems leave it 0
			bytes = info.Bytes_acked
		}
	})
	return bytes, known && err == nil
}
